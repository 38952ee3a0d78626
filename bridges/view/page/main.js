// State and input: what is open, selected and in sight; mouse, touch, keys and search.

const canvas = document.getElementById("graph");
const search = document.getElementById("search");
const found = document.getElementById("found");
const tip = document.getElementById("tip");
const painter = new Painter(canvas);
const open = new Set(data.open);
const view = { x: 0, y: 0, scale: 1 };
const READABLE = 0.55, MOST_FOUND = 40, LEAST_SCALE = 0.02, MOST_SCALE = 4;
let scene;
let waiting = false;

const state = {
  selected: -1,
  colors: data.numbers ? "numbers" : data.profiled ? "time" : "kind",
  picked: new Set(),
  isPicked(line) {
    if (!this.picked.size) return false;
    for (let i = 0; i < line.carried.length; i += 2) {
      const from = line.carried[i];
      if (from === this.selected) return true;
      if (this.picked.has(`${from} ${line.carried[i + 1]}`)
        && (line.to === this.selected || line.to < 0 || this.holders.has(line.to))) return true;
    }
    return false;
  },
  heat(item) {
    if (this.colors === "kind") return null;
    const told = this.toldOf(item);
    if (told === undefined || told === 0) return 0;
    if (!Number.isFinite(told)) return 1;
    if (this.colors !== "numbers") return Math.min(1, Math.sqrt(told / (this.most || 1)));
    // numbers of any size: by their magnitude
    const low = Math.log(this.least), high = Math.log(this.most);
    return high > low ? 0.1 + 0.9 * (Math.log(Math.abs(told)) - low) / (high - low) : 1;
  },
  heatText(item) {
    const told = this.toldOf(item);
    if (told === undefined) return "";
    return { time: secondsText, memory: bytesText, numbers: shortNumber }[this.colors](told);
  },
  // What an item is colored by; a text stands for a number that is not finite.
  toldOf(item) {
    const told = { time: item.s, memory: item.b, numbers: item.e }[this.colors];
    return typeof told === "string" ? NaN : told;
  },
};

function redraw() {
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => {
    waiting = false;
    painter.paint(scene, view, state);
  });
}

// -- where one looks

function fit(least = LEAST_SCALE) {
  const room = 40, top = 34;  // the legend stands above
  const whole = Math.min((painter.width - room) / scene.width,
    (painter.height - room - top) / scene.height);
  view.scale = Math.min(whole >= READABLE ? whole : Math.max(whole, least), 1.25);
  view.x = scene.width / 2 - painter.width / 2 / view.scale;
  const left = painter.height - top - scene.height * view.scale;
  view.y = -(top + Math.max(left / 2, 10)) / view.scale;
  if (least > LEAST_SCALE && whole < view.scale) lookAtBeginning();
  redraw();
}

// A net that does not fit is shown where it begins.
function lookAtBeginning() {
  const inputs = scene.boxes.filter((b) => !b.open).sort((a, b) => a.y - b.y);
  if (!inputs.length) return;
  const b = inputs[0];
  view.x = b.x + b.w / 2 - painter.width / 2 / view.scale;
  if (scene.width * view.scale > painter.width) view.x = Math.max(view.x, -30 / view.scale);
  view.y = -54 / view.scale;
}

function zoom(factor, px = painter.width / 2, py = painter.height / 2) {
  const scale = Math.min(Math.max(view.scale * factor, LEAST_SCALE), MOST_SCALE);
  view.x += px / view.scale - px / scale;
  view.y += py / view.scale - py / scale;
  view.scale = scale;
  redraw();
}

function move(dx, dy) {
  view.x -= dx / view.scale;
  view.y -= dy / view.scale;
  redraw();
}

function center(id) {
  const b = scene.boxOf.get(id);
  if (!b) return;
  const wide = painter.width / (b.w + 60), high = painter.height / (b.h + 60);
  view.scale = Math.min(Math.max(view.scale, Math.min(0.75, wide, high)), Math.max(1, view.scale));
  if (b.open) view.scale = Math.min(view.scale, Math.max(Math.min(wide, high), 0.3));
  view.x = b.x + b.w / 2 - painter.width / 2 / view.scale;
  view.y = b.y + Math.min(b.h / 2, painter.height / 2 / view.scale) - painter.height / 2 / view.scale;
  redraw();
}

// -- groups

// Lay out anew; the box `keep` stays where it is on the screen.
function rebuild(keep = -1) {
  const before = scene.boxOf.get(keep);
  scene = new Scene(open, [painter.width, painter.height]);
  const after = scene.boxOf.get(keep);
  if (before && after) {
    view.x += after.x + after.w / 2 - before.x - before.w / 2;
    view.y += after.y - before.y;
  }
  scaleColors();
  tell();
  redraw();
}

