// Page controller. The state is stored in the URL fragment, which is never sent to the server, and all views are
// rendered from this state.

import { ApiError, cancel, request, saveToken } from "./api.js";
import { showBeam } from "./beam.js";
import { el, formatCount, formatInteger, handleArrowKeys } from "./dom.js";
import { createExplanation } from "./explanation.js";
import { setUpSearch, showFrequentLabels, showLabelCard } from "./label_card.js";
import { noExplanationNote, noTreeNote, selectTree, treeNames, treeNote } from "./model_kinds.js";
import { legend, selectedOption, selectOption, showResults, toRows } from "./results.js";
import { showClusterPage } from "./tree.js";

const TYPING_DELAY = 140; // milliseconds from the last key press until the text is sent
const MAX_ADDRESS_TEXT = 4000; // characters; longer texts are stored only in the history state
const NARROW = matchMedia("(max-width: 62rem)");
const VIEWS = ["text", "tree", "label"];
const $ = (id) => document.getElementById(id);

let models = [];
let state = {};
let rendered = {}; // the content that the views currently show
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
  for (const name of ["view", "model", "tree", "compare", "level", "node", "label", "text"]) {
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
    link.setAttribute("href", address({ ...state, view: link.dataset.view }));
    if (link.dataset.view === view) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  const model = currentModel();
  document.querySelector("nav a[data-view=tree]").hidden = !model.trees.length && view !== "tree";
  $("model").value = model.name;
  $("tree-choice").hidden = model.trees.length < 2;
  $("tree-number").replaceChildren(...treeNames(model).map((name, number) => el("option", { value: number }, name)));
  $("tree-number").value = currentTreeNumber();
  $("compare").value = comparedModel()?.name ?? "";
  $("compare-choice").hidden = models.length < 2 || view !== "text";
  showErrors({ text: renderTextView, tree: renderTreeView, label: renderLabelView }[view]);
}

// ── Errors ───────────────────────────────────────────────────────────────────────────────────────────────────────

/** Run a function; show its errors, or prompt for a token if the server requires one. */
async function showErrors(run) {
  try {
    await run();
    $("error").hidden = true;
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    rendered = {};
    $("token-form").hidden = error.status !== 401;
    $("error").hidden = error.status === 401;
    $("error").textContent = error.message;
  }
}

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
  const key = JSON.stringify([text, model.name, currentTreeNumber(), other?.name]);
  if (rendered.text !== key) {
    if (!text.trim()) {
      for (const channel of ["search", "compare", "explanation", "other-explanation"]) cancel(channel);
      rendered.text = key;
      clearResults(`This model has ${formatCount(model.n_labels, "label")}${model.n_texts === null ? "" : ` and was trained on ${formatCount(model.n_texts, "text")}`}.`);
      return;
    }
    $("results").setAttribute("aria-busy", "true");
    if (!rendered.trace) $("status").textContent = "Ranking labels…";
    const [trace, comparison] = await Promise.all([
      request("search", "v1/explore/text", { query: { model: model.name, tree: currentTreeNumber() }, body: { text } }),
      other && request("compare", "v1/explore/compare", { query: { model: model.name, other: other.name }, body: { text } }),
    ]);
    if (trace === undefined || (other && comparison === undefined)) return; // canceled by a newer request
    const rows = toRows(trace, comparison);
    rendered = { ...rendered, text: key, trace, rows, explanation: undefined, selectInBeam: undefined };
    $("results").removeAttribute("aria-busy");
    if (!rows.length) {
      clearResults("The text contains no terms from the model's vocabulary.");
      return;
    }
    $("status").textContent = `Showing ${formatCount(rows.length, "label")}. Best match: ${rows[0].name}.`;
    $("legend").replaceChildren(legend(model, other));
    for (const id of ["results-title", "results"]) $(id).hidden = false;
    showResults($("results"), rows, other ? [model, other] : [model], select);
    renderBeam(model, trace);
  }
  const label = state.label ?? selectedOption($("results"))?.dataset.label ?? rendered.trace?.labels[0]?.label.label;
  if (label && rendered.trace?.labels.length) await renderExplanation(label, text, model, other);
}

function renderBeam(model, trace) {
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
  rendered.trace = undefined;
  $("status").textContent = message;
  for (const id of ["legend", "results", "beam"]) $(id).replaceChildren();
  for (const id of ["results-title", "results", "beam-panel"]) $(id).hidden = true;
  $("explanation-title").textContent = "Explanation";
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
      return explanation && { ...explanation, note: treeNote(source, tree) };
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
  $("explanation").replaceChildren(...sources.map((source, side) => createExplanation(explanations[side], text, rendered.trace.known_spans, other && source.name)));
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
  if (handleArrowKeys(event, resultOptions(), (option) => { option.focus(); select(option.dataset.label); })) return;
  if (event.key === "Enter" || event.key === " ") {
    event.preventDefault();
    $("explanation-panel").focus({ preventScroll: !NARROW.matches });
  }
});

document.addEventListener("keydown", (event) => {
  const isTyping = event.target.matches("input, textarea, select");
  if (event.key === "/" && !isTyping && !event.ctrlKey && !event.metaKey) {
    event.preventDefault();
    navigate({ view: "text" });
    $("text").focus();
  } else if (event.key === "Escape" && !event.defaultPrevented) {
    if ($("view-text").hidden) history.back();
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
  showClusterPage($("tree"), $("tree-title"), page, { loadMore: load, isOverlapping: tree.is_overlapping, clusterAddress, labelAddress });
  focusTitle($("tree-title"));
}

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
  showLabelCard($("card"), $("card-title"), card, { note, clusterAddress, labelAddress });
  focusTitle($("card-title"));
}

setUpSearch($("search"), $("matches"), {
  search: (q) => request("labels", "v1/labels", { query: { model: currentModel().name, q, limit: 12 } }),
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
