// The beam's way: a column for each level, lines from clusters to what was kept of their children.

import { clusterName, el, scoreText, wordsText } from "./dom.js";

const SVG = "http://www.w3.org/2000/svg";
const WIDE = matchMedia("(min-width: 48rem)");

export function showBeam(place, walk, { onlabel, oncluster }) {
  const columns = walk.levels.map((level, at) => level.map((held) => ({
    id: `${at}:${held.cluster.node}`,
    parent: at ? `${at - 1}:${held.parent}` : null,
    score: held.score,
    title: clusterName(held.cluster, 2),
    words: wordsText(held.cluster, 4),
    go: () => oncluster(held.cluster),
    hint: `Cluster of ${held.cluster.n_labels} labels. Look at it in the tree.`,
  })));
  columns.push(walk.reached.map((found) => ({
    id: `label:${found.label.label}`,
    parent: columns.length ? `${columns.length - 1}:${found.parent}` : null,
    score: found.score,
    title: found.label.name,
    go: () => onlabel(found.label.label),
    hint: "See why",
  })));
  const nodes = new Map();
  const grid = el("div", { class: "beam" });
  columns.forEach((column, at) => {
    const last = at === columns.length - 1;
    const most = Math.max(...column.map((node) => node.score), 1e-300);
    grid.append(el("section", { class: "level" },
      el("h3", {}, last ? "Labels" : `Level ${at + 1}`),
      el("ol", {}, column.map((node) => {
        const button = el("button", { type: "button", title: node.hint, onclick: node.go, vars: { length: `${Math.max(0, Math.min(100, (100 * node.score) / most))}%` } },
          el("span", { class: "name" }, node.title),
          el("span", { class: "score" }, scoreText(node.score)),
          node.words && el("span", { class: "words" }, node.words));
        nodes.set(node.id, { ...node, button });
        button.addEventListener("mouseenter", () => light(node.id));
        button.addEventListener("focus", () => light(node.id));
        button.addEventListener("mouseleave", () => light(resting));
        button.addEventListener("blur", () => light(resting));
        return el("li", {}, button);
      }))));
  });
  const lines = document.createElementNS(SVG, "svg");
  lines.setAttribute("class", "lines");
  lines.setAttribute("aria-hidden", "true");
  grid.prepend(lines);
  place.replaceChildren(grid);

  let resting = null;
  /** The node itself, those it lies in, and those in it. */
  function light(id) {
    const lit = new Set();
    for (let up = id; up && nodes.has(up); up = nodes.get(up).parent) lit.add(up);
    if (id && !id.startsWith("label:")) for (const [one, node] of nodes) if (lit.has(node.parent) && (node.parent === id || below(node.parent, id))) lit.add(one);
    for (const [one, node] of nodes) {
      node.button.classList.toggle("lit", lit.has(one));
      node.line?.classList.toggle("lit", lit.has(one));
    }
    for (const line of lines.querySelectorAll(".lit")) lines.append(line); // above the others
  }
  function below(id, top) {
    for (let up = id; up && nodes.has(up); up = nodes.get(up).parent) if (up === top) return true;
    return false;
  }
  function draw() {
    lines.replaceChildren();
    if (!WIDE.matches || !grid.isConnected) return;
    const frame = grid.getBoundingClientRect();
    if (!frame.width) return;
    lines.setAttribute("viewBox", `0 0 ${frame.width} ${frame.height}`);
    for (const node of nodes.values()) {
      const above = nodes.get(node.parent);
      if (!above) continue;
      const from = above.button.getBoundingClientRect();
      const to = node.button.getBoundingClientRect();
      const [x1, y1, x2, y2] = [from.right - frame.left, (from.top + from.bottom) / 2 - frame.top, to.left - frame.left, (to.top + to.bottom) / 2 - frame.top];
      const line = document.createElementNS(SVG, "path");
      const bend = (x2 - x1) / 2;
      line.setAttribute("d", `M${x1} ${y1} C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}`);
      lines.append(line);
      node.line = line;
    }
    light(resting);
  }
  place.sizes?.disconnect();
  place.sizes = new ResizeObserver(draw);
  place.sizes.observe(grid);
  if (place.choosing) place.removeEventListener("choose", place.choosing);
  place.choosing = (event) => {
    resting = `label:${event.detail}`;
    light(resting);
  };
  place.addEventListener("choose", place.choosing);
  draw();
}
