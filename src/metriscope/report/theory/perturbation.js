/* Accuracy while one hidden unit, or all of them, is scaled, clipped or shifted: as measured, and straight lines
   between measured levels. L levels, K units. */

/** A value between the measured levels around it; outside of them, that of the nearest. */
function between(levels, values, level, log) {
  const place = levels.findIndex((one) => one >= level);
  if (place === -1) return values[values.length - 1];
  if (place === 0) return values[0];
  const at = log ? Math.log : (value) => value;
  const share = (at(level) - at(levels[place - 1])) / (at(levels[place]) - at(levels[place - 1]));
  return values[place - 1] + share * (values[place] - values[place - 1]);
}

/** A unit's activation under a perturbation, in shares of its range, by the definition of the author's program. */
function perturbedUnit(kind, level, z, activation) {
  const scale = kind === "scale" ? level : kind === "offset" ? 1 - level : 1;
  const moved = scale * z + (kind === "offset" ? level : 0), capped = kind === "clip" ? Math.min(moved, level) : moved;
  return activation === "abs" ? Math.abs(capped) : Math.max(0, capped);
}

builders["perturbation"] = (root, data) => {
  const names = Object.keys(data.networks), kinds = Object.keys(data.kinds);
  const tables = Object.fromEntries(names.map((name) => {
    const { one, all, units } = data.networks[name];
    return [name, { units, ...Object.fromEntries(kinds.map((kind) => {
      const levels = data.kinds[kind].levels, counts = decoded(one[kind]);
      const rows = Array.from({ length: units }, (_, k) => Array.from(counts.slice(k * levels.length, (k + 1) * levels.length), (right) => (100 * right) / data.images));
      return [kind, { one: rows, all: all[kind].map((right) => (100 * right) / data.images) }];
    })) }];
  }));
  const state = { network: names[0], kind: "offset", many: "all", unit: 0, level: 0.1 };
  const charts = make("div", { className: "halves" }), told = make("p", { className: "told", role: "status" });
  const answer = make("p", { className: "answer" }), controls = make("div", { className: "controls" });
  let chart = null, shape = null;
  const percent = (level) => `${minus(String(Number((100 * level).toPrecision(3))))} %`;
  const position = (level) => (data.kinds[state.kind].log ? Math.log(level) : level);
  const unposition = (place) => (data.kinds[state.kind].log ? Math.exp(place) : Number(place.toFixed(4)));
  const curveOf = () => { const table = tables[state.network][state.kind]; return state.many === "all" ? table.all : table.one[state.unit]; };

  function rebuild() {
    const { levels, log } = data.kinds[state.kind], table = tables[state.network][state.kind];
    const [from, to] = [levels[0], levels.at(-1)];
    const ticks = log ? [0.01, 0.1, 1, 10].filter((value) => value <= to).map((value) => [value, percent(value)]) : [-1, -0.5, 0, 0.5, 1].filter((value) => value >= from && value <= to).map((value) => [value, percent(value)]);
    chart = axes({
      width: 360, height: 250, name: "Training accuracy by level",
      x: { from, to, log, ticks, label: `${state.kind}, ${state.kind === "scale" ? "of the pre-activation" : "share of the unit's range"}` },
      y: { from: 0, to: 100, ticks: [0, 25, 50, 75, 100].map((value) => [value, `${value} %`]) },
    });
    const low = levels.map((_, l) => Math.min(...table.one.map((row) => row[l]))), high = levels.map((_, l) => Math.max(...table.one.map((row) => row[l])));
    chart.marks.append(
      draw("path", { class: "area kind-0", d: `${chart.path([...levels, ...[...levels].reverse()], [...high, ...low.reverse()])}Z` }),
      draw("path", { class: `curve kind-1${state.many === "all" ? "" : " faint"}`, d: chart.path(levels, table.all) }));
    if (state.many === "one") chart.marks.append(draw("path", { class: "curve kind-0", d: chart.path(levels, table.one[state.unit]) }));
    for (const [level, mean] of data.published?.[state.network]?.[state.kind] ?? []) {
      if (level < from || level > to) continue;
      const [x, y] = [chart.at.x(level), chart.at.y(mean)];
      chart.marks.append(draw("path", { class: "published", d: `M${x} ${y - 4}l4 4l-4 4l-4 -4Z` }));
    }
    chart.needle = draw("line", { class: "needle", y1: chart.pad.top, y2: chart.height - chart.pad.bottom });
    chart.dot = draw("circle", { r: 5, class: `dot kind-${state.many === "all" ? 1 : 0}` });
    chart.marks.append(chart.needle, chart.dot);
    const swatch = (kind, text) => make("span", {}, make("i", { className: kind }), text);
    const names = make("p", { className: "swatches" }, swatch("kind-0", "one unit; band: every unit"), swatch("kind-1", "all units"), swatch("printed", "printed, all units"));
    const { activation } = data.networks[state.network], zs = Array.from({ length: 101 }, (_, i) => -1 + i / 50);
    shape = axes({
      width: 360, height: 250, name: "The activation, with and without the perturbation",
      x: { from: -1, to: 1, ticks: [-1, 0, 1].map((value) => [value, percent(value)]), label: "pre-activation, share of the unit's range" },
      y: { from: 0, to: 1.5, ticks: [0, 0.5, 1, 1.5].map((value) => [value, percent(value)]) },
    });
    shape.after = draw("path", { class: "curve kind-0" });
    shape.zs = zs;
    shape.marks.append(draw("path", { class: "before", d: shape.path(zs, zs.map((z) => perturbedUnit("scale", 1, z, activation))) }), shape.after);
    charts.replaceChildren(make("div", {}, shape.svg), make("div", {}, chart.svg, names));
    update();
  }

  function update() {
    const { levels, log } = data.kinds[state.kind], { activation, title, right } = data.networks[state.network];
    const found = between(levels, curveOf(), state.level, log), base = (100 * right) / data.images;
    chart.needle.setAttribute("x1", chart.at.x(state.level));
    chart.needle.setAttribute("x2", chart.at.x(state.level));
    chart.dot.setAttribute("cx", chart.at.x(state.level));
    chart.dot.setAttribute("cy", chart.at.y(found));
    shape.after.setAttribute("d", shape.path(shape.zs, shape.zs.map((z) => perturbedUnit(state.kind, state.level, z, activation))));
    answer.replaceChildren(make("b", {}, `${fixed(found, 1)} %`), ` of training images right; ${fixed(base, 1)} % without any change`);
    const what = state.many === "all" ? "all units" : `unit ${state.unit + 1}`;
    told.textContent = `${title}: ${state.kind} ${percent(state.level)} on ${what} changes accuracy by ${fixed(found - base, 2)} points.`;
    state.found = found;
  }

  function rebuildControls() {
    const { levels, log } = data.kinds[state.kind], ends = [levels[0], levels.at(-1)].map(position);
    const level = slider("level", [...ends, log ? 0.01 : 0.005], position(state.level), (place) => percent(unposition(place)), (place) => { state.level = unposition(place); update(); });
    const unit = slider("unit", [1, tables[state.network].units, 1], state.unit + 1, String, (number) => { state.unit = number - 1; rebuild(); });
    unit.element.hidden = state.many === "all";
    sliders.replaceChildren(level.element, unit.element);
  }

  function set(change) {
    if (change.kind && change.kind !== state.kind) state.level = { scale: 0.1, clip: 0.5, offset: 0.1 }[change.kind];
    Object.assign(state, change);
    rebuildControls();
    rebuild();
  }

  const sliders = make("div", { className: "sliders" });
  controls.append(
    choice("network", names.map((name) => [name, data.networks[name].title]), state.network, (network) => set({ network })),
    choice("change", kinds.map((kind) => [kind, kind]), state.kind, (kind) => set({ kind })),
    choice("of", [["all", "all units"], ["one", "one unit"]], state.many, (many) => set({ many })), sliders);
  root.append(controls, answer, charts, told);
  set({});
  theory.perturbation = { set: (change) => { set(change); return state.found; }, state: () => ({ ...state }) };
};
