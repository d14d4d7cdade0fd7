// Explanation of a label's score: the text with each term colored by its contribution, for each level of the tree.

import { clusterName, el, formatContribution, formatCount, formatPercent, formatScore, termName } from "./dom.js";

const INITIAL_TERMS = 14;
const MAX_COLORED = 20000; // characters

/** Create the panel for an explanation. `knownSpans` contains the character ranges covered by known terms. */
export function createExplanation(explanation, text, knownSpans, modelName) {
  const panel = el("div", { class: "explanation" });
  if (modelName) panel.append(el("h3", {}, modelName));
  if (explanation.unavailable) {
    panel.append(el("p", { class: "note" }, explanation.unavailable));
    return panel;
  }
  const steps = [
    { title: "All levels", score: explanation.score, base: explanation.base, terms: explanation.terms },
    ...explanation.levels.map((level, position) => ({
      ...level,
      title: level.cluster ? `Level ${position + 1}` : "Label",
      name: level.cluster ? clusterName(level.cluster, 2) : explanation.name,
    })),
  ];
  const body = el("div", { class: "explanation-body" });
  const buttons = steps.map((step, position) => el(
    "button",
    { type: "button", "aria-pressed": String(position === 0), onclick: () => showStep(position) },
    el("span", { class: "title" }, step.title),
    el("span", { class: "score" }, formatScore(step.score)),
    step.name && el("span", { class: "name" }, step.name),
  ));
  const operator = explanation.log_scale ? "×" : "+";
  const chain = el("div", { class: "chain", role: "group", "aria-label": "Tree levels" },
    buttons.map((button, position) => el("span", { class: "step" }, position > 0 && el("span", { "aria-hidden": "true" }, position === 1 ? "=" : operator), button)));
  function showStep(selected) {
    buttons.forEach((button, position) => button.setAttribute("aria-pressed", String(position === selected)));
    body.replaceChildren(...createStep(steps[selected], explanation.log_scale, text, knownSpans).filter(Boolean));
  }
  if (explanation.note) panel.append(el("p", { class: "note" }, explanation.note));
  panel.append(
    el("p", { class: "summary" },
      "Score ", el("strong", {}, formatScore(explanation.score)),
      explanation.probability !== null && [", probability ", el("strong", {}, formatPercent(explanation.probability))]),
    steps.length > 2 ? chain : "", body,
  );
  showStep(0);
  return panel;
}

function createStep(step, logScale, text, knownSpans) {
  const marks = colorText(text, step.terms, knownSpans, logScale);
  const overlaps = (mark, [begin, end]) => Number(mark.dataset.begin) < end && Number(mark.dataset.end) > begin;
  const highlight = (spans) => marks.forEach((mark) => mark.classList.toggle("highlighted", spans.some((span) => overlaps(mark, span))));
  const largest = Math.max(...step.terms.map((term) => Math.abs(term.contribution)), 1e-12);
  const createRow = (term) => {
    const direction = term.contribution < 0 ? "negative" : "positive";
    return el(
      "tr",
      { onmouseenter: () => highlight(term.spans), onmouseleave: () => highlight([]) },
      el("th", { scope: "row", dir: "auto" }, termName(term.term)),
      el("td", { class: `contribution ${direction}`, vars: { length: `${50 * Math.abs(term.contribution) / largest}%` } }, el("span", { class: "hidden" }, direction)),
      el("td", { class: "number" }, formatContribution(term.contribution, logScale)),
    );
  };
  const rows = el("tbody", {}, step.terms.slice(0, INITIAL_TERMS).map(createRow));
  const rest = step.terms.slice(INITIAL_TERMS);
  const total = rest.reduce((sum, term) => sum + term.contribution, 0);
  const more = rest.length > 0 && el("button", {
    type: "button", class: "quiet",
    onclick: (event) => { rows.append(...rest.map(createRow)); event.target.remove(); },
  }, `Show ${formatCount(rest.length, "more term")} (${formatContribution(total, logScale)})`);
  const unit = logScale ? "Factor" : "Contribution";
  return [
    el("p", { class: "marked", dir: "auto", tabindex: "0", role: "group", "aria-label": "Text with colored terms" }, marks, text.length > MAX_COLORED && " …"),
    el("p", { class: "note key" },
      el("mark", { class: "positive", vars: { weight: "60%" } }, "positive"), " ",
      el("mark", { class: "negative", vars: { weight: "60%" } }, "negative"), " ",
      el("span", { class: "unknown" }, "unknown term")),
    el("table", { class: "terms" },
      el("caption", { class: "hidden" }, `${unit}s by term`),
      el("thead", { class: "hidden" }, el("tr", {}, ["Term", "Sign", unit].map((name) => el("th", { scope: "col" }, name)))),
      el("tbody", { class: "base" }, el("tr", {}, el("th", { scope: "row" }, "(empty text)"), el("td"), el("td", { class: "number" }, formatContribution(step.base, logScale)))),
      rows),
    more,
  ];
}

/** Split a text into colored segments. A term's contribution is divided equally among its spans and, within a span, among the non-space characters. */
function colorText(text, terms, knownSpans, logScale) {
  const characters = Array.from(text).slice(0, MAX_COLORED); // span offsets are in code points, as in Python
  const contributions = new Float64Array(characters.length);
  const boundaries = new Set([0, characters.length]);
  for (const { contribution, spans } of terms) {
    for (const [begin, end] of spans) {
      if (begin >= characters.length) continue;
      const visible = [];
      for (let i = begin; i < Math.min(end, characters.length); i += 1) if (characters[i].trim()) visible.push(i);
      for (const i of visible) contributions[i] += contribution / spans.length / visible.length;
    }
  }
  const isKnown = new Uint8Array(characters.length);
  for (const [begin, end] of knownSpans) isKnown.fill(1, begin, end);
  const category = (i) => (characters[i].trim() ? (/[\p{L}\p{N}\p{M}_\u00ad\u200c\u200d]/u.test(characters[i]) ? 2 : 1) : 0);
  // In scripts without spaces between words, each character is colored separately, together with its combining marks.
  const isUnspaced = (i) => /[\p{scx=Han}\p{scx=Hira}\p{scx=Kana}\p{scx=Thai}\p{scx=Laoo}\p{scx=Khmr}\p{scx=Mymr}]/u.test(characters[i]);
  const startsUnit = (i) => !/\p{M}/u.test(characters[i]) && (isUnspaced(i) || isUnspaced(i - 1));
  for (let i = 1; i < characters.length; i += 1) if (category(i) !== category(i - 1) || isKnown[i] !== isKnown[i - 1] || startsUnit(i)) boundaries.add(i);
  const cuts = [...boundaries].sort((a, b) => a - b);
  const pieces = cuts.slice(1).map((end, position) => {
    const begin = cuts[position];
    let contribution = 0;
    for (let i = begin; i < end; i += 1) contribution += contributions[i];
    return { begin, end, contribution, content: characters.slice(begin, end).join(""), isUnknown: category(begin) === 2 && !isKnown[begin] };
  });
  const largest = Math.max(...pieces.map((piece) => Math.abs(piece.contribution)), 1e-12);
  return pieces.map(({ begin, end, contribution, content, isUnknown }) => {
    const strength = Math.abs(contribution) / largest;
    const span = { "data-begin": begin, "data-end": end };
    if (isUnknown) return el("span", { class: "unknown", ...span }, content);
    if (strength < 0.02) return el("span", span, content);
    return el("mark", { class: contribution < 0 ? "negative" : "positive", title: formatContribution(contribution, logScale), vars: { weight: `${Math.round(12 + 68 * strength)}%` }, ...span }, content);
  });
}
