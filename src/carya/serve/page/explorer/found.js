// The ranked labels of a text, of one model or of two.

import { el, percent, scoreText, whole } from "./dom.js";

/** What is found, as rows: a label and what each model says of it. */
export function rowsOf(walk, compared) {
  if (compared) {
    return compared.map((one) => ({
      ...one.label,
      known: one.known,
      sides: one.found.map((found, at) => found && { score: found.score, chance: found.chance, rank: one.ranks[at] }),
    }));
  }
  return walk.found.map((one, at) => ({ ...one.label, known: [true], sides: [{ score: one.score, chance: one.chance, rank: at + 1 }] }));
}

/** What the bars mean. */
export function legend(mine, theirs) {
  const all = [mine, ...(theirs ? [theirs] : [])];
  const bare = all.filter((one) => !one.calibrated).map((one) => one.name);
  const parts = [];
  if (bare.length < all.length) parts.push("Bars are chances: how often suggestions of such a score were right for texts that the model was not trained on.");
  if (bare.length) {
    parts.push(theirs ? `Bars of ${bare.join(" and ")} are scores, against the best one;` : "Bars are scores, against the best one;");
    parts.push("a score is no probability. ", el("code", {}, "carya calibrate"), " learns what scores are worth.");
  }
  return el("span", {}, ...parts.flatMap((part) => [part, " "]));
}

/** Fill the list. */
export function showFound(place, rows, models, pick) {
  const ranges = models.map((_, at) => {
    const scores = rows.map((row) => row.sides[at]?.score).filter((score) => score !== undefined);
    return [Math.min(0, ...scores), Math.max(...scores)];
  });
  place.replaceChildren(...rows.map((row) => option(row, models, ranges, pick)));
  place.classList.toggle("two", models.length > 1);
}

function option(row, models, ranges, pick) {
  return el(
    "div",
    {
      role: "option", tabindex: "-1", "aria-selected": "false", "data-label": row.label, class: "one",
      onclick: (event) => { event.currentTarget.focus({ preventScroll: true }); pick(row.label, true); },
    },
    el("span", { class: "name" }, row.name, row.name !== row.label && el("span", { class: "id" }, ` ${row.label}`)),
    ...models.map((model, at) => side(row.sides[at], row.known[at], model, ranges[at], models.length > 1)),
  );
}

function side(found, known, model, [least, most], named) {
  if (!found) return el("span", { class: "side" }, el("span", { class: "model" }, el("b", {}, "–"), ` ${model.name}`), el("span", { class: "note" }, known ? "not among its best" : "does not know it"));
  const length = found.chance ?? (most > least ? (found.score - least) / (most - least) : 1);
  return el(
    "span",
    { class: `side${found.rank === null ? " unranked" : ""}` },
    named && el("span", { class: "model" }, el("b", {}, found.rank === null ? "–" : `${found.rank}.`), ` ${model.name}`, found.rank === null && el("span", { class: "hidden" }, ", not among the best")),
    el("span", { class: "bar", vars: { length: `${100 * length}%` } }),
    el("span", { class: "numbers" },
      found.chance !== null && el("strong", {}, percent(found.chance), el("span", { class: "hidden" }, " chance,")),
      el("span", { class: "score" }, el("span", { class: "hidden" }, " score "), scoreText(found.score))),
  );
}

/** The chosen option, if there is one. */
export const chosen = (place) => place.querySelector("[aria-selected=true]");

/** Mark an option as chosen; it is the one that the Tab key reaches. */
export function choose(place, label) {
  const options = [...place.querySelectorAll("[role=option]")];
  for (const option of options) {
    const mine = option.dataset.label === label;
    option.setAttribute("aria-selected", String(mine));
    option.tabIndex = mine ? 0 : -1;
  }
  if (options.length && !chosen(place)) options[0].tabIndex = 0;
}

export const countText = (label) => (label.count === null ? "" : `${whole(label.count)} ${label.count === 1 ? "text" : "texts"}`);
