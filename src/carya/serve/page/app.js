// The page as a whole: what is asked for stands in the address (behind #, so it is never sent), and everything follows it.

import { ask, forget, keepToken, Refused } from "./api.js";
import { showBeam } from "./beam.js";
import { setUpSearch, showCard } from "./card.js";
import { arrowKeys, el, whole } from "./dom.js";
import { choose, chosen, legend, rowsOf, showFound } from "./found.js";
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
  for (const name of ["view", "model", "with", "level", "node", "label", "text"]) {
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
  $("model").value = model(state.model).name;
  $("other").value = other()?.name ?? "";
  $("other-choice").hidden = models.length < 2 || view !== "text";
  guarded({ text: showTextView, tree: showTreeView, label: showLabelView }[view]);
}

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
  const key = JSON.stringify([text, mine.name, theirs?.name]);
  if (shown.text !== key) {
    if (!text.trim()) {
      for (const kind of ["walk", "compare", "why", "why-other"]) forget(kind);
      shown.text = key;
      showNothing(`${whole(mine.labels)} labels, learned from ${mine.texts === null ? "texts" : `${whole(mine.texts)} texts`}.`);
      return;
    }
    $("found").setAttribute("aria-busy", "true");
    const [walk, compared] = await Promise.all([
      ask("walk", "v1/explore/text", { query: { model: mine.name }, body: { text } }),
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
    $("found").hidden = false;
    showFound($("found"), rows, theirs ? [mine, theirs] : [mine], pick);
    $("beam-panel").hidden = false;
    $("beam-note").textContent = `Of the ${walk.levels.map((_, at) => whole(mine.levels[at])).join(", then ")} clusters the search holds at most ${walk.beam_width} at each level, and looks at the labels in the last ones.`;
    if (!walk.levels.length) $("beam-note").textContent = "This model has no clusters: every label is looked at.";
    showBeam($("beam"), walk, {
      onlabel: (label) => pick(label, true),
      oncluster: (cluster) => go({ view: "tree", level: String(cluster.level), node: String(cluster.node) }),
    });
  }
  const label = state.label ?? chosen($("found"))?.dataset.label ?? shown.walk?.found[0]?.label.label;
  if (label && shown.walk?.found.length) await showWhyOf(label, text, mine, theirs);
}

function showNothing(words) {
  shown.walk = undefined;
  $("said").textContent = words;
  for (const id of ["legend", "found", "beam"]) $(id).replaceChildren();
  $("found").hidden = true;
  $("beam-panel").hidden = true;
  $("why-title").textContent = "Why";
  $("why").replaceChildren(el("p", { class: "note" }, "Choose a label, and see which words spoke for it and which against it."));
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
  const answers = await Promise.all([
    lenient(ask("why", "v1/explore/explain", { query: { model: mine.name }, body })),
    theirs && (foreign(label) ? { refused: "This model does not know the label." } : lenient(ask("why-other", "v1/explore/explain", { query: { model: theirs.name }, body }))),
  ]);
  if (answers[0] === undefined || (theirs && answers[1] === undefined)) return;
  shown.why = key;
  const name = answers.find((one) => one?.name)?.name ?? label;
  $("why-title").replaceChildren("Why ", el("a", { href: address({ ...state, view: "label", label }), title: "Look at this label" }, name));
  $("why").replaceChildren(...[mine, theirs].flatMap((one, at) => (one ? [showWhy(answers[at], text, shown.walk.known, theirs && one.name)] : [])));
}

/** Whether the other model does not have a label. */
const foreign = (label) => shown.rows.find((row) => row.label === label)?.sides[1] === null;

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
  const name = model(state.model).name;
  const key = JSON.stringify([name, level, node]);
  if (shown.tree === key) return;
  const more = (begin) => ask("tree", "v1/explore/tree", { query: { model: name, level, node, begin } });
  const branch = await more(0);
  if (branch === undefined) return;
  shown.tree = key;
  showTree($("tree"), $("tree-title"), branch, {
    more,
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
  const name = model(state.model).name;
  const key = JSON.stringify([name, state.label]);
  if (shown.card === key) return;
  if (!state.label) {
    shown.card = key;
    $("card-title").textContent = "Labels";
    $("card").replaceChildren(el("p", { class: "note" }, `This model knows ${whole(model(name).labels)} labels.`));
    return;
  }
  const card = await ask("card", "v1/explore/label", { query: { model: name, label: state.label } });
  if (card === undefined) return;
  shown.card = key;
  showCard($("card"), $("card-title"), card, {
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

for (const [id, name] of [["model", "model"], ["other", "with"]]) {
  $(id).addEventListener("change", () => go({ [name]: $(id).value, level: undefined, node: undefined }));
}

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
