// The matrices of the two compared methods beside the truth: one zoom and one cursor for all three.

const shownNow = () => [state.left, state.right, "truth"];

async function drawConfusion() {
  const task = keptTask(), mine = (drawn.ticket += 1);
  await Promise.all(shownNow().map((who) => matrixOf(who, task)));
  // While these were unpacked, another task or method may have been chosen.
  if (mine !== drawn.ticket) return;
  const size = ANSWERS.seen[task];
  Object.assign(drawn, { task }, arrange(task));
  zoom.span = Math.min(zoom.span, size);
  if (!zoom.touched) Object.assign(zoom, { x: 0, y: 0, span: size });
  keepInside(size);
  cursor.row = Math.min(cursor.row, size - 1);
  cursor.column = Math.min(cursor.column, size - 1);
  refill(byId("confusion"), ...shownNow().map((who) => confusionPanel(who, task)));
  options(byId("go-to"), [["", "choose…"], ...ANSWERS.classes.slice(0, size).map(({ name }, i) => [String(i), name])], "");
  afterZoom(size);
}

function confusionPanel(who, task) {
  const title = who === "truth" ? "Ground truth" : METHODS[who].name;
  const about = who === "truth" ? "what a perfect learner predicts" : `order ${ANSWERS.order ?? "of its own"}, seed ${ANSWERS.methods[who]?.seed ?? "?"}, 1 run`;
  const heading = el("h3", {}, `${title} `, el("span", { class: "soft" }, about));
  if (!matrices.has(`${who}/${task}`)) {
    return el("div", {}, heading, notice(`${title} has no predictions after task ${task} in this class order.`));
  }
  const canvas = el("canvas", {
    tabindex: 0, role: "img", "data-who": who, "data-key": who,
    "aria-label": `Confusion matrix, ${title}, after task ${task}. Arrow keys move from cell to cell.`,
    onpointermove: pointAt, onpointerdown: startDrag, onkeydown: steer, ondblclick: (event) => zoomBy(0.5, placeOf(event)),
    onfocus: () => { cursor.on = true; paintAll(); },
    onpointerleave: (event) => { if (leaves(event)) { cursor.on = false; paintAll(); } },
  });
  canvas.addEventListener("wheel", wheel, { passive: false });
  return el("div", {}, heading, canvas);
}

function keepInside(size) {
  zoom.span = Math.min(Math.max(zoom.span, Math.min(5, size)), size);
  zoom.x = Math.min(Math.max(zoom.x, 0), size - zoom.span);
  zoom.y = Math.min(Math.max(zoom.y, 0), size - zoom.span);
}

/** Zoom by a factor around a place of the matrix (the cursor, or the middle). */
function zoomBy(factor, place) {
  const size = ANSWERS.seen[drawn.task], before = zoom.span;
  const at = place ?? (cursor.on ? { x: cursor.column + 0.5, y: cursor.row + 0.5 }
    : { x: zoom.x + before / 2, y: zoom.y + before / 2 });
  const span = Math.min(Math.max(before * factor, Math.min(5, size)), size);
  zoom.x = at.x - ((at.x - zoom.x) * span) / before;
  zoom.y = at.y - ((at.y - zoom.y) * span) / before;
  zoom.span = span;
  afterZoom(size);
}

function afterZoom(size = ANSWERS.seen[drawn.task]) {
  keepInside(size);
  zoom.touched = zoom.span < size;
  byId("confusion").classList.toggle("zoomed", zoom.touched);
  byId("zoom-in").disabled = zoom.span <= 5;
  byId("zoom-out").disabled = byId("zoom-all").disabled = !zoom.touched;
  if (!zoom.touched) byId("go-to").value = "";
  paintAll();
}

function zoomWhole() {
  zoom.span = Infinity;
  afterZoom();
}

/** Show a class in the middle, large enough to read its neighbours. */
function goTo(wanted) {
  const place = drawn.classes.indexOf(wanted);
  Object.assign(cursor, { row: place, column: place, on: true });
  zoom.span = Math.min(zoom.span, 16);
  zoom.x = zoom.y = place + 0.5 - zoom.span / 2;
  afterZoom();
}

function placeOf(event) {
  const box = event.currentTarget.getBoundingClientRect();
  const cell = (box.width - GUTTER) / zoom.span;
  return { x: zoom.x + (event.clientX - box.left - GUTTER) / cell, y: zoom.y + (event.clientY - box.top - GUTTER) / cell };
}

function pointAt(event) {
  const { x, y } = placeOf(event), size = ANSWERS.seen[drawn.task];
  const inside = x >= zoom.x && y >= zoom.y && x < size && y < size;
  Object.assign(cursor, inside ? { column: Math.floor(x), row: Math.floor(y), on: true } : { on: false });
  paintAll();
}

function wheel(event) {
  // With a plain wheel the page scrolls on, as a reader expects.
  if (!event.ctrlKey && !event.metaKey) return;
  event.preventDefault();
  zoomBy(event.deltaY > 0 ? 1.2 : 1 / 1.2, placeOf(event));
}

function startDrag(event) {
  pointAt(event);
  const canvas = event.currentTarget, from = { x: zoom.x, y: zoom.y, clientX: event.clientX, clientY: event.clientY };
  if (!zoom.touched) return;
  canvas.setPointerCapture(event.pointerId);
  const move = (later) => {
    const cell = (canvas.clientWidth - GUTTER) / zoom.span;
    zoom.x = from.x - (later.clientX - from.clientX) / cell;
    zoom.y = from.y - (later.clientY - from.clientY) / cell;
    afterZoom();
  };
  canvas.addEventListener("pointermove", move);
  canvas.addEventListener("pointerup", () => canvas.removeEventListener("pointermove", move), { once: true });
}

function steer(event) {
  const steps = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
  const size = ANSWERS.seen[drawn.task];
  if (steps[event.key]) {
    const inside = (value) => Math.min(Math.max(value, 0), size - 1);
    cursor.row = inside(cursor.row + steps[event.key][0]);
    cursor.column = inside(cursor.column + steps[event.key][1]);
    cursor.on = true;
    zoom.x = Math.min(Math.max(zoom.x, cursor.column + 1 - zoom.span), cursor.column);
    zoom.y = Math.min(Math.max(zoom.y, cursor.row + 1 - zoom.span), cursor.row);
    afterZoom();
  } else if (event.key === "+" || event.key === "=") zoomBy(0.5);
  else if (event.key === "-") zoomBy(2);
  else if (event.key === "0") zoomWhole();
  else return;
  event.preventDefault();
  event.stopPropagation();
}

function setUpConfusion() {
  byId("confusion-about").replaceChildren(
    "Rows are true labels, columns the labels a method predicts; a cell is the share of the row’s images that get the " +
    "column’s label. By arrival, left of the diagonal are older labels on newer classes, as a superclass should be, and " +
    `right of it newer labels on older classes; by superclass, siblings stand together. ${ofOneOrder()}`);
  byId("zoom-in").addEventListener("click", () => zoomBy(0.5));
  byId("zoom-out").addEventListener("click", () => zoomBy(2));
  byId("zoom-all").addEventListener("click", zoomWhole);
  byId("go-to").addEventListener("change", (event) => event.target.value !== "" && goTo(Number(event.target.value)));
  byId("arranged").addEventListener("change", (event) => set({ arranged: event.target.value }));
  view(["after", "left", "right", "arranged"], drawConfusion);
  view([], () => byId("confusion-key").replaceChildren(
    "0 %", el("i", { style: `background:linear-gradient(90deg,${[0, 0.33, 0.67, 1].map(heatColour).join(",")})` }), "100 % of the row’s images"));
}
