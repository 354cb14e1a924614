// Confusion matrices: unpacked when first needed, and painted onto canvases.

const GUTTER = 92;
const matrices = new Map();
const zoom = { x: 0, y: 0, span: 1 };
/** What is on the canvases: the matrices of a task, their classes as arranged, where lines part
 *  them; and a number for each drawing begun. */
const drawn = { task: 0, classes: [], parts: [], ticket: 0 };
const cursor = { row: 0, column: 0, on: false };

/** The nearest task with a matrix: of large benchmarks, not every task's is kept. */
function keptTask() {
  return ANSWERS.kept.reduce((a, b) => (Math.abs(b - state.after) < Math.abs(a - state.after) ? b : a));
}

/** The rates of a packed matrix as bytes from 0 to 255, row by row. */
async function unpacked(text) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/** The classes from the top above one down to it, by their places of arrival. */
function pathTo(place) {
  const { up } = ANSWERS.classes[place];
  return up < 0 ? [place] : [...pathTo(up), place];
}

/** Arrange the classes seen after a task: as they arrived, or each superclass before its own. */
function arrange(task) {
  const places = [...Array(ANSWERS.seen[task]).keys()];
  if (state.arranged === "arrival") return { classes: places, parts: ANSWERS.seen.slice(0, task) };
  const paths = places.map(pathTo);
  const before = (a, b) => { const i = a.findIndex((value, k) => value !== b[k]); return i < 0 ? -1 : a[i] - (b[i] ?? -1); };
  const classes = places.sort((a, b) => (a === b ? 0 : before(paths[a], paths[b])));
  const inFamily = (i) => [paths[classes[i]][0], paths[classes[i]].length > 1 || ANSWERS.superclasses.includes(classes[i])];
  // Lines stand around families alone; among classes without one they would only crowd.
  const parts = classes.map((_, i) => i).slice(1).filter((i) => {
    const [root, family] = inFamily(i), [other, earlier] = inFamily(i - 1);
    return root !== other && (family || earlier);
  });
  return { classes, parts };
}

async function matrixOf(who, task) {
  const key = `${who}/${task}`, packed = who === "truth" ? ANSWERS.truth : ANSWERS.methods[who]?.confusion;
  const text = packed?.[task];
  if (text && !matrices.has(key)) matrices.set(key, await unpacked(text));
  return matrices.get(key);
}

function paintAll() {
  for (const canvas of byId("confusion").querySelectorAll("canvas")) paint(canvas);
  describeCell();
}

function paint(canvas) {
  const task = drawn.task, size = ANSWERS.seen[task], side = canvas.clientWidth, scale = devicePixelRatio || 1;
  canvas.width = canvas.height = Math.round(side * scale);
  const pen = canvas.getContext("2d");
  pen.scale(scale, scale);
  const plot = side - GUTTER, cell = plot / zoom.span;
  pen.imageSmoothingEnabled = cell * scale < 1;
  pen.drawImage(pictureOf(canvas.dataset.who, task, size), zoom.x, zoom.y, zoom.span, zoom.span, GUTTER, GUTTER, plot, plot);
  paintLines(pen, plot, cell);
  paintNames(pen, size, cell, side);
  paintAxes(pen);
  if (cursor.on) paintCursor(pen, cell, side);
  if (cell >= 26) paintRates(pen, canvas.dataset.who, task, size, cell);
}

/** The whole matrix, a pixel per cell, kept until the colours change. */
function pictureOf(who, task, size) {
  const key = `${who}/${task}/${theme()}/${state.arranged}`;
  if (!matrices.has(key)) {
    const rates = matrices.get(`${who}/${task}`), picture = el("canvas", { width: size, height: size });
    const image = new ImageData(size, size), pixels = new Uint32Array(image.data.buffer);
    const palette = Array.from({ length: 256 }, (_, i) => heatRgb(i / 255)).map(([r, g, b]) => (255 << 24) | (b << 16) | (g << 8) | r);
    drawn.classes.forEach((row, y) => drawn.classes.forEach((column, x) => {
      pixels[y * size + x] = palette[rates[row * size + column]];
    }));
    picture.getContext("2d").putImageData(image, 0, 0);
    matrices.set(key, picture);
  }
  return matrices.get(key);
}

function paintLines(pen, plot, cell) {
  pen.strokeStyle = theme() === "dark" ? "rgb(255 255 255 / .13)" : "rgb(0 0 0 / .12)";
  pen.lineWidth = 1;
  pen.strokeRect(GUTTER + 0.5, GUTTER + 0.5, plot - 1, plot - 1);
  for (const end of drawn.parts) {
    for (const [first, along] of [[zoom.x, true], [zoom.y, false]]) {
      const at = GUTTER + (end - first) * cell;
      if (at <= GUTTER || at >= GUTTER + plot) continue;
      pen.beginPath();
      pen.moveTo(...(along ? [at, GUTTER] : [GUTTER, at]));
      pen.lineTo(...(along ? [at, GUTTER + plot] : [GUTTER + plot, at]));
      pen.stroke();
    }
  }
}

