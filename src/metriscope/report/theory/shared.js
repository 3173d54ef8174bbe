/* What the interactive figures share: elements, numbers as text, axes, controls, handles. */

const theory = {}, builders = {};
const space = (() => {
  const blank = document.createElement("div");
  blank.innerHTML = "<svg></svg>";
  return blank.firstChild.namespaceURI;
})();

function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name in element && name !== "role") element[name] = value;
    else element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

function draw(tag, attributes = {}, ...children) {
  const element = document.createElementNS(space, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

function decoded([kind, text]) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  return new { u1: Uint8Array, u2: Uint16Array, u4: Uint32Array, f4: Float32Array }[kind](bytes.buffer);
}

const RAISED = "⁰¹²³⁴⁵⁶⁷⁸⁹";
const raise = (power) => `10${power < 0 ? "⁻" : ""}${[...String(Math.abs(power))].map((digit) => RAISED[digit]).join("")}`;
const minus = (text) => text.replace(/^-(?=[0.]*$)/, "").replace("-", "−");
const fixed = (value, digits) => minus(value.toFixed(digits));

/** A number with significant digits, as in the rest of the report. */
function say(value, digits = 3) {
  if (value === 0) return "0";
  const power = Math.floor(Math.log10(Math.abs(Number(value.toPrecision(digits)))));
  if (power < -3 || power > 5) return minus(`${(value / 10 ** power).toFixed(digits - 1)} × ${raise(power)}`);
  return minus(value.toLocaleString("en-US", { maximumSignificantDigits: digits, minimumSignificantDigits: digits }));
}

/* Controls */

let groups = 0;
function choice(label, options, chosen, change) {
  const name = `theory-${groups++}`, box = make("fieldset", { className: "choice" }, make("legend", {}, label));
  for (const [value, text] of options) {
    const input = make("input", { type: "radio", name, value, checked: value === chosen });
    input.addEventListener("change", () => change(value));
    box.append(make("label", {}, input, make("span", {}, text)));
  }
  return box;
}

/** A slider with its value in words; ``told`` turns its position into them. */
function slider(label, [min, max, step], value, told, change) {
  const input = make("input", { type: "range", min, max, step, value }), output = make("output");
  const show = () => {
    output.textContent = told(input.valueAsNumber);
    input.setAttribute("aria-valuetext", output.textContent);
  };
  input.addEventListener("input", () => { show(); change(input.valueAsNumber); });
  show();
  const set = (next) => { input.value = next; show(); };
  return { element: make("label", { className: "slide" }, make("span", {}, label), input, output), input, set, show };
}

/* Drawing with axes: x and y are { from, to, log, ticks: [[value, text]], label } */

function axes({ width, height, x, y, name }) {
  const pad = { left: y.ticks.length ? 46 : 10, right: 20, top: 10, bottom: x.label ? 38 : 20 };
  const share = (axis, value) => (axis.log ? Math.log(value / axis.from) / Math.log(axis.to / axis.from) : (value - axis.from) / (axis.to - axis.from));
  const clip = (value) => Math.min(1.02, Math.max(-0.02, value));
  const at = {
    x: (value) => pad.left + clip(share(x, value)) * (width - pad.left - pad.right),
    y: (value) => height - pad.bottom - clip(share(y, value)) * (height - pad.top - pad.bottom),
  };
  const grid = draw("g", { class: "grid" });
  for (const [value, text] of x.ticks) {
    grid.append(draw("line", { x1: at.x(value), x2: at.x(value), y1: pad.top, y2: height - pad.bottom }));
    grid.append(draw("text", { x: at.x(value), y: height - pad.bottom + 14, "text-anchor": "middle" }, text));
  }
  for (const [value, text] of y.ticks) {
    grid.append(draw("line", { x1: pad.left, x2: width - pad.right, y1: at.y(value), y2: at.y(value) }));
    grid.append(draw("text", { x: pad.left - 6, y: at.y(value) + 3.5, "text-anchor": "end" }, text));
  }
  if (x.label) grid.append(draw("text", { x: (pad.left + width - pad.right) / 2, y: height - 5, "text-anchor": "middle" }, x.label));
  const marks = draw("g");
  const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": name }, grid, marks);
  const path = (xs, ys) => xs.map((value, i) => `${i ? "L" : "M"}${at.x(value).toFixed(1)} ${at.y(ys[i]).toFixed(1)}`).join("");
  return { svg, marks, at, path, pad, width, height };
}

const powers = (from, to, step = 1) => {
  const found = [];
  for (let power = Math.ceil(Math.log10(from) - 1e-9); power <= Math.log10(to) + 1e-9; power += step) found.push([10 ** power, raise(power)]);
  return found;
};

/* Handles: dragged by mouse or finger, moved by arrow keys (Shift: farther). The rest of the drawing scrolls the page. */

function handle(svg, label, { place, move, done = () => {}, step }) {
  const dot = draw("circle", { r: 6.5, class: "dot" }), reach = draw("circle", { r: 17, class: "reach" });
  const element = draw("g", { class: "handle", tabindex: 0, role: "slider", "aria-label": label }, reach, dot);
  const where = (event) => {
    const box = svg.getBoundingClientRect(), view = svg.viewBox.baseVal;
    return [((event.clientX - box.left) / box.width) * view.width, ((event.clientY - box.top) / box.height) * view.height];
  };
  let held = false;
  element.addEventListener("pointerdown", (event) => { held = true; element.setPointerCapture(event.pointerId); event.preventDefault(); element.focus(); });
  element.addEventListener("pointermove", (event) => { if (held) move(...where(event)); });
  const release = () => { if (held) done(); held = false; };
  element.addEventListener("pointerup", release);
  element.addEventListener("pointercancel", release);
  element.addEventListener("keydown", (event) => {
    const arrow = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    if (!arrow) return;
    event.preventDefault();
    const [x, y] = place(), far = event.shiftKey ? 5 * step : step;
    move(x + far * arrow[0], y + far * arrow[1]);
    done();
  });
  const show = (text) => {
    const [x, y] = place();
    element.setAttribute("transform", `translate(${x.toFixed(2)} ${y.toFixed(2)})`);
    element.setAttribute("aria-valuenow", x.toFixed(0));
    element.setAttribute("aria-valuetext", text);
  };
  return { element, show };
}

const still = () => matchMedia("(prefers-reduced-motion: reduce)").matches;
