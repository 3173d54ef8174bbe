/* The page's elements, built from the data: choices, panels with their color bars, a row for each layer. */

function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name in element && name !== "role") element[name] = value;
    else element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

const FORMATS = Array.from({ length: 13 }, (_, digits) => new Intl.NumberFormat("en-GB", { minimumFractionDigits: digits, maximumFractionDigits: digits }));

/** A number as text, with a minus sign and 0 to 12 decimals; a number that rounds to zero has no sign. */
function say(value, digits = 0) {
  return FORMATS[digits].format(value).replace(/^-(?=[0.]*$)/, "").replace("-", "\u2212");
}

/** Decimals with which lengths below this one are told apart: 2 if it lies between 1 and 10. */
function decimals(length) {
  return Math.min(FORMATS.length - 1, Math.max(0, 2 - Math.floor(Math.log10(length))));
}

/** Weights have one decimal, so a sum of weighted counts has one at most. */
function sayCount(value) {
  const tenths = Math.round(10 * value) / 10;
  return say(tenths, Number.isInteger(tenths) ? 0 : 1);
}

function plural(count, word) {
  return `${say(count)} ${word}${count === 1 ? "" : "s"}`;
}

/* Choices */

function values(records, key) {
  return [...new Set(records.map((record) => record.choices[key]))];
}

/** The scene with all of the ``wanted`` choices, or most of them, and with as many of the current ones as possible. */
function nearestScene(records, wanted, current) {
  const agree = (choices, others) => Object.keys(others).filter((key) => choices[key] === others[key]).length;
  const score = ({ choices }) => agree(choices, wanted) * 100 + agree(choices, current);
  return records.reduce((best, record, i) => (score(record) > score(records[best]) ? i : best), 0);
}

function radioGroup(key, options, choose) {
  const group = make("fieldset", {}, make("legend", {}, key));
  const segments = make("div", { className: "segments" });
  for (const value of options) {
    const input = make("input", { type: "radio", name: key, value });
    input.addEventListener("change", () => choose({ [key]: value }));
    segments.append(make("label", {}, input, make("span", {}, value)));
  }
  group.append(segments);
  return group;
}

/** Only attributes that leave a choice become a control. */
function buildChoices(form, records, choose) {
  for (const key of Object.keys(records[0].choices)) {
    const options = values(records, key);
    if (options.length > 1) form.append(radioGroup(key, options, choose));
  }
  form.addEventListener("submit", (event) => event.preventDefault());
}

/** Check what is shown; dim what would change another choice too. */
function showChoices(form, records, current) {
  for (const input of form.querySelectorAll("input")) {
    const turned = { ...current, [input.name]: input.value };
    const there = records.some(({ choices }) => Object.keys(turned).every((key) => choices[key] === turned[key]));
    input.checked = current[input.name] === input.value;
    input.parentElement.classList.toggle("elsewhere", !there);
    input.parentElement.title = there ? "" : "also changes another choice";
  }
}

/* Panels */

const PANELS = [
  { key: "vq", name: "VQ distance", tab: "VQ", what: "units whose sign differs", counts: true, shades: false },
  { key: "graph", name: "Region-graph distance", tab: "Regions", what: "borders on a shortest way", counts: true, shades: true },
  { key: "euclid", name: "Euclidean distance", tab: "Euclid", what: "the straight line", counts: false, shades: false },
];

function buildBar(palette) {
  const canvas = make("canvas", { width: 1, height: 256 }), context = canvas.getContext("2d");
  const image = context.createImageData(1, 256), pixels = new Uint32Array(image.data.buffer);
  pixels.forEach((_, i) => { pixels[i] = palette[255 - i]; });
  context.putImageData(image, 0, 0);
  const needle = make("i", { className: "needle" }), scale = make("div", { className: "scale" });
  return { element: make("div", { className: "bar", ariaHidden: "true" }, canvas, needle, scale), needle, scale };
}

function buildPanel(kind, palette, first) {
  const [heat, lines, marks] = ["heat", "lines", "marks"].map((className) => make("canvas", { className }));
  const value = make("output", { className: "value" }), bar = buildBar(palette);
  const label = `${kind.name} from the pointer; arrow keys move it, Enter pins the anchor`;
  marks.tabIndex = first ? 0 : -1;
  for (const [name, text] of [["role", "application"], ["aria-label", label], ["aria-describedby", "help line"]]) {
    marks.setAttribute(name, text);
  }
  const caption = make("figcaption", {},
    make("span", { className: "name" }, kind.name), value, make("span", { className: "what" }, kind.what));
  const grip = make("i", { className: "grip", ariaHidden: "true" });
  const field = make("div", { className: "field" }, heat, lines, marks, grip);
  const element = make("figure", { className: "panel", id: `panel-${kind.key}` },
    caption, make("div", { className: "plot" }, field, bar.element));
  // The raster is written and read pixel by pixel; the browser keeps it where that is cheap.
  const context = heat.getContext("2d", { willReadFrequently: true, alpha: false });
  return { ...kind, element, field, grip, value, bar, heat: context, lines: lines.getContext("2d"), marks: marks.getContext("2d") };
}

function showScale({ bar, counts }, most) {
  if (bar.most === most) return;
  bar.most = most;
  bar.scale.replaceChildren(...ticks(most, counts).map((tick) => {
    const label = make("span", {}, counts ? sayCount(tick) : say(tick, Number.isInteger(tick) ? 0 : decimals(most)));
    label.style.bottom = most > 0 ? `${(100 * tick) / most}%` : "0";
    return label;
  }));
}

function showValue({ bar, value }, found, most, text) {
  value.textContent = text;
  bar.needle.style.bottom = most > 0 ? `${(100 * found) / most}%` : "0";
}

/* On a phone one panel is shown at a time. */

function buildTabs(box, shown, kinds) {
  const buttons = kinds.map((kind) => make("button", { type: "button" }, kind.tab));
  const choose = (chosen) => {
    shown.dataset.shown = kinds[chosen].key;
    buttons.forEach((button, i) => button.setAttribute("aria-pressed", String(i === chosen)));
  };
  buttons.forEach((button, i) => button.addEventListener("click", () => choose(i)));
  box.append(...buttons);
  choose(0);
}

/* Layers */

function buildLayer(layer, weight, change) {
  const canvas = make("canvas", { ariaHidden: "true" });
  const differ = make("span", { className: "differ" }), shown = make("output", { className: "weight" });
  const slider = make("input", { type: "range", min: 0, max: 2, step: 0.1, value: weight, ariaLabel: `weight of ${layer.name}` });
  slider.addEventListener("input", change);
  const element = make("div", { className: "layer" },
    make("span", { className: "layer-name" }, layer.name), make("div", { className: "strip" }, canvas),
    differ, make("label", { className: "weigh" }, make("span", {}, "weight"), slider, shown));
  return { element, slider, shown, differ, context: canvas.getContext("2d"), inks: {} };
}

/** The text below the rows: how the VQ distance is computed. */
function sumText(counts, weights, total) {
  const terms = counts.map((count, l) => (weights[l] === 1 ? say(count) : `${say(weights[l], 1)} \u00d7 ${say(count)}`));
  return `VQ distance ${terms.length > 1 || weights[0] !== 1 ? `${terms.join(" + ")} = ` : ""}${sayCount(total)}`;
}