function paintNames(pen, size, cell, side) {
  const every = Math.max(1, Math.ceil(11 / cell));
  const inner = new Set(ANSWERS.superclasses), family = getComputedStyle(document.body).fontFamily;
  const [ink, soft] = ["--ink", "--soft"].map((name) => getComputedStyle(document.documentElement).getPropertyValue(name));
  const name = (place, x, y, turn) => {
    const chosen = cursor.on && place === (turn ? cursor.column : cursor.row), above = inner.has(drawn.classes[place]);
    pen.font = `${above || chosen ? "600 " : ""}10.5px ${family}`;
    pen.fillStyle = chosen || above ? ink : soft;
    pen.save();
    pen.translate(x, y);
    if (turn) pen.rotate(-Math.PI / 2);
    pen.textAlign = turn ? "left" : "right";
    pen.fillText(fitted(pen, ANSWERS.classes[drawn.classes[place]].name, GUTTER - 10), 0, 3.5);
    pen.restore();
  };
  for (const [first, chosen, turn] of [[zoom.y, cursor.row, false], [zoom.x, cursor.column, true]]) {
    for (const place of namedPlaces(size, every, chosen)) {
      const at = GUTTER + (place + 0.5 - first) * cell;
      if (at > GUTTER && at < side) name(place, ...(turn ? [at, GUTTER - 5] : [GUTTER - 5, at]), turn);
    }
  }
}

/** Places far enough apart to be read; the one pointed at is always named, and its neighbours make room. */
function namedPlaces(size, every, chosen) {
  const places = Array.from({ length: Math.ceil(size / every) }, (_, i) => i * every);
  return cursor.on ? [...places.filter((place) => Math.abs(place - chosen) >= every), chosen] : places;
}

function paintAxes(pen) {
  pen.font = "10.5px system-ui, sans-serif";
  pen.textAlign = "right";
  pen.fillStyle = getComputedStyle(document.documentElement).getPropertyValue("--soft");
  pen.fillText("predicted →", GUTTER - 8, GUTTER - 24);
  pen.fillText("true ↓", GUTTER - 8, GUTTER - 9);
}

function fitted(pen, text, width) {
  let shown = text;
  while (shown.length > 2 && pen.measureText(shown).width > width) shown = `${shown.slice(0, -2)}…`;
  return shown;
}

function paintCursor(pen, cell, side) {
  const x = GUTTER + (cursor.column - zoom.x) * cell, y = GUTTER + (cursor.row - zoom.y) * cell;
  pen.strokeStyle = theme() === "dark" ? "#ffb84d" : "#b34700";
  pen.save();
  pen.beginPath();
  pen.rect(GUTTER, GUTTER, side - GUTTER, side - GUTTER);
  pen.clip();
  pen.lineWidth = 1;
  pen.globalAlpha = 0.45;
  pen.strokeRect(GUTTER - 2, y, side, cell);
  pen.strokeRect(x, GUTTER - 2, cell, side);
  pen.globalAlpha = 1;
  pen.lineWidth = 2;
  pen.strokeRect(x, y, cell, cell);
  pen.restore();
}

function paintRates(pen, who, task, size, cell) {
  const rates = matrices.get(`${who}/${task}`);
  pen.font = "10px system-ui, sans-serif";
  pen.textAlign = "center";
  for (let row = Math.ceil(zoom.y); row + 1 <= zoom.y + zoom.span + 0.01; row += 1) {
    for (let column = Math.ceil(zoom.x); column + 1 <= zoom.x + zoom.span + 0.01; column += 1) {
      const share = rates[drawn.classes[row] * size + drawn.classes[column]] / 255;
      if (share < 0.005) continue;
      pen.fillStyle = heatInk(share);
      pen.fillText(String(Math.round(100 * share)), GUTTER + (column + 0.5 - zoom.x) * cell, GUTTER + (row + 0.5 - zoom.y) * cell + 3.5);
    }
  }
}

function describeCell() {
  const task = drawn.task, size = ANSWERS.seen[task], out = byId("confusion-readout");
  if (!cursor.on) {
    out.replaceChildren("Point at a cell, or move into a matrix with the Tab and arrow keys, to read it.");
    return;
  }
  const [across, down] = [drawn.classes[cursor.row], drawn.classes[cursor.column]];
  const [row, column] = [ANSWERS.classes[across], ANSWERS.classes[down]];
  const rates = shownNow().map((who) => {
    const rate = matrices.get(`${who}/${task}`)?.[across * size + down];
    return `${who === "truth" ? "truth" : METHODS[who].name} ${isNumber(rate) ? percent(rate / 255) : "–"}`;
  });
  out.replaceChildren("Of the images that are ", el("b", {}, row.name), ` (task ${row.task}), predicted `,
    el("b", {}, column.name), ` (task ${column.task}): `, el("b", {}, rates.join(" · ")));
}
