// What a page of hwbench does beyond showing its text: charts, the explorer of a search's trials, tables that sort and search.
// What the page shows is kept in its address (after #), so that a view can be linked. Nothing is fetched; text is never read as HTML.
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("page-data").textContent);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const restorers = [];

  // --- small helpers -------------------------------------------------------------------------------------------------------
  function element(tag, attributes = {}, ...children) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
      else if (value !== null && value !== false) made.setAttribute(name, value === true ? "" : value);
    }
    made.append(...children);
    return made;
  }
  const rounded = (value) => (Number.isInteger(value) ? String(value) : Math.abs(value) >= 100 ? value.toFixed(2) : String(Number(value.toPrecision(5))));
  const shown = (value) => (value === null || value === undefined ? "\u2013" : typeof value === "number" ? rounded(value) : String(value));
  const quoted = (text) => `'${text.replaceAll("'", `'\\''`)}'`;

  async function copy(text, button) {
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      const area = element("textarea");
      area.value = text;
      document.body.append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
    }
    const label = button.textContent;
    button.textContent = "copied";
    setTimeout(() => (button.textContent = label), 1200);
  }
  function save(name, text, type) {
    const link = element("a", { href: URL.createObjectURL(new Blob([text], { type })), download: name });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }

  // --- the address ---------------------------------------------------------------------------------------------------------
  const address = () => new URLSearchParams(location.hash.includes("=") ? location.hash.slice(1) : "");
  function remember(changes) {
    const state = address();
    for (const [key, value] of Object.entries(changes)) value === "" || value === null ? state.delete(key) : state.set(key, value);
    const text = state.toString();
    if (text !== address().toString()) history.replaceState(null, "", text ? `#${text}` : location.pathname + location.search);
  }
  addEventListener("hashchange", () => restorers.forEach((restore) => restore(address())));
  document.addEventListener("click", (event) => {
    const link = event.target.closest?.('a[href^="#"]');
    if (!link || !address().toString()) return;
    event.preventDefault();  // the place on the page moves, what it shows stays
    const place = document.getElementById(link.getAttribute("href").slice(1));
    place?.scrollIntoView();
    place?.focus?.({ preventScroll: true });
  });

  // --- tables --------------------------------------------------------------------------------------------------------------
  const number = /^[-+\u2212]?(\d[\d,]*\.?\d*|\.\d+)(e[-+]?\d+)?/i;
  function comparable(value) {
    if (typeof value === "number") return value;
    if (typeof value === "boolean") return Number(value);
    const found = number.exec(String(value ?? "").replace(/^[<>]\s*/, ""));
    return found ? Number(found[0].replaceAll(",", "").replace("\u2212", "-")) : null;
  }
  function compared(a, b) {
    const [x, y] = [comparable(a), comparable(b)];
    if (x !== null && y !== null) return x - y;
    if (x !== null || y !== null) return x === null ? 1 : -1;
    return String(a ?? "").localeCompare(String(b ?? ""));
  }
  function csvCell(value) {
    if (value === null || value === undefined) return "";
    if (typeof value === "number" || typeof value === "boolean") return String(value);
    const text = /^[=+\-@\t\r]/.test(value) && comparable(value) === null ? `'${value}` : String(value);  // no spreadsheet computes it
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  }
  const markdownCell = (text) => text.replace(/([\\|*_`[\]])/g, "\\$1").replaceAll("<", "&lt;").replace(/\s+/g, " ");

  // A table: columns [{name, number}], rows [{values, texts, command, node}]; shows at most `page` rows until asked for more.
  class Table {
    static page = 60;
    constructor(id, columns, rows, place, onrow = null) {
      Object.assign(this, { id, columns, rows, onrow, more: Table.page, sort: "", query: "" });
      this.search = element("input", { type: "search", placeholder: "search", "aria-label": "search this table", oninput: () => this.ask({ query: this.search.value }) });
      this.count = element("span", { class: "count", role: "status" });
      const asCsv = element("button", { type: "button", onclick: () => save(`${id}.csv`, this.csv(), "text/csv") }, "CSV");
      const asMarkdown = element("button", { type: "button", onclick: (event) => copy(this.markdown(), event.target) }, "copy as Markdown");
      this.bar = element("div", { class: "tools" }, this.search, asCsv, asMarkdown, this.count);
      this.place = place;
      this.commands = rows.some((row) => row.command);
      restorers.push((state) => this.restore(state));
    }
    static of(table) {
      const heads = [...table.tHead.rows[0].cells];
      const columns = heads.map((cell) => ({ name: cell.dataset.name ?? cell.textContent.trim(), number: cell.classList.contains("number") }));
      const rows = [...table.tBodies[0].rows].map((node) => {
        const texts = [...node.cells].map((cell) => cell.textContent.trim());
        return { node, texts, values: texts, command: node.dataset.command ?? table.dataset.command ?? null };
      });
      const made = new Table(table.id, columns, rows, table);
      made.heads = heads;
      (table.closest(".scroll") ?? table).before(made.bar);
      made.head();
      return made;
    }
    static from(id, columns, rows, place, onrow) {
      const head = element("tr", {}, ...columns.map((column) => element("th", { scope: "col", class: column.number && "number" }, column.name)));
      const table = element("table", { id }, element("thead", {}, head), element("tbody"));
      const made = new Table(id, columns, rows, table, onrow);
      made.heads = [...head.cells];
      place.append(made.bar, element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": id }, table));
      made.head();
      return made;
    }
    head() {
      this.heads.forEach((cell, i) => {
        const words = [...cell.childNodes];
        const button = element("button", { type: "button", class: "sort", title: `sort by ${this.columns[i].name}`, onclick: () => this.turn(i) }, "\u2195");
        cell.replaceChildren(...words, " ", button);
      });
      if (this.commands) this.heads[0].parentNode.append(element("th", { scope: "col" }, "again"));
      this.restore(address());
    }
    turn(i) {
      const next = { "": `${i}`, [`${i}`]: `-${i}` };
      this.ask({ sort: next[this.sort.replace("-", "") === String(i) ? this.sort : ""] ?? "" });
    }
    ask(changes) {
      Object.assign(this, changes, { more: Table.page });
      remember({ [`${this.id}.sort`]: this.sort, [`${this.id}.q`]: this.query });
      this.draw();
    }
    restore(state) {
      this.sort = state.get(`${this.id}.sort`) ?? "";
      this.query = this.search.value = state.get(`${this.id}.q`) ?? "";
      this.draw();
    }
    found() {
      const words = this.query.toLowerCase().split(/\s+/).filter(Boolean);
      const rows = this.rows.filter((row) => words.every((word) => row.texts.join("\n").toLowerCase().includes(word)));
      if (!this.sort) return rows;
      const [column, sign] = [Math.abs(Number(this.sort)), this.sort.startsWith("-") ? -1 : 1];
      return rows.toSorted((a, b) => sign * compared(a.values[column], b.values[column]));
    }
    draw() {
      const rows = this.found();
      const body = this.place.tBodies[0];
      body.replaceChildren(...rows.slice(0, this.more).map((row) => this.line(row)));
      this.count.replaceChildren(`${rows.length} of ${this.rows.length}`);
      if (rows.length > this.more) {
        this.count.append(" ", element("button", { type: "button", onclick: () => { this.more *= 4; this.draw(); } }, `show more than ${this.more}`));
      }
      this.heads.forEach((cell, i) => {
        const mine = this.sort.replace("-", "") === String(i);
        cell.setAttribute("aria-sort", !mine ? "none" : this.sort.startsWith("-") ? "descending" : "ascending");
        cell.querySelector(".sort").textContent = !mine ? "\u2195" : this.sort.startsWith("-") ? "\u2193" : "\u2191";
      });
    }
    line(row) {
      if (!row.node) {
        const cells = row.texts.map((text, i) => element("td", { class: this.columns[i].number && "number" }, text));
        row.node = element("tr", {}, ...cells);
        if (this.onrow) cells[0].replaceChildren(element("button", { type: "button", class: "row", onclick: () => this.onrow(row) }, row.texts[0]));
      }
      if (this.commands && !row.said) {
        row.said = true;
        const button = element("button", { type: "button", title: row.command, onclick: (event) => copy(row.command, event.target) }, "copy command");
        row.node.append(element("td", {}, row.command ? button : "\u2013"));
      }
      return row.node;
    }
    csv() {
      const lines = [this.columns.map((column) => csvCell(column.name)), ...this.found().map((row) => row.values.map(csvCell))];
      return lines.map((line) => line.join(",")).join("\n") + "\n";
    }
    markdown() {
      const head = this.columns.map((column) => markdownCell(column.name));
      const marks = this.columns.map((column) => (column.number ? "---:" : "---"));
      const lines = [head, marks, ...this.found().map((row) => row.texts.map(markdownCell))];
      return lines.map((line) => `| ${line.join(" | ")} |`).join("\n") + "\n";
    }
  }
  const tables = {};
  for (const each of document.querySelectorAll("table.data")) tables[each.id] = Table.of(each);

  // Rows that are stored as columns: {name: [values]}.
  function records(columns) {
    const names = Object.keys(columns);
    return (columns[names[0]] ?? []).map((_, i) => Object.fromEntries(names.map((name) => [name, columns[name][i]])));
  }
  for (const place of document.querySelectorAll("[data-table]")) {
    const stored = data.tables[place.dataset.table];
    const rows = records(stored.columns).map((record) => {
      const values = Object.values(record);
      return { values, texts: values.map(shown), command: null };
    });
    const columns = Object.entries(stored.columns).map(([name, values]) => ({ name, number: values.some((value) => typeof value === "number") }));
    tables[place.dataset.table] = Table.from(place.dataset.table, columns, rows, place);
  }

  // --- charts --------------------------------------------------------------------------------------------------------------
  const tip = element("div", { class: "tip", role: "tooltip", hidden: true });
  document.body.append(tip);
  let describe = (datum) => Object.entries(datum).filter(([name]) => !name.startsWith("_"));
  function pointed(_, event, item, value) {
    const datum = item?.datum?.datum ?? item?.datum;
    if (!value || !datum) return void (tip.hidden = true);
    tip.replaceChildren(...describe(datum).map(([name, text]) => element("div", {}, element("b", {}, name), " ", shown(text))));
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    tip.style.left = `${Math.max(4, Math.min(event.clientX + 14, innerWidth - box.width - 8))}px`;
    tip.style.top = `${Math.max(4, Math.min(event.clientY + 14, innerHeight - box.height - 8))}px`;
  }
  const views = {};
  const shared = Object.fromEntries(Object.entries(data.datasets ?? {}).map(([name, columns]) => [name, records(columns)]));
  async function draw() {
    for (const place of document.querySelectorAll("[data-chart]")) {
      const name = place.dataset.chart;
      const spec = structuredClone(data.charts[name]);
      spec.datasets = { ...spec.datasets, ...Object.fromEntries(Object.keys(spec.datasets ?? {}).filter((key) => shared[key]).map((key) => [key, shared[key]])) };
      if (explorer && spec.datasets.chosen) spec.datasets.chosen = [explorer.marked()]; // a scale over nothing complains
      spec.width = "container";
      if (innerWidth < 600) spec.config = { legend: { columns: 1 }, axis: { labelLimit: 110 } };
      const config = data.themes[dark.matches ? "dark" : "light"];
      const made = await vegaEmbed(place, spec, { config, actions: { export: true, source: false, compiled: false, editor: false }, tooltip: pointed, renderer: "canvas" });
      views[name] = made.view;
    }
    explorer?.listen();
    explorer?.update();
    document.documentElement.dataset.drawn = "yes";
  }
  dark.addEventListener("change", draw);

  function has(view, name) {
    try { return Boolean(view.data(name)); } catch { return false; }
  }

  // --- the explorer of a search's trials -------------------------------------------------------------------------------------
  class Explorer {
    constructor(told, place) {
      Object.assign(this, told, { place });
      this.rows = shared.trials.map((row) => ({ ...row, _cost: row.cost }));
      this.byTrial = new Map(this.rows.map((row) => [row.trial, row]));
      this.labels = this.genes.map((gene) => (gene.layer === null ? gene.name : `${gene.name}[${gene.layer}]`));
      this.cost = element("select", { onchange: () => this.ask() }, ...this.costs.map((name) => element("option", { value: name }, this.names[name] ?? name)));
      this.feasible = element("input", { type: "checkbox", onchange: () => this.ask() });
      this.noisy = element("input", { type: "checkbox", onchange: () => this.ask(), disabled: !this.noise });
      this.pick = this.genes.map((gene, i) =>
        element("select", { onchange: () => this.ask() }, element("option", { value: "" }, "any"), element("option", { value: "." }, "not there"),
          ...gene.choices.map((choice, at) => element("option", { value: String(at) }, String(choice)))));
      this.detail = element("div", { class: "detail-panel", id: "chosen", tabindex: "-1", "aria-live": "polite" });
      const list = element("div");
      const label = (text, control) => element("label", {}, `${text} `, control);
      const inner = element("details", {}, element("summary", {}, `genes (${this.genes.length})`), element("div", { class: "genes" }, ...this.pick.map((select, i) => label(this.labels[i], select))));
      const reset = element("button", { type: "button", onclick: () => this.show({}) }, "all trials");
      this.bar = element("div", { class: "tools explorer" },
        this.costs.length > 1 ? label("cost or device", this.cost) : "", label("feasible only", this.feasible),
        label(this.noise ? `beyond noise only (${(100 * this.noise).toPrecision(3)} %)` : "beyond noise only (noise unknown)", this.noisy), reset, inner);
      place.append(this.bar, element("p", { class: "small" }, this.words), this.detail, list);
      this.list = Table.from("trials", this.tableColumns(), this.tableRows(), list, (row) => this.choose(row.record.trial));
      tables.trials = this.list;
      restorers.push((state) => this.restore(state));
      this.restore(address(), true);
    }
    tableColumns() {
      const numbers = ["trial", ...this.costs, "accuracy"].map((name) => ({ name: this.names[name] ?? name, number: true }));
      const upper = this.upper ? [{ name: this.upper, number: true }] : [];
      return [...numbers.slice(0, -1), ...upper, numbers.at(-1), { name: "feasible" }, { name: "architecture" }, ...this.labels.map((name) => ({ name }))];
    }
    tableRows() {
      return this.rows.map((row) => {
        const values = [row.trial, ...this.costs.map((name) => (name === "cost" ? row._cost : row[name])), ...(this.upper ? [row.upper] : []), row.accuracy, row.feasible, this.hex(row), ...this.values(row)];
        return { record: row, values, texts: values.map(shown), command: this.command(row) };
      });
    }
    hex(row) { return [...row.genes].map((mark) => (mark === "." ? 0 : mark.charCodeAt(0) - 48).toString(16).padStart(2, "0")).join(""); }
    values(row) { return [...row.genes].map((mark, i) => (mark === "." ? null : this.genes[i].choices[mark.charCodeAt(0) - 48])); }
    architecture(row) {  // as an architecture file states it: lists end with the last layer that is there
      const found = {};
      this.values(row).forEach((value, i) => {
        const { name, layer } = this.genes[i];
        if (layer !== null) (found[name] ??= []).push(value);
        else if (value !== null) found[name] = value;
      });
      for (const list of Object.values(found)) while (Array.isArray(list) && list.length && list.at(-1) === null) list.pop();
      return found;
    }
    command(row) {
      const file = JSON.stringify({ schema: 1, space: this.space, architectures: [this.architecture(row)] });
      return this.commands.map((line) => line.replaceAll("trial-N", `trial-${row.trial}`).replace("ARCHITECTURE", () => quoted(file))).join(" \\\n  && ");
    }
    blocks(row) {  // [name, ms] of every block, in running order
      if (!this.slots) return [];
      const at = [...row.genes].map((mark) => (mark === "." ? 0 : mark.charCodeAt(0) - 48));
      return this.slots.flatMap(([node, genes, shape, ops, repeat]) => {
        const op = ops[genes.reduce((index, gene, i) => index * shape[i] + at[gene], 0)];
        return op < 0 ? [] : [[node, this.ops[op][0], repeat * this.ops[op][1], this.ops[op][2]]];
      });
    }
    restore(state, first = false) {
      this.cost.value = this.costs.includes(state.get("cost")) ? state.get("cost") : this.costs[0];
      this.feasible.checked = state.get("feasible") === "1";
      this.noisy.checked = state.get("noise") === "1" && !this.noisy.disabled;
      this.pick.forEach((select, i) => (select.value = state.get(`g.${this.labels[i]}`) ?? ""));
      const asked = Number(state.get("trial") ?? NaN);
      this.chosen = this.byTrial.get(asked) ?? this.byTrial.get(this.winner) ?? this.rows[0];
      if (!first) this.update();
      this.tell();
    }
    show(state) {
      const genes = Object.fromEntries(this.labels.map((name) => [`g.${name}`, ""]));
      remember({ cost: "", feasible: "", noise: "", trial: "", ...genes, ...state });
      this.restore(address());
    }
    ask() {
      const genes = Object.fromEntries(this.pick.map((select, i) => [`g.${this.labels[i]}`, select.value]));
      remember({ cost: this.cost.value === this.costs[0] ? "" : this.cost.value, feasible: this.feasible.checked ? "1" : "", noise: this.noisy.checked ? "1" : "", ...genes });
      this.update();
    }
    choose(trial) {
      remember({ trial: String(trial) });
      this.chosen = this.byTrial.get(trial);
      this.update();
      this.tell();
    }
    kept() {
      const [name, base] = [this.cost.value, this.chosen];
      const of = (row) => (name === "cost" ? row._cost : row[name]);
      const asked = this.pick.map((select, i) => [i, select.value]).filter(([, value]) => value !== "");
      return this.rows.filter((row) =>
        (!this.feasible.checked || row.feasible) &&
        (!this.noisy.checked || row === base || Math.abs(of(row) - of(base)) > this.noise * Math.abs(of(base))) &&
        asked.every(([i, value]) => (value === "." ? row.genes[i] === "." : row.genes[i] === String.fromCharCode(48 + Number(value)))) &&
        of(row) !== null).map((row) => ({ ...row, cost: of(row) }));
    }
    update() {
      const rows = this.kept();
      const kept = new Set(rows.map((row) => row.trial));
      const all = (this.all ??= this.list.rows);
      this.list.rows = all.filter((row) => kept.has(row.record.trial));
      this.list.draw();
      for (const view of Object.values(views)) {
        if (has(view, "trials")) view.data("trials", rows.map((row) => ({ ...row }))).data("chosen", [this.marked()]).runAsync();
      }
    }
    marked() {
      const name = this.cost.value;
      return { ...this.chosen, cost: name === "cost" ? this.chosen._cost : this.chosen[name] };
    }
    describe(datum) {
      const row = this.byTrial.get(datum.trial);
      if (!row) return Object.entries(datum).filter(([name]) => !name.startsWith("_")).map(([name, value]) => [this.names[name] ?? name, value]);
      const costs = this.costs.map((name) => [this.names[name] ?? name, name === "cost" ? row._cost : row[name]]);
      const grouped = Object.entries(this.architecture(row)).map(([name, value]) => [name, Array.isArray(value) ? value.map((each) => each ?? "\u2013").join(" ") : value]);
      return [["trial", row.trial], ...costs, ...(this.upper ? [[this.upper, row.upper]] : []), [this.names.accuracy, row.accuracy], ["feasible", row.feasible ? "yes" : "no"], ...grouped];
    }
    tell() {
      const row = this.chosen;
      const list = element("dl", {}, ...this.describe(row).flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, shown(value))]));
      const blocks = this.blocks(row);
      const sum = blocks.reduce((total, [, , ms]) => total + ms, 0);
      const calibration = this.slots && this.costs[0] === "cost" ? [["calibration", "", row._cost - sum, ""]] : [];
      const longest = Math.max(...blocks.map(([, , ms]) => ms), 1e-12);
      const lines = [...blocks, ...calibration].map(([node, op, ms, price]) => element("tr", { title: op }, element("td", {}, node), element("td", { class: "number" }, shown(ms)),
        element("td", { class: "meter" }, element("span", { style: `width:${Math.max(0, Math.min(100, (100 * ms) / longest)).toFixed(1)}%` })), element("td", {}, price)));
      const head = element("tr", {}, ...["block", "predicted ms", "", "price"].map((name, i) => element("th", { scope: "col", class: i === 1 && "number" }, name)));
      const table = blocks.length ? element("div", { class: "scroll" }, element("table", { class: "blocks" }, element("thead", {}, head), element("tbody", {}, ...lines))) : element("p", { class: "small" }, this.why);
      const command = this.command(row);
      const button = element("button", { type: "button", onclick: (event) => copy(command, event.target) }, "copy");
      this.detail.replaceChildren(element("h3", {}, `Trial ${row.trial}${row.trial === this.winner ? " (the winner)" : ""}`),
        element("div", { class: "columns" }, element("div", {}, list), element("div", {}, table)),
        element("p", { class: "small" }, "Measured again, where the device is: ", button), element("pre", {}, command));
    }
    listen() {
      for (const view of Object.values(views)) {
        view.addEventListener("click", (_, item) => {
          const datum = item?.datum?.datum ?? item?.datum;
          if (datum && this.byTrial.has(datum.trial)) this.choose(datum.trial);
        });
      }
      for (const chart of document.querySelectorAll("[data-chart^=front]")) {
        chart.tabIndex = 0;
        chart.onkeydown = (event) => {
          const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
          if (!by) return;
          event.preventDefault();
          this.step(by);
        };
      }
    }
    step(by) {  // to the neighbour by cost among those shown
      const rows = this.kept().sort((a, b) => a.cost - b.cost);
      const at = rows.findIndex((row) => row.trial === this.chosen.trial);
      const next = rows[Math.max(0, Math.min(rows.length - 1, at + by))];
      if (next) this.choose(next.trial);
    }
  }
  let explorer = null;
  const place = document.getElementById("explorer");
  if (place && data.explorer) {
    explorer = new Explorer(data.explorer, place);
    describe = (datum) => explorer.describe(datum);
  }

  // --- search over the whole site --------------------------------------------------------------------------------------------
  const box = document.getElementById("site-search");
  if (box && globalThis.hwbenchIndex) {
    const found = document.getElementById("site-found");
    const search = () => {
      const words = box.value.toLowerCase().split(/\s+/).filter(Boolean);
      remember({ q: box.value });
      const hits = words.length ? hwbenchIndex.filter((each) => words.every((word) => each.words.toLowerCase().includes(word))) : [];
      found.replaceChildren(...hits.slice(0, 60).map((each) => element("li", {}, element("a", { href: box.dataset.root + each.page }, each.title), ` ${each.kind}`)));
      document.getElementById("site-count").textContent = words.length ? `${hits.length} found` : "";
      document.getElementById("gallery")?.classList.toggle("searching", words.length > 0);
    };
    box.addEventListener("input", search);
    restorers.push((state) => { box.value = state.get("q") ?? ""; search(); });
    box.value = address().get("q") ?? "";
    search();
  }

  globalThis.hwbench = { tables, views, get explorer() { return explorer; } };
  if (globalThis.vegaEmbed) draw();
  else document.documentElement.dataset.drawn = "yes";
})();
