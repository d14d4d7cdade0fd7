// Page controller. The state is stored in the URL fragment, which is never sent to the server, and all views are
// rendered from this state.

import { ApiError, cancel, hasToken, request, saveToken } from "./api.js";
import { showBeam } from "./beam.js";
import { clusterName, el, formatCount, formatInteger, formatScore, handleArrowKeys } from "./dom.js";
import { createExplanation } from "./explanation.js";
import { evaluateFile, showEvaluation } from "./evaluation.js";
import { setUpSearch, showFrequentLabels, showLabelCard } from "./label_card.js";
import { noExplanationNote, noTreeNote, selectTree, treeNames, treeNote } from "./model_kinds.js";
import { legend, selectedOption, selectOption, showResults, toRows } from "./results.js";
import { FileError } from "./text_file.js";
import { showClusterPage } from "./tree.js";
import { loadChildren, showMap } from "./treemap.js";
import { copyText, createExport, downloadText, FILE_NAMES } from "./export.js";

const TYPING_DELAY = 140; // milliseconds from the last key press until the text is sent
const MAX_ADDRESS_TEXT = 4000; // characters; longer texts are stored only in the history state
const NARROW = matchMedia("(max-width: 62rem)");
const RETRY_DELAY = 5000; // milliseconds until a request is repeated if the server is not available
const BUSY = "Ranking labels…";
const DEFAULT_COUNT = 12;
const EVALUATED_LABELS = 10; // suggestions per text
const VIEWS = ["text", "tree", "map", "label", "evaluation"];
const TITLES = { text: "Text", tree: "Label tree", map: "Map of labels", label: "Labels", evaluation: "Evaluation" };
const $ = (id) => document.getElementById(id);

let models = [];
let acceptsFeedback = false;
let state = {};
let evaluations = {}; // the results of the last evaluation, by model name
let rendered = {}; // the content that the views currently show
let retryTimer;
let isRendered = false; // whether any view has been rendered

const findModel = (name) => models.find((model) => model.name === name) ?? models[0];
const currentModel = () => findModel(state.model);
const currentTree = () => selectTree(currentModel(), state.tree);
const currentTreeNumber = () => Math.max(0, currentModel().trees.indexOf(currentTree()));
const comparedModel = () => models.find((model) => model.name === state.compare && model !== currentModel());

// ── URL state ────────────────────────────────────────────────────────────────────────────────────────────────────

function readAddress() {
  const values = Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
  if (values.text === undefined) { // the text may be too long for the URL
    if (history.state?.text) values.text = history.state.text;
    else if (state.text?.length > MAX_ADDRESS_TEXT) values.text = state.text;
  }
  return values;
}

function address(values) {
  const parameters = new URLSearchParams();
  for (const name of ["view", "model", "tree", "compare", "level", "node", "color", "label", "count", "threshold", "text"]) {
    const value = values[name];
    if (value === undefined || value === "") continue;
    if (name === "view" && value === "text") continue;
    if (name === "model" && value === models[0]?.name) continue;
    if (name === "text" && value.length > MAX_ADDRESS_TEXT) continue;
    parameters.set(name, value);
  }
  return `#${parameters}`;
}

const clusterAddress = (cluster) => address({ ...state, view: "tree", level: String(cluster.level), node: String(cluster.node) });
const mapAddress = (cluster) => address({ ...state, view: "map", level: String(cluster.level), node: String(cluster.node) });
const labelAddress = (label) => address({ ...state, view: "label", label: label.label });

/** Change the state and add a history entry, or replace the current entry. */
function navigate(changes, { replace = false } = {}) {
  state = { ...state, ...changes };
  history[replace ? "replaceState" : "pushState"]({ text: state.text }, "", address(state));
  render();
}

