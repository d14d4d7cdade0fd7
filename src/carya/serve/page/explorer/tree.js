// The label tree, a cluster at a time.

import { clusterName, el, whole, wordsText } from "./dom.js";
import { countText } from "./found.js";

export function showTree(place, title, branch, { more, overlaps, cluster, label }) {
  title.textContent = branch.cluster.level ? clusterName(branch.cluster) : "The label tree";
  const trail = [...branch.above, branch.cluster];
  const path = el("nav", { "aria-label": "Path in the tree", class: "trail" }, el("ol", {}, trail.map((one, at) => el("li", {}, at === trail.length - 1
    ? el("span", { "aria-current": "page" }, clusterName(one, 2))
    : el("a", { href: cluster(one) }, clusterName(one, 2))))));
  const list = el("ul", { class: branch.labels.length ? "leaves" : "clusters" });
  const add = (some) => list.append(...some.clusters.map((one) => clusterItem(one, cluster)), ...some.labels.map((one) => labelItem(one, label)));
  add(branch);
  let count = branch.clusters.length + branch.labels.length;
  const rest = el("button", {
    type: "button",
    onclick: async () => {
      const some = await more(count);
      if (some === undefined) return;
      add(some);
      count += some.clusters.length + some.labels.length;
      rest.hidden = count >= branch.n_children;
    },
  }, "Show more");
  rest.hidden = count >= branch.n_children;
  const kind = branch.labels.length ? "" : `${whole(branch.n_children)} clusters, `;
  place.replaceChildren(
    branch.cluster.level ? path : "",
    branch.cluster.words.length && el("p", { class: "words" }, wordsText(branch.cluster, 8)) || "",
    el("p", { class: "note" }, `${kind}${whole(branch.cluster.n_labels)} labels. Clusters are named by their most frequent labels and by the words that speak most for them.${overlaps ? " A label may lie in several clusters." : ""}`),
    list, rest,
  );
}

const clusterItem = (one, to) => el("li", {}, el("a", { href: to(one) },
  el("span", { class: "name" }, clusterName(one)),
  el("span", { class: "words" }, wordsText(one)),
  el("span", { class: "note" }, `${whole(one.n_labels)} labels`)));

export const labelItem = (one, to) => el("li", {}, el("a", { href: to(one) }, el("span", { class: "name" }, one.name), el("span", { class: "note" }, countText(one))));
