// Where everything stands while some groups are open. Python has laid out each group by itself; here
// an open group takes its room: its layer becomes higher, its neighbors step aside.

const GAP_X = 18, GAP_Y = 30, PAD = 14, HEAD = 24, PORT_W = 110, PORT_H = 14, FRAME_LEAST = 120;

// Rows of text above and below a box: the shapes of its results, and its stubs.
const ROW = 13, STUB_LEAST = 124, MOST_STUBS = 3, MOST_SHAPES = 2, SHAPE_LETTER = 5;

// The shapes of what an item, or all of a closed group, gives to others.
function shapesOf(id) {
  const own = slotsOf(items[id].w).map(([, value]) => value);
  const read = isGroup(id) ? groups[id].p.slice(groups[id].e).map(([, value]) => value)
    : own.filter((value) => readers.has(value));
  const shapes = (read.length ? read : own.slice(0, 1)).map((value) => values[value].shape);
  return [...new Set(shapes.filter(Boolean))].slice(0, MOST_SHAPES);
}

// Places nearest to `wanted` that keep the order and room for each width: pools of neighbors that
// are too near move together.
function separate(wanted, widths) {
  const shift = [0];
  for (let i = 1; i < wanted.length; i++) {
    shift.push(shift[i - 1] + (widths[i - 1] + widths[i]) / 2 + GAP_X);
  }
  const sums = [], counts = [];
  for (let i = 0; i < wanted.length; i++) {
    let sum = wanted[i] - shift[i], count = 1;
    while (sums.length && sums.at(-1) / counts.at(-1) > sum / count) {
      sum += sums.pop();
      count += counts.pop();
    }
    sums.push(sum);
    counts.push(count);
  }
  const found = [];
  sums.forEach((sum, pool) => {
    for (let k = 0; k < counts[pool]; k++) found.push(sum / counts[pool] + shift[found.length]);
  });
  return found;
}

const LANE = 6, MOST_COLUMNS = 64;

// A tall net cut into columns side by side, as many as fill the room best; null where one does.
// `extents`: of each layer; `rank`: the layer of each member.
function inColumns(extents, rank, links, room) {
  if (extents.length < 3) return null;
  const scaleOf = (w, h) => Math.min(room[0] / w, room[1] / h);
  let best = cut(extents, rank, links, 1), scale = scaleOf(best.w, best.h);
  if (scale > 0.75) return null;
  for (let count = 2; count <= MOST_COLUMNS; count++) {
    const tried = cut(extents, rank, links, count), now = scaleOf(tried.w, tried.h);
    if (now > scale * 1.1) { best = tried; scale = now; }
  }
  return best.count > 1 ? best : null;
}

function cut(extents, rank, links, count) {
  const whole = extents.at(-1).bottom, column = [];
  let now = 0, begin = 0;
  extents.forEach((extent) => {
    // a column ends where the next layer would lead further away from its share of the height
    const over = (extent.top + extent.bottom) / 2 - begin > whole / count;
    if (over && now + 1 < count) { now += 1; begin = extent.top; }
    column.push(now);
  });
  const crossing = Array(now + 1).fill(0);  // links from each column to the next
  for (const [source, target] of links) {
    const [a, b] = [column[rank[source]], column[rank[target]]];
    for (let c = Math.min(a, b); c < Math.max(a, b); c++) crossing[c] += 1;
  }
  const lanes = crossing.map((links) => Math.min(links, 8));
  const above = now ? 20 + LANE * Math.max(...lanes) : 0;
  const parts = Array.from({ length: now + 1 }, () => (
    { left: Infinity, right: -Infinity, top: 0, bottom: 0 }));
  extents.forEach((extent, level) => {
    const part = parts[column[level]];
    if (part.left === Infinity) part.top = extent.top;
    part.left = Math.min(part.left, extent.left);
    part.right = Math.max(part.right, extent.right);
    part.bottom = extent.bottom;
  });
  let x = 0;
  parts.forEach((part, c) => {
    part.dx = x - part.left;
    part.dy = above - part.top;
    part.gutter = x - 20;  // left of the column
    part.down = part.bottom + part.dy + 14;
    x += part.right - part.left + 44 + LANE * lanes[c];
  });
  const used = Array(now + 1).fill(0);
  return {
    count: now + 1,
    w: x - 44 - LANE * lanes[now],
    h: Math.max(...parts.map((part, c) => part.down + LANE * lanes[c])),
    shift: column.map((c) => [parts[c].dx, parts[c].dy]),
    // A path with corners put in where it goes from one column to the next.
    bend(path, first, level, ox, oy) {
      const found = path.slice(0, first);
      let at = column[level];
      for (let i = first; i < path.length; i++) {
        const last = path[i - 1];
        // two points stand in each layer that is run through; the last ones at the end
        const next = column[Math.min(level + Math.floor((i - first) / 2) + 1, column.length - 1)];
        if (next > at && i - first < path.length) {
          const lane = (used[at]++ % 8) * LANE, part = parts[next];
          const down = oy + parts[at].down + lane, up = oy + above - 12 - lane;
          const gutter = ox + part.gutter - lane;
          found.push([last[0], down], [gutter, down], [gutter, up], [path[i][0], up]);
          at = next;
        }
        found.push(path[i]);
      }
      return found;
    },
  };
}

