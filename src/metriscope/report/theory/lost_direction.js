/* Two Abs units learn the distance to a Gaussian in the plane, in float64, by the study's own recipe.
   A unit reads |w·x + b|; the network the square root of the sum of squares. N points, six parameters. */

/** Full-batch Adam on the mean squared error; ``step`` returns the loss before it. */
function trainer(x, y, start, { lr, betas, eps }) {
  const p = Float64Array.from(start), m = new Float64Array(6), v = new Float64Array(6), g = new Float64Array(6), n = y.length;
  let count = 0;
  const loss = () => {
    let sum = 0;
    g.fill(0);
    for (let i = 0; i < n; i++) {
      const a = x[2 * i], c = x[2 * i + 1], s = p[0] * a + p[1] * c + p[2], t = p[3] * a + p[4] * c + p[5];
      const distance = Math.sqrt(s * s + t * t), residual = distance - y[i];
      sum += residual * residual;
      if (distance > 0) {
        const f = residual / distance, fs = f * s, ft = f * t;
        g[0] += fs * a; g[1] += fs * c; g[2] += fs;
        g[3] += ft * a; g[4] += ft * c; g[5] += ft;
      }
    }
    return sum / n;
  };
  const step = () => {
    const before = loss(), first = 1 - betas[0] ** ++count, second = Math.sqrt(1 - betas[1] ** count);
    for (let i = 0; i < 6; i++) {
      const slope = (2 * g[i]) / n;
      m[i] = betas[0] * m[i] + (1 - betas[0]) * slope;
      v[i] = betas[1] * v[i] + (1 - betas[1]) * slope * slope;
      p[i] -= ((lr / first) * m[i]) / (Math.sqrt(v[i]) / second + eps);
    }
    return before;
  };
  return { p, loss, step, count: () => count };
}

/** Singular values (descending), right and left vectors of [[a, b], [c, d]]. */
function decomposed(a, b, c, d) {
  const e = a * a + c * c, f = a * b + c * d, h = b * b + d * d;
  const half = (e + h) / 2, root = Math.hypot((e - h) / 2, f), angle = Math.atan2(2 * f, e - h) / 2;
  const v1 = [Math.cos(angle), Math.sin(angle)], v2 = [-v1[1], v1[0]];
  const s1 = Math.sqrt(half + root), s2 = Math.abs(a * d - b * c) / (s1 || 1);
  const u1 = [(a * v1[0] + b * v1[1]) / (s1 || 1), (c * v1[0] + d * v1[1]) / (s1 || 1)];
  const sign = a * d - b * c < 0 ? -1 : 1;
  return { s: [s1, s2], v: [v1, v2], u: [u1, [-u1[1] * sign, u1[0] * sign]] };
}

