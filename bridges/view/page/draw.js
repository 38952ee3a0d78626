// Drawing of a scene on the canvas. Only what is in sight is drawn; small things lose their texts.

const FONT = 'system-ui, "Segoe UI", Roboto, "DejaVu Sans", Arial, sans-serif';
const TEXT_SCALE = 0.42, BOX_SCALE = 0.12;
const CHANGES = ["added", "removed", "changed"];

class Painter {
  constructor(canvas) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d", { alpha: false });
    this.cuts = new Map();
    this.readColors();
  }

  // The colors of the style sheet, which has those of dark and light.
  readColors() {
    const style = getComputedStyle(document.documentElement);
    const names = ["page", "paper", "ink", "soft", "rule", "accent", "frame", "frame-rule", "line",
      "back", "hot", "cold", ...CHANGES, ...data.kinds];
    this.colors = Object.fromEntries(
      names.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
  }

  resize() {
    const ratio = window.devicePixelRatio || 1, { clientWidth, clientHeight } = this.canvas;
    this.ratio = ratio;
    this.width = clientWidth;
    this.height = clientHeight;
    this.canvas.width = Math.round(clientWidth * ratio);
    this.canvas.height = Math.round(clientHeight * ratio);
  }

  // view: {x, y, scale}: scene coordinates of the upper left corner, pixels for each unit.
  paint(scene, view, state) {
    const c = this.context, { scale } = view, colors = this.colors;
    c.setTransform(1, 0, 0, 1, 0, 0);
    c.fillStyle = colors.page;
    c.fillRect(0, 0, this.canvas.width, this.canvas.height);
    const s = scale * this.ratio;
    c.setTransform(s, 0, 0, s, -view.x * s, -view.y * s);
    const x1 = view.x + this.width / scale, y1 = view.y + this.height / scale;
    const seen = (b) => b.x < x1 && b.y < y1 && b.x + b.w > view.x && b.y + b.h > view.y;
    const boxes = scene.boxes.filter(seen);
    this.thin = Math.max(1, 0.8 / scale);
    this.frames(boxes.filter((b) => b.open), scale, state);
    this.lines(scene.lines, view, x1, y1, state);
    if (scale > TEXT_SCALE) {
      const near = (p) => p.x + p.w > view.x && p.x - p.w < x1 && p.y > view.y - ROW && p.y < y1 + ROW;
      this.shapes(scene.shapes.filter(near));
      this.stubs(scene.stubs.filter(near), state);
      this.ports(scene.ports.filter((p) => p.x > view.x - 80 && p.x < x1 + 80
        && p.y > view.y - 20 && p.y < y1 + 20));
    }
    this.boxes(boxes.filter((b) => !b.open), scale, state);
    this.marks(scene, boxes, state);
  }

  frames(boxes, scale, state) {
    const c = this.context, colors = this.colors;
    for (const b of boxes) {
      const item = items[b.id];
      c.beginPath();
      c.roundRect(b.x, b.y, b.w, b.h, 9);
      c.fillStyle = colors.frame;
      c.fill();
      c.strokeStyle = item.c && !item.within ? colors[item.c] : colors["frame-rule"];
      c.lineWidth = this.thin * (item.c && !item.within ? 2 : 1);
      c.stroke();
      if (scale * 13 < 3.2) continue;
      const heat = state.heat(item);
      c.textBaseline = "middle";
      c.textAlign = "left";
      c.font = `600 12px ${FONT}`;
      c.fillStyle = item.c ? colors[item.c] : colors.soft;
      const right = heat === null ? "" : state.heatText(item);
      const room = b.w - 34 - (right ? 70 : 0);
      c.fillText(`▾ ${this.cut(this.called(item), room)}`, b.x + 10, b.y + 13);
      if (right) {
        c.textAlign = "right";
        c.font = `11px ${FONT}`;
        c.fillText(right, b.x + b.w - 10, b.y + 13);
      }
    }
  }

  called(item) {
    return item.i ? `${item.t}  ${item.i}` : item.t;
  }

  lines(lines, view, x1, y1, state) {
    const c = this.context, far = view.scale < BOX_SCALE, colors = this.colors;
    const styles = { plain: [], back: [], added: [], removed: [], picked: [] };
    for (const line of lines) {
      if (line.x0 > x1 || line.x1 < view.x || line.y0 > y1 || line.y1 < view.y) continue;
      const style = state.isPicked(line) ? "picked" : line.change || (line.back ? "back" : "plain");
      (styles[style] || styles.plain).push(line);
    }
    for (const [style, members] of Object.entries(styles)) {
      if (!members.length) continue;
      c.strokeStyle = c.fillStyle = { plain: colors.line, picked: colors.accent }[style]
        || colors[style];
      c.lineWidth = this.thin * (style === "plain" ? 1 : style === "picked" ? 2.2 : 1.5);
      c.beginPath();
      for (const { path } of members) {
        c.moveTo(path[0][0], path[0][1]);
        for (let i = 1; i < path.length; i++) {
          const [ax, ay] = path[i - 1], [bx, by] = path[i], middle = (ay + by) / 2;
          if (far || ax === bx) c.lineTo(bx, by);
          else c.bezierCurveTo(ax, middle, bx, middle, bx, by);
        }
      }
      c.stroke();
      if (view.scale < 0.3) continue;
      c.beginPath();
      for (const line of members) {
        if (!line.arrow) continue;
        const [x, y] = line.back ? line.path[0] : line.path.at(-1), up = line.back ? -1 : 1;
        c.moveTo(x, y);
        c.lineTo(x - 3.5, y - 7 * up);
        c.lineTo(x + 3.5, y - 7 * up);
      }
      c.fill();
    }
  }

  // Tags above and below a box: where the values come from, and where they go.
  stubs(stubs, state) {
    const c = this.context, colors = this.colors;
    c.font = `10px ${FONT}`;
    c.textBaseline = "middle";
    c.textAlign = "left";
    c.lineWidth = this.thin;
    for (const { x, y, w, leaves, others } of stubs) {
      const word = leaves ? "to " : "from ", room = w - 8 - c.measureText(word).width;
      const more = others.length > 1;
      const text = word + (more ? `${others.length} more` : this.cut(nameOf(items[others[0]]), room, true));
      c.fillStyle = colors.paper;
      c.strokeStyle = colors["frame-rule"];
      c.beginPath();
      c.roundRect(x, y - ROW / 2 + 1, c.measureText(text).width + 8, ROW - 2, 4);
      c.fill();
      c.stroke();
      c.fillStyle = others.includes(state.selected) ? colors.accent : colors.soft;
      c.fillText(text, x + 4, y);
    }
  }

  // Shapes on the lines that leave a box.
  shapes(shapes) {
    const c = this.context, colors = this.colors;
    c.font = `10px ${FONT}`;
    c.textBaseline = "middle";
    c.textAlign = "center";
    for (const { x, y, w, text, within } of shapes) {
      const shown = this.cut(text, w), wide = c.measureText(shown).width + 4;
      c.fillStyle = colors[within ? "frame" : "page"];
      c.fillRect(x - wide / 2, y - ROW / 2 + 1, wide, ROW - 2);
      c.fillStyle = colors.soft;
      c.fillText(shown, x, y);
    }
  }

  ports(ports) {
    const c = this.context;
    c.font = `10px ${FONT}`;
    c.textBaseline = "middle";
    c.textAlign = "center";
    c.lineWidth = this.thin;
    for (const { x, y, value } of ports) {
      const text = this.cut(values[value].name, PORT_W - 8, true), wide = c.measureText(text).width + 8;
      c.fillStyle = this.colors.frame;
      c.strokeStyle = this.colors["frame-rule"];
      c.beginPath();
      c.roundRect(x - wide / 2, y - PORT_H / 2, wide, PORT_H, PORT_H / 2);
      c.fill();
      c.stroke();
      c.fillStyle = this.colors.soft;
      c.fillText(text, x, y);
    }
  }

  boxes(boxes, scale, state) {
    const c = this.context, colors = this.colors, close = scale > TEXT_SCALE;
    const paints = new Map();
    for (const b of boxes) {
      const heat = state.heat(items[b.id]);
      const paint = heat === null ? colors[kindOf(items[b.id])]
        : `color-mix(in srgb, ${colors.hot} ${Math.round(heat * 20) * 5}%, ${colors.cold})`;
      if (!paints.has(paint)) paints.set(paint, []);
      paints.get(paint).push(b);
    }
    for (const b of close ? boxes : []) {
      if (!isGroup(b.id)) continue;  // a closed group looks like a stack
      c.fillStyle = colors.paper;
      c.strokeStyle = colors["frame-rule"];
      c.lineWidth = this.thin;
      c.beginPath();
      c.roundRect(b.x + 4, b.y + 4, b.w, b.h, 6);
      c.fill();
      c.stroke();
    }
    if (close) this.shape(boxes, colors.paper, (b) => [b.x, b.y, b.w, b.h, 6]);
    for (const [paint, members] of paints) {
      if (!close) this.shape(members, paint, (b) => [b.x, b.y, b.w, b.h, 0]);
      else this.shape(members, paint, (b) => [b.x, b.y, b.w, Math.min(20, b.h), [6, 6, 0, 0]]);
    }
    if (scale > BOX_SCALE) {
      c.beginPath();
      for (const b of boxes) c.roundRect(b.x, b.y, b.w, b.h, close ? 6 : 0);
      c.strokeStyle = colors["frame-rule"];
      c.lineWidth = this.thin;
      c.stroke();
    }
    for (const b of close ? boxes : []) this.texts(b);
  }

  shape(boxes, paint, place) {
    const c = this.context;
    c.fillStyle = paint;
    c.beginPath();
    for (const b of boxes) {
      const [x, y, w, h, round] = place(b);
      if (round) c.roundRect(x, y, w, h, round);
      else c.rect(x, y, w, h);
    }
    c.fill();
  }

  texts(b) {
    const c = this.context, item = items[b.id], colors = this.colors;
    const mark = isGroup(b.id) ? "▸ " : "";
    c.textBaseline = "middle";
    c.textAlign = "left";
    c.fillStyle = colors.ink;
    c.font = `600 12px ${FONT}`;
    const room = b.w - 18 - (mark ? 12 : 0);
    c.fillText(mark + this.cut(item.t, room), b.x + 9, b.y + 10.5);
    c.font = `11px ${FONT}`;
    let y = b.y + 28;
    const told = item.i ? [item.i, ...(item.l || [])] : item.l || [];
    told.forEach((line, i) => {
      c.fillStyle = i === 0 && item.i ? colors.ink : colors.soft;
      c.fillText(this.cut(line, b.w - 18), b.x + 9, y);
      y += 14;
    });
  }

  // Outlines of changes, of what was found and of what is selected.
  marks(scene, boxes, state) {
    const c = this.context;
    for (const b of boxes) {
      const item = items[b.id];
      if (!item.c || b.open) continue;
      c.strokeStyle = this.colors[item.c];
      c.lineWidth = this.thin * 2.5;
      c.setLineDash(item.within ? [5, 4] : []);
      c.beginPath();
      c.roundRect(b.x, b.y, b.w, b.h, 6);
      c.stroke();
    }
    c.setLineDash([]);
    const b = scene.boxOf.get(state.selected);
    if (!b) return;
    c.strokeStyle = this.colors.accent;
    c.lineWidth = this.thin * 3;
    c.beginPath();
    c.roundRect(b.x - 3, b.y - 3, b.w + 6, b.h + 6, 9);
    c.stroke();
  }

  // The text, or as much of it as has room in the present font: its beginning, or its end.
  cut(text, room, end = false) {
    const part = (length) => (end ? `…${text.slice(text.length - length).replace(/^\.+/, "")}`
      : `${text.slice(0, length)}…`);
    const key = `${this.context.font}|${Math.round(room)}|${end}|${text}`;
    let found = this.cuts.get(key);
    if (found === undefined) {
      found = text;
      if (this.context.measureText(text).width > room) {
        let low = 0, high = text.length;
        while (low < high) {
          const middle = (low + high + 1) >> 1;
          if (this.context.measureText(part(middle)).width <= room) low = middle;
          else high = middle - 1;
        }
        found = part(low);
      }
      if (this.cuts.size > 20000) this.cuts.clear();
      this.cuts.set(key, found);
    }
    return found;
  }
}