function render() {
  const view = VIEWS.includes(state.view) ? state.view : "text";
  for (const name of VIEWS) $(`view-${name}`).hidden = name !== view;
  for (const link of document.querySelectorAll("nav a[data-view]")) {
    // The tabs lead to the start of their views, so that a card or a cluster can be left.
    link.setAttribute("href", address({ ...state, view: link.dataset.view, ...(link.dataset.view === "text" ? {} : { label: undefined, level: undefined, node: undefined }) }));
    if (link.dataset.view === view) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  const model = currentModel();
  for (const name of ["tree", "map"]) document.querySelector(`nav a[data-view=${name}]`).hidden = !model.trees.length && view !== name;
  $("model").value = model.name;
  $("tree-choice").hidden = model.trees.length < 2;
  $("tree-number").replaceChildren(...treeNames(model).map((name, number) => el("option", { value: number }, name)));
  $("tree-number").value = currentTreeNumber();
  $("compare").value = comparedModel()?.name ?? "";
  $("compare-choice").hidden = models.length < 2 || !["text", "evaluation"].includes(view);
  document.title = `${TITLES[view]} – Carya Explorer`;
  showErrors({ text: renderTextView, tree: renderTreeView, map: renderMapView, label: renderLabelView, evaluation: renderEvaluationView }[view]);
}

// ── Errors ───────────────────────────────────────────────────────────────────────────────────────────────────────

/** Run a function; show its errors, or prompt for a token if the server requires one. */
async function showErrors(run) {
  try {
    await run();
    clearTimeout(retryTimer);
    $("error").hidden = true;
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    rendered = {};
    for (const id of ["results", "explanation"]) $(id).removeAttribute("aria-busy");
    if ($("status").textContent === BUSY) $("status").textContent = "";
    $("token-form").hidden = error.status !== 401;
    $("token-error").textContent = error.status === 401 && hasToken() ? "The server did not accept this token." : "";
    $("error").hidden = error.status === 401;
    $("error-text").textContent = error.message;
    $("retry").textContent = isWrongAddress() ? "Show the start of this view" : "Try again";
    clearTimeout(retryTimer);
    if (error.status === 0 || error.status >= 500) retryTimer = setTimeout(retry, RETRY_DELAY);
  }
}

const isWrongAddress = () => (["tree", "map"].includes(state.view) && (state.level ?? state.node) !== undefined) || (state.view === "label" && state.label !== undefined);

/** Send the failed request again. */
function retry() {
  clearTimeout(retryTimer);
  if ($("error").hidden) return;
  if (models.length) render();
  else start();
}

$("retry").addEventListener("click", () => {
  // An address that does not exist would fail again, so it is replaced by the start of the view.
  if (isWrongAddress()) navigate({ level: undefined, node: undefined, label: undefined }, { replace: true });
  else retry();
});

$("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  saveToken($("token").value);
  $("token-form").hidden = true;
  start();
});

// ── The text view ────────────────────────────────────────────────────────────────────────────────────────────────

async function renderTextView() {
  const text = state.text ?? "";
  isRendered = true;
  if ($("text").value !== text) $("text").value = text;
  const model = currentModel();
  const other = comparedModel();
  const count = Math.min(50, Math.max(1, Number(state.count) || DEFAULT_COUNT));
  const key = JSON.stringify([text, model.name, currentTreeNumber(), other?.name, count]);
  $("count").value = count;
  $("count-value").textContent = count;
  $("threshold").value = Math.min(100, Math.max(0, Number(state.threshold) || 0));
  if (rendered.text !== key) {
    if (!text.trim()) {
      for (const channel of ["search", "compare", "other-search", "explanation", "other-explanation"]) cancel(channel);
      rendered.text = key;
      clearResults(`This model has ${formatCount(model.n_labels, "label")}${model.n_texts === null ? "" : ` and was trained on ${formatCount(model.n_texts, "text")}`}.`);
      await showExamples(model);
      return;
    }
    $("results").setAttribute("aria-busy", "true");
    if (!rendered.trace) $("status").textContent = BUSY;
    $("examples").replaceChildren();
    const begin = performance.now();
    const body = { text, top_k: count };
    const [trace, comparison, otherTrace] = await Promise.all([
      request("search", "v1/explore/text", { query: { model: model.name, tree: currentTreeNumber() }, body }),
      other && request("compare", "v1/explore/compare", { query: { model: model.name, other: other.name }, body }),
      other && request("other-search", "v1/explore/text", { query: { model: other.name }, body }),
    ]);
    if (trace === undefined || (other && (comparison === undefined || otherTrace === undefined))) return; // canceled by a newer request
    const milliseconds = Math.max(1, Math.round(performance.now() - begin));
    const rows = toRows(trace, comparison);
    rendered = { ...rendered, text: key, query: { text, model: model.name }, trace, otherTrace, rows, explanation: undefined, selectInBeam: undefined };
    $("results").removeAttribute("aria-busy");
    if (!rows.length) {
      clearResults("The text contains no terms from the model's vocabulary.");
      return;
    }
    $("status").textContent = `Showing ${formatCount(rows.length, "label")}. Best match: ${rows[0].name}. Response time: ${milliseconds} ms.`;
    showUnknownWarning(text, trace.known_word_spans, model);
    $("legend").replaceChildren(legend(model, other));
    for (const id of ["results-title", "results", "filters", "actions"]) $(id).hidden = false;
    showResults($("results"), rows, other ? [model, other] : [model], select);
    renderBeam(model, trace, other, otherTrace);
  }
  applyThreshold(model);
  const label = state.label ?? selectedOption($("results"))?.dataset.label ?? rendered.trace?.labels[0]?.label.label;
  if (label && rendered.trace?.labels.length) await renderExplanation(label, text, model, other);
}

