// Evaluation view: rank the texts in a file block by block, and compare the labels with those in the file.

import { el, formatCount, formatInteger, formatPercent } from "./dom.js";
import { combine, CUTOFFS, Evaluation, LABEL_CUTOFF, overlap } from "./evaluation_metrics.js";
import { downloadText, quote } from "./export.js";
import { parseTexts } from "./text_file.js";

const BLOCK_TEXTS = 64;
const BLOCK_CHARACTERS = 500_000;
const MAX_ROWS = 30; // of each table
const METRICS = [["precision", "P"], ["recall", "R"], ["ndcg", "nDCG"]];
const ORDERS = {
  missed: ["Most missed", (a, b) => missed(b) - missed(a)],
  wrong: ["Most wrong suggestions", (a, b) => wrong(b) - wrong(a)],
  frequent: ["Most frequent in the file", (a, b) => b.support - a.support],
};
const missed = (label) => label.support - label.correct;
const wrong = (label) => label.suggested - label.correct;

/** Yield the blocks of texts that are sent in one request. */
function* blocksOf(rows) {
  let block = [];
  let size = 0;
  for (const row of rows) {
    if (block.length === BLOCK_TEXTS || (block.length && size + row.text.length > BLOCK_CHARACTERS)) {
      yield block;
      [block, size] = [[], 0];
    }
    block.push(row);
    size += row.text.length;
  }
  if (block.length) yield block;
}

/**
 * Rank the texts in a file with one or two models; return an Evaluation per model, or undefined if it was canceled.
 * `rank(side, texts)` sends a block; `onProgress(count, total)` is called after each block.
 */
export async function evaluateFile(file, nModels, rank, onProgress) {
  const rows = parseTexts(file.name, await file.text());
  const evaluations = Array.from({ length: nModels }, () => new Evaluation());
  for (const block of blocksOf(rows)) {
    const texts = block.map(({ text, labels = [] }) => ({ text, labels }));
    const responses = await Promise.all(evaluations.map((_, side) => rank(side, texts)));
    if (responses.includes(undefined)) return undefined;
    responses.forEach((response, side) => evaluations[side].add(block, response));
    onProgress(evaluations[0].nTexts, rows.length);
  }
  return evaluations;
}

/** Show the results of one or two models. */
export function showEvaluation(container, models, evaluations, { labelAddress, textAddress, openText }) {
  const [first, second] = evaluations;
  const panel = (title, ...content) => el("section", { class: "panel" }, el("h2", {}, title), ...content);
  const downloads = el("div", { class: "actions" }, ...evaluations.map((evaluation, side) => el("button", {
    type: "button", onclick: () => downloadText(`labels-${models[side].name}.csv`, createCsv(evaluation)),
  }, evaluations.length > 1 ? `Download labels of ${models[side].name}` : "Download labels")));
  if (!first.nLabeled) {
    container.replaceChildren(panel("Labels", el("p", { class: "note" }, "The file contains no labels to compare the results with."), downloads));
    return;
  }
  const unlabeled = first.nTexts - first.nLabeled;
  const notes = [`${formatCount(first.nLabeled, "labeled text")}.`, unlabeled > 0 && `${formatCount(unlabeled, "text")} without labels ${unlabeled === 1 ? "is" : "are"} not part of the metrics.`];
  container.replaceChildren(
    panel("Metrics", el("p", { class: "note" }, notes.filter(Boolean).join(" ")), createMetrics(models, evaluations), downloads),
    ...evaluations.map((evaluation, side) => {
      const title = (text) => (second ? `${text}: ${models[side].name}` : text);
      const groups = evaluation.groups();
      const bins = evaluation.calibration();
      return el("div", { class: "evaluated" },
        groups.length > 0 && panel(title("Results by label frequency"),
          el("p", { class: "note" }, `Precision and recall of the best ${LABEL_CUTOFF} suggestions, by the number of training texts per label.`), createGroups(groups)),
        bins.length > 0 && panel(title("Calibration"),
          el("p", { class: "note" }, "The fraction of correct labels at each probability. The points of a well calibrated model are on the diagonal."), createCalibration(bins)),
        panel(title("Labels"), createLabels(evaluation, labelAddress)),
        panel(title("Confused labels"),
          el("p", { class: "note" }, "Labels that are missing, and labels that are wrongly suggested for the same text."), createConfusions(evaluation, labelAddress)),
        panel(title("Texts with the lowest nDCG"), createWorst(evaluation, textAddress, openText)));
    }),
  );
}