class Scene {
  // `open`: the set of open groups; `room`: width and height that the whole net should fill well.
  constructor(open, room) {
    this.open = open;
    this.room = room;
    this.boxes = [];          // outer ones first: {id, x, y, w, h, open}
    this.ports = [];          // {x, y, value}
    this.lines = [];          // {path: [[x, y] ...], back, change, carried, x0, y0, x1, y1}
    this.stubs = [];          // {x, y, w, leaves, others, id}: one other end, or all the rest
    this.shapes = [];         // {x, y, w, text, within}
    this.boxOf = new Map();
    const all = this.measure(0);
    this.emit(0, all, 0, 0);
    this.width = all.w;
    this.height = all.h;
  }

  // Sizes and places inside of a group, from its upper left corner.
  measure(id) {
    const group = groups[id], count = group.m.length;
    const inner = group.m.map((m) => (isGroup(m) && this.open.has(m) ? this.measure(m) : null));
    const widths = [], heights = [], rooms = [], shapes = [];
    const stubs = group.m.map(() => [[], []]);  // the other ends of those that enter and leave
    for (const [member, leaves, other] of group.s) {
      if (!stubs[member][leaves].includes(other)) stubs[member][leaves].push(other);
    }
    const rowsOf = (ends) => Math.min(ends.length, MOST_STUBS);
    const above = stubs.map(([enter]) => ROW * rowsOf(enter));
    const below = [];
    group.m.forEach((member, i) => {
      const sub = inner[i], [w, h] = items[member].z;
      widths.push(sub ? Math.max(sub.w + 2 * PAD, FRAME_LEAST, w) : w);
      heights.push(sub ? sub.h + HEAD + PAD : h);
      shapes.push(sub ? [] : shapesOf(member));
      const texts = shapes[i].map((text) => SHAPE_LETTER * text.length);
      if (stubs[i].flat().length) texts.push(STUB_LEAST);
      rooms.push(Math.max(widths[i], ...texts));
      below.push(ROW * (shapes[i].length + rowsOf(stubs[i][1])));
    });
    const xs = [], ys = [], through = group.k.map(() => []), rank = [], extents = [];
    let top = 0, left = Infinity, right = -Infinity;
    group.y.forEach((layer, level) => {
      const refs = [], wanted = [];
      for (let i = 0; i < layer.length; i += 2) { refs.push(layer[i]); wanted.push(layer[i + 1]); }
      const wide = refs.map((r) => (r < 0 ? 4 : r < count ? rooms[r] : PORT_W));
      const places = separate(wanted, wide);
      const high = Math.max(...refs.map((r) => (r < 0 ? 0 : r < count ? heights[r] : PORT_H)));
      // rows of text stand in what a lower box leaves free of the layer's height, or beyond it
      const beyond = (rows) => Math.max(0, ...refs.map(
        (r) => (r < 0 || r >= count ? 0 : rows[r] - (high - heights[r]) / 2)));
      const over = beyond(above), under = beyond(below);
      const extent = { left: Infinity, right: -Infinity, top, bottom: top + over + high + under };
      top += over;
      refs.forEach((ref, i) => {
        extent.left = Math.min(extent.left, places[i] - wide[i] / 2);
        extent.right = Math.max(extent.right, places[i] + wide[i] / 2);
        if (ref < 0) {
          through[-1 - ref].push([places[i], extent.top, level], [places[i], extent.bottom, level]);
        } else { xs[ref] = places[i]; ys[ref] = top + high / 2; rank[ref] = level; }
      });
      left = Math.min(left, extent.left);
      right = Math.max(right, extent.right);
      extents.push(extent);
      top = extent.bottom + GAP_Y;
    });
    if (left > right) left = right = 0;
    const found = {
      inner, widths, heights, rooms, shapes, stubs, above, below, through, xs, ys, rank,
    };
    const columns = id === 0 ? inColumns(extents, rank, group.k, this.room) : null;
    const shift = columns ? columns.shift : extents.map(() => [-left, 0]);
    const move = (point, level) => { point[0] += shift[level][0]; point[1] += shift[level][1]; };
    rank.forEach((level, ref) => { xs[ref] += shift[level][0]; ys[ref] += shift[level][1]; });
    through.flat().forEach((point) => move(point, point[2]));
    found.columns = columns;
    found.w = columns ? columns.w : right - left;
    found.h = columns ? columns.h : Math.max(top - GAP_Y, 0);
    return found;
  }

