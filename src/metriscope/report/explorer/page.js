/* The page: its state, its controls, and the drawing of each frame. */

const CAP = 540; // pixels of a raster's side: finer rasters look the same and take longer to draw
const STILL = 6; // pixels that the pointer may move during a press that pins
const data = JSON.parse(document.getElementById("data").textContent);
const palette = new Uint32Array(decode(data.palette).buffer);
const built = new Map(), times = [];
const find = (id) => document.getElementById(id);
const panels = PANELS.map((kind, i) => buildPanel(kind, palette, i === 0));
const state = { index: -1, scene: null, region: -1, point: null, anchor: null, weights: [], queued: false, stale: true };
let rows = [], work = null, raster = null;

const unit = () => Math.min(2, window.devicePixelRatio || 1);

/* What is shown */

function place(fractionX, fractionY) {
  const { x0, y0, width, height } = state.scene;
  return { x: x0 + fractionX * width, y: y0 + fractionY * height };
}

function within({ x, y }) {
  const { x0, y0, width, height } = state.scene;
  return { x: Math.min(x0 + width, Math.max(x0, x)), y: Math.min(y0 + height, Math.max(y0, y)) };
}

function sameSquare(a, b) {
  return a !== null && ["x0", "y0", "width", "height"].every((key) => a[key] === b[key]);
}

function show(index) {
  if (!built.has(index)) built.set(index, buildScene(data.scenes[index]));
  const before = state.scene, scene = built.get(index);
  Object.assign(state, { index, scene, region: -1 });
  work = { vq: new Float64Array(scene.count), graph: new Int32Array(scene.count), colors: new Uint32Array(scene.count) };
  if (!sameSquare(before, scene)) Object.assign(state, { anchor: place(0.5, 0.5), point: place(0.74, 0.68) });
  const names = (one) => one && JSON.stringify(one.layers);
  if (names(before) !== names(scene)) buildRows(scene);
  showChoices(find("choices"), data.scenes, scene.choices);
  find("about").textContent = aboutText(scene);
  fit();
}

function aboutText({ count, layers, x0, y0, width, height, labels }) {
  const units = layers.map((layer) => layer.width), same = units.every((one) => one === units[0]);
  const shape = layers.length > 1 && same ? `${layers.length} layers of ${plural(units[0], "unit")}` : `${units.map((one) => say(one)).join(" + ")} units`;
  const digits = Math.max(1, decimals(width) - 1), end = (value) => say(value, value % 1 ? digits : 0);
  const side = (low, size) => `[${end(low)}, ${end(low + size)}]`;
  return `${plural(count, "linear region")}, ${shape}, ${plural(labels.length, "point")}, on ${side(x0, width)} \u00d7 ${side(y0, height)}`;
}

function buildRows(scene) {
  state.weights = scene.layers.map(() => 1);
  rows = scene.layers.map((layer, l) => buildLayer(layer, 1, () => {
    state.weights[l] = rows[l].slider.valueAsNumber;
    weigh(state.weights);
  }));
  find("layers").replaceChildren(...rows.map((row) => row.element));
}

function weigh(weights) {
  if (weights.length !== rows.length) throw new RangeError(`there are ${rows.length} layers, got ${weights.length} weights`);
  state.weights = weights.slice();
  rows.forEach((row, l) => { row.slider.value = weights[l]; });
  state.stale = true;
  request();
}

/** The side of a square on the page; a panel that is hidden on a phone has none. */
const wide = () => Math.max(1, ...panels.map((panel) => panel.field.clientWidth));

/** Take sizes and colors from the page, then draw all that does not move. */
function fit() {
  const fine = Math.max(1, Math.round(wide() * unit())), side = Math.min(CAP, fine);
  for (const panel of panels) resizePanel(panel, side, fine);
  raster = rasterise(state.scene, side);
  const style = getComputedStyle(document.documentElement), ink = (name) => style.getPropertyValue(name).trim();
  state.scene.layers.forEach((layer, l) => {
    Object.assign(rows[l].inks, { on: ink("--on"), off: ink("--off"), mark: ink("--mark") });
    fitPattern(rows[l], layer, rows[l].context.canvas.parentElement.clientWidth, unit());
  });
  redrawLines();
  state.stale = true;
  request();
}

