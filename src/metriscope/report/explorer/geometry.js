/* Geometry of a scene: decoding, the region graph, distances. No element of the page is touched here.
   R regions, E shared edges, W words of 32 signs, side = pixels of a raster's side. */

const KINDS = { u1: Uint8Array, u2: Uint16Array, u4: Uint32Array, f4: Float32Array };

function decode([kind, text]) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  return new KINDS[kind](bytes.buffer);
}

/** The position of each layer's words within those of a region. */
function layerSpans(layers) {
  let word = 0;
  return layers.map(([name, width]) => {
    const span = { name, width, start: word, end: word + Math.ceil(width / 32) };
    word = span.end;
    return span;
  });
}

function buildScene(record) {
  const [[x0, x1], [y0, y1]] = record.bounds;
  const layers = layerSpans(record.layers);
  const scene = {
    choices: record.choices,
    x0, y0, width: x1 - x0, height: y1 - y0,
    layers,
    words: layers[layers.length - 1].end,
    vertices: decode(record.vertices),
    corners: decode(record.corners),
    starts: decode(record.starts),
    patterns: decode(record.patterns),
    points: decode(record.points),
    labels: decode(record.labels),
  };
  scene.count = scene.starts.length - 1;
  scene.boxes = boundingBoxes(scene);
  scene.graph = regionGraph(scene);
  scene.reach = { graph: diameter(scene.count, (region, out) => graphFrom(scene, region, out)), vq: new Map() };
  return scene;
}

/** Lowest x, highest x, lowest y, highest y of each region. */
function boundingBoxes({ vertices, corners, starts, count }) {
  const boxes = new Float64Array(4 * count);
  for (let r = 0; r < count; r++) {
    let [left, right, low, high] = [Infinity, -Infinity, Infinity, -Infinity];
    for (let i = starts[r]; i < starts[r + 1]; i++) {
      const x = vertices[2 * corners[i]], y = vertices[2 * corners[i] + 1];
      left = Math.min(left, x); right = Math.max(right, x);
      low = Math.min(low, y); high = Math.max(high, y);
    }
    boxes.set([left, right, low, high], 4 * r);
  }
  return boxes;
}

/** The shared edges: their two regions and two vertices, four numbers per edge. */
function sharedEdges({ vertices, corners, starts, count }) {
  const open = new Map(), edges = [];
  for (let r = 0; r < count; r++) {
    for (let i = starts[r]; i < starts[r + 1]; i++) {
      const a = corners[i], b = corners[i + 1 < starts[r + 1] ? i + 1 : starts[r]];
      const key = Math.min(a, b) * vertices.length + Math.max(a, b);
      if (open.has(key)) edges.push(open.get(key), r, a, b);
      else open.set(key, r);
    }
  }
  return Int32Array.from(edges);
}

/** Neighbors of each region in rows (from offsets[r] to offsets[r + 1]), with the edge that leads there. */
function regionGraph(scene) {
  const edges = sharedEdges(scene), offsets = new Int32Array(scene.count + 1);
  for (let e = 0; e < edges.length; e += 4) { offsets[edges[e] + 1]++; offsets[edges[e + 1] + 1]++; }
  for (let r = 0; r < scene.count; r++) offsets[r + 1] += offsets[r];
  const targets = new Int32Array(offsets[scene.count]), through = new Int32Array(targets.length);
  const next = offsets.slice(0, -1);
  for (let e = 0; e < edges.length; e += 4) {
    for (const [from, to] of [[edges[e], edges[e + 1]], [edges[e + 1], edges[e]]]) {
      targets[next[from]] = to;
      through[next[from]++] = e;
    }
  }
  return { edges, offsets, targets, through, queue: new Int32Array(scene.count) };
}

/** Write the number of borders from a region to every region, breadth first; return the largest. */
function graphFrom({ graph: { offsets, targets, queue } }, region, out) {
  out.fill(-1);
  out[region] = 0;
  queue[0] = region;
  let last = region;
  for (let head = 0, tail = 1; head < tail; head++) {
    last = queue[head];
    for (let i = offsets[last]; i < offsets[last + 1]; i++) {
      if (out[targets[i]] < 0) {
        out[targets[i]] = out[last] + 1;
        queue[tail++] = targets[i];
      }
    }
  }
  return out[last];
}

function ones(word) {
  word -= (word >>> 1) & 0x55555555;
  word = (word & 0x33333333) + ((word >>> 2) & 0x33333333);
  return Math.imul((word + (word >>> 4)) & 0x0f0f0f0f, 0x01010101) >>> 24;
}

