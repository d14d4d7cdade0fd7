// Label tree view, which shows one cluster at a time.

import { clusterName, clusterTerms, countText, el, formatCount } from "./dom.js";

export function showClusterPage(container, title, page, { loadMore, isOverlapping, clusterAddress, labelAddress }) {
  title.textContent = page.cluster.level ? clusterName(page.cluster) : "Label tree";
  const trail = [...page.ancestors, page.cluster];
  const path = el("nav", { "aria-label": "Path in the label tree", class: "trail" }, el("ol", {}, trail.map((cluster, position) => el("li", {}, position === trail.length - 1
    ? el("span", { "aria-current": "page" }, clusterName(cluster, 2))
    : el("a", { href: clusterAddress(cluster) }, clusterName(cluster, 2))))));
  const list = el("ul", { class: page.labels.length ? "leaves" : "clusters" });
  const append = ({ clusters, labels }) => list.append(
    ...clusters.map((cluster) => createClusterItem(cluster, clusterAddress)),
    ...labels.map((label) => createLabelItem(label, labelAddress)));
  append(page);
  let count = page.clusters.length + page.labels.length;
  const more = el("button", {
    type: "button",
    onclick: async () => {
      const next = await loadMore(count);
      if (next === undefined) return;
      append(next);
      count += next.clusters.length + next.labels.length;
      more.hidden = count >= page.n_children;
    },
  }, "Show more");
  more.hidden = count >= page.n_children;
  const sizes = `${page.labels.length ? "" : `${formatCount(page.n_children, "cluster")}, `}${formatCount(page.cluster.n_labels, "label")}.`;
  const notes = [sizes, "Each cluster is described by its most frequent labels and strongest terms.", isOverlapping && "A label can belong to several clusters."];
  container.replaceChildren(
    page.cluster.level ? path : "",
    page.cluster.terms.length ? el("p", { class: "cluster-terms" }, clusterTerms(page.cluster, 8)) : "",
    el("p", { class: "note" }, notes.filter(Boolean).join(" ")),
    list, more,
  );
}

const createClusterItem = (cluster, address) => el("li", {}, el("a", { href: address(cluster) },
  el("span", { class: "name" }, clusterName(cluster)),
  el("span", { class: "cluster-terms" }, clusterTerms(cluster)),
  el("span", { class: "note" }, formatCount(cluster.n_labels, "label"))));

export const createLabelItem = (label, address) => el("li", {}, el("a", { dir: "auto", href: address(label) }, el("span", { class: "name" }, label.name), el("span", { class: "note" }, countText(label))));
