// Test images with the labels two methods give them, now and over time.

const FIRST = 12;
const gallery = { shown: FIRST, filter: "all", family: -1 };
const FILTERS = {
  all: ["all images", () => true],
  differ: ["images the two label differently", (a, b) => a.join() !== b.join()],
  left: ["images only the first gets all right", (a, b, truth) => a.join() === truth.join() && b.join() !== truth.join()],
  right: ["images only the second gets all right", (a, b, truth) => b.join() === truth.join() && a.join() !== truth.join()],
  wrong: ["images neither gets all right", (a, b, truth) => a.join() !== truth.join() && b.join() !== truth.join()],
};
const VERDICTS = [
  ["all right", "var(--right)"], ["partly right", "color-mix(in srgb, var(--right) 45%, var(--faint))"],
  ["wrong", "var(--wrong)"], ["nothing predicted", "var(--line)"], ["not asked yet", "transparent"],
];

const labelsOf = (method, task, photo) => ANSWERS.methods[method]?.labels[task]?.[photo] ?? null;
/** An image's true labels among the classes that have arrived. */
const truthOf = (photo, task) => ANSWERS.photos[photo].filter((place) => ANSWERS.classes[place].task <= task);

function verdict(predicted, truth) {
  if (predicted === null || !truth.length) return 4;
  if (!predicted.length) return 3;
  if (predicted.join() === truth.join()) return 0;
  return predicted.some((place) => truth.includes(place)) ? 1 : 2;
}

function fits(photo) {
  const truth = truthOf(photo, state.after);
  const ofFamily = gallery.family < 0 || ANSWERS.photos[photo].includes(gallery.family);
  const [a, b] = [state.left, state.right].map((method) => labelsOf(method, state.after, photo));
  if (gallery.filter === "all") return ofFamily;
  return ofFamily && truth.length > 0 && a !== null && b !== null && FILTERS[gallery.filter][1](a, b, truth);
}

function drawGallery() {
  const fitting = [...ANSWERS.photos.keys()].filter(fits);
  const cards = fitting.slice(0, gallery.shown).map(photoCard);
  byId("gallery").replaceChildren(...cards);
  byId("gallery-count").replaceChildren(
    `${plural(fitting.length, "image")} of the ${ANSWERS.photos.length} on this page, after task ${state.after}` +
    (fitting.length > gallery.shown ? `; ${gallery.shown} shown.` : "."));
  byId("more").hidden = fitting.length <= gallery.shown;
}

function photoCard(photo) {
  const truth = truthOf(photo, state.after);
  return el("article", { class: "photo", "data-photo": photo },
    picture(photo),
    el("div", {}, el("h3", {}, truth.length ? "It is" : "Its classes have not arrived yet"),
      el("div", { class: "labels" }, ...truth.map((place) => el("span", { class: "label" }, ANSWERS.classes[place].name)))),
    answer(state.left, photo, truth), answer(state.right, photo, truth));
}

function picture(photo) {
  const { sheet, columns, lines } = ANSWERS.pictures;
  const name = ANSWERS.classes[ANSWERS.photos[photo].at(-1)].name;
  if (!sheet) return el("span", { class: "picture soft" }, "no picture");
  const part = (place, count) => (count > 1 ? (100 * place) / (count - 1) : 0);
  return el("div", {
    class: "picture", role: "img", "aria-label": `Test image of ${name}`,
    style: `background-image:var(--sheet);background-size:${100 * columns}% ${100 * lines}%;` +
      `background-position:${part(photo % columns, columns)}% ${part(Math.floor(photo / columns), lines)}%`,
  });
}

function answer(method, photo, truth) {
  const predicted = labelsOf(method, state.after, photo);
  return el("div", { class: "answer", "data-method": METHODS[method].name },
    el("h3", {}, `${METHODS[method].name} predicts`),
    el("div", { class: "labels" }, ...answerLabels(predicted, truth)), strip(method, photo));
}

function answerLabels(predicted, truth) {
  if (predicted === null || !truth.length) return [el("span", { class: "soft" }, "not asked yet")];
  const label = (kind, mark, place) => el("span", { class: `label ${kind}` }, `${mark} ${ANSWERS.classes[place].name}`);
  const right = predicted.filter((place) => truth.includes(place)).map((place) => label("right", "✓", place));
  const wrong = predicted.filter((place) => !truth.includes(place));
  const missing = truth.filter((place) => !predicted.includes(place)).map((place) => label("missing", "misses", place));
  const more = wrong.length > 6 ? [el("span", { class: "label wrong", title: wrong.slice(6).map((place) => ANSWERS.classes[place].name).join(", ") }, `✗ ${wrong.length - 6} more`)] : [];
  return [...right, ...wrong.slice(0, 6).map((place) => label("wrong", "✗", place)), ...more, ...missing];
}

/** A cell per task, coloured by how right the labels are; the chosen task is framed. */
function strip(method, photo) {
  const verdicts = Array.from({ length: TASKS }, (_, task) => verdict(labelsOf(method, task, photo), truthOf(photo, task)));
  const said = verdicts.map((which, task) => `task ${task} ${VERDICTS[which][0]}`).join(", ");
  return el("div", { class: "strip", role: "img", "aria-label": `Over time: ${said}` },
    ...verdicts.map((which, task) => el("i", {
      class: task === state.after ? "is-now" : null, "data-task": task,
      style: `background:${VERDICTS[which][1]}${which === 4 ? ";box-shadow:inset 0 0 0 1px var(--faint)" : ""}`,
      onpointermove: (event) => stripTip(event, method, photo, task, which),
      onpointerleave: (event) => leaves(event) && hideTip(), onclick: () => set({ after: task }),
    })));
}

function stripTip(event, method, photo, task, which) {
  const predicted = labelsOf(method, task, photo) ?? [];
  showTip(event, el("b", {}, `${METHODS[method].name} after task ${task}: ${VERDICTS[which][0]}`),
    predicted.length && which !== 4 ? el("div", {}, predicted.slice(0, 12).map((place) => ANSWERS.classes[place].name).join(", ")) : "");
}

const ofOneOrder = () => `Class order ${ANSWERS.order ?? "of its own"}, one run per method.`;

function setUpGallery() {
  const missing = ANSWERS.pictures.missing;
  byId("gallery-about").replaceChildren(
    "Test images, always the same, with the labels each of the two methods gives them. The strip has a cell per task: " +
    `point at it to read what was predicted then. ${ofOneOrder()}`, missing ? ` There are no pictures: ${missing}.` : "");
  if (ANSWERS.pictures.sheet) document.documentElement.style.setProperty("--sheet", `url(${ANSWERS.pictures.sheet})`);
  options(byId("gallery-filter"), Object.entries(FILTERS).map(([key, [text]]) => [key, text]), "all");
  options(byId("gallery-class"), [["-1", "every class"], ...ANSWERS.superclasses.map((place) => [String(place), ANSWERS.classes[place].name])], "-1");
  byId("gallery-key").replaceChildren(...VERDICTS.map(([text, tone]) => el("span", {}, swatch(tone), text)));
  const choose = (changes) => { Object.assign(gallery, { shown: FIRST }, changes); drawGallery(); };
  byId("gallery-filter").addEventListener("change", (event) => choose({ filter: event.target.value }));
  byId("gallery-class").addEventListener("change", (event) => choose({ family: Number(event.target.value) }));
  byId("more").addEventListener("click", () => { gallery.shown += 24; drawGallery(); });
  view(["after", "left", "right"], drawGallery);
}
