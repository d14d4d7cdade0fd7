// Before the page is painted: the theme that was chosen the last time.
(() => {
  try {
    const chosen = localStorage.getItem("carya-theme");
    if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
  } catch { /* no storage, no memory */ }
})();
