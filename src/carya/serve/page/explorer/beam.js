// Beam search diagram: one column per level, with lines from each cluster to its children in the beam.

import { clusterName, clusterTerms, el, formatCount, formatScore } from "./dom.js";

const SVG = "http://www.w3.org/2000/svg";
const WIDE = matchMedia("(min-width: 48rem)");

/** Draw the beam and return a function that highlights the path to a label. */
export function showBeam(container, trace, { onLabel, onCluster }) {
  const columns = trace.levels.map((level, depth) => level.map((node) => ({
    id: `${depth}:${node.cluster.node}`,
    parent: depth ? `${depth - 1}:${node.parent}` : null,
    score: node.score,
    title: clusterName(node.cluster, 2),
    terms: clusterTerms(node.cluster, 4),
    onClick: () => onCluster(node.cluster),
    hint: `Show this cluster in the tree (${formatCount(node.cluster.n_labels, "label")})`,
  })));
  columns.push(trace.reached.map((reached) => ({
    id: `label:${reached.label.label}`,
    parent: columns.length ? `${columns.length - 1}:${reached.parent}` : null,
    score: reached.score,
    title: reached.label.name,
    onClick: () => onLabel(reached.label.label),
    hint: "Show the explanation for this label",
  })));
  const nodes = new Map();
  const grid = el("div", { class: "beam" });
  let selected = null;
  columns.forEach((column, depth) => {
    const isLast = depth === columns.length - 1;
    const scores = column.map((node) => node.score);
    const smallest = Math.min(0, ...scores);
    const range = Math.max(Math.max(...scores) - smallest, 1e-300); // the scores of some transforms are negative
    grid.append(el("section", { class: "level" },
      el("h3", {}, isLast ? "Labels" : `Level ${depth + 1}`),
      el("ol", {}, column.map((node) => {
        const button = el("button", { type: "button", title: node.hint, onclick: node.onClick, vars: { length: `${(100 * (node.score - smallest)) / range}%` } },
          el("span", { class: "name" }, node.title),
          el("span", { class: "score" }, formatScore(node.score)),
          node.terms && el("span", { class: "cluster-terms" }, node.terms));
        nodes.set(node.id, { ...node, button });
        button.addEventListener("mouseenter", () => highlight(node.id));
        button.addEventListener("focus", () => highlight(node.id));
        button.addEventListener("mouseleave", () => highlight(selected));
        button.addEventListener("blur", () => highlight(selected));
        return el("li", {}, button);
      }))));
  });
  const lines = document.createElementNS(SVG, "svg");
  lines.setAttribute("class", "lines");
  lines.setAttribute("aria-hidden", "true");
  grid.prepend(lines);
  container.replaceChildren(grid);

  /** Return the ids of a node and its ancestors. */
  function pathTo(id) {
    const path = [];
    for (let current = id; current && nodes.has(current); current = nodes.get(current).parent) path.push(current);
    return path;
  }
  /** Highlight a node with its ancestors and descendants. */
  function highlight(id) {
    const lit = new Set(pathTo(id));
    if (id && !id.startsWith("label:")) for (const other of nodes.keys()) if (pathTo(other).includes(id)) lit.add(other);
    for (const [other, node] of nodes) {
      node.button.classList.toggle("lit", lit.has(other));
      node.line?.classList.toggle("lit", lit.has(other));
    }
    for (const line of lines.querySelectorAll(".lit")) lines.append(line); // draw highlighted lines on top
  }
  function draw() {
    lines.replaceChildren();
    if (!WIDE.matches || !grid.isConnected) return;
    const frame = grid.getBoundingClientRect();
    if (!frame.width) return;
    lines.setAttribute("viewBox", `0 0 ${frame.width} ${frame.height}`);
    for (const node of nodes.values()) {
      const parent = nodes.get(node.parent);
      if (!parent) continue;
      const from = parent.button.getBoundingClientRect();
      const to = node.button.getBoundingClientRect();
      const [x1, y1, x2, y2] = [from.right - frame.left, (from.top + from.bottom) / 2 - frame.top, to.left - frame.left, (to.top + to.bottom) / 2 - frame.top];
      const line = document.createElementNS(SVG, "path");
      const bend = (x2 - x1) / 2;
      line.setAttribute("d", `M${x1} ${y1} C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}`);
      lines.append(line);
      node.line = line;
    }
    highlight(selected);
  }
  container.resizeObserver?.disconnect();
  container.resizeObserver = new ResizeObserver(draw);
  container.resizeObserver.observe(grid);
  draw();
  return (label) => {
    selected = `label:${label}`;
    highlight(selected);
  };
}
