// The chosen score over the tasks.

const MARGIN = { left: 44, right: 14, top: 12, bottom: 38 };

/** Round steps for an axis from low to high, about five of them. */
function ticks(low, high) {
  const rough = (high - low) / 5;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((factor) => factor * power >= rough);
  const first = Math.floor(low / step) * step;
  const count = Math.ceil((high - first) / step - 1e-9);
  return Array.from({ length: count + 1 }, (_, i) => Number((first + i * step).toFixed(6)));
}

function range(curves) {
  const means = curves.flatMap(({ mean }) => mean.filter(isNumber));
  const ends = curves.flatMap(({ mean, half }) => mean.map((value, i) => (isNumber(value) ? value + (half?.[i] ?? 0) : 0)));
  // An interval may reach beyond what a score can be; the axis does not.
  return ticks(Math.min(0, ...means), Math.max(0.1, ...means, Math.min(1, Math.max(...ends, 0))));
}

/** An empty chart over the tasks: its SVG and where tasks and values lie. */
function frame(width, height, marks, label) {
  const inner = Math.max(width - MARGIN.left - MARGIN.right, 40);
  const x = (task) => MARGIN.left + (TASKS > 1 ? (task / (TASKS - 1)) * inner : inner / 2);
  const [low, high] = [marks[0], marks[marks.length - 1]];
  const inside = (value) => Math.min(Math.max(value, low), high);
  const y = (value) => MARGIN.top + ((high - inside(value)) / (high - low)) * (height - MARGIN.top - MARGIN.bottom);
  const every = Math.ceil(TASKS / Math.max(2, inner / 34));
  const chart = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label },
    marks.map((value) => [
      svg("line", { class: "axis", x1: MARGIN.left, x2: width - MARGIN.right, y1: y(value), y2: y(value) }),
      svg("text", { x: MARGIN.left - 8, y: y(value) + 4, "text-anchor": "end" }, String(value).replace("-", "−")),
    ]).flat(),
    Array.from({ length: TASKS }, (_, task) => task % every ? null
      : svg("text", { x: x(task), y: height - MARGIN.bottom + 18, "text-anchor": "middle" }, String(task))),
    svg("text", { x: MARGIN.left + inner / 2, y: height - 4, "text-anchor": "middle" }, "after task"));
  return { chart, x, y, height, width };
}

/** Stretches of tasks without a gap, as lists of points; an unfinished run leaves gaps. */
function stretches(values) {
  const parts = [[]];
  values.forEach((value, task) => {
    if (isNumber(value)) parts[parts.length - 1].push(task);
    else if (parts[parts.length - 1].length) parts.push([]);
  });
  return parts.filter((part) => part.length);
}

function curve(method, course, { x, y }) {
  const point = (task, value) => `${x(task).toFixed(1)},${y(value).toFixed(1)}`;
  const parts = stretches(course.mean);
  const bands = parts.map((part) => {
    const edge = (task, sign) => point(task, course.mean[task] + sign * (course.half[task] ?? 0));
    const there = part.map((task) => edge(task, 1)), back = part.map((task) => edge(task, -1)).reverse();
    if (part.length === 1) return svg("path", { class: "whisker", d: `M${there[0]}L${back[0]}`, stroke: colour(method) });
    return svg("path", { class: "band", d: `M${[...there, ...back].join("L")}Z`, fill: colour(method) });
  });
  const line = parts.map((part) => `M${part.map((task) => point(task, course.mean[task])).join("L")}`).join("");
  // Joint training has one point, at the last task: it must not be overlooked.
  const size = parts.flat().length > 1 ? 3.2 : 5.5;
  const dots = parts.flat().map((task) => marker(method, x(task), y(course.mean[task]), size));
  return [bands, svg("path", {
    class: "line", d: line, stroke: colour(method), "stroke-dasharray": dash(method), "data-method": METHODS[method].name,
  }), dots].flat();
}