/** How many units of a layer differ between two regions. */
function differing({ patterns, words }, layer, a, b) {
  let count = 0;
  for (let w = layer.start; w < layer.end; w++) count += ones(patterns[a * words + w] ^ patterns[b * words + w]);
  return count;
}

function isOn({ patterns, words }, layer, region, unit) {
  return ((patterns[region * words + layer.start + (unit >> 5)] >>> (unit & 31)) & 1) === 1;
}

/** Write the weighted number of differing units from a region to every region; return the largest. */
function vqFrom(scene, region, weights, out) {
  const { patterns, words, layers } = scene;
  let largest = 0;
  for (let r = 0; r < scene.count; r++) {
    let sum = 0;
    for (let l = 0; l < layers.length; l++) {
      let count = 0;
      for (let w = layers[l].start; w < layers[l].end; w++) {
        count += ones(patterns[region * words + w] ^ patterns[r * words + w]);
      }
      sum += weights[l] * count;
    }
    out[r] = sum;
    if (sum > largest) largest = sum;
  }
  return largest;
}

/** The largest of all distances, from a few regions' distances to all: exact if the triangle inequality holds.
    ``measure`` writes the distances from a region and returns the largest. Seen from a region in the middle, two regions
    no farther than half the largest distance found so far cannot be farther apart than that. */
function diameter(count, measure) {
  const [one, other, middle, out] = [0, 1, 2, 3].map(() => new Float64Array(count));
  const end = one.indexOf(measure(out.indexOf(measure(0, out)), one));
  let largest = measure(end, other), center = 0;
  const farther = (r) => Math.max(one[r], other[r]);
  for (let r = 1; r < count; r++) if (farther(r) < farther(center)) center = r;
  largest = Math.max(largest, measure(center, middle));
  const order = Int32Array.from(middle.keys()).sort((a, b) => middle[b] - middle[a]);
  for (const r of order) {
    if (2 * middle[r] <= largest) break;
    largest = Math.max(largest, measure(r, out));
  }
  return largest;
}

/** Ends of the scales: they stay while the pointer moves, so a color means the same wherever it is. */
function vqReach(scene, weights) {
  const key = weights.join(" "), known = scene.reach.vq;
  if (!known.has(key)) known.set(key, diameter(scene.count, (region, out) => vqFrom(scene, region, weights, out)));
  return known.get(key);
}

/** How deep a point lies within a convex region; negative outside. */
function depth({ vertices, corners, starts }, region, x, y) {
  let least = Infinity;
  for (let i = starts[region], j = starts[region + 1] - 1; i < starts[region + 1]; j = i++) {
    const ax = vertices[2 * corners[j]], ay = vertices[2 * corners[j] + 1];
    const bx = vertices[2 * corners[i]], by = vertices[2 * corners[i] + 1];
    least = Math.min(least, (bx - ax) * (y - ay) - (by - ay) * (x - ax));
  }
  return least;
}

/** The region of a point; where rounding leaves a point between regions, the one it misses least. */
function locate(scene, x, y) {
  const { boxes, width } = scene, slack = 1e-6 * width;
  let best = 0, deepest = -Infinity;
  for (let r = 0, b = 0; r < scene.count; r++, b += 4) {
    if (x < boxes[b] - slack || x > boxes[b + 1] + slack || y < boxes[b + 2] - slack || y > boxes[b + 3] + slack) continue;
    const found = depth(scene, r, x, y);
    if (found >= 0) return r;
    if (found > deepest) { deepest = found; best = r; }
  }
  return best;
}

/** Mark where an edge crosses the rows of a raster. Its ends are taken by height, so both its regions agree. */
function traceEdge(raster, ax, ay, bx, by) {
  if (ay > by) { [ax, bx] = [bx, ax]; [ay, by] = [by, ay]; }
  const { side, from, to } = raster, slope = (bx - ax) / (by - ay);
  const end = Math.min(side, Math.ceil(by - 0.5));
  for (let row = Math.max(0, Math.ceil(ay - 0.5)); row < end; row++) {
    const x = ax + (row + 0.5 - ay) * slope;
    if (x < from[row]) from[row] = x;
    if (x > to[row]) to[row] = x;
  }
}

