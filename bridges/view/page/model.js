// The page's data, as Python wrote it: items by number, groups of them, values, arrays.

const written = document.getElementById("data");
const isPacked = written.type !== "application/json";
if (isPacked && typeof DecompressionStream === "undefined") {
  document.getElementById("status").textContent = "This browser is too old for so large a page.";
  return;
}

// The text of what Python compressed (zlib) and wrote as base64.
async function unpacked(text) {
  const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).text();
}

// Small pages do not wait, so that all is there once the page is loaded.
const data = JSON.parse(isPacked ? await unpacked(written.textContent) : written.textContent);
const items = data.items;
const groups = data.groups;
const values = data.values.map(([name, type, kind, facts, array, change]) => {
  const shape = /\[(.*)\]/.exec(type);
  return { name, type, kind, facts, array, change, shape: shape ? shape[1].replaceAll(", ", " × ") : "" };
});

items.forEach((item, id) => { item.id = id; item.parent = -1; });
for (const [id, group] of Object.entries(groups)) {
  for (const member of group.m) items[member].parent = Number(id);
}

const isGroup = (id) => groups[id] !== undefined;
const kindOf = (item) => data.kinds[item.k];
const nameOf = (item) => item.n || item.t;
const slotsOf = (slots) => (slots || []).flatMap(([slot, list]) => list.map((v) => [slot, v]));

// The groups around an item, the innermost first; the whole net, 0, is the last one.
function around(id) {
  const found = [];
  for (let at = items[id].parent; at >= 0; at = items[at].parent) found.push(at);
  return found;
}

// Which items write and which read each value.
const writers = new Map(), readers = new Map(), holders = new Map();
for (const item of items) {
  for (const [table, slots] of [[writers, item.w], [readers, item.r], [holders, item.h]]) {
    for (const [, value] of slotsOf(slots)) {
      if (!table.has(value)) table.set(value, []);
      if (!table.get(value).includes(item.id)) table.get(value).push(item.id);
    }
  }
}

// A group counts its members; a change is told if all have the same.
function sumUp(id) {
  const item = items[id];
  item.count = 1;
  if (!isGroup(id)) return item;
  item.count = 0;
  const changes = new Set();
  for (const member of groups[id].m) {
    const part = sumUp(member);
    item.count += part.count;
    changes.add(part.c || "");
  }
  if (!item.c && (changes.size > 1 || !changes.has(""))) {
    item.c = changes.size === 1 ? [...changes][0] : "changed";
    item.within = true;
  }
  return item;
}
sumUp(0);

const secondsText = (s) =>
  s >= 1 ? `${s.toPrecision(3)} s` : s >= 1e-3 ? `${(s * 1e3).toPrecision(3)} ms`
    : `${(s * 1e6).toPrecision(3)} µs`;
function bytesText(count) {
  for (const [size, unit] of [[1 << 30, "GiB"], [1 << 20, "MiB"], [1 << 10, "KiB"]]) {
    if (count >= size) return `${(count / size).toPrecision(3)} ${unit}`;
  }
  return `${count} B`;
}
