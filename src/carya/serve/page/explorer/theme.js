// Apply the saved theme before the page is painted.
(() => {
  try {
    const theme = localStorage.getItem("carya-theme");
    if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
  } catch { /* storage is disabled, so the default theme is used */ }
})();
