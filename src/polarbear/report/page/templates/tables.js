// The table of results after the chosen task, the chosen score after every task, and the runs.

let sortedBy = null;

function drawResults() {
  const chosen = sortedMethods();
  const best = Object.fromEntries(DATA.headline.map((metric) => [metric, marked(metric, state.after)]));
  const head = el("tr", {}, el("th", { scope: "col" }, headButton("Method", null)), el("th", { scope: "col" }, "Runs"),
    ...DATA.headline.map((metric) => el("th", {
      scope: "col", class: metric === state.metric ? "chosen" : null,
      "aria-sort": sortedBy === metric ? "other" : null,
    }, headButton(METRIC[metric].short, metric), el("small", { "aria-hidden": "true" }, { high: " ↑", low: " ↓", one: " →1" }[METRIC[metric].better]))));
  const rows = chosen.map((method) => el("tr", {},
    methodHead(method), el("td", { class: "runs" }, runsAfter(method), el("small", {}, ofWhat(method))),
    ...DATA.headline.map((metric) => scoreCell(method, metric, state.after, {
      runs: countAfter(method), best: best[metric].has(method), chosen: metric === state.metric,
    }))));
  refill(byId("results"), el("thead", {}, head), el("tbody", {}, ...rows));
  byId("rule").textContent = DATA.rules[Object.values(best).some((methods) => methods.size) ? 0 : 1];
}

function methodHead(method) {
  const { name, bound, oracle } = METHODS[method];
  const tag = bound ? " bound" : oracle ? " oracle" : null;
  return el("th", { scope: "row" }, el("span", { class: "name" }, methodMark(method), el("span", {}, name, tag ? el("small", { class: "soft" }, tag) : null)));
}

/** "5 orders, 2 seeds": what the runs differ in. */
function ofWhat(method) {
  const { orders, seeds } = METHODS[method];
  return [[orders, "order"], [seeds, "seed"]].filter(([numbers]) => numbers.length).map(([numbers, word]) => plural(numbers.length, word)).join(", ");
}

const countAfter = (method) => series(method, "pw_jaccard").n[state.after];

function runsAfter(method) {
  const there = countAfter(method);
  const all = METHODS[method].runs;
  return there === all ? String(all) : `${there} of ${all}`;
}

function headButton(text, metric) {
  return el("button", {
    type: "button", "data-key": metric ?? "method", title: metric ? `Sort by ${METRIC[metric].title}: ${METRIC[metric].about}` : "Sort as listed",
    onclick: () => { sortedBy = metric; drawResults(); },
  }, text);
}

function sortedMethods() {
  const chosen = shownMethods();
  if (sortedBy === null) return chosen;
  const rank = (method) => {
    const value = series(method, sortedBy).mean[state.after];
    return isNumber(value) ? badness(sortedBy, value) : Infinity;
  };
  return chosen.sort((a, b) => rank(a) - rank(b));
}

/** The methods that the report's tables mark as the best, or as good as that. */
const marked = (metric, after) => new Set(DATA.marks[metric]?.[after] ?? []);

/** Mean and interval, marked where it is of fewer runs; a ratio says of how many cases it is, and is pale where they are few. */
function scoreCell(method, metric, after, { runs, best = false, chosen = false }) {
  const course = series(method, metric), of = casesOf(method, metric, after);
  const few = of && isOfFew(method, metric, after);
  const classes = [best && "best", chosen && "chosen", few && "few"].filter(Boolean).join(" ");
  const spread = isNumber(course.half[after]) ? el("small", {}, `± ${number(course.half[after])}`) : null;
  const fewer = isNumber(course.mean[after]) ? ofFewer(course.n[after], runs) : "";
  const count = of && isNumber(course.mean[after]) ? el("small", {}, `of ${of[0].toLocaleString("en")}${ofFewer(of[2], runs)}`) : null;
  return el("td", { class: classes || null, title: few ? "A ratio of few cases: less than one for twenty images." : null },
    number(course.mean[after]), " ", spread, fewer ? el("small", {}, fewer) : null, " ", count);
}

function drawByTask() {
  const chosen = shownMethods();
  const head = el("tr", {}, el("th", { scope: "col" }, "After task"),
    ...chosen.map((method) => el("th", { scope: "col" }, METHODS[method].name, el("br"), el("small", {}, plural(METHODS[method].runs, "run")))));
  const rows = Array.from({ length: TASKS }, (_, task) => {
    const best = marked(state.metric, task);
    return el("tr", { class: task === state.after ? "chosen" : null }, el("th", { scope: "row" }, String(task)),
      ...chosen.map((method) => scoreCell(method, state.metric, task, { runs: METHODS[method].runs, best: best.has(method) })));
  });
  byId("by-task").replaceChildren(el("caption", { class: "unseen" }, metricTitle()), el("thead", {}, head), el("tbody", {}, ...rows));
}

function drawRuns() {
  const rows = METHODS.map((method) => el("tr", {},
    el("th", { scope: "row" }, method.name), el("td", {}, String(method.runs)),
    el("td", {}, String(method.finished)), el("td", {}, spans(method.orders)), el("td", {}, spans(method.seeds))));
  byId("runs").replaceChildren(
    el("thead", {}, el("tr", {}, ...["Method", "Runs", "Finished", "Class orders", "Seeds"].map((text) => el("th", { scope: "col" }, text)))),
    el("tbody", {}, ...rows));
}

/** Tables wider than their box say so, and how many columns are out of sight to the right. */
function setUpScrolling() {
  const boxes = [...document.querySelectorAll(".scroll")].map((scroll) => {
    const hint = el("p", { class: "hint", "aria-hidden": "true" });
    const box = el("div", { class: "scroll-box" });
    scroll.replaceWith(box);
    box.append(hint, scroll);
    return { box, scroll, hint };
  });
  const update = ({ box, scroll, hint }) => {
    const end = scroll.getBoundingClientRect().right;
    const beyond = [...scroll.querySelectorAll("thead th")].filter((cell) => cell.getBoundingClientRect().right > end + 2).length;
    box.classList.toggle("more", beyond > 0);
    box.classList.toggle("less", scroll.scrollLeft > 2);
    hint.textContent = beyond > 0 ? `scroll for ${plural(beyond, "more column")} →` : scroll.scrollLeft > 2 ? "← scroll back" : "";
    hint.hidden = scroll.scrollWidth <= scroll.clientWidth + 1;
  };
  boxes.forEach((one) => one.scroll.addEventListener("scroll", () => update(one), { passive: true }));
  document.querySelectorAll("details").forEach((details) => details.addEventListener("toggle", () => boxes.forEach(update)));
  view(["methods", "metric", "onTask", "after"], () => boxes.forEach(update));
}
