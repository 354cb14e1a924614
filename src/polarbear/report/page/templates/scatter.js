// One number of each method against another, each as its marker with a name beside it.

const LEVELS = ["pw_jaccard/subclass", "pw_jaccard/superclass"];

function drawLevels() {
  const box = byId("levels"), after = state.after;
  const points = shownMethods().map((method) => ({ method, courses: LEVELS.map((metric) => series(method, metric)) }))
    .filter(({ courses }) => courses.every((course) => isNumber(course.mean[after])))
    .map(({ method, courses }) => ({
      method, x: courses[0].mean[after], y: courses[1].mean[after], wide: courses[0].half[after] ?? 0, high: courses[1].half[after] ?? 0,
      said: LEVELS.map((metric, i) => [METRIC[metric].short, withInterval(courses[i], after)]),
    }));
  if (!points.length) return box.replaceChildren(notice("None of the chosen methods has scores of both levels after this task."));
  const marks = ticks(0, Math.max(0.1, ...points.flatMap(({ x, y }) => [x, y])));
  return box.replaceChildren(scatter(box.clientWidth, points, {
    across: marks, up: marks, names: LEVELS.map((metric) => METRIC[metric].title),
    corners: ["the whole without the details", "the details without the whole"],
  }));
}

function scatter(wanted, points, { across, up, names, corners = [], written = fixedMark }) {
  const width = Math.max(Math.min(wanted, 760), 240), height = Math.min(440, Math.max(300, width * 0.6));
  const left = 52, right = 28, top = 12, bottom = 44;
  const share = (value, marks) => (Math.min(Math.max(value, marks[0]), marks.at(-1)) - marks[0]) / (marks.at(-1) - marks[0]);
  const x = (value) => left + share(value, across) * (width - left - right);
  const y = (value) => height - bottom - share(value, up) * (height - top - bottom);
  const chart = svg("svg", {
    width, height, viewBox: `0 0 ${width} ${height}`, role: "img",
    "aria-label": `${names[1]} against ${names[0]}: ${points.map(({ method, said }) => `${METHODS[method].name} ${said.map((one) => one[1]).join(" and ")}`).join("; ")}`,
  },
    up.map((value) => [
      svg("line", { class: "axis", x1: left, x2: width - right, y1: y(value), y2: y(value) }),
      svg("text", { x: left - 8, y: y(value) + 4, "text-anchor": "end" }, fixedMark(value)),
    ]).flat(),
    across.map((value) => [
      svg("line", { class: "axis", x1: x(value), x2: x(value), y1: top, y2: height - bottom }),
      svg("text", { x: x(value), y: height - bottom + 17, "text-anchor": "middle" }, written(value)),
    ]).flat(),
    svg("text", { x: left + (width - left - right) / 2, y: height - 6, "text-anchor": "middle" }, names[0]),
    svg("text", { x: 13, y: (height - bottom) / 2, "text-anchor": "middle", transform: `rotate(-90 13 ${(height - bottom) / 2})` }, names[1]));
  const [whole, details] = corners;
  if (whole) {
    chart.append(svg("line", { class: "guide", x1: left, y1: height - bottom, x2: width - right, y2: top }),
      svg("text", { class: "corner", x: left + 8, y: top + 16 }, whole),
      svg("text", { class: "corner", x: width - right - 8, y: height - bottom - 8, "text-anchor": "end" }, details));
  }
  const placed = points.map((point) => ({
    ...point, at: [x(point.x), y(point.y)],
    whiskers: [[x(point.x - point.wide), y(point.y) - 2, x(point.x + point.wide), y(point.y) + 2], [x(point.x) - 2, y(point.y + point.high), x(point.x) + 2, y(point.y - point.high)]],
  }));
  chart.append(...placed.flatMap((point) => cross(point, x, y)),
    ...placed.map(({ method, at }) => marker(method, at[0], at[1], 4.5)),
    ...pointNames(placed, [left, width - right], [top, height - bottom]));
  const near = (event) => {
    const frame = chart.getBoundingClientRect(), scale = width / frame.width;
    const far = ({ at }) => Math.hypot((event.clientX - frame.left) * scale - at[0], (event.clientY - frame.top) * scale - at[1]);
    const nearest = placed.reduce((a, b) => (far(b) < far(a) ? b : a));
    if (far(nearest) > 30) return hideTip();
    return showTip(event, el("b", {}, METHODS[nearest.method].name), el("table", {}, ...nearest.said.map(([name, text]) => el("tr", {}, el("td", {}), el("td", {}, name), el("td", {}, text)))));
  };
  for (const kind of ["pointermove", "pointerdown"]) chart.addEventListener(kind, near);
  chart.addEventListener("pointerleave", (event) => leaves(event) && hideTip());
  return chart;
}

const fixedMark = (value) => String(value).replace("-", "−");

/** The intervals of a point both ways. */
function cross({ method, x: a, y: b, wide, high }, x, y) {
  const ends = [[wide, `M${x(a - wide)},${y(b)}H${x(a + wide)}`], [high, `M${x(a)},${y(b - high)}V${y(b + high)}`]];
  return ends.filter(([length]) => length).map(([, d]) => svg("path", { class: "whisker", d, stroke: colour(method) }));
}

