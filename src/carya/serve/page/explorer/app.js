// The page as a whole: what is asked for stands in the address (behind #, so it is never sent), and everything follows it.

import { ask, forget, keepToken, Refused } from "./api.js";
import { showBeam } from "./beam.js";
import { setUpSearch, showCard, showFrequent } from "./card.js";
import { arrowKeys, el, whole } from "./dom.js";
import { choose, chosen, legend, rowsOf, showFound } from "./found.js";
import { noTree, noWords, optionsOf, partOf, treeOf } from "./kinds.js";
import { showTree } from "./tree.js";
import { showWhy } from "./why.js";

const TYPING = 140; // milliseconds of silence before a text is asked about
const LONGEST_IN_ADDRESS = 4000;
const NARROW = matchMedia("(max-width: 62rem)");
const $ = (id) => document.getElementById(id);

let models = [];
let state = {};
let shown = {}; // what the views show now
let arrived = false; // whether something is open already

const model = (name) => models.find((one) => one.name === name) ?? models[0];

// ── The address ──────────────────────────────────────────────────────────────────────────────────────────────────

function read() {
  const said = Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
  if (said.text === undefined) { // too long for the address
    if (history.state?.text) said.text = history.state.text;
    else if (state.text?.length > LONGEST_IN_ADDRESS) said.text = state.text;
  }
  return said;
}

function address(wanted) {
  const parts = new URLSearchParams();
  for (const name of ["view", "model", "tree", "with", "level", "node", "label", "text"]) {
    const value = wanted[name];
    if (value === undefined || value === "") continue;
    if (name === "view" && value === "text") continue;
    if (name === "model" && value === models[0]?.name) continue;
    if (name === "text" && value.length > LONGEST_IN_ADDRESS) continue;
    parts.set(name, value);
  }
  return `#${parts}`;
}

/** Go somewhere: changes of the state, as a new place to come back to or instead of this one. */
function go(changes, { replace = false } = {}) {
  state = { ...state, ...changes };
  history[replace ? "replaceState" : "pushState"]({ text: state.text }, "", address(state));
  show();
}

function show() {
  const view = ["tree", "label"].includes(state.view) ? state.view : "text";
  for (const name of ["text", "tree", "label"]) $(`view-${name}`).hidden = name !== view;
  for (const link of document.querySelectorAll("nav a")) {
    const there = link.dataset.view;
    link.setAttribute("href", address({ ...state, view: there }));
    if (there === view) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  const mine = model(state.model);
  document.querySelector("nav a[data-view=tree]").hidden = !mine.trees.length && view !== "tree";
  $("model").value = mine.name;
  $("tree-choice").hidden = mine.trees.length < 2;
  $("tree-number").replaceChildren(...optionsOf(mine).map((name, at) => el("option", { value: at }, name)));
  $("tree-number").value = treeNumber();
  $("other").value = other()?.name ?? "";
  $("other-choice").hidden = models.length < 2 || view !== "text";
  guarded({ text: showTextView, tree: showTreeView, label: showLabelView }[view]);
}

/** Which tree of the model is looked at. */
const treeNumber = () => Math.max(0, model(state.model).trees.indexOf(treeOf(model(state.model), state.tree)));

const other = () => models.find((one) => one.name === state.with && one.name !== model(state.model).name);

// ── Trouble ──────────────────────────────────────────────────────────────────────────────────────────────────────

async function guarded(work) {
  try {
    await work();
    $("trouble").hidden = true;
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    shown = {};
    $("token-form").hidden = error.status !== 401;
    $("trouble").hidden = error.status === 401;
    $("trouble").textContent = error.message;
  }
}

$("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  keepToken($("token").value);
  $("token-form").hidden = true;
  start();
});

// ── A text ───────────────────────────────────────────────────────────────────────────────────────────────────────