function fillRegion(raster, region, low, high) {
  const { side, ids, from, to } = raster;
  for (let row = Math.max(0, Math.floor(low)); row <= Math.min(side - 1, Math.ceil(high)); row++) {
    const first = Math.max(0, Math.ceil(from[row] - 0.5)), end = Math.min(side, Math.ceil(to[row] - 0.5));
    if (first < end) ids.fill(region, row * side + first, row * side + end);
    from[row] = Infinity;
    to[row] = -Infinity;
  }
}

/** The region of every pixel's center, rows from the top. */
function rasterise(scene, side) {
  const { x0, y0, width, height, vertices, corners, starts, boxes } = scene;
  const raster = {
    side,
    ids: new Int32Array(side * side).fill(-1),
    from: new Float64Array(side).fill(Infinity),
    to: new Float64Array(side).fill(-Infinity),
  };
  const across = (v) => ((vertices[2 * v] - x0) / width) * side;
  const down = (v) => (1 - (vertices[2 * v + 1] - y0) / height) * side;
  for (let r = 0; r < scene.count; r++) {
    for (let i = starts[r], j = starts[r + 1] - 1; i < starts[r + 1]; j = i++) {
      traceEdge(raster, across(corners[j]), down(corners[j]), across(corners[i]), down(corners[i]));
    }
    const top = (1 - (boxes[4 * r + 3] - y0) / height) * side, bottom = (1 - (boxes[4 * r + 2] - y0) / height) * side;
    fillRegion(raster, r, top, bottom);
  }
  fillGaps(scene, raster);
  return raster.ids;
}

/** Vertices are rounded to single precision: at the rim a pixel may have been missed. */
function fillGaps(scene, { side, ids }) {
  for (let i = ids.indexOf(-1); i >= 0; i = ids.indexOf(-1, i)) {
    const x = ((i % side) + 0.5) / side, y = 1 - (Math.floor(i / side) + 0.5) / side;
    ids[i] = locate(scene, scene.x0 + x * scene.width, scene.y0 + y * scene.height);
  }
}

/** How far an edge lies beside the line between two points, up to a factor; 0 where the line meets it. */
function aside({ vertices, graph: { edges } }, e, from, to) {
  const side = (v) => (vertices[2 * v] - from.x) * (to.y - from.y) - (vertices[2 * v + 1] - from.y) * (to.x - from.x);
  const a = side(edges[e + 2]), b = side(edges[e + 3]);
  return a * b <= 0 ? 0 : Math.min(Math.abs(a), Math.abs(b));
}

/** A shortest way from a region to where ``steps`` is 0: of all shortest ones, a way near the straight line. */
function shortestWay(scene, steps, start, from, to) {
  const { offsets, targets, through } = scene.graph, way = { regions: [start], edges: [] };
  for (let here = start; steps[here] > 0; ) {
    let best = -1, least = Infinity;
    for (let i = offsets[here]; i < offsets[here + 1]; i++) {
      if (steps[targets[i]] !== steps[here] - 1) continue;
      const found = aside(scene, through[i], from, to);
      if (found < least) { least = found; best = i; }
    }
    here = targets[best];
    way.regions.push(here);
    way.edges.push(through[best]);
  }
  way.places = tighten(scene, way.edges, from, to);
  return way;
}

/** Where a way crosses its edges, pulled tight like a string: alternating x and y, both ends included. */
function tighten({ vertices, graph: { edges } }, crossed, from, to) {
  const places = [from.x, from.y], ends = (e) => [2 * edges[e + 2], 2 * edges[e + 3]];
  for (const e of crossed) {
    const [a, b] = ends(e);
    places.push((vertices[a] + vertices[b]) / 2, (vertices[a + 1] + vertices[b + 1]) / 2);
  }
  places.push(to.x, to.y);
  for (let sweep = 0; sweep < 12; sweep++) {
    crossed.forEach((e, k) => {
      const [a, b] = ends(e), share = meeting(vertices, a, b, places, 2 * k);
      places[2 * k + 2] = vertices[a] + share * (vertices[b] - vertices[a]);
      places[2 * k + 3] = vertices[a + 1] + share * (vertices[b + 1] - vertices[a + 1]);
    });
  }
  return places;
}

/** The share of an edge at which the line from the place before to the place after meets it, short of its ends. */
function meeting(vertices, a, b, places, before) {
  const x = places[before], y = places[before + 1], dx = places[before + 4] - x, dy = places[before + 5] - y;
  const start = (vertices[a] - x) * dy - (vertices[a + 1] - y) * dx;
  const end = (vertices[b] - x) * dy - (vertices[b + 1] - y) * dx;
  return start === end ? 0.5 : Math.min(0.95, Math.max(0.05, start / (start - end)));
}