function redrawLines() {
  const shown = { borders: find("borders").checked, points: find("points").checked };
  for (const panel of panels) drawLines(panel, state.scene, shown, panel.fine / wide());
}

/* One frame */

function request() {
  if (state.queued) return;
  state.queued = true;
  requestAnimationFrame(frame);
}

function frame() {
  state.queued = false;
  const begin = performance.now(), { scene, point } = state, region = locate(scene, point.x, point.y);
  if (region !== state.region || state.stale) paintCounts(region);
  state.anchorRegion = locate(scene, state.anchor.x, state.anchor.y);
  paintEuclid(panels[2], scene, point, state.most.euclid, palette);
  showNumbers(drawWay());
  state.stale = false;
  times.push(performance.now() - begin);
  if (times.length > 240) times.shift();
  showTimes();
}

/** The two panels that change only where a border is crossed. */
function paintCounts(region) {
  const { scene, weights } = state;
  state.region = region;
  vqFrom(scene, region, weights, work.vq);
  graphFrom(scene, region, work.graph);
  state.most = scales();
  for (const panel of panels) showScale(panel, state.most[panel.key]);
  for (const panel of panels.slice(0, 2)) {
    colorRegions(work[panel.key], state.most[panel.key], palette, work.colors);
    paintRegions(panel, raster, work.colors);
  }
}

/** The ends of the three scales: they stay where they are while the pointer moves. */
function scales() {
  const { scene, weights } = state, vq = vqReach(scene, weights), { graph } = scene.reach;
  const euclid = Math.hypot(scene.width, scene.height);
  return find("together").checked ? { vq: Math.max(vq, graph), graph: Math.max(vq, graph), euclid } : { vq, graph, euclid };
}

function drawWay() {
  const { scene, anchor, point, anchorRegion } = state;
  const way = shortestWay(scene, work.graph, anchorRegion, anchor, point);
  const scale = panels[0].fine / wide(), { x0, y0, width, height } = scene;
  for (const panel of panels) {
    drawMarks(panel, scene, state, way, scale);
    panel.grip.style.left = `${(100 * (point.x - x0)) / width}%`;
    panel.grip.style.top = `${100 * (1 - (point.y - y0) / height)}%`;
  }
  state.way = way;
  return { vq: work.vq[anchorRegion], graph: work.graph[anchorRegion], euclid: Math.hypot(anchor.x - point.x, anchor.y - point.y) };
}

function showNumbers(found) {
  const { scene, region, anchorRegion, weights, anchor, point, most } = state, counts = [], digits = decimals(scene.width);
  const texts = { vq: sayCount(found.vq), graph: say(found.graph), euclid: say(found.euclid, digits) };
  for (const panel of panels) showValue(panel, found[panel.key], most[panel.key], texts[panel.key]);
  scene.layers.forEach((layer, l) => {
    counts.push(differing(scene, layer, region, anchorRegion));
    drawPattern(rows[l], scene, layer, region, anchorRegion);
    rows[l].differ.textContent = `${say(counts[l])} of ${say(layer.width)} differ`;
    rows[l].shown.textContent = say(weights[l], 1);
  });
  find("sum").textContent = sumText(counts, weights, found.vq);
  const at = ({ x, y }) => `(${say(x, digits)}, ${say(y, digits)})`;
  find("line").textContent = `From the anchor ${at(anchor)} to the pointer ${at(point)}: VQ distance ${texts.vq}, `
    + `region-graph distance ${texts.graph}, Euclidean distance ${texts.euclid}.`;
}

function showTimes() {
  const box = find("fps");
  box.hidden = location.hash !== "#fps";
  if (box.hidden) return;
  const last = times.slice(-60), mean = last.reduce((sum, one) => sum + one, 0) / last.length;
  box.textContent = `${mean.toFixed(1)} ms a frame`;
}

/* Hands */

function move(point) {
  state.point = within(point);
  request();
}

