// Controls, keys and theme; then everything is drawn once.

function setUpLead() {
  const unfinished = DATA.runs - METHODS.reduce((sum, method) => sum + method.finished, 0);
  const split = DATA.split === "test" ? "test images" : "post-task validation images";
  byId("lead").replaceChildren(
    `${DATA.benchmark}: ${plural(METHODS.length, "method")}, ${plural(DATA.runs, "run")}, ${plural(TASKS, "task")}; scores on ${split}.` +
    (unfinished ? ` ${plural(unfinished, "run")} unfinished: shown as far as they are.` : ""));
  document.querySelectorAll(".after").forEach((node) => view(["after"], () => node.replaceChildren(`after task ${state.after}`)));
}

function setUpMethods() {
  view(["methods"], () => refill(byId("methods"), ...METHODS.map(chip)));
  byId("all-methods").addEventListener("click", () => set({ methods: new Set(METHODS.keys()) }));
  byId("no-methods").addEventListener("click", () => set({ methods: new Set() }));
}

function chip({ name, runs }, method) {
  return el("button", {
    type: "button", class: "chip", "data-key": method, "aria-pressed": String(state.methods.has(method)),
    onclick: () => toggle(method),
  }, methodMark(method), name, el("small", {}, plural(runs, "run")));
}

function toggle(method) {
  const methods = new Set(state.methods);
  if (!methods.delete(method)) methods.add(method);
  set({ methods });
}

function setUpTask() {
  const slider = byId("task");
  slider.max = TASKS - 1;
  slider.addEventListener("input", () => set({ after: Number(slider.value) }));
  byId("earlier").addEventListener("click", () => moveTask(-1));
  byId("later").addEventListener("click", () => moveTask(1));
  view(["after"], () => {
    slider.value = state.after;
    slider.setAttribute("aria-valuetext", `after task ${state.after}`);
    byId("task-number").value = `${state.after} of ${TASKS - 1}`;
    byId("earlier").disabled = state.after === 0;
    byId("later").disabled = state.after === TASKS - 1;
  });
  document.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    // Sliders, lists and tables that scroll use the arrows themselves.
    if (!step || event.altKey || event.ctrlKey || event.metaKey || event.target.closest("select, input, .scroll")) return;
    event.preventDefault();
    moveTask(step);
  });
}

function moveTask(step) {
  const after = Math.min(Math.max(state.after + step, 0), TASKS - 1);
  if (after === state.after) return;
  set({ after });
  byId("status").textContent = `After task ${after}`;
}

function setUpPair() {
  const names = METHODS.map((method, i) => [String(i), method.name]);
  for (const side of ["left", "right"]) {
    view([side], () => options(byId(side), names, String(state[side])));
    byId(side).addEventListener("change", (event) => set({ [side]: Number(event.target.value) }));
  }
}

function setUpMetric() {
  const parts = new Map();
  for (const metric of DATA.metrics) parts.set(metric.part, [...(parts.get(metric.part) ?? []), metric]);
  byId("metric").replaceChildren(...[...parts].map(([label, metrics]) => el("optgroup", { label },
    ...metrics.map(({ id, title }) => el("option", { value: id }, title)))));
  byId("metric").addEventListener("change", (event) => set({ metric: event.target.value }));
  view(["onTask"], () => options(byId("on-task"), Array.from({ length: TASKS }, (_, task) => [String(task), `task ${task}`]), String(state.onTask)));
  byId("on-task").addEventListener("change", (event) => set({ onTask: Number(event.target.value) }));
  byId("paper").addEventListener("change", (event) => set({ paper: event.target.checked }));
  view(["metric", "paper"], () => {
    byId("paper").checked = state.paper;
    byId("metric").value = state.metric;
    byId("on-task-label").hidden = !state.metric.endsWith("@k");
    byId("paper-label").hidden = state.metric !== "pw_jaccard" || !METHODS.some((method) => method.paper);
  });
  options(byId("heat-metric"), Object.keys(METHODS[0].by_task).filter((name) => METRIC[`${name}@new`]).map((name) => [name, METRIC[`${name}@new`].title.split(" on ")[0]]), "pw_jaccard");
  byId("heat-metric").addEventListener("change", (event) => set({ heatMetric: event.target.value }));
}

function setUpTheme() {
  const system = matchMedia("(prefers-color-scheme: dark)");
  const use = (name) => {
    document.documentElement.dataset.theme = name;
    byId("theme-name").textContent = name === "dark" ? "Light" : "Dark";
    set({ theme: name });
  };
  byId("theme").addEventListener("click", () => use(theme() === "dark" ? "light" : "dark"));
  system.addEventListener("change", () => use(system.matches ? "dark" : "light"));
  addEventListener("beforeprint", () => use("light"));
  return () => use(system.matches ? "dark" : "light");
}

/** Parts that need predictions are drawn, or say why they are not here. */
function setUpAnswers() {
  if (!ANSWERS.missing) {
    setUpConfusion();
    if (ANSWERS.superclasses.length) setUpRiver();
    else byId("river-part").replaceChildren(notice("This benchmark has no superclasses."));
    setUpGallery();
    return;
  }
  for (const part of ["confusion", "river", "gallery"]) {
    byId(`${part}-part`).replaceChildren(notice(`This part needs the predictions of a run and its data: ${ANSWERS.missing}.`));
  }
}

/** Draw again where the page has another width: one in a hidden frame has none until it is shown. */
function redrawOnResize() {
  const box = byId("curve-chart");
  let width = box.clientWidth;
  new ResizeObserver(() => {
    if (box.clientWidth === width) return;
    width = box.clientWidth;
    // Not at once: drawing changes heights, which is not for now to observe.
    requestAnimationFrame(() => set({ width }));
  }).observe(box);
}

setUpAddress();
setUpLead();
setUpMethods();
setUpTask();
setUpPair();
setUpMetric();
view(["methods", "metric", "onTask", "paper", "after"], drawCurves);
view(["methods", "metric", "after"], drawResults);
view(["methods", "metric", "onTask", "after"], drawByTask);
view(["methods", "metric", "after"], drawQuestions);
setUpLevels();
setUpFamilies();
setUpKept();
setUpTrees();
view(["left", "right", "after", "heatMetric"], drawHeat);
setUpAnswers();
drawRuns();
setUpScrolling();
setUpLinks();
redrawOnResize();
addEventListener("scroll", hideTip, { passive: true });
addEventListener("pointerdown", hideTip, { capture: true });
addEventListener("keydown", hideTip);
setUpTheme()();
