// Label card and label search box.

import { clusterName, countText, el, formatCount, formatInteger, formatPercent, termName } from "./dom.js";
import { createLabelItem } from "./tree.js";

const MAX_OTHERS = 8;
const MAX_EXAMPLE = 300; // characters
const SEARCH_DELAY = 100; // milliseconds after the last key press

export function showLabelCard(container, title, card, { note, clusterAddress, labelAddress, evaluation }) {
  const { name, label: id, count } = card.label;
  title.textContent = name;
  const fraction = count !== null && card.n_texts ? ` of ${formatInteger(card.n_texts)} (${formatPercent(count / card.n_texts)})` : "";
  const createTrail = (ancestors) => el("nav", { "aria-label": "Position in the label tree", class: "trail" }, el("ol", {},
    ancestors.map((cluster) => el("li", {}, el("a", { href: clusterAddress(cluster) }, clusterName(cluster, 2)))),
    el("li", {}, el("span", { "aria-current": "page" }, name))));
  const hasSeveral = card.positions.length > 1;
  container.replaceChildren(
    el("dl", { class: "facts" },
      id !== name && [el("dt", {}, "ID"), el("dd", {}, /^https?:/.test(id) ? el("a", { href: id, rel: "noreferrer", target: "_blank" }, id) : id)],
      el("dt", {}, "Training texts"), el("dd", {}, count === null ? "unknown" : `${formatInteger(count)}${fraction}`),
      card.positions.length === 1 && [el("dt", {}, "Position in the label tree"), el("dd", {}, createTrail(card.positions[0].ancestors))],
      hasSeveral && [el("dt", {}, "Position in the label tree"), el("dd", {}, `${card.positions.length} clusters, each with separate weights`)]),
    card.description && card.description !== name ? el("p", {}, card.description) : "",
    note ? el("p", { class: "note" }, note) : "",
    ...card.positions.map((position) => el("section", { class: "position" },
      hasSeveral && createTrail(position.ancestors),
      el("div", { class: "thirds" },
        createTerms("Positive terms", "positive", position.positive_terms),
        createTerms("Negative terms", "negative", position.negative_terms),
        !hasSeveral && createSimilarLabels(card, labelAddress)))),
    hasSeveral ? createSimilarLabels(card, labelAddress) : "",
    createEvaluation(evaluation?.labels.get(id), evaluation, labelAddress),
  );
}

/** Show the results for a label in the evaluated file, its texts, and the labels of these texts. */
function createEvaluation(label, evaluation, labelAddress) {
  if (!label || !(label.support || label.suggested)) return "";
  const share = (part, total) => (total ? `${formatPercent(part / total)} (${formatInteger(part)} of ${formatInteger(total)})` : "–");
  const others = [...label.others].sort((a, b) => b[1] - a[1]).slice(0, MAX_OTHERS);
  return el("section", { class: "position" }, el("h2", {}, "In the evaluated file"),
    el("dl", { class: "facts" },
      el("dt", {}, "Recall"), el("dd", {}, share(label.correct, label.support)),
      el("dt", {}, "Precision"), el("dd", {}, share(label.correct, label.suggested))),
    el("div", { class: "thirds" },
      el("section", {}, el("h3", {}, "Labels of the same texts"), others.length
        ? el("ul", { class: "similar" }, others.map(([other, count]) => el("li", { vars: { length: `${(100 * count) / label.support}%` } },
          el("a", { href: labelAddress({ label: other }) }, evaluation.labels.get(other).name), el("span", { class: "number" }, formatInteger(count)))))
        : el("p", { class: "note" }, "None.")),
      el("section", {}, el("h3", {}, "Example texts"), label.examples.length
        ? el("ul", { class: "texts" }, label.examples.map((text) => el("li", { dir: "auto" }, text.length > MAX_EXAMPLE ? `${text.slice(0, MAX_EXAMPLE)}…` : text)))
        : el("p", { class: "note" }, "None."))));
}

