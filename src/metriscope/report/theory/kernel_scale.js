/* The cosine of two networks' heat kernels at any scale, from the counts of pairs of points by both distances. */

/** Counts as three lists: distances in the first network, in the second, and how many pairs have both. */
function countsOf({ first, second, count }) {
  const all = { first: decoded(first), second: decoded(second), count: decoded(count) };
  const marginal = (distances) => {
    const found = new Float64Array(Math.max(...distances) + 1);
    distances.forEach((d, i) => { found[d] += all.count[i]; });
    return found;
  };
  return { ...all, marginals: [marginal(all.first), marginal(all.second)] };
}

const heat = (form, d, scale) => Math.exp(-(form === "squared" ? d * d : d) / scale);

function heatCosine({ first, second, count }, form, scale) {
  let both = 0, one = 0, two = 0;
  for (let i = 0; i < count.length; i++) {
    const a = heat(form, first[i], scale), b = heat(form, second[i], scale);
    both += count[i] * a * b; one += count[i] * a * a; two += count[i] * b * b;
  }
  return both / (Math.sqrt(one) * Math.sqrt(two));
}

builders["kernel-scale"] = (root, data) => {
  const pairs = data.pairs.map((pair) => ({ ...pair, ...countsOf(pair) }));
  const state = { form: Object.keys(data.forms)[0], position: data.position };
  const POINTS = 81;
  const scaleAt = (position) => { const [from, to] = data.scales[state.form]; return from * (to / from) ** position; };
  const told = make("p", { className: "told", role: "status" }), charts = make("div", { className: "halves" });
  const readout = make("table", { className: "readout" });
  const cells = pairs.map((pair) => {
    const cosine = make("td"), row = make("tr", {}, make("th", { scope: "row" }, pair.title), cosine, make("td", {}, fixed(pair.alignment, 2)));
    return { row, cosine };
  });
  readout.append(make("thead", {}, make("tr", {}, make("td"), make("th", { scope: "col" }, "cosine of heat kernels"), make("th", { scope: "col" }, "centered alignment"))),
    make("tbody", {}, ...cells.map(({ row }) => row)));
  let moving = null;

  /* How far pairs of points are apart in one network, trained and not, with the kernel over them. */
  function distances(depth, name) {
    const most = Math.max(...pairs.map((pair) => pair.marginals[depth].length - 1));
    const chart = axes({
      width: 360, height: 150, name: `Distances of pairs of points, ${name}`,
      x: { from: 0, to: most, ticks: [0, 0.25, 0.5, 0.75, 1].map((share) => [Math.round(share * most), String(Math.round(share * most))]), label: `VQ distance of a pair of images, ${name}` },
      y: { from: 0, to: 1, ticks: [[0, "0"], [1, "1"]] },
    });
    pairs.forEach((pair, i) => {
      // Every point beside itself has distance 0 in any network: left out of the picture, not out of the cosine.
      const shown = pair.marginals[depth].slice(1), top = Math.max(...shown);
      const xs = [0, ...shown.keys()].map((d, place) => (place ? d + 1 : 1));
      chart.marks.append(draw("path", { class: `area kind-${i}`, d: `${chart.path([...xs, xs.at(-1)], [0, ...[...shown].map((one) => (0.82 * one) / top), 0])}Z` }));
      // One name stands beside its area, the other over it, so that neither hides the other.
      const mode = shown.indexOf(top) + 1, fall = [...shown].findLastIndex((one) => one > 0.55 * top) + 1;
      const [x, y, anchor] = i ? [mode, 0.86, "middle"] : [fall + 0.02 * most, 0.47, "start"];
      chart.marks.append(draw("text", { class: "tag", x: chart.at.x(x), y: chart.at.y(y), "text-anchor": anchor }, pair.short));
    });
    const kernel = draw("path", { class: "kernel" }), tag = draw("text", { class: "tag" }, "kernel");
    chart.marks.append(kernel, tag);
    return { element: chart.svg, update: (scale) => {
      const xs = Array.from({ length: 121 }, (_, i) => (i * most) / 120), ys = xs.map((d) => heat(state.form, d, scale));
      kernel.setAttribute("d", chart.path(xs, ys));
      const half = Math.min(0.86 * most, Math.max(0.03 * most, xs[Math.max(0, ys.findIndex((one) => one < 0.5))] || 0.86 * most));
      tag.setAttribute("x", chart.at.x(half) + 6);
      tag.setAttribute("y", chart.at.y(Math.min(0.93, heat(state.form, half, scale))) + 14);
    } };
  }

  function cosines() {
    const [from, to] = data.scales[state.form];
    const chart = axes({
      width: 360, height: 300, name: "Cosine of heat kernels by scale, with the centered alignment",
      x: { from, to, log: true, ticks: powers(from, to, to / from > 1e6 ? 2 : 1), label: "σ²" },
      y: { from: 0, to: 1, ticks: [0, 0.25, 0.5, 0.75, 1].map((value) => [value, fixed(value, 2)]) },
    });
    const xs = Array.from({ length: POINTS }, (_, i) => scaleAt(i / (POINTS - 1)));
    const needle = draw("line", { class: "needle", y1: chart.pad.top, y2: chart.height - chart.pad.bottom });
    chart.marks.append(needle);
    const dots = pairs.map((pair, i) => {
      const flat = chart.at.y(pair.alignment), dot = draw("circle", { r: 5, class: `dot kind-${i}` });
      chart.marks.append(
        draw("line", { class: `flat kind-${i}`, x1: chart.pad.left, x2: chart.width - chart.pad.right, y1: flat, y2: flat }),
        draw("text", { class: `tag kind-${i}`, x: chart.pad.left + 4, y: flat - 4 }, `alignment, ${pair.short}`),
        draw("path", { class: `curve kind-${i}`, d: chart.path(xs, xs.map((scale) => heatCosine(pair, state.form, scale))) }), dot);
      return dot;
    });
    return { element: chart.svg, update: (scale, found) => {
      needle.setAttribute("x1", chart.at.x(scale));
      needle.setAttribute("x2", chart.at.x(scale));
      dots.forEach((dot, i) => { dot.setAttribute("cx", chart.at.x(scale)); dot.setAttribute("cy", chart.at.y(found[i])); });
    } };
  }

  function rebuild() {
    moving = [...data.depths.map((name, depth) => distances(depth, name)), cosines()];
    charts.replaceChildren(make("div", {}, moving[0].element, moving[1].element), make("div", {}, moving[2].element));
    update();
  }

  function update() {
    const scale = scaleAt(state.position), found = pairs.map((pair) => heatCosine(pair, state.form, scale));
    moving.forEach((one) => one.update(scale, found));
    cells.forEach(({ cosine }, i) => { cosine.textContent = fixed(found[i], 3); });
    const more = (values) => (Math.abs(values[0] - values[1]) < 0.005 ? "finds both pairs equally alike" : `finds the ${pairs[values[0] > values[1] ? 0 : 1].title} more alike`);
    told.textContent = `At σ² = ${say(scale, 2)} the cosine ${more(found)}. The centered alignment, which has no scale, ${more(pairs.map((pair) => pair.alignment))}.`;
    state.found = { scale, cosines: found };
  }

  const slide = slider("σ²", [0, 1, 0.005], state.position, (position) => say(scaleAt(position), 2), (position) => { state.position = position; update(); });
  const forms = choice("kernel", Object.entries(data.forms), state.form, (form) => { state.form = form; slide.show(); rebuild(); });
  root.append(make("div", { className: "controls" }, forms, slide.element), charts, readout, told);
  rebuild();
  theory["kernel-scale"] = {
    cosines: (form, scale) => pairs.map((pair) => heatCosine(pair, form, scale)),
    state: () => ({ form: state.form, ...state.found }),
  };
};
