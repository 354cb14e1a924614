// How the images of one superclass are labelled after each task, and which labels they get.

// Areas may stay as dark as they are; only the grey of "no label" must step back on a dark page.
const onGround = (tone) => (theme() === "dark" && tone === "#D9D9D9" ? "#4a545f" : tone);
const superclassPlace = () => ANSWERS.superclasses[state.superclass];

function drawRiver() {
  byId("river-key").replaceChildren(...ANSWERS.river.map(({ name, colour: tone }) => el("span", {}, swatch(onGround(tone)), name)),
    el("span", {}, svg("svg", { width: 22, height: 12, "aria-hidden": "true" }, svg("path", { class: "given", d: "M0,6H22" })), "given the superclass, whatever else"));
  const panels = [state.left, state.right].map((method) => el("div", {}, el("h3", {}, `${METHODS[method].name} `,
    el("span", { class: "soft" }, `images of ${ANSWERS.classes[superclassPlace()].name}, 1 run`))));
  byId("river").replaceChildren(...panels);
  panels.forEach((panel, i) => drawRiverPanel(panel, [state.left, state.right][i]));
}

function drawRiverPanel(panel, method) {
  const course = ANSWERS.methods[method]?.river.map((after) => after?.[state.superclass] ?? null);
  if (!course || course.every((share) => share === null)) {
    panel.append(notice(`${METHODS[method].name} has no predictions in this class order.`));
    return;
  }
  const area = frame(panel.clientWidth, 260, [0, 0.25, 0.5, 0.75, 1], `Labels of ${ANSWERS.classes[superclassPlace()].name} over the tasks, ${METHODS[method].name}`);
  const guide = svg("line", { class: "guide", y1: MARGIN.top, y2: area.height - MARGIN.bottom, visibility: "hidden" });
  const now = area.x(state.after);
  area.chart.append(...ANSWERS.river.flatMap((_, way) => riverBand(course, way, area)),
    ...arrivals(area), givenLine(course, area),
    svg("line", { class: "now", x1: now, x2: now, y1: MARGIN.top, y2: area.height - MARGIN.bottom }), guide,
    hoverArea(area, guide, (task) => riverTip(course[task], method, task)));
  panel.append(area.chart, predictedMost(panel, method));
}

/** One way's band between the ways below it and those above; a lone task is a column. */
function riverBand(course, way, { x, y }) {
  const edge = (task, to) => course[task].slice(0, to).reduce((sum, share) => sum + share, 0) / 1000;
  return stretches(course).map((part) => {
    const points = part.length > 1 ? part.map((task) => [task, x(task)]) : [-9, 9].map((shift) => [part[0], x(part[0]) + shift]);
    const upper = points.map(([task, at]) => `${at.toFixed(1)},${y(edge(task, way + 1)).toFixed(1)}`);
    const lower = points.map(([task, at]) => `${at.toFixed(1)},${y(edge(task, way)).toFixed(1)}`).reverse();
    return svg("path", { d: `M${[...upper, ...lower].join("L")}Z`, fill: onGround(ANSWERS.river[way].colour), "data-way": way });
  });
}

/** The share of the images that get the superclass's label, after all the ways. */
function givenLine(course, { x, y }) {
  const d = stretches(course).map((part) => `M${part.map((task) => `${x(task).toFixed(1)},${y(course[task].at(-1) / 1000).toFixed(1)}`).join("L")}`);
  return svg("path", { class: "given", d: d.join("") });
}

/** Marks where subclasses of the superclass arrive: "+2". */
function arrivals({ x }) {
  const isBelow = (place) => { const { up } = ANSWERS.classes[place]; return up === superclassPlace() || (up >= 0 && isBelow(up)); };
  const count = new Map();
  ANSWERS.classes.forEach(({ task }, place) => isBelow(place) && count.set(task, (count.get(task) ?? 0) + 1));
  return [...count].map(([task, classes]) => svg("text", { x: x(task), y: MARGIN.top - 2, "text-anchor": "middle", class: "arrival" }, `+${classes}`));
}

function riverTip(shares, method, task) {
  const head = el("b", {}, `${METHODS[method].name}, ${ANSWERS.classes[superclassPlace()].name} after task ${task}`);
  if (!shares) return [head, el("br"), "no predictions"];
  const rows = ANSWERS.river.map(({ name, colour: tone }, i) => el("tr", {},
    el("td", { style: `color:${onGround(tone)}` }, "■"), el("td", {}, name), el("td", {}, percent(shares[i] / 1000))));
  const given = el("tr", {}, el("td", {}, "–"), el("td", {}, "given the superclass"), el("td", {}, percent(shares.at(-1) / 1000)));
  return [head, el("table", {}, given, ...rows.reverse())];
}

/** The labels these images get most after the chosen task, with a tick where the truth is. */
function predictedMost(panel, method) {
  const box = el("div", { class: "predicted" });
  const task = keptTask(), size = ANSWERS.seen[task], place = superclassPlace();
  Promise.all([matrixOf(method, task), matrixOf("truth", task)]).then(([rates, truth]) => {
    if (!rates || place >= size) return;
    const row = (matrix) => matrix.subarray(place * size, (place + 1) * size);
    const [predicted, due] = [row(rates), row(truth)];
    const order = [...predicted.keys()].filter((i) => predicted[i] || due[i]).sort((a, b) => predicted[b] - predicted[a] || due[b] - due[a]).slice(0, 6);
    box.append(el("h4", { class: "soft" }, `Most predicted after task ${task} (tick: share for which it is true)`),
      el("div", { class: "bars" }, ...order.flatMap((i) => labelBar(i, predicted[i] / 255, due[i] / 255))));
  });
  return box;
}

function labelBar(place, predicted, due) {
  const tone = due > 0 ? "var(--right)" : "var(--wrong)";
  return [
    el("span", {}, `${due > 0 ? "✓" : "✗"} ${ANSWERS.classes[place].name}`),
    el("span", { class: "track" }, el("i", { style: `width:${100 * predicted}%;background:${tone}` }),
      due > 0 ? el("i", { class: "due", style: `left:calc(${100 * due}% - 1px)` }) : null),
    el("span", { class: "value" }, percent(predicted)),
  ];
}

function setUpRiver() {
  byId("river-about").replaceChildren(
    "All test images of one superclass, by how they are labelled: each image counts once, a label from elsewhere or a wrong sibling outweighing what is right. +1: a subclass of it arrives. " + ofOneOrder());
  view(["superclass"], () => options(byId("superclass"), ANSWERS.superclasses.map((place, i) => [String(i), ANSWERS.classes[place].name]), String(state.superclass)));
  byId("superclass").addEventListener("change", (event) => set({ superclass: Number(event.target.value) }));
  view(["after", "left", "right", "superclass"], drawRiver);
}