function createTable(name, headers, rows, nTextColumns = 1) {
  return el("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": name }, el("table", { class: "data" },
    el("thead", {}, el("tr", {}, headers.map((header, position) => el("th", { scope: "col", class: position < nTextColumns ? undefined : "number" }, header)))),
    el("tbody", {}, rows)));
}

function createMetrics(models, evaluations) {
  const cells = (values) => CUTOFFS.map((k) => el("td", { class: "number" }, (100 * values[k]).toFixed(2)));
  const rows = METRICS.flatMap(([metric, short]) => evaluations.map((evaluation, side) => el("tr", {},
    el("th", { scope: "row" }, `${short}@k`, evaluations.length > 1 && `, ${models[side].name}`), cells(evaluation.mean(metric)))));
  if (evaluations.length > 1) rows.push(el("tr", {}, el("th", { scope: "row" }, "Overlap@k of both models"), cells(overlap(...evaluations))));
  return createTable("Metrics in percent", ["Metric (%)", ...CUTOFFS.map((k) => `k = ${k}`)], rows);
}

const ratio = (numerator, denominator) => (denominator ? numerator / denominator : null);
const createRatio = (value) => el("td", { class: "number ratio", vars: { length: `${100 * (value ?? 0)}%` } }, value === null ? "–" : formatPercent(value));
const createCounts = (item) => [createRatio(ratio(item.correct, item.suggested)), createRatio(ratio(item.correct, item.support))];
const createNumber = (value) => el("td", { class: "number" }, formatInteger(value));

const createGroups = (groups) => createTable("Results by label frequency", ["Training texts", "Labels", "Correct labels in the file", "Precision", "Recall"],
  groups.map((group) => el("tr", {}, el("th", { scope: "row" }, group.name), createNumber(group.n_labels), createNumber(group.support), createCounts(group))));

function createLabels(evaluation, labelAddress) {
  const labels = evaluation.evaluatedLabels();
  const total = combine(labels);
  const body = el("div");
  const show = (order) => body.replaceChildren(createTable("Labels", ["Label", "In the file", "Suggested", "Precision", "Recall"],
    labels.toSorted(ORDERS[order][1]).slice(0, MAX_ROWS).map((label) => el("tr", {},
      el("th", { scope: "row", dir: "auto" }, el("a", { href: labelAddress({ label: label.id }) }, label.name)), createNumber(label.support), createNumber(label.suggested), createCounts(label)))));
  const select = el("select", { onchange: (event) => show(event.target.value) }, Object.entries(ORDERS).map(([value, [name]]) => el("option", { value }, name)));
  show("missed");
  return [
    el("p", { class: "note" }, `${formatCount(labels.length, "label")} in the file or among the best ${LABEL_CUTOFF} suggestions; ${formatInteger(total.correct)} of ${formatInteger(total.suggested)} suggestions are correct. The first ${MAX_ROWS} labels are listed.`),
    el("div", { class: "actions" }, el("label", {}, "Order ", select)), body,
  ];
}

const createConfusions = (evaluation, labelAddress) => {
  const link = (label) => el("a", { dir: "auto", href: labelAddress({ label: label.id }) }, label.name);
  const pairs = evaluation.confusions(MAX_ROWS);
  return pairs.length
    ? createTable("Confused labels", ["Missing label", "Suggested label", "Texts"], pairs.map((pair) => el("tr", {}, el("th", { scope: "row" }, link(pair.expected)), el("td", {}, link(pair.suggested)), createNumber(pair.count))), 2)
    : el("p", { class: "note" }, "None.");
};

