// The benchmark's questions, a line each: the score of every method on one scale.

const ARROWS = { high: "↑", low: "↓", one: "→ 1" };

function drawQuestions() {
  refill(byId("questions"), ...DATA.questions.map(({ question, metric }) => {
    const { short, better, about } = METRIC[metric];
    return el("button", {
      type: "button", class: "card", "aria-pressed": String(state.metric === metric), "data-key": metric,
      title: `${short}: ${about}. ${BETTER[better]}`, onclick: () => set({ metric }),
    }, el("b", {}, question), el("small", {}, `${short} ${ARROWS[better]}`), dots(metric), leader(metric));
  }));
}

/** The methods as their markers on a line from 0 to 1, or as far as they reach. */
function dots(metric) {
  const there = shownMethods().map((method) => ({ method, course: series(method, metric) }))
    .filter(({ course }) => isNumber(course.mean[state.after]));
  const longest = Math.max(1, ...there.map(({ course }) => course.mean[state.after]));
  const at = (value) => (100 * Math.min(Math.max(value, 0), longest)) / longest;
  const said = there.map(({ method, course }) => `${METHODS[method].name} ${fixed(course.mean[state.after], 2)}`).join(", ");
  return el("span", {
    class: "dots", role: "img", "aria-label": said || "no scores",
    onpointermove: (event) => showTip(event, ...scoreTip(there, metric)),
    onpointerleave: (event) => leaves(event) && hideTip(),
  }, ...there.flatMap(({ method, course }) => {
    const mean = course.mean[state.after], half = course.half[state.after] ?? 0;
    const [low, high] = [at(mean - half), at(mean + half)];
    return [
      half ? el("i", { style: `left:${low}%;width:${high - low}%;background:${colour(method)}` }) : null,
      svg("svg", { width: 14, height: 14, style: `left:${at(mean)}%` }, marker(method, 7, 7, 4)),
    ];
  }), el("span", { class: "end", "aria-hidden": "true" }, fixed(longest, longest > 1 ? 1 : 0)));
}

function scoreTip(there, metric) {
  const rows = [...there].sort((a, b) => badness(metric, a.course.mean[state.after]) - badness(metric, b.course.mean[state.after]))
    .map(({ method, course }) => el("tr", {}, el("td", {}, methodMark(method)), el("td", {}, METHODS[method].name),
      el("td", {}, withInterval(course, state.after))));
  return [el("b", {}, `${METRIC[metric].short} after task ${state.after}`), el("table", {}, ...rows)];
}

/** The highest mean of the methods that are compared, in words; of single runs only where there are no others. */
function leader(metric) {
  const every = shownMethods().filter((method) => compared(method) && !isOfFew(method, metric, state.after)).map((method) => [method, series(method, metric).mean[state.after]])
    .filter(([, value]) => isNumber(value));
  const several = every.filter(([method]) => series(method, metric).n[state.after] > 2);
  const there = several.length ? several : every;
  if (!there.length) return el("span", { class: "leader soft" }, "–");
  const [method, value] = there.reduce((a, b) => (badness(metric, b[1]) < badness(metric, a[1]) ? b : a));
  return el("span", { class: "leader" }, `${METHODS[method].name} `, el("b", {}, fixed(value, 2)));
}
