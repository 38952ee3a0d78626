// The panel at the side. All texts of files are set as text, never as HTML.

const panel = document.getElementById("panel");
const SVG = "http://www.w3.org/2000/svg";
const MOST_LISTED = 60;

function element(name, settings = {}, ...children) {
  const { className, text, title, onclick, ...attributes } = settings;
  const made = document.createElement(name);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  if (title) made.title = title;
  if (onclick) made.addEventListener("click", onclick);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

function table(facts, mono = true) {
  const rows = facts.map(([name, text]) =>
    element("tr", {}, element("td", { text: name }),
      element("td", { text, className: mono ? "mono" : "" })));
  return element("table", {}, element("tbody", {}, ...rows));
}

function link(id, note, go) {
  const item = items[id];
  const button = element("button", { text: nameOf(item), onclick: () => go(id) });
  if (item.c) button.classList.add(item.c);
  if (note) button.append(element("small", { text: note }));
  return element("li", {}, button);
}

function links(entries, go) {
  const list = element("ul", { className: "links" });
  list.append(...entries.slice(0, MOST_LISTED).map(([id, note]) => link(id, note, go)));
  const more = entries.length - MOST_LISTED;
  if (more > 0) list.append(element("li", { className: "soft", text: `and ${more} more` }));
  return list;
}

function histogram(array) {
  const most = Math.max(...array.bins), wide = 100 / array.bins.length;
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", "0 0 100 40");
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", `histogram from ${array.min} to ${array.max}`);
  array.bins.forEach((count, i) => {
    const bar = document.createElementNS(SVG, "rect"), high = (count / most) * 38;
    const settings = { x: i * wide + 0.3, y: 40 - high, width: wide - 0.6, height: high };
    for (const [key, value] of Object.entries(settings)) bar.setAttribute(key, value);
    svg.append(bar);
  });
  return svg;
}

const shortNumber = (n) => (n === null || n === undefined ? "beyond float64"
  : typeof n === "string" ? n : String(+n.toPrecision(4)));

function numbers(array) {
  const box = element("div");
  const facts = [["numbers", `${array.count.toLocaleString("en")} of ${array.dtype}`]];
  if (array.wrong) facts.push(["NaN or infinite", array.wrong.toLocaleString("en")]);
  if (array.min !== undefined) {
    facts.push(["mean ± deviation", `${shortNumber(array.mean)} ± ${shortNumber(array.std)}`]);
    if (array.zeros) facts.push(["zeros", array.zeros.toLocaleString("en")]);
    if (!array.bins) facts.push(["smallest, largest", `${shortNumber(array.min)}, ${shortNumber(array.max)}`]);
  }
  box.append(table(facts));
  if (array.bins) {
    const ends = element("div", { className: "ends" },
      element("span", { text: shortNumber(array.min) }),
      element("span", { text: array.sample < array.count ? `a sample of ${array.sample.toLocaleString("en")}` : "" }),
      element("span", { text: shortNumber(array.max) }));
    box.append(histogram(array), ends);
  }
  return box;
}

function valueBox(slot, number, go, self) {
  const value = values[number];
  const box = element("div", { className: "value" });
  box.dataset.value = number;
  const head = element("h4", { text: value.name });
  if (value.change) head.classList.add(value.change);
  box.append(head, element("p", { className: "soft mono", text: [slot, value.type, value.kind].filter(Boolean).join("  ·  ") }));
  if (value.facts.length) box.append(table(value.facts));
  if (value.array) box.append(numbers(data.arrays[value.array]));
  const others = [...(writers.get(number) || []), ...(readers.get(number) || []), ...(holders.get(number) || [])];
  const shown = [...new Set(others)].filter((id) => id !== self);
  if (shown.length) box.append(links(shown.map((id) => [id, role(id, number)]), go));
  return box;
}

function role(id, value) {
  const has = (slots) => slotsOf(slots).some(([, v]) => v === value);
  const told = has(items[id].w) ? "writes it" : has(items[id].r) ? "reads it" : "holds it too";
  return `${told} · ${items[id].t}`;
}

function section(title, ...children) {
  return [element("h3", { text: title }), ...children];
}

function showItem(id, go) {
  const item = items[id], parts = [];
  const path = element("p", { className: "soft path" });
  for (const group of around(id).reverse()) {
    path.append(element("button", { text: group ? items[group].t : "net", onclick: () => go(group) }), " / ");
  }
  parts.push(path, element("h2", { text: item.t }));
  if (item.n && item.n !== item.t) parts.push(element("p", { className: "mono", text: item.n }));
  if (item.c) parts.push(element("p", { className: item.c, text: item.within ? "changed inside" : item.c }));
  if (item.d) parts.push(...item.d.map((text) => element("p", { className: "changed mono", text })));
  const measured = [];
  if (item.s !== undefined) measured.push(["time", secondsText(item.s)]);
  if (item.b !== undefined) measured.push(["memory", bytesText(item.b)]);
  if (item.e !== undefined) measured.push([data.numbers, shortNumber(item.e)]);
  if (measured.length) parts.push(...section("Measured", table(measured)));
  for (const [title, slots] of [["Parameters", item.h], ["Attributes"], ["Reads", item.r], ["Writes", item.w]]) {
    if (!slots && title === "Attributes" && item.f) parts.push(...section(title, table(item.f)));
    const list = slotsOf(slots);
    if (!list.length) continue;
    const boxes = list.slice(0, MOST_LISTED).map(([slot, value]) => valueBox(slot, value, go, id));
    parts.push(...section(title, ...boxes));
    if (list.length > MOST_LISTED) parts.push(element("p", { className: "soft", text: `and ${list.length - MOST_LISTED} more` }));
  }
  if (isGroup(id)) {
    parts.push(...section(`Inside: ${item.count} items`, links(groups[id].m.map((m) => [m, items[m].t === nameOf(items[m]) ? "" : items[m].t]), go)));
  }
  panel.replaceChildren(...parts);
  panel.scrollTop = 0;
}

// The outline: groups and items as a tree whose branches are made when they are opened.
function tree(id, go) {
  const list = element("ul", { className: "tree" });
  for (const member of groups[id].m) {
    const item = items[member], entry = element("li");
    const name = element("button", { text: nameOf(item), onclick: () => go(member) });
    if (item.c) name.classList.add(item.c);
    const note = isGroup(member) ? `${item.count}` : item.n ? item.t : "";
    if (isGroup(member)) {
      const twist = element("button", { className: "twist", text: "▸", "aria-expanded": "false", "aria-label": `Open ${nameOf(item)}` });
      twist.addEventListener("click", () => {
        const inside = entry.querySelector(":scope > ul");
        if (inside) inside.remove(); else entry.append(tree(member, go));
        twist.textContent = inside ? "▸" : "▾";
        twist.setAttribute("aria-expanded", String(!inside));
      });
      entry.append(twist);
    }
    entry.append(name, element("small", { text: note }));
    list.append(entry);
  }
  return list;
}

function changedItems() {
  return items.filter((item) => item.c && !item.within).map((item) => item.id);
}

function showNet(go) {
  const parts = [element("h2", { text: data.title }), table(data.facts, false)];
  if (data.compared) {
    const changed = changedItems();
    const counts = CHANGES.map((c) => element("span", { className: c, text: `${changed.filter((id) => items[id].c === c).length} ${c}  ` }));
    parts.push(...section("Difference", element("p", { text: `to ${data.compared}` }), element("p", {}, ...counts),
      links(changed.map((id) => [id, items[id].c]), go)));
  }
  if (data.profiled) {
    const timed = items.filter((item) => item.s !== undefined && !isGroup(item.id));
    timed.sort((a, b) => b.s - a.s);
    const whole = timed.reduce((sum, item) => sum + item.s, 0);
    parts.push(...section("Profile", element("p", { className: "soft", text: `${data.profiled}; ${secondsText(whole)} in all` }),
      links(timed.slice(0, 12).map((item) => [item.id, `${secondsText(item.s)} · ${(100 * item.s / (whole || 1)).toFixed(1)} %`]), go)));
  }
  if (data.numbers) {
    const told = items.filter((item) => item.e !== undefined);
    parts.push(...section(data.numbers, links(told.map((item) => [item.id, shortNumber(item.e)]), go)));
  }
  parts.push(...section("Outline", tree(0, go)));
  panel.replaceChildren(...parts);
  panel.scrollTop = 0;
}
