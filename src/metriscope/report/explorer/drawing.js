/* Drawing: rasters through a table of colors, lines over them, color bars, cells of a pattern. */

const MARKS = ["#ffffff", "#16191d", "#f0a35e", "#e58fc0", "#8fd0f2", "#d9483b", "#b7a5e8", "#7f8790"];

/** Colors of values between 0 and ``most``: the table's entries 0 to 255, rounded to the nearest. */
function colorRegions(values, most, palette, out) {
  for (let r = 0; r < values.length; r++) out[r] = palette[most > 0 ? Math.floor((255 * values[r]) / most + 0.5) : 0];
}

function paintRegions(panel, ids, colors) {
  const { pixels } = panel;
  for (let i = 0; i < pixels.length; i++) pixels[i] = colors[ids[i]];
  panel.heat.putImageData(panel.image, 0, 0);
}

/** Colors by the straight distance of every pixel's center from a point. */
function paintEuclid(panel, scene, point, most, palette) {
  const { pixels, side, squares } = panel, stepX = scene.width / side, stepY = scene.height / side;
  for (let column = 0; column < side; column++) squares[column] = (scene.x0 + (column + 0.5) * stepX - point.x) ** 2;
  for (let row = 0, i = 0; row < side; row++) {
    const square = (scene.y0 + scene.height - (row + 0.5) * stepY - point.y) ** 2;
    for (let column = 0; column < side; column++) {
      pixels[i++] = palette[Math.floor((255 * Math.sqrt(squares[column] + square)) / most + 0.5)];
    }
  }
  panel.heat.putImageData(panel.image, 0, 0);
}

/** Give a panel's three canvases their sizes: pixels to paint are capped, lines are as fine as the screen. */
function resizePanel(panel, side, fine) {
  panel.side = side;
  panel.fine = fine;
  for (const [context, size] of [[panel.heat, side], [panel.lines, fine], [panel.marks, fine]]) {
    context.canvas.width = size;
    context.canvas.height = size;
  }
  panel.image = panel.heat.createImageData(side, side);
  panel.pixels = new Uint32Array(panel.image.data.buffer);
  panel.squares = new Float64Array(side);
}

/** Functions from the plane to a canvas of a given size. */
function placing({ x0, y0, width, height }, size) {
  return { x: (x) => ((x - x0) / width) * size, y: (y) => (1 - (y - y0) / height) * size };
}

function drawBorders(context, scene, size, unit) {
  const { graph: { edges }, vertices } = scene, at = placing(scene, size);
  context.beginPath();
  for (let e = 0; e < edges.length; e += 4) {
    const a = 2 * edges[e + 2], b = 2 * edges[e + 3];
    context.moveTo(at.x(vertices[a]), at.y(vertices[a + 1]));
    context.lineTo(at.x(vertices[b]), at.y(vertices[b + 1]));
  }
  // Many borders are drawn fainter: together they stay a texture, and the colors stay readable.
  const opacity = Math.min(0.45, Math.max(0.15, 14 / Math.sqrt(edges.length)));
  context.lineWidth = 0.6 * unit;
  context.strokeStyle = `rgba(255, 255, 255, ${opacity})`;
  context.stroke();
}

function drawPoints(context, scene, size, unit) {
  const { points, labels } = scene, at = placing(scene, size);
  for (let i = 0; i < labels.length; i++) {
    context.beginPath();
    context.arc(at.x(points[2 * i]), at.y(points[2 * i + 1]), 2.2 * unit, 0, 2 * Math.PI);
    context.fillStyle = MARKS[labels[i] % MARKS.length];
    context.fill();
    context.lineWidth = 0.8 * unit;
    context.strokeStyle = labels[i] % MARKS.length === 1 ? "rgba(255, 255, 255, 0.9)" : "rgba(0, 0, 0, 0.7)";
    context.stroke();
  }
}

/** What stays while the pointer moves: borders where the panel counts them, training points. */
function drawLines(panel, scene, { borders, points }, unit) {
  panel.lines.clearRect(0, 0, panel.fine, panel.fine);
  if (borders && panel.counts) drawBorders(panel.lines, scene, panel.fine, unit);
  if (points) drawPoints(panel.lines, scene, panel.fine, unit);
}

/** A light line on a dark one: seen on every color of the map. */
function strokeTwice(context, unit, light = 1.6) {
  context.lineJoin = context.lineCap = "round";
  for (const [width, color] of [[light + 2, "rgba(0, 0, 0, 0.75)"], [light, "#ffffff"]]) {
    context.lineWidth = width * unit;
    context.strokeStyle = color;
    context.stroke();
  }
}