/** Hide the labels below the threshold: a probability, or a percentage of the best score. */
function applyThreshold(model) {
  const threshold = Number($("threshold").value);
  $("threshold-name").textContent = model.is_calibrated ? "Minimum probability" : "Minimum score";
  const scores = (rendered.rows ?? []).map((row) => row.scores[0]?.score).filter((score) => score !== undefined);
  const best = Math.max(0, ...scores);
  const lowest = Math.min(0, ...scores);
  const minimum = model.is_calibrated ? threshold / 100 : lowest + ((best - lowest) * threshold) / 100;
  $("threshold-value").textContent = model.is_calibrated ? `${threshold} %` : threshold ? formatScore(minimum) : "0";
  if (!rendered.trace) return;
  const isShown = (row) => !threshold || row.scores.some((scored) => scored && (model.is_calibrated ? scored.probability ?? scored.score : scored.score) >= minimum);
  rendered.shown = rendered.rows.filter(isShown);
  const labels = new Set(rendered.shown.map((row) => row.label));
  for (const option of resultOptions()) option.hidden = !labels.has(option.dataset.label);
}

/** Warn if most words of the text are unknown, for example because it is in another language. */
function showUnknownWarning(text, spans, model) {
  const characters = Array.from(text);
  const isKnown = new Uint8Array(characters.length);
  for (const [begin, end] of spans) isKnown.fill(1, begin, end);
  let [total, unknown, begin] = [0, 0, -1];
  for (let i = 0; i <= characters.length; i += 1) {
    const isWord = i < characters.length && /[\p{L}\p{N}]/u.test(characters[i]);
    if (isWord && begin < 0) begin = i;
    if (!isWord && begin >= 0) {
      total += 1;
      if (!isKnown.subarray(begin, i).some(Boolean)) unknown += 1;
      begin = -1;
    }
  }
  $("unknown-warning").hidden = total < 3 || unknown <= total / 2;
  $("unknown-warning").textContent = `${unknown} of ${formatCount(total, "word")} are unknown to ${model.name}, so the labels may be unreliable. The text may be in another language or about another subject.`;
}

/** Show buttons that enter the names of frequent labels as an example text. */
async function showExamples(model) {
  const labels = await request("examples", "v1/explore/labels", { query: { model: model.name } });
  if (labels === undefined || (state.text ?? "").trim()) return;
  const names = labels.map((label) => label.name).slice(0, 9);
  const texts = [0, 3, 6].map((begin) => names.slice(begin, begin + 3).join(", ")).filter(Boolean);
  $("examples").replaceChildren(...(texts.length ? [el("span", { class: "note" }, "Examples:")] : []), ...texts.map((text) => el("button", { type: "button", class: "quiet", onclick: () => navigate({ text, label: undefined }) }, text)));
}