function toggle(id) {
  if (!isGroup(id) || id === 0) return;
  if (open.has(id)) open.delete(id); else open.add(id);
  rebuild(id);
}

function openAll(all) {
  open.clear();
  open.add(0);
  if (all) for (const id of Object.keys(groups)) open.add(Number(id));
  rebuild();
  fit();
}

function reveal(id) {
  const closed = around(id).filter((group) => !open.has(group));
  closed.forEach((group) => open.add(group));
  if (closed.length) rebuild();
}

// -- selection

function select(id, look = true) {
  if (id === 0) id = -1;
  state.selected = id;
  state.picked = new Set();
  if (id < 0) {
    showNet(go);
  } else {
    state.holders = new Set(around(id));
    for (const [, value] of slotsOf(items[id].r)) {
      for (const writer of writers.get(value) || []) state.picked.add(`${writer} ${value}`);
    }
    state.picked.add("");
    showItem(id, go);
    if (look) { reveal(id); center(id); }
  }
  tell();
  redraw();
}

const go = (id) => select(id);

// To the first item that the selected one reads from (-1), or that reads it (1).
function step(side) {
  const item = items[state.selected];
  if (!item) return;
  const [slots, others] = side < 0 ? [item.r, writers] : [item.w, readers];
  for (const [, value] of slotsOf(slots)) {
    const next = (others.get(value) || []).find((id) => id !== item.id);
    if (next !== undefined) return go(next);
  }
}

function nextChange(side) {
  const changed = changedItems();
  if (!changed.length) return;
  const at = changed.indexOf(state.selected);
  go(changed[(at + side + changed.length + (at < 0 && side < 0 ? 1 : 0)) % changed.length]);
}

function tell() {
  const shown = scene.boxes.filter((b) => !b.open).length;
  const name = state.selected > 0 ? ` · ${nameOf(items[state.selected])} selected` : "";
  document.getElementById("status").textContent =
    `${shown} of ${items[0].count} boxes shown${name}`;
}

// -- mouse and touch

const pointers = new Map();
let dragged = 0, pinch = 0;

canvas.addEventListener("pointerdown", (event) => {
  canvas.setPointerCapture(event.pointerId);
  pointers.set(event.pointerId, [event.offsetX, event.offsetY]);
  if (pointers.size === 1) dragged = 0;
  pinch = 0;
});

canvas.addEventListener("pointermove", (event) => {
  const last = pointers.get(event.pointerId);
  if (!last) return hover(event);
  const now = [event.offsetX, event.offsetY];
  pointers.set(event.pointerId, now);
  const dx = now[0] - last[0], dy = now[1] - last[1];
  dragged += Math.abs(dx) + Math.abs(dy);
  if (pointers.size === 1) {
    if (dragged > 3) canvas.classList.add("moving");
    move(dx, dy);
  } else if (pointers.size === 2) {
    const [a, b] = [...pointers.values()];
    const apart = Math.hypot(a[0] - b[0], a[1] - b[1]);
    if (pinch) zoom(apart / pinch, (a[0] + b[0]) / 2, (a[1] + b[1]) / 2);
    pinch = apart;
  }
});

for (const kind of ["pointerup", "pointercancel"]) {
  canvas.addEventListener(kind, (event) => {
    const was = pointers.delete(event.pointerId);
    canvas.classList.remove("moving");
    pinch = 0;
    if (was && kind === "pointerup" && dragged <= 3) click(event);
  });
}

const boxUnder = (event) =>
  scene.at(view.x + event.offsetX / view.scale, view.y + event.offsetY / view.scale);

function click(event) {
  canvas.focus({ preventScroll: true });
  const stub = stubUnder(event);
  if (stub) return go(stub.others.length > 1 ? stub.id : stub.others[0]);
  const box = boxUnder(event);
  select(box ? box.id : -1, false);
}

function stubUnder(event) {
  if (view.scale <= TEXT_SCALE) return undefined;
  const x = view.x + event.offsetX / view.scale, y = view.y + event.offsetY / view.scale;
  return scene.stubs.find((s) => x > s.x && x < s.x + s.w && Math.abs(y - s.y) < ROW / 2);
}

canvas.addEventListener("dblclick", (event) => {
  const box = boxUnder(event);
  if (box) toggle(box.id);
});

