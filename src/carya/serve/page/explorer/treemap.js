// Map of the labels: a treemap of the clusters or labels at one level of the tree. The area of a tile is the number of
// labels; tiles that are too small for a name show it as a tooltip.

import { clusterName, el, formatCount, formatPercent } from "./dom.js";

const MAX_TILES = 400;
const WIDTH = 1000;
const HEIGHT = 560;
const MIN_NAME = [64, 26]; // size of the smallest tile that shows a name

/** Arrange items with positive sizes, largest first, in a rectangle (squarified treemap); return their rectangles. */
export function arrange(sizes, { x, y, width, height }) {
  const total = sizes.reduce((sum, size) => sum + size, 0);
  const scale = (width * height) / total;
  const rectangles = [];
  let rest = { x, y, width, height };
  let begin = 0;
  while (begin < sizes.length) {
    const side = Math.min(rest.width, rest.height);
    let [end, area, ratio] = [begin, 0, Infinity];
    while (end < sizes.length) {
      const next = area + sizes[end] * scale;
      const worst = Math.max((side * side * sizes[begin] * scale) / (next * next), (next * next) / (side * side * sizes[end] * scale));
      if (worst > ratio) break;
      [end, area, ratio] = [end + 1, next, worst];
    }
    const thickness = area / side;
    const isColumn = rest.width >= rest.height;
    let offset = 0;
    for (let i = begin; i < end; i += 1) {
      const length = (sizes[i] * scale) / thickness;
      rectangles.push(isColumn
        ? { x: rest.x, y: rest.y + offset, width: thickness, height: length }
        : { x: rest.x + offset, y: rest.y, width: length, height: thickness });
      offset += length;
    }
    rest = isColumn
      ? { x: rest.x + thickness, y: rest.y, width: rest.width - thickness, height: rest.height }
      : { x: rest.x, y: rest.y + thickness, width: rest.width, height: rest.height - thickness };
    begin = end;
  }
  return rectangles;
}

/** Load all children of a cluster, up to a limit. */
export async function loadChildren(load) {
  const first = await load(0);
  if (first === undefined) return undefined;
  const page = { ...first, clusters: [...first.clusters], labels: [...first.labels] };
  for (let count = page.clusters.length + page.labels.length; count < Math.min(page.n_children, MAX_TILES);) {
    const next = await load(count);
    if (next === undefined) return undefined;
    page.clusters.push(...next.clusters);
    page.labels.push(...next.labels);
    count = page.clusters.length + page.labels.length;
  }
  return page;
}

/** Show the children of a cluster; `color` is frequency or quality, and `evaluation` contains the results for a file. */
export function showMap(container, page, { color, evaluation, mapAddress, labelAddress, treeAddress }) {
  const level = page.cluster.level + 1;
  const tiles = page.labels.length
    ? page.labels.map((label) => ({ name: label.name, address: labelAddress(label), size: 1 + (label.count ?? 0), count: label.count, note: label.count === null ? "" : formatCount(label.count, "training text"), quality: evaluation?.labels.get(label.label) }))
    : page.clusters.map((cluster) => ({ name: clusterName(cluster), address: mapAddress(cluster), size: cluster.n_labels, count: cluster.count === null ? null : cluster.count / cluster.n_labels, note: formatCount(cluster.n_labels, "label"), quality: evaluation?.cluster(level, cluster.node) }));
  tiles.sort((a, b) => b.size - a.size);
  const largest = Math.max(...tiles.map((tile) => tile.count ?? 0));
  for (const tile of tiles) {
    const isMeasured = tile.quality?.support > 0;
    const recall = isMeasured ? tile.quality.correct / tile.quality.support : null;
    tile.strength = color === "quality" ? recall : tile.count === null ? null : Math.log1p(tile.count) / Math.max(Math.log1p(largest), 1e-9);
    tile.details = [tile.name, tile.note, isMeasured && `recall ${formatPercent(recall)}`].filter(Boolean).join(", ");
  }
  const rectangles = arrange(tiles.map((tile) => tile.size), { x: 0, y: 0, width: WIDTH, height: HEIGHT });
  const percent = (value, total) => `${(100 * value) / total}%`;
  const trail = [...page.ancestors, page.cluster];
  const hidden = page.n_children - tiles.length;
  container.replaceChildren(
    el("nav", { "aria-label": "Path in the label tree", class: "trail" }, el("ol", {}, trail.map((cluster, position) => el("li", {}, position === trail.length - 1
      ? el("span", { "aria-current": "page" }, clusterName(cluster, 2))
      : el("a", { href: mapAddress(cluster) }, clusterName(cluster, 2)))))),
    el("ul", { class: `map ${color}` }, tiles.map((tile, position) => {
      const { x, y, width, height } = rectangles[position];
      const hasName = width >= MIN_NAME[0] && height >= MIN_NAME[1];
      return el("li", { vars: { left: percent(x, WIDTH), top: percent(y, HEIGHT), width: percent(width, WIDTH), height: percent(height, HEIGHT) } },
        el("a", {
          href: tile.address, title: tile.details, dir: "auto", "aria-label": hasName ? undefined : tile.details,
          class: tile.strength === null ? "unknown-value" : undefined, vars: tile.strength === null ? {} : { strength: `${Math.round(100 * tile.strength)}%` },
        }, hasName && el("span", { class: "name" }, tile.name), hasName && height > 2 * MIN_NAME[1] && el("span", { class: "details" }, tile.note)));
    })),
    hidden > 0 ? el("p", {}, el("a", { href: treeAddress(page.cluster) }, `${formatCount(hidden, "cluster")} more are listed in the tree.`)) : "",
  );
}