function renderBeam(model, trace, other, otherTrace) {
  $("other-beam").replaceChildren();
  if (otherTrace?.levels.length) {
    const diagram = el("div");
    $("other-beam").append(el("h3", {}, other.name), diagram);
    showBeam(diagram, otherTrace, {
      onLabel: (label) => select(label, true),
      onCluster: (cluster) => navigate({ view: "tree", model: other.name, tree: undefined, level: String(cluster.level), node: String(cluster.node) }),
    });
  }
  const tree = currentTree();
  $("beam-panel").hidden = !tree;
  if (!tree) return;
  const description = trace.levels.length
    ? `At each level of the tree (${tree.level_sizes.map(formatInteger).join(", then ")} clusters), the search keeps the best ${trace.beam_width} clusters. It then scores the labels in the clusters kept at the last level.`
    : "This tree has no clusters, so the search scores every label.";
  const overlap = tree.is_overlapping && "A label can belong to several clusters; its line starts at the best one.";
  $("beam-note").textContent = [treeNote(model, tree), description, overlap].filter(Boolean).join(" ");
  rendered.selectInBeam = showBeam($("beam"), trace, {
    onLabel: (label) => select(label, true),
    onCluster: (cluster) => navigate({ view: "tree", level: String(cluster.level), node: String(cluster.node) }),
  });
}

function clearResults(message) {
  rendered.trace = rendered.query = undefined;
  $("status").textContent = message;
  for (const id of ["legend", "results", "beam"]) $(id).replaceChildren();
  for (const id of ["results-title", "results", "beam-panel", "filters", "actions", "unknown-warning"]) $(id).hidden = true;
  $("explanation-title").textContent = "Explanation";
  $("feedback").hidden = true;
  $("explanation").replaceChildren(el("p", { class: "note" }, "Select a label to see how much each term in the text contributes to its score."));
}

async function renderExplanation(label, text, model, other) {
  const key = JSON.stringify([rendered.text, label]);
  selectOption($("results"), label);
  rendered.selectInBeam?.(label);
  if (rendered.explanation === key) return;
  const load = async (channel, source, side, treeNumber) => {
    const tree = selectTree(source, treeNumber);
    const unavailable = isUnknown(label, side) ? "This model does not have this label." : noExplanationNote(source, tree);
    if (unavailable) return { unavailable };
    try {
      const query = { model: source.name, tree: source.trees.indexOf(tree) };
      const explanation = await request(channel, "v1/explore/explain", { query, body: { text, label } });
      // The probability in the list also depends on the rank, so it is shown instead of that of the score alone.
      const probability = explanation && (rendered.rows.find((row) => row.label === label)?.scores[side]?.probability ?? explanation.probability);
      return explanation && { ...explanation, probability: explanation.probability === null ? null : probability, note: treeNote(source, tree) };
    } catch (error) {
      if (error instanceof ApiError && [400, 404].includes(error.status)) return { unavailable: error.message };
      throw error;
    }
  };
  const sources = other ? [model, other] : [model];
  const explanations = await Promise.all([load("explanation", model, 0, state.tree), other && load("other-explanation", other, 1, 0)]);
  if (sources.some((_, side) => explanations[side] === undefined)) return; // canceled by a newer request
  rendered.explanation = key;
  const name = explanations.find((explanation) => explanation?.name)?.name ?? rendered.rows.find((row) => row.label === label)?.name ?? label;
  $("explanation-title").replaceChildren("Explanation for ", el("a", { href: address({ ...state, view: "label", label }), title: "Show label details" }, name));
  $("feedback").hidden = !acceptsFeedback;
  $("feedback-done").textContent = "";
  $("explanation").replaceChildren(...sources.map((source, side) => createExplanation(explanations[side], text, (side ? rendered.otherTrace : rendered.trace).known_spans, other && source.name)));
}

for (const [button, field] of [["accept", "accepted"], ["reject", "rejected"]]) {
  $(button).addEventListener("click", () => showErrors(async () => {
    const label = selectedOption($("results"))?.dataset.label;
    const { query } = rendered; // the shown labels belong to this text, even if the text has been edited since
    if (!label || !query) return;
    const stored = await request("feedback", "v1/feedback", { body: { ...query, [field]: [label] } });
    if (stored && rendered.query === query) $("feedback-done").textContent = `Stored as ${field}.`;
  }));
}

