// Where everything stands while some groups are open. Python has laid out each group by itself; here
// an open group takes its room: its layer becomes higher, its neighbours step aside.

const GAP_X = 18, GAP_Y = 30, PAD = 14, HEAD = 24, PORT_W = 70, PORT_H = 14, FRAME_LEAST = 120;

// Places nearest to `wanted` that keep the order and room for each width: pools of neighbours that
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

class Scene {
  // `open`: the set of open groups.
  constructor(open) {
    this.open = open;
    this.boxes = [];          // outer ones first: {id, x, y, w, h, open}
    this.ports = [];          // {x, y, value}
    this.lines = [];          // {path: [[x, y] ...], back, change, carried, x0, y0, x1, y1}
    this.stubs = [];          // {x, y, leaves, other, value, id}
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
    const widths = [], heights = [];
    group.m.forEach((member, i) => {
      const sub = inner[i], [w, h] = items[member].z;
      widths.push(sub ? Math.max(sub.w + 2 * PAD, FRAME_LEAST, w) : w);
      heights.push(sub ? sub.h + HEAD + PAD : h);
    });
    const xs = [], ys = [], through = group.k.map(() => []);
    let top = 0, left = Infinity, right = -Infinity;
    for (const layer of group.y) {
      const refs = [], wanted = [];
      for (let i = 0; i < layer.length; i += 2) { refs.push(layer[i]); wanted.push(layer[i + 1]); }
      const wide = refs.map((r) => (r < 0 ? 4 : r < count ? widths[r] : PORT_W));
      const places = separate(wanted, wide);
      const high = Math.max(...refs.map((r) => (r < 0 ? 0 : r < count ? heights[r] : PORT_H)));
      refs.forEach((ref, i) => {
        left = Math.min(left, places[i] - wide[i] / 2);
        right = Math.max(right, places[i] + wide[i] / 2);
        if (ref < 0) through[-1 - ref].push([places[i], top], [places[i], top + high]);
        else { xs[ref] = places[i]; ys[ref] = top + high / 2; }
      });
      top += high + GAP_Y;
    }
    if (left > right) left = right = 0;
    return {
      inner, widths, heights, through, ys, xs: xs.map((x) => x - left), left,
      w: right - left, h: Math.max(top - GAP_Y, 0),
    };
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
    for (const [member, leaves, other, value] of group.s) {
      const side = leaves ? 1 : -1, half = m.heights[member] / 2;
      this.stubs.push({
        x: x + m.xs[member], y: y + m.ys[member] + side * half, leaves, other, value,
        id: group.m[member],
      });
    }
    const found = { in: new Map(), out: new Map() };
    group.p.forEach(([item, value], i) => {
      const place = [x + m.xs[count + i], y + m.ys[count + i]];
      found[i < group.e ? "in" : "out"].set(`${item} ${value}`, place);
    });
    return found;
  }

  line(m, x, y, group, [source, target, back, change, ...carried], through, ports) {
    const count = group.m.length;
    const [upper, lower] = back ? [target, source] : [source, target];
    const middle = through.map(([a, b]) => [x - m.left + a, y + b]);
    const end = (local, side) => {
      const at = [x + m.xs[local], y + m.ys[local]];
      if (local < count) at[1] += side * m.heights[local] / 2;
      const table = !back && ports[local] && ports[local][side > 0 ? "out" : "in"];
      if (!table) return [[at]];
      const found = [];
      for (let i = 0; i < carried.length; i += 2) {
        const port = table.get(`${carried[i]} ${carried[i + 1]}`);
        // a port lies inside of its frame: the line enters straight above it
        if (port) found.push(side > 0 ? [port, [port[0], at[1]]] : [[port[0], at[1]], port]);
      }
      return found.length ? found : [[at]];
    };
    const starts = end(upper, 1), ends = end(lower, -1);
    const pieces = [];
    for (let i = 0; i < Math.max(starts.length, ends.length); i++) {
      const a = starts[Math.min(i, starts.length - 1)], b = ends[Math.min(i, ends.length - 1)];
      pieces.push([...a, ...middle, ...b]);
      pieces.at(-1).arrow = target < count && b.length === 1;  // none at a port
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
