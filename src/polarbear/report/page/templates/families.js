// How well each superclass's images are labelled, by every method.

function drawFamilies() {
  const { names, methods, runs, scores, n } = DATA.families;
  const shown = [...methods.keys()].filter((i) => state.methods.has(methods[i]));
  const head = el("tr", {}, el("th", { scope: "col" }, "Superclass"),
    ...shown.map((i) => el("th", { scope: "col" }, METHODS[methods[i]].name, el("br"), el("small", {}, plural(runs[i], "run")))));
  byId("families").replaceChildren(el("thead", {}, head), el("tbody", {}, ...names.map((name, row) =>
    el("tr", {}, el("th", { scope: "row" }, name), ...shown.map((i) => heatTd(scores[row][i], ofFewer(n[row][i], runs[i])))))));
}

function heatTd(score, fewer) {
  if (!isNumber(score)) return el("td", { class: "soft" }, "–");
  return el("td", { style: `background:${heatColour(score)};color:${heatInk(score)}` }, fixed(score, 2), fewer ? el("small", {}, fewer) : null);
}

function setUpFamilies() {
  const { missing, after } = DATA.families;
  if (missing) return byId("families-part").replaceChildren(notice(`There are no scores by superclass: ${missing}.`));
  byId("families-about").replaceChildren(
    `pw-JS on the test images of each superclass, with all their labels, after task ${after}; means over the runs that have kept their predictions.`);
  return view(["methods"], drawFamilies);
}
