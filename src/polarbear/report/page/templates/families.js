// How well each superclass's images are labelled, by every method.

function drawFamilies() {
  const methods = shownMethods().filter((method) => ANSWERS.methods[method]);
  const value = (method, i) => ANSWERS.methods[method].families[state.after]?.[i] ?? null;
  const head = el("tr", {}, el("th", { scope: "col" }, "Superclass"),
    ...methods.map((method) => el("th", { scope: "col" }, METHODS[method].name)));
  const rows = ANSWERS.superclasses.map((place, i) => el("tr", {}, el("th", { scope: "row" }, ANSWERS.classes[place].name),
    ...methods.map((method) => heatTd(value(method, i)))));
  byId("families").replaceChildren(el("thead", {}, head), el("tbody", {}, ...rows));
}

function heatTd(thousandths) {
  if (thousandths === null) return el("td", { class: "soft" }, "–");
  const share = thousandths / 1000;
  return el("td", { style: `background:${heatColour(share)};color:${heatInk(share)}` }, fixed(share, 2));
}

function setUpFamilies() {
  byId("families-about").replaceChildren(
    `pw-JS on the test images of each superclass, whatever labels they have; a dash until it arrives. ${ofOneOrder()}`);
  view(["after", "methods"], drawFamilies);
}