canvas.addEventListener("wheel", (event) => {
  event.preventDefault();
  const lines = event.deltaMode === 1 ? 16 : 1;
  if (event.shiftKey) return move(-event.deltaY * lines, 0);
  zoom(Math.exp(-event.deltaY * lines * (event.ctrlKey ? 0.01 : 0.0016)), event.offsetX, event.offsetY);
}, { passive: false });

function hover(event) {
  const box = boxUnder(event), stub = stubUnder(event);
  canvas.classList.toggle("over", Boolean(stub || (box && !box.open)));
  const item = stub ? items[stub.others[0]] : box && items[box.id];
  const text = !item ? "" : [item.t, item.n !== item.t && item.n, ...(item.l || [])].filter(Boolean).join("\n");
  tip.hidden = !text || (box && box.open && !stub) || (view.scale > 0.7 && !stub);
  tip.textContent = text;
  if (!tip.hidden) {
    tip.style.left = `${Math.min(event.offsetX + 14, painter.width - 200)}px`;
    tip.style.top = `${event.offsetY + 16}px`;
  }
}
canvas.addEventListener("pointerleave", () => { tip.hidden = true; });

// -- search

const index = items.slice(1).map((item) => ({
  id: item.id, value: -1, name: nameOf(item), note: item.n ? item.t : isGroup(item.id) ? "group" : "",
  text: [item.t, item.n, isGroup(item.id) && "group", ...(item.f || []).flat()].filter(Boolean).join(" ").toLowerCase(),
})).concat(values.map((value, number) => ({
  id: -1, value: number, name: value.name, note: [value.kind, value.type].filter(Boolean).join(" "),
  text: `${value.name} ${value.type} ${value.kind}`.toLowerCase(),
})));
let hits = [], chosen = 0;

// Names that are the text, then those that begin with it or hold it, then attributes and types.
function lookUp(text) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length) return [];
  const ranked = [];
  for (const entry of index) {
    if (!words.every((word) => entry.text.includes(word))) continue;
    const name = entry.name.toLowerCase(), whole = words.join(" ");
    const rank = name === whole ? 0 : name.startsWith(whole) ? 1 : name.includes(whole) ? 2 : 3;
    ranked.push([rank + (entry.value >= 0 ? 0.5 : 0), entry]);
  }
  ranked.sort((a, b) => a[0] - b[0]);
  return ranked.slice(0, MOST_FOUND).map(([, entry]) => entry);
}

function showHits() {
  hits = lookUp(search.value);
  chosen = 0;
  found.replaceChildren(...hits.map((hit, i) => {
    const entry = element("li", { text: hit.name, role: "option", id: `hit-${i}` });
    entry.append(element("small", { text: hit.note }));
    entry.addEventListener("pointerdown", (event) => { event.preventDefault(); take(i); });
    return entry;
  }));
  if (!hits.length && search.value.trim()) found.append(element("li", { text: "nothing found", className: "soft" }));
  found.hidden = !search.value.trim();
  search.setAttribute("aria-expanded", String(!found.hidden));
  mark();
}

function mark() {
  hits.forEach((_, i) => found.children[i].setAttribute("aria-selected", String(i === chosen)));
  if (hits.length) {
    search.setAttribute("aria-activedescendant", `hit-${chosen}`);
    found.children[chosen].scrollIntoView({ block: "nearest" });
  }
}

function take(i) {
  const hit = hits[i];
  if (!hit) return;
  found.hidden = true;
  search.setAttribute("aria-expanded", "false");
  canvas.focus({ preventScroll: true });
  if (hit.value < 0) return go(hit.id);
  const homes = [holders, writers, readers].map((homes) => homes.get(hit.value)).find(Boolean);
  if (!homes) return;
  go(homes[0]);
  const box = panel.querySelector(`.value[data-value="${hit.value}"]`);
  if (box) { box.classList.add("found"); box.scrollIntoView({ block: "center" }); }
}

search.addEventListener("input", showHits);
search.addEventListener("focus", () => { if (search.value) showHits(); });
search.addEventListener("blur", () => { found.hidden = true; });
search.addEventListener("keydown", (event) => {
  if (event.key === "ArrowDown" || event.key === "ArrowUp") {
    event.preventDefault();
    if (hits.length) chosen = (chosen + (event.key === "ArrowDown" ? 1 : hits.length - 1)) % hits.length;
    mark();
  } else if (event.key === "Enter") take(chosen);
  else if (event.key === "Escape") { search.value = ""; showHits(); canvas.focus(); }
  event.stopPropagation();
});

// -- keys and buttons