async function showTextView() {
  const text = state.text ?? "";
  arrived = true;
  if ($("text").value !== text) $("text").value = text;
  const mine = model(state.model);
  const theirs = other();
  const tree = treeOf(mine, state.tree);
  const key = JSON.stringify([text, mine.name, treeNumber(), theirs?.name]);
  if (shown.text !== key) {
    if (!text.trim()) {
      for (const kind of ["walk", "compare", "why", "why-other"]) forget(kind);
      shown.text = key;
      showNothing(`${whole(mine.labels)} labels, learned from ${mine.texts === null ? "texts" : `${whole(mine.texts)} texts`}.`);
      return;
    }
    $("found").setAttribute("aria-busy", "true");
    if (!shown.walk) $("said").textContent = "Looking for labels …";
    const [walk, compared] = await Promise.all([
      ask("walk", "v1/explore/text", { query: { model: mine.name, tree: treeNumber() }, body: { text } }),
      theirs && ask("compare", "v1/explore/compare", { query: { model: mine.name, other: theirs.name }, body: { text } }),
    ]);
    if (walk === undefined || (theirs && compared === undefined)) return; // a newer one is on its way
    const rows = rowsOf(walk, compared);
    shown = { ...shown, text: key, walk, rows, why: undefined };
    $("found").removeAttribute("aria-busy");
    if (!rows.length) {
      showNothing("The model knows no word of this text.");
      return;
    }
    $("said").textContent = `${rows.length} labels; the best is ${rows[0].name}.`;
    $("legend").replaceChildren(legend(mine, theirs));
    for (const id of ["found-title", "found"]) $(id).hidden = false;
    showFound($("found"), rows, theirs ? [mine, theirs] : [mine], pick);
    $("beam-panel").hidden = !tree;
    if (tree) {
      const way = walk.levels.length
        ? `Of the ${tree.levels.map(whole).join(", then ")} clusters the search holds at most ${walk.beam_width} at each level, and looks at the labels in the last ones.`
        : "This tree has no clusters: every label is looked at.";
      const twice = tree.overlaps && "A label may lie in several clusters; the line leads from the best of them.";
      $("beam-note").textContent = [partOf(mine, tree), way, twice].filter(Boolean).join(" ");
      showBeam($("beam"), walk, {
        onlabel: (label) => pick(label, true),
        oncluster: (cluster) => go({ view: "tree", level: String(cluster.level), node: String(cluster.node) }),
      });
    }
  }
  const label = state.label ?? chosen($("found"))?.dataset.label ?? shown.walk?.found[0]?.label.label;
  if (label && shown.walk?.found.length) await showWhyOf(label, text, mine, theirs);
}

function showNothing(words) {
  shown.walk = undefined;
  $("said").textContent = words;
  for (const id of ["legend", "found", "beam"]) $(id).replaceChildren();
  for (const id of ["found-title", "found", "beam-panel"]) $(id).hidden = true;
  $("why-title").textContent = "Why";
  $("why").replaceChildren(el("p", { class: "note" }, "Labels appear below the text. Choose one, and see here which words spoke for it and which against it."));
}

async function showWhyOf(label, text, mine, theirs) {
  const key = JSON.stringify([shown.text, label]);
  choose($("found"), label);
  $("beam").dispatchEvent(new CustomEvent("choose", { detail: label }));
  if (shown.why === key) return;
  const body = { text, label };
  const lenient = (question) => question.catch((error) => {
    if (error instanceof Refused && [400, 404].includes(error.status)) return { refused: error.message };
    throw error;
  });
  const why = async (kind, one, number) => {
    const tree = treeOf(one, number);
    const refused = foreign(label, one === mine ? 0 : 1) ? "This model does not know the label." : noWords(one, tree);
    if (refused) return { refused };
    const told = await lenient(ask(kind, "v1/explore/explain", { query: { model: one.name, tree: one.trees.indexOf(tree) }, body }));
    return told && { ...told, part: partOf(one, tree) };
  };
  const answers = await Promise.all([why("why", mine, state.tree), theirs && why("why-other", theirs, 0)]);
  if (answers[0] === undefined || (theirs && answers[1] === undefined)) return;
  shown.why = key;
  const name = answers.find((one) => one?.name)?.name ?? shown.rows.find((row) => row.label === label)?.name ?? label;
  $("why-title").replaceChildren("Why ", el("a", { href: address({ ...state, view: "label", label }), title: "Look at this label" }, name));
  $("why").replaceChildren(...[mine, theirs].flatMap((one, at) => (one ? [showWhy(answers[at], text, shown.walk.known, theirs && one.name)] : [])));
}

/** Whether one of the models does not have a label. */
const foreign = (label, side) => shown.rows.find((row) => row.label === label)?.known[side] === false;

/** A label was chosen; `there` if the reader wants to see it now. */
function pick(label, there = false) {
  go({ label }, { replace: true });
  if (there && NARROW.matches) $("why-panel").scrollIntoView({ behavior: "smooth" });
}

let typing;
$("text").addEventListener("input", () => {
  clearTimeout(typing);
  typing = setTimeout(() => go({ text: $("text").value, label: undefined }, { replace: true }), TYPING);
});

const options = () => [...$("found").querySelectorAll("[role=option]")];

$("text").addEventListener("keydown", (event) => {
  const end = event.target.selectionStart === event.target.value.length;
  if ((event.key === "Enter" && (event.ctrlKey || event.metaKey)) || (event.key === "ArrowDown" && end)) {
    const first = chosen($("found")) ?? options()[0];
    if (first) {
      event.preventDefault();
      first.focus();
    }
  }
});

$("found").addEventListener("keydown", (event) => {
  if (arrowKeys(event, options(), (option) => { option.focus(); pick(option.dataset.label); })) return;
  if (event.key === "Enter" || event.key === " ") {
    event.preventDefault();
    $("why-panel").focus({ preventScroll: !NARROW.matches });
  }
});