const createWorst = (evaluation, textAddress, openText) => {
  const texts = evaluation.worstTexts();
  if (!texts.length) return el("p", { class: "note" }, "All texts have the best possible nDCG.");
  return el("ol", { class: "worst" }, texts.map(({ row, ndcg, suggested, expected, hits }) => el("li", {},
    // The address cannot contain long texts, so the text is also passed to the view directly.
    el("a", { dir: "auto", href: textAddress(row.text), onclick: (event) => { event.preventDefault(); openText(row.text); } }, shorten(row.text, 160)),
    el("dl", { class: "facts" },
      el("dt", {}, "Correct"), el("dd", { dir: "auto" }, shorten(expected.join(", "), 200)),
      el("dt", {}, "Suggested"), el("dd", { dir: "auto" }, suggested.length ? suggested.flatMap((label, rank) => [rank > 0 && ", ", hits[rank] ? el("strong", {}, label.name) : label.name]) : "nothing"),
      el("dt", {}, `nDCG@${LABEL_CUTOFF}`), el("dd", {}, formatPercent(ndcg))))));
};

const shorten = (text, length) => (text.length > length ? `${text.slice(0, length).trimEnd()}…` : text);

/** Create a plot of the fraction of correct labels against the probability; the area of a point shows its number of labels. */
function createCalibration(bins) {
  const svg = (tag, attributes, ...children) => {
    const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.append(...children);
    return element;
  };
  const [size, left, bottom] = [240, 44, 40];
  const x = (value) => left + size * value;
  const y = (value) => 10 + size * (1 - value);
  const largest = Math.max(...bins.map((bin) => bin.count));
  const total = bins.reduce((sum, bin) => sum + bin.count, 0);
  const error = bins.reduce((sum, bin) => sum + bin.count * Math.abs(bin.correct - bin.probability), 0) / total;
  const ticks = [0, 0.5, 1].flatMap((value) => [
    svg("text", { x: x(value), y: y(0) + 18, "text-anchor": "middle" }, `${100 * value}%`),
    svg("text", { x: x(0) - 6, y: y(value) + 4, "text-anchor": "end" }, `${100 * value}%`)]);
  const plot = svg("svg", { class: "plot", viewBox: `0 0 ${left + size + 30} ${10 + size + bottom}`, role: "img", "aria-label": `Calibration plot; the mean error is ${(100 * error).toFixed(1)} percentage points.` },
    svg("rect", { x: x(0), y: y(1), width: size, height: size }),
    svg("line", { x1: x(0), y1: y(0), x2: x(1), y2: y(1) }),
    ...bins.map((bin) => svg("circle", { cx: x(bin.probability), cy: y(bin.correct), r: 3 + 7 * Math.sqrt(bin.count / largest) },
      svg("title", {}, `${formatInteger(bin.count)} labels with a mean probability of ${formatPercent(bin.probability)}; ${formatPercent(bin.correct)} are correct`))),
    ...ticks, svg("text", { x: x(0.5), y: y(0) + 36, "text-anchor": "middle" }, "probability"));
  return el("div", {}, plot, el("p", { class: "note" }, `${formatInteger(total)} labels; mean difference between probability and fraction of correct labels: ${(100 * error).toFixed(1)} percentage points.`));
}

function createCsv(evaluation) {
  const lines = evaluation.rankings.flatMap(({ id, suggestions }) => suggestions.map((item, rank) => [id, rank + 1, item.label, item.name, item.score, item.probability ?? ""].map(quote).join(",")));
  return `id,rank,label,name,score,probability\n${lines.map((line) => `${line}\n`).join("")}`;
}