function pin(point) {
  state.anchor = within(point);
  request();
}

function fromEvent(event, canvas = event.currentTarget) {
  const box = canvas.getBoundingClientRect();
  return place((event.clientX - box.left) / box.width, 1 - (event.clientY - box.top) / box.height);
}

function listenToPointer(canvas) {
  let press = null;
  const touched = (event) => event.pointerType === "touch";
  canvas.addEventListener("pointermove", (event) => { if (!touched(event)) move(fromEvent(event)); });
  canvas.addEventListener("pointerdown", (event) => {
    press = { x: event.clientX, y: event.clientY };
    if (touched(event)) return;
    canvas.setPointerCapture(event.pointerId);
    move(fromEvent(event));
  });
  canvas.addEventListener("pointerup", (event) => {
    const quiet = press && event.button === 0 && Math.hypot(event.clientX - press.x, event.clientY - press.y) <= STILL;
    if (quiet) (touched(event) ? move : pin)(fromEvent(event));
    press = null;
    remember();
  });
  canvas.addEventListener("pointercancel", () => { press = null; });
}

/** A finger on the ring drags it; elsewhere it scrolls the page. */
function listenToGrip({ grip, marks }) {
  let held = false;
  grip.addEventListener("pointerdown", (event) => { held = true; grip.setPointerCapture(event.pointerId); });
  grip.addEventListener("pointermove", (event) => { if (held) move(fromEvent(event, marks.canvas)); });
  for (const name of ["pointerup", "pointercancel"]) grip.addEventListener(name, () => { held = false; remember(); });
}

/* The URL of the page stores the network, the ring and the cross. */

function remember() {
  clearTimeout(state.writing);
  state.writing = setTimeout(() => {
    if (location.hash === "#fps") return;
    const digits = decimals(state.scene.width) + 1, pair = ({ x, y }) => `${x.toFixed(digits)},${y.toFixed(digits)}`;
    const kept = new URLSearchParams({ ...data.scenes[state.index].choices, ring: pair(state.point), cross: pair(state.anchor) });
    history.replaceState(null, "", `#${kept}`);
  }, 300);
}

function recall() {
  const kept = Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
  const pair = (text) => { const [x, y] = (text ?? "").split(",").map(Number); return Number.isFinite(x) && Number.isFinite(y) ? { x, y } : null; };
  if (Object.keys(data.scenes[0].choices).some((key) => key in kept)) select(kept);
  const ring = pair(kept.ring), cross = pair(kept.cross);
  if (cross) pin(cross);
  if (ring) move(ring);
  request();
}

/* Presets: from a sample of pairs of regions, the pair that best illustrates a statement. */

const deep = ({ layers }) => layers.length > 1;
const PRESETS = [
  { name: "fewer units than borders: a deep network", fits: deep, worth: (vq, graph) => graph - vq, least: 1 },
  { name: "units and borders agree: one hidden layer", fits: (record) => !deep(record), worth: (vq, graph) => graph },
  { name: "far apart, near for the network", fits: deep, worth: (vq, graph, euclid) => euclid / (1 + vq) },
];

function center(scene, region) {
  const { vertices, corners, starts } = scene, count = starts[region + 1] - starts[region], sum = { x: 0, y: 0 };
  for (let i = starts[region]; i < starts[region + 1]; i++) { sum.x += vertices[2 * corners[i]]; sum.y += vertices[2 * corners[i] + 1]; }
  return { x: sum.x / count, y: sum.y / count };
}

/* Show the pair, and return whether there is one. */
function present({ fits, worth, least = -Infinity }) {
  const last = data.scenes.map((record, i) => [record, i]).filter(([record]) => fits(record)).at(-1)[1];
  const current = data.scenes[state.index];
  show(fits(current) ? state.index : last);
  weigh(state.scene.layers.map(() => 1));
  const { scene } = state, step = Math.max(1, Math.floor(scene.count / 60));
  const found = { best: -Infinity, from: 0, to: 0 }, vq = new Float64Array(scene.count), graph = new Int32Array(scene.count);
  for (let from = 0; from < scene.count; from += step) {
    const here = center(scene, from);
    vqFrom(scene, from, state.weights, vq);
    graphFrom(scene, from, graph);
    for (let to = 0; to < scene.count; to++) {
      const there = center(scene, to), value = worth(vq[to], graph[to], Math.hypot(here.x - there.x, here.y - there.y));
      if (to !== from && value > found.best) Object.assign(found, { best: value, from, to });
    }
  }
  if (found.best < least) return false;
  pin(center(scene, found.from));
  move(center(scene, found.to));
  remember();
  return true;
}

