// Makes the pages of a network interactive: layers to choose, points to look at, cells to read. Everything is on the page.
const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];
const element = (tag, cls, text) => {
  const made = document.createElement(tag);
  if (cls) made.className = cls;
  if (text !== undefined) made.textContent = text;
  return made;
};

// One layer at a time.
for (const chooser of $$("select[data-chooses]")) {
  const parts = $$(`[data-part="${chooser.dataset.chooses}"]`);
  const show = () => parts.forEach(part => { part.hidden = part.dataset.key !== chooser.value; });
  chooser.closest("label").hidden = false;
  chooser.addEventListener("change", show);
  show();
}

// Maps: rest on a point to see it, drag to choose several; maps of the same points share both.
for (const panel of $$("[data-points]")) {
  const data = JSON.parse(document.getElementById(panel.dataset.points).textContent);
  const maps = $$("svg.map", panel), told = panel.querySelector(".told"), tray = panel.querySelector(".tray");
  const dots = maps.map(map => $$("circle", map));
  dots.flat().forEach(dot => dot.querySelector("title")?.remove());
  let hot = -1;

  const picture = i => {
    if (!data.tiles) return null;
    const made = element("span", "thumb"), at = data.tiles[i];
    made.style.setProperty("--x", at % data.columns);
    made.style.setProperty("--y", Math.floor(at / data.columns));
    made.setAttribute("role", "img");
    made.setAttribute("aria-label", data.titles[i]);
    return made;
  };
  const shown = i => {
    const made = element("div", data.wrong[i] ? "seen wrong-point" : "seen"), image = picture(i);
    if (image) made.append(image);
    const words = element("div");
    words.append(element("b", "", data.titles[i]));
    if (data.words[i]) words.append(element("p", "", data.words[i]));
    made.append(words);
    return made;
  };
  const heat = i => {
    if (i === hot) return;
    dots.forEach(each => { each[hot]?.classList.remove("hot"); each[i]?.classList.add("hot"); });
    hot = i;
    told.replaceChildren(shown(i));
  };
  const choose = chosen => {
    const set = new Set(chosen);
    if (!set.size) $$(".brush", panel).forEach(each => each.setAttribute("hidden", ""));
    dots.forEach(each => each.forEach((dot, i) => dot.classList.toggle("dim", set.size > 0 && !set.has(i))));
    tray.replaceChildren();
    if (!set.size) return;
    const counts = {};
    if (data.labels) chosen.forEach(i => { counts[data.labels[i]] = (counts[data.labels[i]] || 0) + 1; });
    const kinds = Object.entries(counts).sort((a, b) => b[1] - a[1]).map(([name, count]) => `${count} of label ${name}`);
    const wrong = chosen.filter(i => data.wrong[i]).length;
    const text = [`${chosen.length} points chosen`, ...kinds.slice(0, 6), ...(wrong ? [`${wrong} misclassified`] : [])];
    tray.append(element("p", "", `${text.join(", ")}.`));
    const list = element("div", data.tiles ? "tiles" : "rows");
    chosen.slice(0, data.tiles ? 72 : 6).forEach(i => {
      const made = data.tiles ? picture(i) : shown(i);
      made.title = data.titles[i];
      list.append(made);
    });
    tray.append(list);
    const rest = chosen.length - list.children.length;
    if (rest > 0) tray.append(element("p", "", `and ${rest} more`));
  };
  maps.forEach((map, which) => {
    const brush = map.querySelector(".brush");
    const place = event => new DOMPoint(event.clientX, event.clientY).matrixTransform(map.getScreenCTM().inverse());
    const at = i => [+dots[which][i].getAttribute("cx"), +dots[which][i].getAttribute("cy")];
    const nearest = p => {
      let best = -1, least = 45 * 45;
      dots[which].forEach((dot, i) => {
        const [x, y] = at(i), d = (x - p.x) ** 2 + (y - p.y) ** 2;
        if (d < least) { least = d; best = i; }
      });
      return best;
    };
    let from = null;
    map.addEventListener("pointerdown", event => {
      from = place(event);
      if (event.pointerType === "mouse") map.setPointerCapture(event.pointerId);
    });
    map.addEventListener("pointermove", event => {
      const p = place(event);
      if (!from || event.pointerType !== "mouse") { const i = nearest(p); if (i >= 0) heat(i); return; }
      $$(".brush", panel).forEach(each => each.toggleAttribute("hidden", each !== brush));
      brush.setAttribute("x", Math.min(from.x, p.x)); brush.setAttribute("width", Math.abs(from.x - p.x));
      brush.setAttribute("y", Math.min(from.y, p.y)); brush.setAttribute("height", Math.abs(from.y - p.y));
    });
    map.addEventListener("pointerup", event => {
      const p = place(event), start = from;
      from = null;
      if (!start || Math.hypot(p.x - start.x, p.y - start.y) < 12) {
        const i = nearest(p);
        if (i >= 0) heat(i);
        choose([]);
        return;
      }
      const inside = (v, a, b) => v >= Math.min(a, b) && v <= Math.max(a, b);
      choose(dots[which].map((_, i) => i).filter(i => inside(at(i)[0], start.x, p.x) && inside(at(i)[1], start.y, p.y)));
    });
    map.addEventListener("pointercancel", () => { from = null; brush.setAttribute("hidden", ""); });
    map.addEventListener("keydown", event => {
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (!step || !dots[which].length) return;
      event.preventDefault();
      heat((Math.max(hot, 0) + step + dots[which].length) % dots[which].length);
    });
  });
  const chooser = panel.querySelector("select[data-places]");
  chooser?.addEventListener("change", () => {
    const [x, y] = data.places[chooser.value];
    dots[0].forEach((dot, i) => { dot.setAttribute("cx", x[i]); dot.setAttribute("cy", y[i]); });
  });
  if (chooser) chooser.closest("label").hidden = false;
}

// Heat maps: the value under the pointer.
for (const map of $$("svg.heat")) {
  const { rows, columns, what, box, values } = JSON.parse(map.dataset.heat), line = map.parentElement.nextElementSibling;
  map.addEventListener("pointermove", event => {
    const p = new DOMPoint(event.clientX, event.clientY).matrixTransform(map.getScreenCTM().inverse());
    const column = Math.floor((p.x - box[0]) / box[2]), row = Math.floor((p.y - box[1]) / box[3]);
    if (values[row]?.[column] !== undefined) line.textContent = `${rows[row]}, ${columns[column]}: ${what} ${values[row][column] ?? "undefined"}`;
  });
}

// What is wider than the screen fades out at the edge behind which there is more.
for (const box of $$(".scroll")) {
  const mark = () => {
    box.classList.toggle("more-before", box.scrollLeft > 1);
    box.classList.toggle("more-after", box.scrollLeft < box.scrollWidth - box.clientWidth - 1);
  };
  box.addEventListener("scroll", mark, { passive: true });
  new ResizeObserver(mark).observe(box);
}
