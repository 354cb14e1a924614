// The tree a method infers, family by family, beside the true one.

function treePart({ method, order, after, counts: [parents, right, wrong, needless], families }) {
  const chips = ({ name, right: own, missing, wrong: others }) => el("tr", {}, el("th", { scope: "row" }, name),
    el("td", {}, el("div", { class: "labels" },
      ...own.map((text) => el("span", { class: "label right" }, `✓ ${text}`)),
      ...missing.map((text) => el("span", { class: "label missing" }, `misses ${text}`)),
      ...others.map((text) => el("span", { class: "label wrong" }, `✗ ${text}`)))));
  return el("div", {},
    el("h3", {}, `${METHODS[method].name} `, el("span", { class: "soft" }, `order ${order ?? "of its own"}, after task ${after}`)),
    el("p", { class: "about" }, `Of ${plural(parents, "parent")}, ${right} found and ${wrong} wrong; ${needless} given to classes that have none.`),
    el("table", { class: "trees" }, el("tbody", {}, ...families.map(chips))));
}

function setUpTrees() {
  byId("trees-part").hidden = !DATA.trees.length;
  byId("trees").replaceChildren(...DATA.trees.map(treePart));
}
