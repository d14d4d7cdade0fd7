// Why a label: the words of the text, coloured by what they do to the score, level by level of the tree.

import { clusterName, el, percent, scoreText, shareText } from "./dom.js";

const TERMS = 14; // shown at first
const LONGEST = 20000; // characters of a text that are coloured

/** The panel of one explanation. `known` are the stretches of the text that the model knows words of. */
export function showWhy(why, text, known, modelName) {
  const panel = el("div", { class: "why" });
  if (modelName) panel.append(el("h3", {}, modelName));
  if (why.refused) {
    panel.append(el("p", { class: "note" }, why.refused));
    return panel;
  }
  const steps = [
    { title: "All levels", score: why.score, base: why.base, terms: why.terms },
    ...why.levels.map((level, at) => ({
      ...level,
      title: level.cluster ? `Level ${at + 1}` : "Label",
      name: level.cluster ? clusterName(level.cluster, 2) : why.name,
    })),
  ];
  const body = el("div", { class: "why-body" });
  const buttons = steps.map((step, at) => el(
    "button",
    { type: "button", "aria-pressed": String(at === 0), onclick: () => turn(at) },
    el("span", { class: "title" }, step.title),
    el("span", { class: "score" }, scoreText(step.score)),
    step.name && el("span", { class: "name" }, step.name),
  ));
  const sign = why.in_logs ? "×" : "+";
  const chain = el("div", { class: "chain", role: "group", "aria-label": "Levels of the tree" }, buttons.map((button, at) => el("span", { class: "link" }, at > 0 && el("span", { "aria-hidden": "true" }, at === 1 ? "=" : sign), button)));
  function turn(to) {
    buttons.forEach((button, at) => button.setAttribute("aria-pressed", String(at === to)));
    body.replaceChildren(...inside(steps[to], why.in_logs, text, known).filter(Boolean));
  }
  if (why.part) panel.append(el("p", { class: "note" }, why.part));
  panel.append(
    el("p", { class: "sum" },
      "Score ", el("strong", {}, scoreText(why.score)),
      why.chance !== null && ["; suggestions of such a score are right in ", el("strong", {}, percent(why.chance)), " of cases"]),
    steps.length > 2 ? chain : "", body,
  );
  turn(0);
  return panel;
}

function inside(step, inLogs, text, known) {
  const marks = coloured(text, step.terms, known, inLogs);
  const touch = (places) => marks.forEach((mark) => mark.classList.toggle("touched", places.some(([begin, end]) => Number(mark.dataset.begin) < end && Number(mark.dataset.end) > begin)));
  const largest = Math.max(...step.terms.map((term) => Math.abs(term.share)), 1e-12);
  const row = (term) => el(
    "tr",
    { onmouseenter: () => touch(term.places), onmouseleave: () => touch([]) },
    el("th", { scope: "row" }, term.term),
    el("td", { class: `swing ${term.share < 0 ? "against" : "for"}`, vars: { length: `${50 * Math.abs(term.share) / largest}%` } }, el("span", { class: "hidden" }, term.share < 0 ? "against" : "for")),
    el("td", { class: "number" }, shareText(term.share, inLogs)),
  );
  const rows = el("tbody", {}, step.terms.slice(0, TERMS).map(row));
  const rest = step.terms.slice(TERMS);
  const more = rest.length > 0 && el("button", {
    type: "button", class: "quiet",
    onclick: (event) => { rows.append(...rest.map(row)); event.target.remove(); },
  }, `${rest.length} more, together ${shareText(rest.reduce((sum, term) => sum + term.share, 0), inLogs)}`);
  return [
    el("p", { class: "marked" }, marks, text.length > LONGEST && " …"),
    el("p", { class: "note key" }, el("mark", { class: "for", vars: { weight: "60%" } }, "for"), " ", el("mark", { class: "against", vars: { weight: "60%" } }, "against"), " ", el("span", { class: "unknown" }, "unknown word")),
    el("table", { class: "terms" },
      el("caption", { class: "hidden" }, `What each word ${inLogs ? "multiplies the score by" : "adds to the score"}`),
      el("thead", { class: "hidden" }, el("tr", {}, ["Word", "For or against", "Share"].map((name) => el("th", { scope: "col" }, name)))),
      el("tbody", { class: "base" }, el("tr", {}, el("th", { scope: "row" }, "without any word"), el("td"), el("td", { class: "number" }, shareText(step.base, inLogs)))),
      rows),
    more,
  ];
}

/** The text as marks: each term's share is spread over its places, there over its characters that are no spaces. */
function coloured(text, terms, known, inLogs) {
  const letters = Array.from(text).slice(0, LONGEST); // places count code points, as Python does
  const worth = new Float64Array(letters.length);
  const edges = new Set([0, letters.length]);
  for (const { share, places } of terms) {
    for (const [begin, end] of places) {
      if (begin >= letters.length) continue;
      const inside = [];
      for (let at = begin; at < Math.min(end, letters.length); at += 1) if (letters[at].trim()) inside.push(at);
      for (const at of inside) worth[at] += share / places.length / inside.length;
    }
  }
  const familiar = new Uint8Array(letters.length);
  for (const [begin, end] of known) familiar.fill(1, begin, end);
  const kind = (at) => (letters[at].trim() ? (/[\p{L}\p{N}\p{M}_]/u.test(letters[at]) ? 2 : 1) : 0);
  for (let at = 1; at < letters.length; at += 1) if (kind(at) !== kind(at - 1) || familiar[at] !== familiar[at - 1]) edges.add(at);
  const cuts = [...edges].sort((a, b) => a - b);
  const pieces = cuts.slice(1).map((end, at) => {
    const begin = cuts[at];
    let sum = 0;
    for (let one = begin; one < end; one += 1) sum += worth[one];
    return { begin, end, sum, said: letters.slice(begin, end).join(""), unknown: kind(begin) === 2 && !familiar[begin] };
  });
  const largest = Math.max(...pieces.map((piece) => Math.abs(piece.sum)), 1e-12);
  return pieces.map(({ begin, end, sum, said, unknown }) => {
    const strength = Math.abs(sum) / largest;
    const at = { "data-begin": begin, "data-end": end };
    if (unknown) return el("span", { class: "unknown", ...at }, said);
    if (strength < 0.02) return el("span", at, said);
    return el("mark", { class: sum < 0 ? "against" : "for", title: shareText(sum, inLogs), vars: { weight: `${Math.round(12 + 68 * strength)}%` }, ...at }, said);
  });
}
