// R_jk of the two compared methods as heat maps.

function drawHeat() {
  byId("heat").replaceChildren(heatPanel(state.left), heatPanel(state.right));
  const half = byId("heat").firstElementChild.clientWidth;
  for (const [panel, method] of [...byId("heat").children].map((node, i) => [node, [state.left, state.right][i]])) {
    const table = METHODS[method].by_task[state.heatMetric];
    const empty = table.mean.flat().every((value) => !isNumber(value));
    panel.append(empty ? notice(`${METHODS[method].name} has no scores by task.`) : heatMap(method, table, half));
  }
}

function heatPanel(method) {
  const { name, by_task: tables } = METHODS[method], runs = Math.max(...tables[state.heatMetric].n);
  return el("div", {}, el("h3", {}, `${name} `, el("span", { class: "soft" }, runs > 1 ? `mean of ${runs} runs` : plural(runs, "run"))));
}

function heatMap(method, table, width) {
  const left = 34, top = 6, size = Math.max(Math.min(width - left - 4, 470), 60) / TASKS;
  const height = top + size * TASKS + 36;
  const cells = table.mean.flatMap((row, after) => row.map((value, task) => heatCell(value, after, task, left, top, size)));
  const every = Math.ceil(16 / size);
  const ends = Array.from({ length: TASKS }, (_, i) => i).filter((i) => i % every === 0);
  const chart = svg("svg", {
    width: left + size * TASKS + 4, height, role: "img",
    "aria-label": `R_jk of ${METHODS[method].name}: ${METRIC[state.heatMetric].short} after each task on each task’s images`,
  },
    cells.flat(),
    ends.map((i) => svg("text", { x: left - 6, y: top + (i + 0.5) * size + 4, "text-anchor": "end" }, String(i))),
    ends.map((i) => svg("text", { x: left + (i + 0.5) * size, y: top + size * TASKS + 15, "text-anchor": "middle" }, String(i))),
    svg("text", { x: left + (size * TASKS) / 2, y: height - 4, "text-anchor": "middle" }, "images of task k"),
    svg("text", { x: 10, y: top + (size * TASKS) / 2, "text-anchor": "middle", transform: `rotate(-90 10 ${top + (size * TASKS) / 2})` }, "after task j"),
    svg("rect", {
      x: left, y: top + state.after * size, width: (state.after + 1) * size, height: size,
      fill: "none", stroke: "var(--ink)", "stroke-width": 1.5, "pointer-events": "none",
    }));
  chart.addEventListener("pointermove", (event) => heatTip(event, method, table));
  chart.addEventListener("pointerdown", (event) => heatTip(event, method, table));
  chart.addEventListener("pointerleave", (event) => leaves(event) && hideTip());
  chart.addEventListener("click", (event) => {
    if (event.target.dataset.after) set({ after: Number(event.target.dataset.after) });
  });
  return chart;
}

function heatCell(value, after, task, left, top, size) {
  if (!isNumber(value)) return [];
  const [x, y] = [left + task * size, top + after * size];
  const cell = svg("rect", {
    x, y, width: size - 1, height: size - 1, rx: 1.5, fill: heatColour(value), "data-after": after, "data-task": task,
  });
  const text = size < 30 ? null
    : svg("text", { class: "cell-text", x: x + size / 2, y: y + size / 2, style: `fill:${heatInk(value)}` }, value.toFixed(2).replace(/^0/, ""));
  return [cell, text];
}

function heatTip(event, method, table) {
  const { after, task } = event.target.dataset;
  if (after === undefined) return hideTip();
  const spread = isNumber(table.half[after][task]) ? ` ± ${number(table.half[after][task])}` : "";
  showTip(event, el("b", {}, METHODS[method].name), el("br"),
    `after task ${after}, on the images of task ${task}: `, el("b", {}, number(table.mean[after][task]) + spread),
    ` (${plural(table.n[after], "run")})`);
}