document.addEventListener("keydown", (event) => {
  const writing = event.target.matches("input, textarea, select");
  if (event.key === "/" && !writing && !event.ctrlKey && !event.metaKey) {
    event.preventDefault();
    go({ view: "text" });
    $("text").focus();
  } else if (event.key === "Escape" && !event.defaultPrevented) {
    if ($("view-text").hidden) history.back();
    else if ($("why-panel").contains(event.target) || $("beam-panel").contains(event.target)) (chosen($("found")) ?? $("text")).focus();
    else $("text").focus();
  }
});

// ── The tree, and a label ────────────────────────────────────────────────────────────────────────────────────────

async function showTreeView() {
  const level = state.level ?? "0";
  const node = state.node ?? "0";
  const mine = model(state.model);
  const tree = treeOf(mine, state.tree);
  const key = JSON.stringify([mine.name, treeNumber(), level, node]);
  if (shown.tree === key) return;
  if (!tree) {
    shown.tree = key;
    $("tree-title").textContent = "No label tree";
    $("tree").replaceChildren(el("p", { class: "note" }, `${noTree(mine)}, so there are no clusters to browse.`));
    return;
  }
  const more = (begin) => ask("tree", "v1/explore/tree", { query: { model: mine.name, tree: treeNumber(), level, node, begin } });
  const branch = await more(0);
  if (branch === undefined) return;
  shown.tree = key;
  showTree($("tree"), $("tree-title"), branch, {
    more,
    overlaps: tree.overlaps,
    cluster: (one) => address({ ...state, view: "tree", level: String(one.level), node: String(one.node) }),
    label: (one) => address({ ...state, view: "label", label: one.label }),
  });
  arrive($("tree-title"));
}

/** Take the reader to the top of what was opened; not when the page itself was. */
function arrive(title) {
  if (arrived) {
    title.focus({ preventScroll: true });
    scrollTo(0, 0);
  }
  arrived = true;
}

async function showLabelView() {
  const mine = model(state.model);
  const key = JSON.stringify([mine.name, treeNumber(), state.label]);
  if (shown.card === key) return;
  if (!state.label) {
    const frequent = await ask("card", "v1/explore/labels", { query: { model: mine.name } });
    if (frequent === undefined) return;
    shown.card = key;
    showFrequent($("card"), $("card-title"), frequent, mine.labels, (one) => address({ ...state, view: "label", label: one.label }));
    return;
  }
  const card = await ask("card", "v1/explore/label", { query: { model: mine.name, tree: treeNumber(), label: state.label } });
  if (card === undefined) return;
  shown.card = key;
  showCard($("card"), $("card-title"), card, {
    missing: mine.trees.length ? partOf(mine, treeOf(mine, state.tree)) : `${noTree(mine)}, so there is no more to tell of a label.`,
    cluster: (one) => address({ ...state, view: "tree", level: String(one.level), node: String(one.node) }),
    label: (one) => address({ ...state, view: "label", label: one.label }),
  });
  arrive($("card-title"));
}

setUpSearch($("search"), $("matches"), {
  find: (q) => ask("labels", "v1/labels", { query: { model: model(state.model).name, q, limit: 12 } }),
  take: (label) => go({ view: "label", label }),
  trouble: (error) => guarded(() => { throw error; }),
});

// ── The beginning ────────────────────────────────────────────────────────────────────────────────────────────────

$("model").addEventListener("change", () => go({ model: $("model").value, tree: undefined, level: undefined, node: undefined }));
$("tree-number").addEventListener("change", () => go({ tree: $("tree-number").value, level: undefined, node: undefined }));
$("other").addEventListener("change", () => go({ with: $("other").value }));

// Addresses of the page are of the state; a change by hand or by the buttons of the browser is followed.
addEventListener("popstate", () => {
  if (location.hash === "#main") return;
  state = read();
  show();
});

$("skip").addEventListener("click", (event) => {
  event.preventDefault();
  (state.view === undefined || state.view === "text" ? $("text") : $("main")).focus();
});

const THEMES = { auto: "Theme: auto", light: "Theme: light", dark: "Theme: dark" };
function nameTheme() {
  $("theme").textContent = THEMES[document.documentElement.dataset.theme ?? "auto"];
}
$("theme").addEventListener("click", () => {
  const names = Object.keys(THEMES);
  const next = names[(names.indexOf(document.documentElement.dataset.theme ?? "auto") + 1) % names.length];
  if (next === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = next;
  try { localStorage.setItem("carya-theme", next); } catch { /* it is forgotten, then */ }
  nameTheme();
});
nameTheme();

async function start() {
  await guarded(async () => {
    const known = await ask("models", "v1/explore/models");
    if (known === undefined) return;
    models = known.models.sort((a, b) => (b.name === known.default) - (a.name === known.default));
    $("model").replaceChildren(...models.map((one) => el("option", { value: one.name }, one.name)));
    $("other").replaceChildren(el("option", { value: "" }, "nothing"), ...models.map((one) => el("option", { value: one.name }, one.name)));
    state = read();
    shown = {};
    show();
    if (!state.text && !$("view-text").hidden && !NARROW.matches) $("text").focus();
  });
}
start();