const KEYS = {
  "/": () => { search.focus(); search.select(); },
  f: () => fit(), 0: () => fit(), e: () => openAll(true), c: () => openAll(false),
  "+": () => zoom(1.25), "=": () => zoom(1.25), "-": () => zoom(0.8),
  ArrowLeft: () => move(60, 0), ArrowRight: () => move(-60, 0),
  ArrowUp: (event) => (event.shiftKey ? step(-1) : move(0, 60)),
  ArrowDown: (event) => (event.shiftKey ? step(1) : move(0, -60)),
  Enter: () => toggle(state.selected), " ": () => toggle(state.selected),
  n: () => nextChange(1), p: () => nextChange(-1), t: () => changeTheme(),
  "?": () => document.getElementById("keys").showModal(), Escape: () => select(-1),
};

document.addEventListener("keydown", (event) => {
  const inside = event.target.closest("button, input, select, dialog, summary");
  const key = KEYS[event.key];
  if (!key || event.ctrlKey || event.metaKey || event.altKey) return;
  if (inside && (event.target.tagName !== "BUTTON" || event.key === "Enter" || event.key === " ")) return;
  event.preventDefault();
  key(event);
});

const onClick = (id, action) => document.getElementById(id).addEventListener("click", action);
onClick("open-all", () => openAll(true));
onClick("close-all", () => openAll(false));
onClick("in", () => zoom(1.25));
onClick("out", () => zoom(0.8));
onClick("fit", () => fit());
onClick("help", () => document.getElementById("keys").showModal());
onClick("theme", () => changeTheme());

// -- dark and light

const dark = window.matchMedia("(prefers-color-scheme: dark)");
function setTheme(name) {
  document.documentElement.dataset.theme = name;
  painter.readColors();
  legend();
  redraw();
}
function changeTheme() {
  setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark");
}
dark.addEventListener("change", () => setTheme(dark.matches ? "dark" : "light"));

function legend() {
  const kinds = new Set(items.slice(1).filter((item) => !isGroup(item.id)).map(kindOf));
  const entries = state.colors === "kind"
    ? data.kinds.filter((kind) => kinds.has(kind)).map((kind) => [kind, `--${kind}`])
    : [[state.colors === "numbers" ? `large: ${data.numbers}` : `much ${state.colors}`, "--hot"],
      [state.colors === "numbers" ? "0 or none" : "little", "--cold"]];
  if (data.compared) entries.push(...CHANGES.map((change) => [change, `--${change}`]));
  document.getElementById("legend").replaceChildren(...entries.map(([text, color]) => {
    const entry = element("span", { text });
    entry.style.setProperty("--swatch", `var(${color})`);
    return entry;
  }));
}

// The largest number among the boxes that are shown has the strongest color.
function scaleColors() {
  const told = scene.boxes.filter((b) => !b.open).map((b) => Math.abs(state.toldOf(items[b.id])))
    .filter((number) => number > 0 && number < Infinity);
  state.most = told.reduce((a, b) => Math.max(a, b), 0);
  state.least = told.reduce((a, b) => Math.min(a, b), Infinity);
}

function chooseColors(name) {
  state.colors = name;
  scaleColors();
  legend();
  redraw();
}

const colors = document.getElementById("colors");
if (data.profiled || data.numbers) {
  colors.hidden = false;
  const choices = [data.numbers && "numbers", data.profiled && "time", data.profiled && "memory", "kind"];
  colors.append(...choices.filter(Boolean).map((name) => element("option", { text: `colors: ${name}`, value: name })));
  colors.addEventListener("change", () => chooseColors(colors.value));
}

// -- begin

document.getElementById("title").textContent = data.title;
new ResizeObserver(() => {
  const unseen = !painter.width || !painter.height;  // a frame that is shown later has no size at first
  painter.resize();
  if (unseen) fit(0.85);
  else painter.paint(scene, view, state);
}).observe(canvas);
painter.resize();
scene = new Scene(open, [painter.width, painter.height]);
setTheme(dark.matches ? "dark" : "light");
chooseColors(state.colors);
select(-1);
fit(0.85);
// For scripts of a browser: what is drawn, and the same moves as by hand.
window.opscopeView = {
  select: (name) => { const item = items.find((i) => nameOf(i) === name); if (item) go(item.id); return Boolean(item); },
  openAll, fit, zoom, move, view, scene: () => scene,
  box: (name) => {
    const item = items.find((i) => nameOf(i) === name), b = item && scene.boxOf.get(item.id);
    return b ? { x: (b.x - view.x) * view.scale, y: (b.y - view.y) * view.scale, w: b.w * view.scale, h: b.h * view.scale, open: b.open } : null;
  },
};
