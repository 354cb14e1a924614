"use strict";
// What is shown (state), who redraws when it changes (views), and small tools for drawing.

const DATA = JSON.parse(document.getElementById("data").textContent);
const TASKS = DATA.tasks;
const METHODS = DATA.methods;
const ANSWERS = DATA.answers;
const METRIC = Object.fromEntries(DATA.metrics.map((metric) => [metric.id, metric]));

const HEAT = {
  light: ["#f5f7f9", "#a9cfe6", "#3b87bd", "#08306b"],
  dark: ["#1d242c", "#1d5680", "#56b4e9", "#f4fbff"],
};

const byId = (id) => document.getElementById(id);
const theme = () => document.documentElement.dataset.theme;
const colour = (method) => METHODS[method].look[theme() === "dark" ? "on_dark" : "colour"];
/** Bounds are dashed. */
const dash = (method) => (METHODS[method].look.dashed ? "7 4" : "");

const state = {
  methods: new Set(METHODS.keys()),
  metric: "pw_jaccard",
  onTask: 0,
  paper: DATA.paper ?? false,
  after: DATA.last,
  left: DATA.pair[0],
  right: DATA.pair[1],
  heatMetric: "pw_jaccard",
  superclass: DATA.answers.superclass ?? 0,
  arranged: "arrival",
  theme: "light",
};
const views = [];

/** Draw now, and again whenever one of the named parts of the state changes. */
function view(parts, draw) {
  views.push({ parts: new Set([...parts, "theme", "width"]), draw });
}

function set(changes) {
  Object.assign(state, changes);
  for (const { parts, draw } of views) {
    if (Object.keys(changes).some((part) => parts.has(part))) draw();
  }
}

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