const isUnknown = (label, side) => rendered.rows.find((row) => row.label === label)?.isKnown[side] === false;

/** Select a label; if `scroll` is true and the screen is narrow, scroll to its explanation. */
function select(label, scroll = false) {
  navigate({ label }, { replace: true });
  if (scroll && NARROW.matches) $("explanation-panel").scrollIntoView({ behavior: "smooth" });
}

let typingTimer;
$("text").addEventListener("input", () => {
  clearTimeout(typingTimer);
  typingTimer = setTimeout(() => navigate({ text: $("text").value, label: undefined }, { replace: true }), TYPING_DELAY);
});

const resultOptions = () => [...$("results").querySelectorAll("[role=option]")];
const shownOptions = () => resultOptions().filter((option) => !option.hidden);

$("count").addEventListener("input", () => {
  $("count-value").textContent = $("count").value;
  clearTimeout(typingTimer);
  typingTimer = setTimeout(() => navigate({ count: $("count").value }, { replace: true }), TYPING_DELAY);
});
$("threshold").addEventListener("input", () => navigate({ threshold: $("threshold").value }, { replace: true }));

const exported = () => createExport($("format").value, { ...rendered.query, rows: rendered.shown ?? rendered.rows ?? [] });

function confirmAction(message) {
  $("done").textContent = message;
  setTimeout(() => { $("done").textContent = ""; }, 4000);
}
$("copy").addEventListener("click", async () => confirmAction(await copyText(exported()) ? "Copied." : "The browser does not allow copying. Use Download."));
$("download").addEventListener("click", () => downloadText(FILE_NAMES[$("format").value], exported()));
$("share").addEventListener("click", async () => {
  const isTooLong = (state.text ?? "").length > MAX_ADDRESS_TEXT;
  const message = isTooLong ? "Link copied. The text is too long to be part of it." : "The link contains the text.";
  confirmAction(await copyText(location.href) ? message : "Copy the link from the address bar.");
});

$("text").addEventListener("keydown", (event) => {
  const isAtEnd = event.target.selectionStart === event.target.value.length;
  if ((event.key === "Enter" && (event.ctrlKey || event.metaKey)) || (event.key === "ArrowDown" && isAtEnd)) {
    const option = selectedOption($("results")) ?? resultOptions()[0];
    if (option) {
      event.preventDefault();
      option.focus();
    }
  }
});

$("results").addEventListener("keydown", (event) => {
  if (handleArrowKeys(event, shownOptions(), (option) => { option.focus(); select(option.dataset.label); })) return;
  if (event.key === "Enter" || event.key === " ") {
    event.preventDefault();
    $("explanation-panel").focus({ preventScroll: !NARROW.matches });
  }
});

document.addEventListener("keydown", (event) => {
  const isTyping = event.target.matches("input, textarea, select");
  if (event.key === "/" && !isTyping && !event.ctrlKey && !event.metaKey) {
    event.preventDefault();
    if ($("view-text").hidden) navigate({ view: "text" });
    $("text").focus();
  } else if (event.key === "Escape" && !event.defaultPrevented) {
    if ($("view-text").hidden) navigate({ view: "text" }); // history.back() could leave the page
    else if ($("explanation-panel").contains(event.target) || $("beam-panel").contains(event.target)) (selectedOption($("results")) ?? $("text")).focus();
    else $("text").focus();
  }
});

// ── The tree view and the label view ─────────────────────────────────────────────────────────────────────────────

async function renderTreeView() {
  const level = state.level ?? "0";
  const node = state.node ?? "0";
  const model = currentModel();
  const tree = currentTree();
  const key = JSON.stringify([model.name, currentTreeNumber(), level, node]);
  if (rendered.tree === key) return;
  if (!tree) {
    rendered.tree = key;
    $("tree-title").textContent = "No label tree";
    $("tree").replaceChildren(el("p", { class: "note" }, noTreeNote(model, "there are no clusters to browse")));
    return;
  }
  const load = (begin) => request("tree", "v1/explore/tree", { query: { model: model.name, tree: currentTreeNumber(), level, node, begin } });
  const page = await load(0);
  if (page === undefined) return;
  rendered.tree = key;
  document.title = `${page.cluster.level ? clusterName(page.cluster, 2) : "Label tree"} – Carya Explorer`;
  showClusterPage($("tree"), $("tree-title"), page, { loadMore: load, isOverlapping: tree.is_overlapping, clusterAddress, labelAddress });
  focusTitle($("tree-title"));
}