function buildPresets(box) {
  for (const preset of PRESETS.filter(({ fits }) => data.scenes.some(fits))) {
    const button = make("button", { type: "button" }, preset.name);
    button.addEventListener("click", () => {
      if (present(preset)) return;
      button.disabled = true;
      button.textContent = `${preset.name} (no such pair here)`;
    });
    box.append(button);
  }
}

const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };

function listenToKeys(canvas) {
  canvas.addEventListener("keydown", (event) => {
    const arrow = ARROWS[event.key], { point, scene } = state, step = (event.shiftKey ? 0.05 : 0.01) * scene.width;
    if (arrow) move({ x: point.x + arrow[0] * step, y: point.y + arrow[1] * step });
    else if (event.key === "Enter" || event.key === " ") pin(point);
    else return;
    event.preventDefault();
    remember();
  });
}

function select(choices) {
  const current = state.scene ? state.scene.choices : {};
  const index = nearestScene(data.scenes, choices, current);
  if (index !== state.index) { show(index); remember(); }
  else showChoices(find("choices"), data.scenes, current);
  return { ...data.scenes[index].choices };
}

/* For tests, and for use in the browser's console */

function distances(points) {
  const { scene, point } = state;
  return points.map(([x, y]) => {
    const region = locate(scene, x, y);
    return { vq: work.vq[region], graph: work.graph[region], euclid: Math.hypot(x - point.x, y - point.y) };
  });
}

/** The colors painted at the pixels of some points, and the centers of those pixels. */
function painted(points) {
  const { side } = panels[0], { x0, y0, width, height } = state.scene;
  const images = panels.map((panel) => [panel.key, panel.heat.getImageData(0, 0, side, side).data]);
  const pixel = (fraction) => Math.min(side - 1, Math.max(0, Math.floor(fraction * side)));
  return points.map(([x, y]) => {
    const column = pixel((x - x0) / width), row = pixel(1 - (y - y0) / height), i = 4 * (row * side + column);
    const center = { x: x0 + ((column + 0.5) / side) * width, y: y0 + (1 - (row + 0.5) / side) * height };
    return { ...center, ...Object.fromEntries(images.map(([key, image]) => [key, Array.from(image.slice(i, i + 4))])) };
  });
}

/* A call shows its effect at once, without waiting for the screen. */
const atOnce = (change) => (...given) => { const answer = change(...given); frame(); return answer; };

function start() {
  find("panels").append(...panels.map((panel) => panel.element));
  buildChoices(find("choices"), data.scenes, select);
  for (const panel of panels) { listenToPointer(panel.marks.canvas); listenToKeys(panel.marks.canvas); listenToGrip(panel); }
  buildTabs(find("tabs"), find("panels"), PANELS);
  buildPresets(find("presets"));
  find("pin").addEventListener("click", () => { pin(state.point); remember(); });
  for (const id of ["borders", "points"]) find(id).addEventListener("change", redrawLines);
  find("together").addEventListener("change", () => { state.stale = true; request(); });
  find("reset").addEventListener("click", () => weigh(state.weights.map(() => 1)));
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", fit);
  window.addEventListener("hashchange", recall);
  show(0);
  recall();
  new ResizeObserver(fit).observe(find("panels"));
  window.metriscope = {
    select: atOnce(select),
    pointAt: atOnce((x, y) => move({ x, y })),
    pin: atOnce((x, y) => pin({ x, y })),
    weights: atOnce(weigh),
    distances,
    painted,
    way: () => ({ regions: state.way.regions, places: state.way.places }),
    frameTimes: () => times.slice(),
  };
}

start();