function shadeRegions(context, scene, regions, at) {
  const { vertices, corners, starts } = scene;
  context.beginPath();
  for (const r of regions) {
    for (let i = starts[r]; i < starts[r + 1]; i++) {
      const x = at.x(vertices[2 * corners[i]]), y = at.y(vertices[2 * corners[i] + 1]);
      if (i === starts[r]) context.moveTo(x, y);
      else context.lineTo(x, y);
    }
    context.closePath();
  }
  context.fillStyle = "rgba(255, 255, 255, 0.28)";
  context.fill();
}

/** A line through places, given as alternating x and y. */
function traceWay(context, places, at) {
  context.beginPath();
  for (let i = 0; i < places.length; i += 2) context.lineTo(at.x(places[i]), at.y(places[i + 1]));
}

function drawAnchor(context, x, y, unit) {
  context.beginPath();
  context.moveTo(x - 6 * unit, y); context.lineTo(x + 6 * unit, y);
  context.moveTo(x, y - 6 * unit); context.lineTo(x, y + 6 * unit);
  strokeTwice(context, unit, 2);
}

function drawPointer(context, x, y, unit) {
  context.beginPath();
  context.arc(x, y, 5.5 * unit, 0, 2 * Math.PI);
  strokeTwice(context, unit, 2);
}

/** What moves: the way, the anchor, the pointer. */
function drawMarks(panel, scene, state, way, unit) {
  const context = panel.marks, at = placing(scene, panel.fine);
  context.clearRect(0, 0, panel.fine, panel.fine);
  if (panel.shades) shadeRegions(context, scene, way.regions, at);
  traceWay(context, panel.counts ? way.places : [...way.places.slice(0, 2), ...way.places.slice(-2)], at);
  strokeTwice(context, unit);
  drawAnchor(context, at.x(state.anchor.x), at.y(state.anchor.y), unit);
  drawPointer(context, at.x(state.point.x), at.y(state.point.y), unit);
}

/** Round steps from 0, 1, 2 or 5 times a power of ten, and the end itself, with room between it and the last step. */
function ticks(most, counts) {
  const rough = most / 4 || 1, power = 10 ** Math.floor(Math.log10(rough));
  let step = [1, 2, 5, 10].find((times) => times * power >= rough) * power;
  if (counts && most >= 1) step = Math.max(1, step);
  const found = [];
  for (let i = 0; i === 0 || i * step <= 0.93 * most; i++) found.push(Number((i * step).toPrecision(6)));
  return most > 0 ? [...found, most] : found;
}

/** Cells of one layer in rows of equal length: filled for +, hollow for -, in the mark's color where they differ. */
function drawPattern(strip, scene, layer, region, anchor) {
  const { context, columns, pitch, unit, inks } = strip, size = pitch - 2;
  context.setTransform(unit, 0, 0, unit, 0, 0);
  context.clearRect(0, 0, context.canvas.width, context.canvas.height);
  context.lineWidth = 1;
  for (let i = 0; i < layer.width; i++) {
    const on = isOn(scene, layer, region, i), differs = on !== isOn(scene, layer, anchor, i);
    const x = (i % columns) * pitch, y = Math.floor(i / columns) * pitch;
    context.fillStyle = context.strokeStyle = differs ? inks.mark : on ? inks.on : inks.off;
    if (on) context.fillRect(x, y, size, size);
    else if (differs) { context.lineWidth = 2; context.strokeRect(x + 1, y + 1, size - 2, size - 2); context.lineWidth = 1; }
    else context.strokeRect(x + 0.5, y + 0.5, size - 1, size - 1);
  }
}

/** Fit a layer's cells into a width: as few rows as are legible, all of about the same length. */
function fitPattern(strip, layer, width, unit) {
  const rows = Math.ceil((layer.width * 11) / Math.max(width, 11));
  strip.unit = unit;
  strip.columns = Math.ceil(layer.width / rows);
  strip.pitch = Math.max(6, Math.min(18, Math.floor(width / strip.columns)));
  const size = [strip.columns * strip.pitch, Math.ceil(layer.width / strip.columns) * strip.pitch];
  strip.context.canvas.width = Math.round(size[0] * unit);
  strip.context.canvas.height = Math.round(size[1] * unit);
  strip.context.canvas.style.width = `${size[0]}px`;
  strip.context.canvas.style.height = `${size[1]}px`;
}