/** Names beside points, pushed apart where they would lie over another. */
function pointNames(placed, [left, right], [top, bottom]) {
  const taken = placed.flatMap(({ at: [x, y], whiskers }) => [[x - 6, y - 6, x + 6, y + 6], ...whiskers]);
  const over = (box) => taken.reduce((sum, other) => sum + Math.max(0, Math.min(box[2], other[2]) - Math.max(box[0], other[0])) * Math.max(0, Math.min(box[3], other[3]) - Math.max(box[1], other[1])), 0);
  return placed.map(({ method, at: [x, y] }) => {
    const { name } = METHODS[method], text = name.length > 24 ? `${name.slice(0, 23)}…` : name, long = 6.6 * text.length;
    const tries = [0, 11, -11, 22, -22, 33, -33].flatMap((down) => [[x + 9, down], [x - 9 - long, down]])
      .map(([from, down]) => [from, y + down - 7, from + long, y + down + 7])
      .filter((box) => box[0] >= left + 2 && box[2] <= right + 14 && box[1] >= top - 8 && box[3] <= bottom + 8);
    const best = tries.reduce((a, b) => (a && over(a) <= over(b) ? a : b), null);
    if (!best) return svg("g");
    taken.push(best);
    const far = Math.abs((best[1] + best[3]) / 2 - y) > 12;
    return svg("g", {}, far ? svg("path", { class: "leash", d: `M${x},${y}L${best[0] > x ? best[0] - 2 : best[2] + 2},${(best[1] + best[3]) / 2}` }) : null,
      svg("text", { x: best[0], y: best[3] - 3, class: "point-name" }, text));
  });
}

function setUpLevels() {
  const there = LEVELS.every((metric) => METRIC[metric]);
  byId("levels-about").replaceChildren(there
    ? "Does a method know the whole, such as “bear”, or the details, such as “polar bear”, or both? Up and to the right is better; whiskers are 95 % intervals over runs."
    : "No run has scores of superclasses and subclasses apart.");
  if (there) view(["after", "methods"], drawLevels);
}

/** The chosen score against the bytes kept from task to task, in powers of ten; nothing is one before all. */
function drawKept() {
  const box = byId("kept"), after = state.after, chosen = shownMethods().filter((method) => isNumber(METHODS[method].kept));
  const least = Math.min(...METHODS.filter(({ kept }) => kept > 0).map(({ kept }) => kept), 1e12);
  const nothing = Math.floor(Math.log10(least)) - 1, at = (kept) => (kept > 0 ? Math.log10(kept) : nothing);
  const points = chosen.map((method) => ({ method, course: series(method, state.metric) }))
    .filter(({ course }) => isNumber(course.mean[after]))
    .map(({ method, course }) => ({
      method, x: at(METHODS[method].kept), y: course.mean[after], wide: 0, high: course.half[after] ?? 0,
      said: [["kept", cost(method, "kept")], [METRIC[state.metric].short, withInterval(course, after)]],
    }));
  if (!points.length) return box.replaceChildren(notice("It is not known what the chosen methods keep."));
  const last = Math.ceil(Math.max(...points.map(({ x }) => x), nothing + 1));
  const across = Array.from({ length: last - nothing + 1 }, (_, i) => nothing + i);
  return box.replaceChildren(scatter(box.clientWidth, points, {
    across, up: range(points.map(({ y, high }) => ({ mean: [y], half: [high] }))), written: (power) => (power === nothing ? "0" : bytes(10 ** power)),
    names: ["kept from task to task, beside the network", metricTitle()],
  }));
}

function bytes(number) {
  const unit = ["B", "kB", "MB", "GB", "TB"], power = number > 0 ? Math.min(Math.floor(Math.log10(number) / 3), unit.length - 1) : 0;
  return `${Number((number / 1000 ** power).toPrecision(3))} ${unit[power]}`;
}

/** What whole runs cost, a line per method, in the columns of the report's tables. */
function drawCosts() {
  const parts = Object.entries(DATA.costs);
  byId("costs").replaceChildren(
    el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "Method"), ...parts.map(([, head]) => el("th", { scope: "col" }, head)))),
    el("tbody", {}, ...shownMethods().map((method) => el("tr", {}, methodHead(method), ...parts.map(([part]) => el("td", {}, cost(method, part)))))));
}

/** A part of what a method's runs cost, with the number of those that tell it, where some do not. */
function cost(method, part) {
  const { [part]: value, cost_runs: n, runs } = METHODS[method];
  if (!isNumber(value)) return "–";
  return (part === "kept" ? bytes(value) : Math.round(value).toLocaleString("en")) + ofFewer(n[part], runs);
}

function setUpKept() {
  byId("kept-part").hidden = !METHODS.some(({ kept, passes }) => isNumber(kept) || isNumber(passes));
  if (byId("kept-part").hidden) return;
  view(["methods"], drawCosts);
  view(["after", "methods", "metric", "onTask"], drawKept);
}