// ── The map and the evaluation view ──────────────────────────────────────────────────────────────────────────────

/** Return the results of the evaluation for the selected model and tree, if there are any. */
const currentEvaluation = () => {
  const evaluated = evaluations[currentModel().name];
  return evaluated?.tree === currentTreeNumber() ? evaluated.evaluation : undefined;
};

async function renderMapView() {
  const model = currentModel();
  const tree = currentTree();
  const evaluation = currentEvaluation();
  const color = state.color === "quality" ? "quality" : "frequency";
  const [level, node] = [state.level ?? "0", state.node ?? "0"];
  const key = JSON.stringify([model.name, currentTreeNumber(), level, node, color, evaluation?.nTexts]);
  $("color").value = color;
  if (rendered.map === key) return;
  if (!tree) {
    rendered.map = key;
    $("map-note").textContent = "";
    $("map").replaceChildren(el("p", { class: "note" }, noTreeNote(model, "there are no clusters to show")));
    return;
  }
  const page = await loadChildren((begin) => request("map", "v1/explore/tree", { query: { model: model.name, tree: currentTreeNumber(), level, node, begin } }));
  if (page === undefined) return;
  rendered.map = key;
  $("map-title").textContent = page.cluster.level ? clusterName(page.cluster) : "Map of labels";
  $("map-note").textContent = mapNote(page, color, evaluation);
  showMap($("map"), page, { color, evaluation, mapAddress, labelAddress, treeAddress: clusterAddress });
  focusTitle($("map-title"));
}

function mapNote(page, color, evaluation) {
  const area = page.labels.length ? "The area of a label is its number of training texts." : "The area of a cluster is its number of labels.";
  if (color === "quality" && !evaluation) return `${area} Evaluate a labeled file to color the map by recall.`;
  const meaning = color === "quality" ? "Green: high recall; orange: low recall; gray: no text in the file has these labels." : "The stronger the color, the more training texts per label.";
  return `${area} ${meaning}`;
}

$("color").addEventListener("change", () => navigate({ color: $("color").value === "quality" ? "quality" : undefined }, { replace: true }));

function renderEvaluationView() {
  isRendered = true;
}

async function evaluateSelectedFile() {
  const file = $("file").files[0];
  if (!file) {
    $("evaluation-status").textContent = "Select a file first.";
    return;
  }
  const shown = [currentModel(), comparedModel()].filter(Boolean);
  const trees = [currentTreeNumber(), 0];
  const rank = (side, texts) => request(`evaluate-${side}`, "v1/explore/evaluate", { query: { model: shown[side].name, tree: trees[side] }, body: { texts, top_k: EVALUATED_LABELS } });
  const showProgress = (count, total) => { $("evaluation-status").textContent = `${formatInteger(count)} of ${formatCount(total, "text")}`; };
  $("evaluation-error").hidden = true;
  $("evaluate").disabled = true;
  $("stop").hidden = false;
  try {
    const results = await evaluateFile(file, shown.length, rank, showProgress);
    if (results === undefined) {
      $("evaluation-status").textContent = "Stopped.";
      return;
    }
    evaluations = Object.fromEntries(results.map((evaluation, side) => [shown[side].name, { evaluation, tree: trees[side] }]));
    rendered.map = rendered.card = undefined;
    $("evaluation-status").textContent = `${file.name}: ${formatCount(results[0].nTexts, "text")}`;
    const viewOf = (text) => ({ view: "text", label: undefined, text });
    showEvaluation($("evaluation"), shown, results, { labelAddress, textAddress: (text) => address({ ...state, ...viewOf(text) }), openText: (text) => navigate(viewOf(text)) });
  } catch (error) {
    if (!(error instanceof FileError || error instanceof ApiError) || error.status === 401) throw error;
    $("evaluation-status").textContent = "";
    $("evaluation-error").textContent = error.message;
    $("evaluation-error").hidden = false;
  } finally {
    $("evaluate").disabled = false;
    $("stop").hidden = true;
  }
}

