// Elements and numbers. Texts enter the page as text nodes, never as markup.

/** An element: `el("a", {class: "x", href: "#", onclick: f}, "text", child)`. */
export function el(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name === "vars") for (const [key, to] of Object.entries(value)) made.style.setProperty(`--${key}`, to);
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.flat().filter((child) => child !== undefined && child !== null && child !== false));
  return made;
}

const WHOLE = new Intl.NumberFormat("en");

export const whole = (number) => WHOLE.format(number);

/** A score as the terminal prints it; very small ones keep their first digits. */
export function scoreText(score) {
  const size = Math.abs(score);
  return size >= 0.001 || size === 0 ? score.toFixed(4) : score.toExponential(1).replace("-", "−");
}

export const percent = (share) => (share < 0.01 && share > 0 ? "<1 %" : `${Math.round(100 * share)} %`);

/** Three digits, as Python's `.3g`. */
function short(number) {
  const size = Math.abs(number);
  if (size !== 0 && (size < 1e-4 || size >= 1e6)) return number.toExponential(2).replace(/\.?0+e/, "e").replace("-", "−");
  return size >= 1e3 ? whole(Number(number.toPrecision(3))) : String(Number(number.toPrecision(3)));
}

/** What a share does to the score: a factor where shares are of the logarithm, else a summand. */
export function shareText(share, inLogs) {
  if (inLogs) return `×${short(Math.exp(Math.min(share, 700)))}`;
  return `${share < 0 ? "−" : "+"}${Math.abs(share).toFixed(4)}`;
}

/** The labels that name a cluster. */
export function clusterName(cluster, most = 3) {
  if (cluster.level === 0) return "All labels";
  const names = cluster.labels.slice(0, most).map((label) => label.name);
  return names.join(", ") + (cluster.n_labels > names.length ? ", …" : "");
}

export const wordsText = (cluster, most = 6) => cluster.words.slice(0, most).join(" · ");

/** Move among the options of a list by arrow keys; true if the key was one of them. */
export function arrowKeys(event, options, choose) {
  const at = options.indexOf(document.activeElement);
  const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: options.length - 1, PageDown: at + 5, PageUp: at - 5 }[event.key];
  if (to === undefined || !options.length) return false;
  event.preventDefault();
  choose(options[Math.max(0, Math.min(options.length - 1, to))]);
  return true;
}
