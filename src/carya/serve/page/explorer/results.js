// Ranked labels for a text, from one or two models.

import { el, formatPercent, formatScore, shortId } from "./dom.js";

/** Convert a response to rows, each with a label and its score in each model. */
export function toRows(trace, comparison) {
  if (comparison) {
    return comparison.map((row) => ({
      ...row.label,
      isKnown: row.is_known,
      scores: row.scores.map((scored, side) => scored && { score: scored.score, probability: scored.probability, rank: row.ranks[side] }),
    }));
  }
  return trace.labels.map((scored, position) => ({
    ...scored.label, isKnown: [true], scores: [{ score: scored.score, probability: scored.probability, rank: position + 1 }],
  }));
}

/** Create the description of the bars. */
export function legend(model, otherModel) {
  const models = [model, ...(otherModel ? [otherModel] : [])];
  const uncalibrated = models.filter((shown) => !shown.is_calibrated).map((shown) => shown.name);
  const parts = [];
  if (!uncalibrated.length) parts.push("Bars show probabilities estimated from held-out texts.");
  else {
    parts.push("Bars show scores relative to the best score.");
    if (uncalibrated.length < models.length) parts.push(`Probabilities are available only for ${models.find((shown) => shown.is_calibrated).name}.`);
    parts.push("Scores are not probabilities. Run", el("code", {}, "carya calibrate"), "to convert them to probabilities.");
  }
  return el("span", {}, ...parts.flatMap((part) => [part, " "]));
}

/** Show the rows in the list. */
export function showResults(container, rows, models, onSelect) {
  const showsProbabilities = models.every((model) => model.is_calibrated); // otherwise, the bars could not be compared
  const ranges = models.map((_, side) => {
    const scores = rows.map((row) => row.scores[side]?.score).filter((score) => score !== undefined);
    return [Math.min(0, ...scores), Math.max(...scores)];
  });
  container.replaceChildren(...rows.map((row) => createOption(row, models, ranges, showsProbabilities, onSelect)));
  container.classList.toggle("two", models.length > 1);
}

function createOption(row, models, ranges, showsProbabilities, onSelect) {
  return el(
    "div",
    {
      role: "option", tabindex: "-1", dir: "auto", "aria-selected": "false", "data-label": row.label, class: "result",
      onclick: (event) => { event.currentTarget.focus({ preventScroll: true }); onSelect(row.label, true); },
    },
    el("span", { class: "name" }, row.name, row.name !== row.label && el("span", { class: "id", title: row.label }, ` ${shortId(row.label)}`)),
    ...models.map((model, side) => createSide(row.scores[side], row.isKnown[side], model, ranges[side], showsProbabilities, models.length > 1)),
  );
}

function createSide(scored, isKnown, model, [minimum, maximum], showsProbabilities, showModel) {
  if (!scored) return el("span", { class: "side" }, el("span", { class: "model" }, el("b", {}, "–"), ` ${model.name}`), el("span", { class: "note" }, isKnown ? "not in the top results" : "not in this model"));
  const length = showsProbabilities ? scored.probability : (maximum > minimum ? (scored.score - minimum) / (maximum - minimum) : 1);
  const isRanked = scored.rank !== null;
  return el(
    "span",
    { class: `side${isRanked ? "" : " unranked"}` },
    showModel && el("span", { class: "model" }, el("b", {}, isRanked ? `${scored.rank}.` : "–"), ` ${model.name}`, !isRanked && el("span", { class: "hidden" }, ", not in the top results")),
    el("span", { class: "bar", vars: { length: `${100 * length}%` } }),
    el("span", { class: "numbers" },
      scored.probability !== null && el("strong", {}, formatPercent(scored.probability), el("span", { class: "hidden" }, " probability,")),
      el("span", { class: "score" }, el("span", { class: "hidden" }, " score "), formatScore(scored.score))),
  );
}

/** Return the selected option, or null if none is selected. */
export const selectedOption = (container) => container.querySelector("[aria-selected=true]");

/** Mark an option as selected, which makes it reachable with the Tab key. */
export function selectOption(container, label) {
  const options = [...container.querySelectorAll("[role=option]")];
  for (const option of options) {
    const isSelected = option.dataset.label === label;
    option.setAttribute("aria-selected", String(isSelected));
    option.tabIndex = isSelected ? 0 : -1;
  }
  if (options.length && !selectedOption(container)) options[0].tabIndex = 0;
}