$("evaluate").addEventListener("click", () => showErrors(evaluateSelectedFile));
$("file").addEventListener("change", () => showErrors(evaluateSelectedFile));
$("stop").addEventListener("click", () => { cancel("evaluate-0"); cancel("evaluate-1"); });

/** Focus the title of a new view and scroll to the top, except when the page is first opened. */
function focusTitle(title) {
  if (isRendered) {
    title.focus({ preventScroll: true });
    scrollTo(0, 0);
  }
  isRendered = true;
}

async function renderLabelView() {
  const model = currentModel();
  const key = JSON.stringify([model.name, currentTreeNumber(), state.label]);
  if (rendered.card === key) return;
  if (!state.label) {
    const labels = await request("card", "v1/explore/labels", { query: { model: model.name } });
    if (labels === undefined) return;
    rendered.card = key;
    showFrequentLabels($("card"), $("card-title"), labels, model.n_labels, labelAddress);
    return;
  }
  const card = await request("card", "v1/explore/label", { query: { model: model.name, tree: currentTreeNumber(), label: state.label } });
  if (card === undefined) return;
  rendered.card = key;
  const note = model.trees.length ? treeNote(model, currentTree()) : noTreeNote(model, "there are no terms or similar labels to show");
  document.title = `${card.label.name} – Carya Explorer`;
  showLabelCard($("card"), $("card-title"), card, { note, clusterAddress, labelAddress, evaluation: evaluations[model.name]?.evaluation });
  focusTitle($("card-title"));
}

setUpSearch($("search"), $("matches"), {
  search: (q) => request("labels", "v1/labels", { query: { model: currentModel().name, q, limit: 12, match: "words" } }),
  onSelect: (label) => navigate({ view: "label", label }),
  onError: (error) => showErrors(() => { throw error; }),
});

// ── Navigation and start ─────────────────────────────────────────────────────────────────────────────────────────

$("model").addEventListener("change", () => navigate({ model: $("model").value, tree: undefined, level: undefined, node: undefined }));
$("tree-number").addEventListener("change", () => navigate({ tree: $("tree-number").value, level: undefined, node: undefined }));
$("compare").addEventListener("change", () => navigate({ compare: $("compare").value }));

addEventListener("popstate", () => {
  if (location.hash === "#main") return;
  state = readAddress();
  render();
});

$("skip").addEventListener("click", (event) => {
  event.preventDefault();
  (state.view === undefined || state.view === "text" ? $("text") : $("main")).focus();
});

const THEMES = { auto: "Theme: Auto", light: "Theme: Light", dark: "Theme: Dark" };
function updateThemeButton() {
  $("theme").textContent = THEMES[document.documentElement.dataset.theme ?? "auto"];
}
$("theme").addEventListener("click", () => {
  const names = Object.keys(THEMES);
  const next = names[(names.indexOf(document.documentElement.dataset.theme ?? "auto") + 1) % names.length];
  if (next === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = next;
  try { localStorage.setItem("carya-theme", next); } catch { /* storage is disabled, so the choice is not saved */ }
  updateThemeButton();
});
updateThemeButton();

async function start() {
  await showErrors(async () => {
    const response = await request("models", "v1/explore/models");
    if (response === undefined) return;
    acceptsFeedback = response.accepts_feedback;
    if (!response.models.length) throw new ApiError(404, "All models on this server rank labels for feature vectors, which can be sent to v1/suggest-features.");
    models = response.models.sort((a, b) => (b.name === response.default) - (a.name === response.default));
    const createOptions = () => models.map((model) => el("option", { value: model.name }, model.name));
    $("model").replaceChildren(...createOptions());
    $("compare").replaceChildren(el("option", { value: "" }, "None"), ...createOptions());
    state = readAddress();
    rendered = {};
    render();
    if (!state.text && !$("view-text").hidden && !NARROW.matches) $("text").focus();
  });
}
start();
