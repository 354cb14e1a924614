// The table of results after the chosen task, the chosen score after every task, and the runs.

let sortedBy = null;

function drawResults() {
  const chosen = sortedMethods();
  const best = Object.fromEntries(DATA.headline.map((metric) => [metric, bestWithinNoise(metric, chosen, state.after)]));
  const head = el("tr", {}, el("th", { scope: "col" }, headButton("Method", null)), el("th", { scope: "col" }, "Runs"),
    ...DATA.headline.map((metric) => el("th", {
      scope: "col", class: metric === state.metric ? "chosen" : null,
      "aria-sort": sortedBy === metric ? "other" : null,
    }, headButton(METRIC[metric].short, metric), el("small", { "aria-hidden": "true" }, { high: " ↑", low: " ↓", one: " →1" }[METRIC[metric].better]))));
  const rows = chosen.map((method) => el("tr", {},
    el("th", { scope: "row" }, METHODS[method].name, METHODS[method].bound ? el("small", { class: "soft" }, " bound") : null),
    el("td", {}, runsAfter(method)),
    ...DATA.headline.map((metric) => scoreCell(series(method, metric), state.after, {
      best: best[metric].has(method), chosen: metric === state.metric,
    }))));
  refill(byId("results"), el("thead", {}, head), el("tbody", {}, ...rows));
}

function runsAfter(method) {
  const there = series(method, "pw_jaccard").n[state.after];
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
  const chosen = [...state.methods].sort((a, b) => a - b);
  if (sortedBy === null) return chosen;
  const rank = (method) => {
    const value = series(method, sortedBy).mean[state.after];
    return isNumber(value) ? badness(sortedBy, value) : Infinity;
  };
  return chosen.sort((a, b) => rank(a) - rank(b));
}

/** The best method and those less than its standard deviation away; bounds are not compared. */
function bestWithinNoise(metric, methods, after) {
  const there = methods.filter((method) => !METHODS[method].bound)
    .map((method) => ({ method, course: series(method, metric) }))
    .filter(({ course }) => isNumber(course.mean[after]))
    .map(({ method, course }) => ({ method, bad: badness(metric, course.mean[after]), noise: course.std[after] ?? 0 }));
  const best = there.reduce((a, b) => (a && a.bad <= b.bad ? a : b), null);
  return new Set(there.filter(({ bad }) => bad === best.bad || bad - best.bad < best.noise).map(({ method }) => method));
}

function scoreCell(course, after, { best = false, chosen = false }) {
  const classes = [best && "best", chosen && "chosen"].filter(Boolean).join(" ");
  const spread = isNumber(course.std[after]) ? el("small", {}, ` (${number(course.std[after])})`) : null;
  return el("td", { class: classes || null }, number(course.mean[after]), spread);
}

function drawByTask() {
  const chosen = [...state.methods].sort((a, b) => a - b);
  const head = el("tr", {}, el("th", { scope: "col" }, "After task"),
    ...chosen.map((method) => el("th", { scope: "col" }, METHODS[method].name, el("br"), el("small", {}, plural(METHODS[method].runs, "run")))));
  const rows = Array.from({ length: TASKS }, (_, task) => {
    const best = bestWithinNoise(state.metric, chosen, task);
    return el("tr", { class: task === state.after ? "chosen" : null }, el("th", { scope: "row" }, String(task)),
      ...chosen.map((method) => scoreCell(series(method, state.metric), task, { best: best.has(method) })));
  });
  byId("by-task").replaceChildren(el("caption", { class: "unseen" }, metricTitle()), el("thead", {}, head), el("tbody", {}, ...rows));
}

function drawRuns() {
  const listed = (numbers) => (numbers.length ? numbers.join(", ") : "–");
  const rows = METHODS.map((method) => el("tr", {},
    el("th", { scope: "row" }, method.name), el("td", {}, String(method.runs)),
    el("td", {}, String(method.finished)), el("td", {}, listed(method.orders)), el("td", {}, listed(method.seeds))));
  byId("runs").replaceChildren(
    el("thead", {}, el("tr", {}, ...["Method", "Runs", "Finished", "Class orders", "Seeds"].map((text) => el("th", { scope: "col" }, text)))),
    el("tbody", {}, ...rows));
}