/** An HTML element; text among the children stays text, whatever a class is called. */
function el(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

/** Put new children into a box; the focus stays on the one with the same key. */
function refill(box, ...children) {
  const key = box.contains(document.activeElement) ? document.activeElement.dataset.key : undefined;
  box.replaceChildren(...children);
  if (key !== undefined) [...box.querySelectorAll("[data-key]")].find((node) => node.dataset.key === key)?.focus();
}

function options(select, pairs, chosen) {
  select.replaceChildren(
    ...pairs.map(([value, text]) => el("option", { value, selected: value === chosen }, text)));
}

// ---- words and numbers -------------------------------------------------------------------

const isNumber = (value) => value !== null && value !== undefined;
const plural = (count, word) => `${count} ${word}${count === 1 ? "" : "s"}`;
const fixed = (value, places) => (isNumber(value) ? value.toFixed(places).replace("-", "−") : "–");
const number = (value) => fixed(value, 3);
const percent = (share) => `${Math.round(100 * share)} %`;

/** "0.412 ± 0.020 (10 runs)"; a single run has no interval. */
function withInterval(series, after) {
  if (!isNumber(series.mean[after])) return "–";
  const spread = isNumber(series.half[after]) ? ` ± ${number(series.half[after])}` : "";
  return `${number(series.mean[after])}${spread} (${plural(series.n[after], "run")})`;
}

/** " (n = 2)": of how many runs a number is, where what stands beside it says more. */
const ofFewer = (n, runs) => (n > 0 && n < runs ? ` (n = ${n})` : "");

/** "0–4, 7": numbers in few words. */
function spans(numbers) {
  const parts = [];
  for (const one of numbers) {
    if (parts.length && one === parts.at(-1)[1] + 1) parts.at(-1)[1] = one;
    else parts.push([one, one]);
  }
  return parts.map(([first, last]) => (first === last ? `${first}` : last === first + 1 ? `${first}, ${last}` : `${first}–${last}`)).join(", ") || "–";
}

/** What a ratio is of: cases, images and runs that tell them; undefined where that is the same for all, null where nobody knows. */
const casesOf = (method, metric, after) => METHODS[method].cases[metric]?.[after];

/** Whether a ratio is of so few cases, or nobody knows of how many, that it cannot be the best. */
function isOfFew(method, metric, after) {
  const found = casesOf(method, metric, after);
  return found === null || (found !== undefined && found[0] < DATA.few * found[1]);
}

/** Whether a method takes part in comparisons: bounds and oracles do not. */
const compared = (method) => !METHODS[method].bound && !METHODS[method].oracle;
/** The methods that are switched on, as the report lists them. */
const shownMethods = () => [...state.methods].sort((a, b) => a - b);

/** A method's course of a score over the tasks: mean, interval and number of runs after each. */
function series(method, metric) {
  const [name, kind] = metric.split("@");
  if (kind !== "k") return METHODS[method].scores[metric];
  const table = METHODS[method].by_task[name];
  const column = (rows) => rows.map((row) => (row.length > state.onTask ? row[state.onTask] : null));
  return { mean: column(table.mean), half: column(table.half), n: table.n };
}

function metricTitle(metric = state.metric) {
  const { title } = METRIC[metric];
  return metric.endsWith("@k") ? title.replace("one task’s images", `the images of task ${state.onTask}`) : title;
}

const BETTER = { high: "Higher is better.", low: "Lower is better.", one: "Best is 1." };

/** How far a value is from the best it could be, so that the smallest is the best. */
function badness(metric, value) {
  return { high: -value, low: value, one: Math.abs(value - 1) }[METRIC[metric].better];
}

// ---- colours -----------------------------------------------------------------------------

function heatRgb(share) {
  const stops = HEAT[theme()];
  const at = Math.min(Math.max(share, 0), 1) * (stops.length - 1);
  const low = Math.min(Math.floor(at), stops.length - 2);
  const parts = (hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
  const [from, to] = [parts(stops[low]), parts(stops[low + 1])];
  return from.map((value, i) => Math.round(value + (to[i] - value) * (at - low)));
}

const heatColour = (share) => `rgb(${heatRgb(share).join(" ")})`;

/** Black or white, whichever stands out more from the heat colour. */
function heatInk(share) {
  const [r, g, b] = heatRgb(share).map((part) => (part / 255 <= 0.04045 ? part / 255 / 12.92 : ((part / 255 + 0.055) / 1.055) ** 2.4));
  const light = 0.2126 * r + 0.7152 * g + 0.0722 * b;
  return 1.05 / (light + 0.05) > (light + 0.05) / 0.05 ? "#fff" : "#000";
}

// ---- the tooltip -------------------------------------------------------------------------

function showTip(event, ...content) {
  const tip = byId("tip");
  tip.replaceChildren(...content);
  tip.hidden = false;
  const { width, height } = tip.getBoundingClientRect();
  // On a phone there is no room beside the finger: the foot of the screen stays out of its way.
  if (innerWidth < 600) return Object.assign(tip.style, { left: "4px", top: `${innerHeight - height - 4}px` });
  const right = event.clientX + 16 + width > innerWidth;
  const x = right ? Math.max(4, event.clientX - width - 16) : event.clientX + 16;
  const y = Math.min(Math.max(4, event.clientY - height / 2), innerHeight - height - 4);
  return Object.assign(tip.style, { left: `${x}px`, top: `${y}px` });
}

/** Whether the pointer has gone away: a finger is lifted, and what it touched is still read. */
const leaves = (event) => event.pointerType !== "touch";

function hideTip() {
  byId("tip").hidden = true;
}

const swatch = (fillColour) => el("i", { style: `background:${fillColour}` });

/** Corners of the markers, by the names that the figures have for them; a circle has none. */
const CORNERS = {
  s: [[-1, -1], [1, -1], [1, 1], [-1, 1]],
  "^": [[0, -1.2], [1.2, 0.9], [-1.2, 0.9]],
  v: [[0, 1.2], [1.2, -0.9], [-1.2, -0.9]],
  "<": [[-1.2, 0], [0.9, -1.2], [0.9, 1.2]],
  ">": [[1.2, 0], [-0.9, -1.2], [-0.9, 1.2]],
  D: [[0, -1.35], [1.35, 0], [0, 1.35], [-1.35, 0]],
  P: [[-0.5, -1.3], [0.5, -1.3], [0.5, -0.5], [1.3, -0.5], [1.3, 0.5], [0.5, 0.5], [0.5, 1.3], [-0.5, 1.3], [-0.5, 0.5], [-1.3, 0.5], [-1.3, -0.5], [-0.5, -0.5]],
  X: [[0, -0.7], [0.7, -1.3], [1.3, -0.7], [0.7, 0], [1.3, 0.7], [0.7, 1.3], [0, 0.7], [-0.7, 1.3], [-1.3, 0.7], [-0.7, 0], [-1.3, -0.7], [-0.7, -1.3]],
};

/** The mark of a method in lines and legends: a shape of its own in its colour. */
function marker(method, x, y, size = 4) {
  const corners = CORNERS[METHODS[method].look.marker];
  if (!corners) return svg("circle", { cx: x, cy: y, r: size, fill: colour(method) });
  const points = corners.map(([right, down]) => `${(x + size * right).toFixed(1)},${(y + size * down).toFixed(1)}`);
  return svg("polygon", { points: points.join(" "), fill: colour(method) });
}

const methodMark = (method) => svg("svg", { width: 22, height: 12, "aria-hidden": "true" },
  svg("path", { d: "M0,6H22", stroke: colour(method), "stroke-width": 2, "stroke-dasharray": dash(method) }),
  marker(method, 11, 6));

const notice = (text) => el("p", { class: "notice" }, text);