  // Boxes and lines of a group whose corner is at (x, y).
  emit(id, m, x, y) {
    const group = groups[id], count = group.m.length;
    const ports = [];
    group.m.forEach((member, i) => {
      const box = {
        id: member, x: x + m.xs[i] - m.widths[i] / 2, y: y + m.ys[i] - m.heights[i] / 2,
        w: m.widths[i], h: m.heights[i], open: m.inner[i] !== null,
      };
      this.boxes.push(box);
      this.boxOf.set(member, box);
      if (box.open) {
        const sub = m.inner[i], room = (box.w - sub.w) / 2;
        ports[i] = this.emit(member, sub, box.x + room, box.y + HEAD);
      }
    });
    group.p.forEach(([, value], i) => {
      this.ports.push({ x: x + m.xs[count + i], y: y + m.ys[count + i], value });
    });
    group.k.forEach((link, number) => this.line(m, x, y, group, link, m.through[number], ports));
    group.m.forEach((member, i) => this.rows(member, m, i, x + m.xs[i], y + m.ys[i], id !== 0));
    const found = { in: new Map(), out: new Map() };
    group.p.forEach(([item, value], i) => {
      const place = [x + m.xs[count + i], y + m.ys[count + i]];
      found[i < group.e ? "in" : "out"].set(`${item} ${value}`, place);
    });
    return found;
  }

  // The shapes below a box, and the stubs above and below it; its center is at (x, y).
  rows(id, m, i, x, y, within) {
    const w = m.rooms[i], bottom = y + m.heights[i] / 2 + ROW / 2 + 1;
    m.shapes[i].forEach((text, row) => this.shapes.push({ x, y: bottom + row * ROW, w: w + 14, text, within }));
    const starts = [y - m.heights[i] / 2 - ROW / 2 - 1, bottom + m.shapes[i].length * ROW];
    m.stubs[i].forEach((ends, leaves) => {
      for (let row = 0; row < Math.min(ends.length, MOST_STUBS); row++) {
        const last = row === MOST_STUBS - 1;
        this.stubs.push({
          x: x - m.rooms[i] / 2, y: starts[leaves] + (leaves ? 1 : -1) * row * ROW, w: w + 8, leaves,
          others: last ? ends.slice(row) : [ends[row]], id,
        });
      }
    });
  }

  line(m, x, y, group, [source, target, back, change, ...carried], through, ports) {
    const count = group.m.length;
    const [upper, lower] = back ? [target, source] : [source, target];
    const middle = through.map(([a, b]) => [x + a, y + b]);
    const end = (local, side) => {
      const at = [x + m.xs[local], y + m.ys[local]];
      if (local >= count) return [[at]];
      at[1] += side * m.heights[local] / 2;
      // straight past the texts between the box and its neighbors
      const clear = at[1] + (side > 0 ? m.below[local] : -m.above[local]);
      const past = [at[0], clear];
      const straight = clear === at[1] ? [at] : side > 0 ? [at, past] : [past, at];
      const table = !back && ports[local] && ports[local][side > 0 ? "out" : "in"];
      const found = [];
      for (let i = 0; table && i < carried.length; i += 2) {
        const port = table.get(`${carried[i]} ${carried[i + 1]}`);
        // a port lies inside of its frame: the line enters straight above it
        const edge = port && [port[0], clear];
        if (port) found.push(side > 0 ? [port, edge] : [edge, port]);
      }
      return found.length ? found : [straight];
    };
    const starts = end(upper, 1), ends = end(lower, -1);
    const pieces = [];
    for (let i = 0; i < Math.max(starts.length, ends.length); i++) {
      const a = starts[Math.min(i, starts.length - 1)], b = ends[Math.min(i, ends.length - 1)];
      pieces.push(m.columns ? m.columns.bend([...a, ...middle, ...b], a.length, m.rank[upper], x, y)
        : [...a, ...middle, ...b]);
      pieces.at(-1).arrow = target < count && (back || !ports[target]);  // none at a port
    }
    for (const path of pieces) {
      const px = path.map((p) => p[0]), py = path.map((p) => p[1]);
      this.lines.push({
        path, back, change, carried, arrow: path.arrow, to: target < count ? group.m[target] : -1,
        x0: Math.min(...px), x1: Math.max(...px), y0: Math.min(...py), y1: Math.max(...py),
      });
    }
  }

  // The innermost box at a place, or null.
  at(x, y) {
    for (let i = this.boxes.length - 1; i >= 0; i--) {
      const b = this.boxes[i];
      if (x >= b.x && x <= b.x + b.w && y >= b.y && y <= b.y + b.h) return b;
    }
    return null;
  }
}
