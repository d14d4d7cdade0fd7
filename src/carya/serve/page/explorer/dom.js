// Helpers for creating elements and formatting numbers. Text is inserted as text nodes, never as markup.

/** Create an element: `el("a", {class: "x", href: "#", onclick: f}, "text", child)`; `vars` sets CSS variables. */
export function el(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "vars") for (const [key, setting] of Object.entries(value)) element.style.setProperty(`--${key}`, setting);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== undefined && child !== null && child !== false));
  return element;
}

const INTEGER = new Intl.NumberFormat("en");

export const formatInteger = (number) => INTEGER.format(number);

/** Format a number with a noun: `1 label`, `2 labels`. */
export const formatCount = (number, noun) => `${formatInteger(number)} ${noun}${number === 1 ? "" : "s"}`;

/** Format a score in the same way as the command line; very small scores are shown in scientific notation. */
export function formatScore(score) {
  const size = Math.abs(score);
  return size >= 0.001 || size === 0 ? score.toFixed(4) : score.toExponential(1).replace("-", "−");
}

export const formatPercent = (fraction) => (fraction < 0.01 && fraction > 0 ? "<1%" : `${Math.round(100 * fraction)}%`);

/** Format a number with three significant digits, like Python's `.3g`. */
function formatShort(number) {
  const size = Math.abs(number);
  if (size !== 0 && (size < 1e-4 || size >= 1e6)) return number.toExponential(2).replace(/\.?0+e/, "e").replace("-", "−");
  return size >= 1e3 ? formatInteger(Number(number.toPrecision(3))) : String(Number(number.toPrecision(3)));
}

/** Format a contribution as a factor if it is on a log scale, and as a signed number otherwise. */
export function formatContribution(contribution, logScale) {
  if (logScale) return `×${formatShort(Math.exp(Math.min(contribution, 700)))}`;
  return `${contribution < 0 ? "−" : "+"}${Math.abs(contribution).toFixed(4)}`;
}

/** Return the most frequent labels in a cluster, which serve as its name. */
export function clusterName(cluster, limit = 3) {
  if (cluster.level === 0) return "All labels";
  const names = cluster.labels.slice(0, limit).map((label) => label.name);
  return names.join(", ") + (cluster.n_labels > names.length ? ", …" : "");
}

/** Return the name of a term without the prefix that models with several analyzers add; character n-grams are quoted. */
export function termName(term) {
  const [, analyzer, content] = /^(word|char|char_wb):([^]*)$/.exec(term) ?? [];
  if (analyzer === undefined) return term;
  return analyzer === "word" ? content : `“${content}”`;
}

export const clusterTerms = (cluster, limit = 6) => cluster.terms.slice(0, limit).map(termName).join(" · ");

/** Return the last part of a label id if it is a URI, and the id itself otherwise. */
export const shortId = (id) => (/^https?:/.test(id) ? id.replace(/[/#]+$/, "").replace(/^.*[/#]/, "") : id);

export const countText = (label) => (label.count === null ? "" : formatCount(label.count, "text"));

/** Move through the options in a list if a navigation key was pressed; return whether the key was handled. */
export function handleArrowKeys(event, options, select) {
  const position = options.indexOf(document.activeElement);
  const targets = { ArrowDown: position + 1, ArrowUp: position - 1, Home: 0, End: options.length - 1, PageDown: position + 5, PageUp: position - 5 };
  const target = targets[event.key];
  if (target === undefined || !options.length) return false;
  event.preventDefault();
  select(options[Math.max(0, Math.min(options.length - 1, target))]);
  return true;
}
