// The address keeps what is shown, so that a link to it shows the same again.

const NAMES = METHODS.map((method) => method.id);
const SUPERCLASSES = (ANSWERS.superclasses ?? []).map((place) => ANSWERS.classes[place].name);
const START = { ...state };

/** What is shown and is not what every reader sees first, as the part of the address after #. */
function written() {
  const words = new URLSearchParams();
  if (state.after !== START.after) words.set("task", state.after);
  if (state.metric !== START.metric) words.set("score", state.metric);
  if (state.metric.endsWith("@k")) words.set("on", state.onTask);
  if (state.paper !== START.paper) words.set("paper", state.paper ? "yes" : "no");
  if (state.methods.size === 0) words.set("method", "");
  else if (state.methods.size < METHODS.length) shownMethods().forEach((method) => words.append("method", NAMES[method]));
  if (state.left !== START.left || state.right !== START.right) {
    [state.left, state.right].forEach((method) => words.append("compare", NAMES[method]));
  }
  if (state.superclass !== START.superclass) words.set("superclass", SUPERCLASSES[state.superclass]);
  return words.toString();
}

/** What an address asks for; what this page does not have is left as it is at first. */
function read(address) {
  const words = new URLSearchParams(address);
  const places = (key) => words.getAll(key).map((name) => NAMES.indexOf(name)).filter((place) => place >= 0);
  const whole = (key, count, other) => (/^\d+$/.test(words.get(key) ?? "") && Number(words.get(key)) < count ? Number(words.get(key)) : other);
  const pair = places("compare");
  return {
    after: whole("task", TASKS, START.after),
    metric: METRIC[words.get("score")] ? words.get("score") : START.metric,
    onTask: whole("on", TASKS, START.onTask),
    paper: words.has("paper") ? words.get("paper") === "yes" : START.paper,
    methods: words.has("method") ? new Set(places("method")) : START.methods,
    left: pair[0] ?? START.left,
    right: pair[1] ?? START.right,
    superclass: SUPERCLASSES.includes(words.get("superclass")) ? SUPERCLASSES.indexOf(words.get("superclass")) : START.superclass,
  };
}

/** An anchor such as #curves is no view: it leaves what is shown alone. */
const isView = (address) => address === "" || address.includes("=");

function setUpAddress() {
  Object.assign(state, read(location.hash.slice(1)));
  let later;
  view(["after", "metric", "onTask", "paper", "methods", "left", "right", "superclass"], () => {
    clearTimeout(later);
    // A slider changes faster than browsers let addresses change.
    later = setTimeout(() => {
      const [now, next] = [location.hash.slice(1), written()];
      if (isView(now) ? now !== next : next) history.replaceState(null, "", next ? `#${next}` : location.pathname + location.search);
    }, 250);
  });
  addEventListener("hashchange", () => {
    if (isView(location.hash.slice(1))) set(read(location.hash.slice(1)));
  });
}
