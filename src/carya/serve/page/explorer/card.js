// A label by itself, and the box to find one.

import { clusterName, el, percent, whole } from "./dom.js";
import { countText } from "./found.js";
import { labelItem } from "./tree.js";

export function showCard(place, title, card, { missing, cluster, label }) {
  const { name, label: id, count } = card.label;
  title.textContent = name;
  const share = count !== null && card.n_texts ? ` of ${whole(card.n_texts)} (${percent(count / card.n_texts)})` : "";
  const trail = (above) => el("nav", { "aria-label": "Where it is in the tree", class: "trail" }, el("ol", {}, above.map((one) => el("li", {}, el("a", { href: cluster(one) }, clusterName(one, 2)))), el("li", {}, el("span", { "aria-current": "page" }, name))));
  const several = card.places.length > 1;
  place.replaceChildren(
    el("dl", { class: "facts" },
      id !== name && [el("dt", {}, "Id"), el("dd", {}, id)],
      el("dt", {}, "Texts it was learned from"), el("dd", {}, count === null ? "not counted when this model was saved" : `${whole(count)}${share}`),
      card.places.length === 1 && [el("dt", {}, "In the tree"), el("dd", {}, trail(card.places[0].above))],
      several && [el("dt", {}, "In the tree"), el("dd", {}, `in ${card.places.length} clusters, in each with words of its own`)]),
    card.text && card.text !== name ? el("p", {}, card.text) : "",
    missing ? el("p", { class: "note" }, missing) : "",
    ...card.places.map((one) => el("section", { class: "place" },
      several && trail(one.above),
      el("div", { class: "thirds" },
        part("Words for it", "for", one.words_for),
        part("Words against it", "against", one.words_against.map(([word, weight]) => [word, -weight])),
        !several && nearest(card, label)))),
    several ? nearest(card, label) : "",
  );
}

/** Where nothing was looked for yet: the labels of most texts. */
export function showFrequent(place, title, frequent, count, label) {
  title.textContent = "Labels";
  const all = frequent.length === count ? "all of them" : frequent[0]?.count === null ? "some of them" : "those of most texts";
  place.replaceChildren(
    el("p", { class: "note" }, `This model knows ${whole(count)} labels; here are ${all}.`),
    el("ul", { class: "leaves" }, frequent.map((one) => labelItem(one, label))),
  );
}

const nearest = (card, label) => el("section", {}, el("h2", {}, "Nearest labels"),
  card.nearest.length
    ? el("ul", { class: "near" }, card.nearest.map(([one, alike]) => el("li", { vars: { length: `${100 * alike}%` } }, el("span", {}, el("a", { href: label(one) }, one.name), " ", el("span", { class: "note" }, countText(one))), el("span", { class: "number" }, alike.toFixed(2)))))
    : el("p", { class: "note" }, "None."),
  el("p", { class: "note" }, "Labels that weigh its strongest words alike: the cosine of their weights."));

function part(title, kind, words) {
  const most = Math.max(...words.map(([, weight]) => weight), 1e-12);
  return el("section", {}, el("h2", {}, title), words.length
    ? el("ul", { class: `weights ${kind}` }, words.map(([word, weight]) => el("li", { vars: { length: `${(100 * weight) / most}%` } }, el("span", {}, word), el("span", { class: "number" }, weight.toFixed(2)))))
    : el("p", { class: "note" }, "None."));
}

/** A box that shows the labels which begin as what is typed. */
export function setUpSearch(box, list, { find, take, trouble }) {
  let at = -1;
  let typing;
  const options = () => [...list.children].filter((one) => one.matches("[role=option]"));
  function close() {
    list.hidden = true;
    box.setAttribute("aria-expanded", "false");
    box.removeAttribute("aria-activedescendant");
    at = -1;
  }
  function point(to) {
    options().forEach((one, place) => one.setAttribute("aria-selected", String(place === to)));
    at = to;
    const one = options()[to];
    if (one) {
      box.setAttribute("aria-activedescendant", one.id);
      one.scrollIntoView({ block: "nearest" });
    }
  }
  function choose(label) {
    close();
    box.value = "";
    take(label);
  }
  async function look() {
    if (!box.value.trim()) return close();
    const found = await find(box.value).catch(trouble);
    if (!found) return undefined;
    list.replaceChildren(...found.labels.map((one, place) => el("div", { role: "option", id: `match-${place}`, "aria-selected": "false", onmousedown: (event) => event.preventDefault(), onclick: () => choose(one.label) }, one.name)));
    if (!found.labels.length) list.append(el("div", { role: "option", "aria-disabled": "true", class: "note" }, "No label begins so."));
    list.hidden = false;
    box.setAttribute("aria-expanded", "true");
    at = -1;
    return undefined;
  }
  box.addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(look, 100);
  });
  box.addEventListener("blur", close);
  box.addEventListener("keydown", (event) => {
    const count = options().length;
    if (event.key === "Escape" && !list.hidden) {
      event.preventDefault();
      close();
    } else if (event.key === "ArrowDown" && count) {
      event.preventDefault();
      point((at + 1) % count);
    } else if (event.key === "ArrowUp" && count) {
      event.preventDefault();
      point((at + count - 1) % count);
    } else if (event.key === "Enter" && count) {
      event.preventDefault();
      options()[Math.max(at, 0)].click();
    }
  });
}