function paperCurve(method, { x, y }) {
  const mean = METHODS[method].paper;
  const d = stretches(mean).map((part) => `M${part.map((task) => `${x(task)},${y(mean[task])}`).join("L")}`).join("");
  return svg("path", { class: "line paper", d, stroke: colour(method), "data-paper": METHODS[method].name });
}

const showsPaper = (method) => state.paper && state.metric === "pw_jaccard" && METHODS[method].paper;

function drawCurves() {
  const box = byId("curve-chart");
  const chosen = shownMethods();
  const courses = chosen.map((method) => series(method, state.metric));
  const papers = chosen.filter(showsPaper);
  const width = box.clientWidth;
  const marks = range([...courses, ...papers.map((method) => ({ mean: METHODS[method].paper }))]);
  const area = frame(width, Math.min(440, Math.max(270, width * 0.42)), marks, `${metricTitle()} after each task`);
  const guide = svg("line", { class: "guide", y1: MARGIN.top, y2: area.height - MARGIN.bottom, visibility: "hidden" });
  const now = area.x(state.after);
  area.chart.append(
    svg("line", { class: "now", x1: now, x2: now, y1: MARGIN.top, y2: area.height - MARGIN.bottom }), guide,
    ...papers.map((method) => paperCurve(method, area)),
    ...chosen.flatMap((method, i) => curve(method, courses[i], area)),
    hoverArea(area, guide, (task) => curveTip(chosen, courses, papers, task)));
  box.replaceChildren(chosen.length ? area.chart : notice("No method is chosen: choose one above."));
  describeCurves(chosen, courses);
}

/** The part of a chart that answers the pointer: a guide, a tooltip, a click that moves the task. */
function hoverArea({ x, width, height }, guide, content) {
  const nearest = (event) => {
    const left = event.currentTarget.ownerSVGElement.getBoundingClientRect().left;
    const share = (event.clientX - left - x(0)) / Math.max(1, x(TASKS - 1) - x(0));
    return Math.min(TASKS - 1, Math.max(0, Math.round(share * (TASKS - 1))));
  };
  const point = (event) => {
    const task = nearest(event);
    guide.setAttribute("x1", x(task));
    guide.setAttribute("x2", x(task));
    guide.setAttribute("visibility", "visible");
    showTip(event, ...content(task));
  };
  return svg("rect", {
    class: "hit", x: 0, y: 0, width, height, onpointermove: point, onpointerdown: point,
    onpointerleave: (event) => { if (leaves(event)) { hideTip(); guide.setAttribute("visibility", "hidden"); } },
    onclick: (event) => set({ after: nearest(event) }),
  });
}

function curveTip(chosen, courses, papers, task) {
  const rows = chosen.map((method, i) => ({ method, course: courses[i] }))
    .sort((a, b) => (b.course.mean[task] ?? -9) - (a.course.mean[task] ?? -9))
    .map(({ method, course }) => el("tr", {},
      el("td", {}, methodMark(method)), el("td", {}, METHODS[method].name), el("td", {}, withInterval(course, task)),
      papers.includes(method) ? el("td", {}, `paper ${fixed(METHODS[method].paper[task], 2)}`) : null));
  return [el("b", {}, `${METRIC[state.metric].short} after task ${task}`), el("table", {}, ...rows)];
}

function describeCurves(chosen, courses) {
  const { about, better } = METRIC[state.metric];
  byId("metric-about").replaceChildren(`${about[0].toUpperCase()}${about.slice(1)}. ${BETTER[better]}`);
  const most = courses.map((course) => Math.max(0, ...course.n));
  const single = most.every((count) => count <= 1);
  const named = (count) => chosen.filter((_, i) => most[i] === count).map((method) => METHODS[method].name).join(", ");
  const counts = new Set(most).size === 1 ? `n = ${most[0]} runs per method`
    : [...new Set(most)].sort((a, b) => b - a).map((count) => `n = ${count}: ${named(count)}`).join("; ");
  byId("curve-foot").replaceChildren(
    single ? "One run per method at most, so there is no interval to show."
      : `Bands: mean ± 95 % interval over runs (class orders and seeds), where there are at least three; ${counts}.`);
}