builders["lost-direction"] = (root, data) => {
  const SIZE = 420, whitened = decoded(data.points), n = whitened.length / 2, y = new Float64Array(n);
  for (let i = 0; i < n; i++) y[i] = Math.hypot(whitened[2 * i], whitened[2 * i + 1]);
  const reach = Math.max(...data.deviations) * 3.5, [cx, cy] = data.mean;
  const toScreen = (x, z) => [((x - cx + reach) / (2 * reach)) * SIZE, (1 - (z - cy + reach) / (2 * reach)) * SIZE];
  const toPlane = (a, b) => {
    const inside = (value) => Math.min(SIZE - 8, Math.max(8, value));
    return [cx - reach + (inside(a) / SIZE) * 2 * reach, cy - reach + (1 - inside(b) / SIZE) * 2 * reach];
  };
  const state = { cloud: null, start: null, run: null, losses: [], playing: false, frame: 0 };
  const x = new Float64Array(2 * n);

  /* Elements */
  const plane = draw("svg", { viewBox: `0 0 ${SIZE} ${SIZE}`, role: "group", "aria-label": "Points, the Gaussian, two units and the learned distance", class: "plane" });
  const layers = Object.fromEntries(["points", "truth", "start", "units", "learned"].map((name) => [name, draw("path", { class: name })]));
  const tags = draw("g", { class: "tags" });
  plane.append(...Object.values(layers), tags);
  const told = make("p", { className: "told", role: "status" }), numbers = make("dl", { className: "readout" });
  const cells = Object.fromEntries(["step", "loss", "first direction", "second direction"].map((name) => {
    const value = make("dd");
    numbers.append(make("div", {}, make("dt", {}, name), value));
    return [name, value];
  }));
  const most = data.recipe.epochs, floor = 1e-12;
  const top = 100, chart = axes({
    width: 360, height: 190, name: "Loss while training",
    x: { from: 1, to: most, log: true, ticks: powers(1, most), label: "step" },
    y: { from: floor, to: top, log: true, ticks: powers(floor, top, 4) },
  });
  const level = chart.at.y(data.theory);
  chart.marks.append(
    draw("line", { class: "theory-line", x1: chart.pad.left, x2: chart.width - chart.pad.right, y1: level, y2: level }),
    draw("text", { class: "tag", x: chart.pad.left + 6, y: level + 13 }, `theory: one direction lost, ${say(data.theory)}`));
  const curve = draw("path", { class: "curve" });
  chart.marks.append(curve);
  const play = make("button", { type: "button" }, "Train"), again = make("button", { type: "button" }, "Back to the start");

  /* The Gaussian: its mean and one point on each axis, one standard deviation out. */
  function spread() {
    const { mean, deviations: [a, b], angle } = state.cloud, cos = Math.cos(angle), sin = Math.sin(angle);
    state.root = [a * cos, -b * sin, a * sin, b * cos];
    const [p, q, r, s] = state.root;
    for (let i = 0; i < n; i++) {
      x[2 * i] = mean[0] + p * whitened[2 * i] + q * whitened[2 * i + 1];
      x[2 * i + 1] = mean[1] + r * whitened[2 * i] + s * whitened[2 * i + 1];
    }
    layers.points.setAttribute("d", Array.from({ length: Math.min(n, 400) }, (_, i) => {
      const [u, w] = toScreen(x[2 * i], x[2 * i + 1]);
      return `M${u.toFixed(1)} ${w.toFixed(1)}h0`;
    }).join(""));
    layers.truth.setAttribute("d", [1, 2, 3].map((radius) => ring(radius)).join(""));
    tags.replaceChildren(...[1, 2, 3].map((radius) => {
      const [u, w] = toScreen(mean[0] + radius * q, mean[1] + radius * s);
      return draw("text", { x: u.toFixed(1), y: (w - 3).toFixed(1), "text-anchor": "middle" }, String(radius));
    }));
  }
  const closed = (points) => `M${points.map(([u, w]) => `${u.toFixed(1)} ${w.toFixed(1)}`).join("L")}Z`;
  const circle = Array.from({ length: 72 }, (_, i) => [Math.cos((i * Math.PI) / 36), Math.sin((i * Math.PI) / 36)]);
  function ring(radius) {
    const { mean } = state.cloud, [p, q, r, s] = state.root;
    return closed(circle.map(([c, d]) => toScreen(mean[0] + radius * (p * c + q * d), mean[1] + radius * (r * c + s * d))));
  }

  /* A unit: the line where it reads 0, as far as the square reaches. */
  function line([a, b, c]) {
    const length = Math.hypot(a, b) || 1e-12, along = [-b / length, a / length];
    const off = -(a * cx + b * cy + c) / length, foot = [cx + (a / length) * off, cy + (b / length) * off];
    const [u, w] = toScreen(foot[0] - 4 * reach * along[0], foot[1] - 4 * reach * along[1]);
    const [s, t] = toScreen(foot[0] + 4 * reach * along[0], foot[1] + 4 * reach * along[1]);
    return `M${u.toFixed(1)} ${w.toFixed(1)}L${s.toFixed(1)} ${t.toFixed(1)}`;
  }

  /* Where the network reads 1, 2 and 3: ellipses; two lines where a direction is lost. */
  function contour(p, radius) {
    const { s, v, u } = decomposed(p[0], p[1], p[3], p[4]), shift = u.map(([a, b]) => a * p[2] + b * p[5]);
    if (s[1] > 1e-3 * s[0]) {
      return closed(circle.map(([c, d]) => {
        const k = (radius * c - shift[0]) / s[0], l = (radius * d - shift[1]) / s[1];
        return toScreen(k * v[0][0] + l * v[1][0], k * v[0][1] + l * v[1][1]);
      }));
    }
    const rest = radius ** 2 - shift[1] ** 2;
    return rest <= 0 ? "" : [-1, 1].map((side) => line([s[0] * v[0][0], s[0] * v[0][1], shift[0] - side * Math.sqrt(rest)])).join("");
  }

  /** What the network measures of each direction, in whitened coordinates: 1 is right, 0 is lost. */
  function measured(p) {
    const [a, b, c, d] = state.root;
    return decomposed(p[0] * a + p[1] * c, p[0] * b + p[1] * d, p[3] * a + p[4] * c, p[3] * b + p[4] * d).s.map((one) => one * one);
  }

  function show() {
    const { p } = state.run, loss = state.run.loss(), values = measured(p), count = state.run.count();
    layers.units.setAttribute("d", line(p.slice(0, 3)) + line(p.slice(3)));
    layers.learned.setAttribute("d", [1, 2, 3].map((radius) => contour(p, radius)).join(""));
    cells.step.textContent = count.toLocaleString("en-US");
    cells.loss.textContent = say(loss);
    cells["first direction"].textContent = fixed(values[0], 2);
    cells["second direction"].textContent = fixed(values[1], 2);
    curve.setAttribute("d", state.losses.length > 1 ? chart.path(state.losses.map(([at]) => at), state.losses.map(([, one]) => Math.max(one, floor))) : "");
    const lost = values.filter((one) => one < data.lost).length;
    const words = loss < data.exact * data.theory ? "The network has learned the distance."
      : lost ? `The network does not measure ${lost === 1 ? "one direction" : "any direction"}: a constant stands in for it.`
      : "The network measures both directions, but not yet exactly.";
    if (!state.playing) told.textContent = count ? `After ${count.toLocaleString("en-US")} steps the loss is ${say(loss)}. ${words}` : "Before training. Drag a dot, or press Train.";
  }

  function reset() {
    state.playing = false;
    cancelAnimationFrame(state.frame);
    play.textContent = "Train";
    state.run = trainer(x, y, state.start, data.recipe);
    state.losses = [];
    layers.start.setAttribute("d", line(state.start.slice(0, 3)) + line(state.start.slice(3)));
    handles.forEach((one) => one.show(one.text()));
    show();
  }

  function advance(steps) {
    for (let i = 0; i < steps && state.run.count() < most; i++) {
      const count = state.run.count() + 1, loss = state.run.step();
      if (count === 1 || count >= 1.03 * state.losses.at(-1)[0] || count === most) state.losses.push([count, loss]);
    }
    if (state.run.count() >= most) state.playing = false;
  }

  function animate() {
    // Slow at first, when units move; a screen shows about as many frames per tenfold of steps.
    advance(Math.max(1, Math.round(state.run.count() / 45)));
    if (!state.playing) play.textContent = "Train";
    show();
    if (state.playing) state.frame = requestAnimationFrame(animate);
  }

  function toggle() {
    if (state.run.count() >= most) reset();
    state.playing = !state.playing;
    play.textContent = state.playing ? "Pause" : "Train";
    if (state.playing && still()) { advance(most); play.textContent = "Train"; show(); } else if (state.playing) animate();
    else { cancelAnimationFrame(state.frame); show(); }
  }

  const pair = ([a, b]) => `(${fixed(a, 2)}, ${fixed(b, 2)})`;
  const handles = [];
  function addHandle(label, kind, where, move) {
    const place = () => toScreen(...where());
    const change = (a, b) => { move(...toPlane(a, b)); spread(); reset(); };
    const one = handle(plane, label, { place, move: change, step: 4, done: () => {} });
    one.element.classList.add(kind);
    one.text = () => pair(where());
    handles.push(one);
    plane.append(one.element);
  }
  addHandle("mean of the Gaussian", "gaussian", () => state.cloud.mean, (a, b) => { state.cloud.mean = [a, b]; });
  [0, 1].forEach((axis) => addHandle(`${["first", "second"][axis]} axis of the Gaussian`, "gaussian", () => {
    const { mean, deviations, angle } = state.cloud, turned = angle + (axis * Math.PI) / 2;
    return [mean[0] + deviations[axis] * Math.cos(turned), mean[1] + deviations[axis] * Math.sin(turned)];
  }, (a, b) => {
    const { mean, deviations } = state.cloud, [u, w] = [a - mean[0], b - mean[1]];
    deviations[axis] = Math.max(0.02 * reach, Math.hypot(u, w));
    state.cloud.angle = Math.atan2(w, u) - (axis * Math.PI) / 2;
  }));
  /* A unit's first dot slides its line; its second, where the unit reads 1, rotates it and sets its slope. */
  [0, 3].forEach((first, k) => {
    const unit = () => state.start.slice(first, first + 3);
    addHandle(`line of unit ${k + 1}`, "unit", () => state.foot[k], (a, b) => {
      const [s, t] = unit();
      state.foot[k] = [a, b];
      state.start[first + 2] = -(s * a + t * b);
    });
    addHandle(`where unit ${k + 1} reads 1`, "tip", () => {
      const [s, t] = unit(), square = s * s + t * t;
      return [state.foot[k][0] + s / square, state.foot[k][1] + t / square];
    }, (a, b) => {
      const [u, w] = [a - state.foot[k][0], b - state.foot[k][1]], square = Math.max(u * u + w * w, (0.02 * reach) ** 2);
      state.start.splice(first, 3, u / square, w / square, -(u * state.foot[k][0] + w * state.foot[k][1]) / square);
    });
  });

  function load(index) {
    const { weight, bias } = data.starts[index];
    state.cloud = { mean: data.mean.slice(), deviations: data.deviations.slice(), angle: data.angle };
    state.start = [...weight[0], bias[0], ...weight[1], bias[1]];
    // The dot of a line: the point of it that is nearest to the mean.
    state.foot = [0, 3].map((first) => {
      const [s, t, c] = state.start.slice(first, first + 3), off = (s * cx + t * cy + c) / (s * s + t * t);
      return [cx - off * s, cy - off * t];
    });
    spread();
    reset();
  }

  play.addEventListener("click", toggle);
  again.addEventListener("click", reset);
  const presets = choice("start", data.starts.map(({ name }, i) => [String(i), name]), "0", (value) => load(Number(value)));
  root.append(
    make("div", { className: "controls" }, presets, make("span", { className: "buttons" }, play, again)),
    make("div", { className: "halves" }, make("div", {}, plane), make("div", {}, numbers, chart.svg, told)));
  load(0);
  theory["lost-direction"] = {
    load,
    train: (steps) => { state.playing = false; advance(steps); show(); return { loss: state.run.loss(), parameters: [...state.run.p], measured: measured(state.run.p) }; },
    start: (values) => { state.start = values.slice(); reset(); },
    state: () => ({ start: state.start.slice(), mean: state.cloud.mean.slice(), step: state.run.count() }),
  };
};