/** Show the most frequent labels as the start page of the label view. */
export function showFrequentLabels(container, title, labels, total, labelAddress) {
  title.textContent = "Labels";
  const selection = labels.length === total ? "All of them" : labels[0]?.count === null ? "The first ones" : "The most frequent ones";
  container.replaceChildren(
    el("p", { class: "note" }, `This model has ${formatCount(total, "label")}. ${selection} are listed below.`),
    el("ul", { class: "leaves" }, labels.map((label) => createLabelItem(label, labelAddress))),
  );
}

const createSimilarLabels = (card, labelAddress) => el("section", {}, el("h2", {}, "Similar labels"),
  card.similar_labels.length
    ? el("ul", { class: "similar" }, card.similar_labels.map(({ label, similarity }) => el("li", { vars: { length: `${100 * similarity}%` } },
      el("span", {}, el("a", { href: labelAddress(label) }, label.name), " ", el("span", { class: "note" }, countText(label))),
      el("span", { class: "number" }, similarity.toFixed(2)))))
    : el("p", { class: "note" }, "None."),
  el("p", { class: "note" }, "Cosine similarity of label weights, computed over this label's strongest terms."));

function createTerms(title, sign, terms) {
  const largest = Math.max(...terms.map(([, weight]) => Math.abs(weight)), 1e-12);
  const format = (weight) => weight.toFixed(2).replace("-", "−");
  return el("section", {}, el("h2", {}, title), terms.length
    ? el("ul", { class: `weights ${sign}` }, terms.map(([term, weight]) => el("li", { vars: { length: `${(100 * Math.abs(weight)) / largest}%` } }, el("span", {}, termName(term)), el("span", { class: "number" }, format(weight)))))
    : el("p", { class: "note" }, "None."));
}

/** Set up a combobox that lists labels that contain the entered words. */
export function setUpSearch(input, list, { search, onSelect, onError }) {
  let active = -1;
  let timer;
  const options = () => [...list.children].filter((option) => option.matches("[role=option]"));
  function close() {
    list.hidden = true;
    input.setAttribute("aria-expanded", "false");
    input.removeAttribute("aria-activedescendant");
    active = -1;
  }
  function activate(target) {
    options().forEach((option, position) => option.setAttribute("aria-selected", String(position === target)));
    active = target;
    const option = options()[target];
    if (option) {
      input.setAttribute("aria-activedescendant", option.id);
      option.scrollIntoView({ block: "nearest" });
    }
  }
  function select(label) {
    close();
    input.value = "";
    onSelect(label);
  }
  async function update() {
    if (!input.value.trim()) return close();
    const matches = await search(input.value).catch(onError);
    if (!matches) return undefined;
    list.replaceChildren(...matches.labels.map((label, position) => el("div", { role: "option", id: `match-${position}`, "aria-selected": "false", onmousedown: (event) => event.preventDefault(), onclick: () => select(label.label), dir: "auto" }, label.name)));
    if (!matches.labels.length) list.append(el("div", { role: "option", "aria-disabled": "true", class: "note" }, "No matching labels"));
    list.hidden = false;
    input.setAttribute("aria-expanded", "true");
    active = -1;
    return undefined;
  }
  input.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(update, SEARCH_DELAY);
  });
  input.addEventListener("blur", close);
  input.addEventListener("keydown", (event) => {
    const count = options().length;
    if (event.key === "Escape" && !list.hidden) {
      event.preventDefault();
      close();
    } else if (event.key === "ArrowDown" && count) {
      event.preventDefault();
      activate((active + 1) % count);
    } else if (event.key === "ArrowUp" && count) {
      event.preventDefault();
      activate((active + count - 1) % count);
    } else if (event.key === "Enter" && count) {
      event.preventDefault();
      options()[Math.max(active, 0)].click();
    }
  });
}
