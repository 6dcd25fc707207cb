"use strict";
(() => {
  const id = (name) => document.getElementById(name);
  const all = (query) => [...document.querySelectorAll(query)];

  // Data is JSON, or a JSON string that holds base64 of raw deflate.
  const loader = (name) => {
    let loading = null;
    return () => (loading = loading || (async () => {
      const value = JSON.parse(id(name).textContent);
      if (typeof value !== "string") return value;
      const bytes = Uint8Array.from(atob(value), (c) => c.charCodeAt(0));
      const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
      // A long list of ranks is text behind a mark.
      const listed = (key, item) => (typeof item === "string" && item.startsWith("\u0001") ? [...members(item.slice(1), Infinity)] : item);
      return JSON.parse(await new Response(stream).text(), listed);
    })());
  };
  const report = loader("report-data");
  const detail = loader("detail-data");

  const make = (tag, text, kind) => {
    const item = document.createElement(tag);
    if (text !== undefined) item.textContent = text;
    if (kind) item.className = kind;
    return item;
  };
  const flash = (button, text) => {
    if (button.dataset.busy) return;
    button.dataset.busy = "yes";
    const before = [...button.childNodes];
    button.textContent = text;
    setTimeout(() => { button.replaceChildren(...before); delete button.dataset.busy; }, 2000);
  };

  // Without clipboard rights, text is selected so that the keyboard can copy it.
  const toClipboard = async (text, from) => {
    try {
      await navigator.clipboard.writeText(text);
      flash(from, "Copied");
    } catch (refused) {
      const area = make("textarea", text);
      area.value = text;
      document.body.append(area);
      area.select();
      const done = document.execCommand("copy");
      flash(from, done ? "Copied" : "Selected below: press Ctrl+C");
      if (done) area.remove();
    }
  };
  const copy = id("copy");
  if (copy) {
    copy.hidden = false;
    copy.addEventListener("click", () => toClipboard(JSON.parse(id("markdown-data").textContent), copy));
  }
  const download = id("download");
  download.hidden = false;
  download.addEventListener("click", async () => {
    const text = JSON.stringify(await report(), null, 2) + "\n";
    const link = make("a");
    link.href = URL.createObjectURL(new Blob([text], { type: "application/json" }));
    link.download = "hangscope-report.json";
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  });

  // Ranks as text: 0-2,5 and 0-1016:8; or a list of numbers.
  const spans = (ranks) => (Array.isArray(ranks) ? ranks.map(String) : String(ranks).split(",")).filter((run) => /^\d/.test(run)).map((run) => {
    const [span, step] = run.split(":");
    const [from, to] = span.split("-").map(Number);
    return [from, to === undefined ? from : to, Number(step) || 1];
  });
  const holds = (ranks, wanted) => spans(ranks).some(([from, to, step]) => wanted >= from && wanted <= to && (wanted - from) % step === 0);
  const members = (ranks, most) => {
    const found = new Set();
    for (const [from, to, step] of spans(ranks)) for (let r = from; r <= to && r < most; r += step) found.add(r);
    return found;
  };
  const ranksText = (ranks) => {
    const runs = [];
    for (const rank of [...ranks].sort((a, b) => a - b)) {
      const last = runs[runs.length - 1];
      if (last && last[1] === rank - 1) last[1] = rank;
      else runs.push([rank, rank]);
    }
    const some = runs.slice(0, 12).map(([from, to]) => (from === to ? from : from + "-" + to));
    return some.join(",") + (runs.length > 12 ? " …" : "");
  };
  const first = (ranks) => Number.parseInt(String(ranks), 10);
  const labelOf = (group) => {
    const name = group.name || "(unnamed)";
    return group.desc && group.desc !== group.name ? name + " (" + group.desc + ")" : name;
  };
  const on = (item) => item.dataset.rank || item.dataset.ranks;
  const button = (text, action) => {
    const item = make("button", text);
    item.type = "button";
    item.addEventListener("click", () => action(item));
    return item;
  };

  // What is chosen, and what is filtered, follows the file's name: #rank=8, #group=..., #call=.../12, &state=waiting.
  const panel = id("panel");
  let opener = null;
  let chosen = null;
  const filters = { in: "", state: "", host: "" };
  const remember = (visit) => {
    const parts = (chosen ? [chosen] : []).concat(Object.entries(filters).filter((part) => part[1]));
    const hash = parts.map(([key, value]) => key + "=" + encodeURIComponent(value)).join("&");
    const url = hash ? "#" + hash : location.pathname + location.search;
    if (visit && hash !== location.hash.slice(1)) history.pushState(null, "", url);
    else history.replaceState(null, "", url);
  };
  const close = (visit = true) => {
    if (panel.hidden) return;
    panel.hidden = true;
    for (const item of all(".chosen")) item.classList.remove("chosen");
    chosen = null;
    if (visit) remember(true);
    if (opener) opener.focus({ preventScroll: true });
  };
  const open = (kind, value, title, parts, from, marks) => {
    opener = from || opener;
    chosen = [kind, value];
    id("panel-title").textContent = title;
    id("panel-body").replaceChildren(...parts);
    panel.hidden = false;
    panel.focus({ preventScroll: true });
    for (const item of all(".chosen")) item.classList.remove("chosen");
    for (const item of marks) item.classList.add("chosen");
    remember(true);
  };
  const section = (title, lines, ordered) => {
    if (!lines || !lines.length) return [];
    const list = make(ordered ? "ol" : "ul");
    list.append(...lines.map((line) => make("li", line)));
    return [make("h4", title), list];
  };
  const linked = (title, items) => {
    if (!items.length) return [];
    const row = make("p", undefined, "links");
    row.append(...items.slice(0, 24));
    if (items.length > 24) row.append(" and " + (items.length - 24) + " more");
    return [make("h4", title), row];
  };
  // A rank's collectives as a table: op, sizes, seq, its own group, state and line.
  const COLUMNS = ["op", "sizes", "seq", "group", "state", "line"];
  const queueOf = (calls, groups) => {
    if (!calls) return [];
    const rows = calls.map((call) => call.map((value, i) => (i === 3 ? groups[Number(value)] || "" : value)));
    const filter = make("input");
    filter.type = "search";
    filter.id = "panel-filter";
    filter.placeholder = "filter its last " + rows.length + " collectives";
    filter.setAttribute("aria-label", "Filter its collectives");
    const table = make("table", undefined, "queue");
    const head = make("thead");
    const titles = make("tr");
    titles.append(...COLUMNS.map((name) => { const cell = make("th", name); cell.scope = "col"; return cell; }));
    head.append(titles);
    const body = make("tbody");
    table.append(head, body);
    const place = make("div", undefined, "scroll queue-place");
    place.tabIndex = 0;
    place.setAttribute("role", "region");
    place.setAttribute("aria-label", "Its collectives");
    place.append(table);
    const shown = () => {
      const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
      return rows.filter((row) => words.every((word) => row.join(" ").toLowerCase().includes(word)));
    };
    const draw = () => {
      body.replaceChildren(...shown().map((row) => {
        const line = make("tr", undefined, ["pending", "started"].includes(row[4]) ? row[4] : "");
        line.append(...row.map((value) => make("td", value)));
        return line;
      }));
      place.scrollTop = place.scrollHeight;
    };
    filter.addEventListener("input", draw);
    draw();
    const quoted = (value) => '"' + (/^[=+@-]/.test(value) ? "'" : "") + value.replace(/"/g, '""') + '"';
    const csv = () => [COLUMNS, ...shown()].map((row) => row.map(quoted).join(",")).join("\n") + "\n";
    return [make("h4", "Its collectives, the newest last"), filter, button("copy as CSV", (item) => toClipboard(csv(), item)), place];
  };
  const groupButton = (group) => button(labelOf(group), (item) => showGroup(labelOf(group), item));
  const mesh = id("rankmap") && id("rankmap").dataset.mesh ? id("rankmap").dataset.mesh.split(",").map((part) => part.split(":")) : [];
  const placeOf = (rank) => mesh.map(([name, size, stride]) => name + (Math.floor(rank / stride) % size)).join(" ");
  const hostOf = (data, row, rank) => (row && row.host) || (data.per_host ? data.hosts[Math.floor(rank / data.per_host)] : null);

  const showRank = async (wanted, from) => {
    const [data, whole] = [await detail(), await report()];
    const row = data.ranks.find((r) => holds(r.ranks, wanted));
    const host = row && hostOf(data, row, wanted);
    const facts = row ? [row.standing, row.absence, host && "host " + host, row.label || placeOf(wanted)] : [];
    if (row && row.ranks !== String(wanted)) facts.push("as all of ranks " + row.ranks.slice(0, 120));
    open("rank", String(wanted), "Rank " + wanted, row ? [
      make("p", facts.filter(Boolean).join(" · ")),
      ...section("What it is blocked by", row.waits, true),
      ...(row.queue === null ? [] : queueOf(data.queues[row.queue], row.groups)),
      ...section("Its stack, innermost first", row.stack, true),
      ...section("The last events of its log", row.events),
      ...(row.log.length ? [make("h4", "The last lines of its log"), make("pre", row.log.join("\n"))] : []),
      ...linked("Its groups", whole.groups.filter((g) => holds(g.ranks, wanted)).map(groupButton)),
      ...section("Its files", row.files),
    ] : [make("p", "Nothing is recorded of rank " + wanted + ".")], from, all("[data-rank], [data-ranks]").filter((item) => holds(on(item), wanted)));
    const list = panel.querySelector(".queue-place");
    if (list) list.scrollTop = list.scrollHeight;
  };
  const showGroup = async (label, from) => {
    const whole = await report();
    const group = whole.groups.find((g) => labelOf(g) === label);
    const parts = group ? [
      make("p", [group.role, group.members_known ? "ranks" : "at least ranks", Array.isArray(group.ranks) ? ranksText(group.ranks) : group.ranks.slice(0, 300)].filter(Boolean).join(" · ")),
      ...section("Last enqueued and completed seq", group.frontier.map((f) => "ranks " + f.ranks.slice(0, 80) + ": " + (f.enqueued === null ? "not seen" : "enqueued " + f.enqueued + ", completed " + (f.completed === null ? "not known" : f.completed)))),
      ...linked("Its ranks", [...members(group.ranks, whole.world_size)].map((r) => button("rank " + r, (item) => showRank(r, item)))),
      button(filters.in === label ? "show all groups again" : "show only its calls and ranks", () => filter("in", filters.in === label ? "" : label)),
    ] : [make("p", "Nothing is recorded of this group.")];
    open("group", label, "Group " + label, parts, from, all(".chip").filter((c) => c.dataset.group === label));
  };
  const showCall = async (name, from) => {
    const whole = await report();
    const at = name.lastIndexOf("/");
    const [label, number] = [name.slice(0, at), name.slice(at + 1)];
    const seq = Number(number); // not a number for a send or receive, whose numbers are its pair's own
    const rows = all(".row").filter((row) => row.dataset.call === name);
    const group = whole.groups.find((g) => labelOf(g) === label);
    const heads = all(".head .who").map((head) => [...head.childNodes].filter((n) => n.nodeType === 3).map((n) => n.data).join("").trim());
    const cells = rows.flatMap((row) => [...row.children].map((cell, i) => heads[i] + ": " + (cell.classList.contains("eq") ? "the same" : cell.innerText.replace(/\s+/g, " ").trim())).filter((line) => !line.endsWith(": ")));
    const which = (test) => (group ? group.frontier.filter(test).map((f) => f.ranks.slice(0, 80)).join(",") : "");
    const facts = [
      ["completed on", which((f) => f.completed !== null && f.completed >= seq)],
      ["issued and not known to be completed on", which((f) => f.enqueued !== null && f.enqueued >= seq && !(f.completed !== null && f.completed >= seq))],
      ["not issued by", which((f) => f.enqueued !== null && f.enqueued < seq)],
      ["unknown on", which((f) => f.enqueued === null)],
    ].filter((fact) => fact[1] && seq > 0).map(([text, ranks]) => text + " ranks " + ranks);
    open("call", name, (rows.length ? rows[0].dataset.op : "Call") + " seq " + number.replace("p", ""), [
      make("p", "on group " + label),
      ...section("Who issued it", facts),
      ...section("As each class of ranks issued it", cells),
      ...(group ? linked("Its group", [groupButton(group)]) : []),
    ], from, rows);
  };
  id("panel-close").addEventListener("click", () => close());
  const link = button("Copy link", (item) => toClipboard(location.href, item));
  id("panel-close").after(" ", link);

  // Filters dim what does not match, everywhere on the page.
  const bar = id("filter");
  const matching = async () => {
    const [whole, data] = [await report(), await detail()];
    const size = whole.world_size;
    const sets = [];
    if (filters.in) sets.push(members((whole.groups.find((g) => labelOf(g) === filters.in) || { ranks: "" }).ranks, size));
    if (filters.state) sets.push(members(whole.ranks.filter((r) => r.state === filters.state).map((r) => (r.ranks === undefined ? r.rank : r.ranks)).join(","), size));
    if (filters.host) {
      const own = new Set();
      for (const row of data.ranks) for (const r of members(row.ranks, size)) if (hostOf(data, row, r) === filters.host) own.add(r);
      sets.push(own);
    }
    return sets.length ? new Set([...sets[0]].filter((r) => sets.every((s) => s.has(r)))) : null;
  };
  const map = id("rankmap");
  const tile = map && map.dataset.tile ? { size: Number(map.dataset.tile), x: Number(map.dataset.x), y: Number(map.dataset.y), perHost: Number(map.dataset.perHost), hosts: Number(map.dataset.hosts), ranks: Number(map.dataset.size) } : null;
  const pick = (found) => {
    if (!tile) return;
    for (const old of map.querySelectorAll(".picked")) old.remove();
    map.classList.toggle("filtered", found !== null);
    if (!found) return;
    const side = tile.size * 3 / 4;
    const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
    path.setAttribute("class", "picked");
    path.setAttribute("d", [...found].map((rank) => {
      const host = Math.floor(rank / tile.perHost);
      const row = Math.floor(host / tile.hosts) * (tile.perHost + 1) + (rank % tile.perHost);
      return "M" + (tile.x + (host % tile.hosts) * tile.size) + " " + (tile.y + row * tile.size) + "h" + side + "v" + side + "h-" + side + "z";
    }).join(""));
    map.append(path);
  };
  const filter = async (name, value) => {
    if (name) filters[name] = value;
    remember();
    const found = await matching();
    for (const box of all("#filter select")) box.value = filters[box.name];
    const fits = (item) => found === null || spans(on(item)).some(([from, to, step]) => {
      for (let r = from; r <= to; r += step) if (found.has(r)) return true;
      return false;
    });
    for (const item of all("[data-rank], [data-ranks]")) item.classList.toggle("dimmed", Boolean(on(item)) && !fits(item));
    const off = all(".head").map((head) => head.classList.contains("dimmed"));
    for (const row of all(".row")) {
      const chips = [...row.querySelectorAll(".chip")];
      row.classList.toggle("dimmed", filters.in !== "" && !chips.some((c) => c.dataset.group === filters.in));
      [...row.children].forEach((cell, i) => cell.classList.toggle("dimmed", Boolean(off[i])));
    }
    pick(found);
    const result = id("filtered");
    result.replaceChildren();
    bar.hidden = !found && !bar.querySelector("select");
    if (!found) return;
    result.append(found.size ? found.size.toLocaleString("en") + (found.size === 1 ? " rank: " : " ranks: ") + ranksText(found) + " " : "no rank matches ");
    result.append(...[...found].slice(0, 4).map((r) => button("rank " + r, (item) => showRank(r, item))), button("clear", () => {
      filters.in = filters.state = filters.host = "";
      filter();
    }));
  };
  if (bar) {
    bar.hidden = !bar.querySelector("select");
    bar.addEventListener("submit", (event) => event.preventDefault());
    bar.addEventListener("change", (event) => filter(event.target.name, event.target.value));
    // The lists are made when somebody asks for them: a large job has thousands of groups.
    const fill = async () => {
      bar.removeEventListener("focusin", fill);
      bar.removeEventListener("pointerenter", fill);
      const [whole, data] = [await report(), await detail()];
      const named = whole.ranks.map((r) => r.host).filter(Boolean);
      const choices = { in: whole.groups.map(labelOf), state: whole.ranks.map((r) => r.state), host: data.hosts.length ? data.hosts : named };
      for (const box of all("#filter select")) {
        const kept = new Set([...box.options].map((o) => o.value));
        for (const value of new Set(choices[box.name])) {
          if (kept.has(value)) continue;
          const option = make("option", value);
          option.value = value;
          box.append(option);
        }
        box.value = filters[box.name];
      }
    };
    bar.addEventListener("focusin", fill);
    bar.addEventListener("pointerenter", fill);
  }

  const select = (item) => {
    if (item.dataset.group) {
      const label = item.dataset.group;
      if (chosen && chosen[0] === "group" && chosen[1] === label) {
        close();
        filter("in", "");
      } else showGroup(label, item).then(() => filter("in", label));
    } else if (item.dataset.call) showCall(item.dataset.call, item);
    else if (on(item)) showRank(first(on(item)), item);
  };
  const CHOICES = "[data-group], [data-call], [data-rank], [data-ranks]";
  document.addEventListener("click", (event) => {
    const item = event.target.closest(CHOICES);
    if (item && !getSelection().toString()) select(item);
  });
  for (const item of all(".node[data-ranks], .row[data-call].diff, .row[data-call].open")) {
    if (!item.dataset.call && !on(item)) continue;
    item.setAttribute("tabindex", "0");
    if (item.matches(".node")) item.setAttribute("role", "button");
  }
  for (const item of all(".head, .part[data-rank]")) item.setAttribute("role", "button");
  // The graph zooms; its list says the same.
  for (const graph of all(".graph")) {
    const [width, height] = [graph.viewBox.baseVal.width, graph.viewBox.baseVal.height];
    let zoom = 1;
    const scale = (by) => () => {
      zoom = Math.min(4, Math.max(0.25, zoom * by));
      graph.classList.remove("shrinks");
      graph.setAttribute("width", width * zoom);
      graph.setAttribute("height", height * zoom);
    };
    const row = make("p", undefined, "zoom");
    row.append(button("Zoom in", scale(1.25)), " ", button("Zoom out", scale(0.8)));
    graph.closest(".scroll").before(row);
  }
  // A map that is wider than its place begins at the first ringed rank.
  const ring = document.querySelector(".rankmap .ring");
  if (ring) {
    const place = ring.closest(".scroll");
    const right = ring.getBoundingClientRect().right - place.getBoundingClientRect().right;
    if (right > 0) place.scrollLeft += right + 40;
  }

  // The line under the map says which rank the pointer is on.
  const under = (event) => {
    const cell = event.target.closest("[data-rank]");
    if (cell) return Number(cell.dataset.rank);
    if (!tile) return null;
    const box = map.getBoundingClientRect();
    const zoom = map.viewBox.baseVal.width / box.width;
    const column = Math.floor(((event.clientX - box.left) * zoom - tile.x) / tile.size);
    const row = Math.floor(((event.clientY - box.top) * zoom - tile.y) / tile.size);
    const local = row % (tile.perHost + 1);
    const rank = (Math.floor(row / (tile.perHost + 1)) * tile.hosts + column) * tile.perHost + local;
    return column < 0 || column >= tile.hosts || row < 0 || local === tile.perHost || rank >= tile.ranks ? null : rank;
  };
  if (map) {
    const line = id("under");
    line.hidden = false;
    line.textContent = "Point at a rank to see where it is, click to see what it did.";
    map.addEventListener("mousemove", async (event) => {
      const rank = under(event);
      if (rank === null) return;
      const data = await detail();
      const row = data.ranks.find((r) => holds(r.ranks, rank));
      line.textContent = ["rank " + rank, hostOf(data, row, rank), (row && row.label) || placeOf(rank), row && row.standing].filter(Boolean).join(" · ");
    });
    if (tile) {
      map.classList.add("live");
      map.addEventListener("click", (event) => {
        const rank = under(event);
        if (rank !== null) showRank(rank);
      });
    }
  }

  // n and p go to the next and the previous difference.
  const differences = () => {
    const seen = new Set();
    return all(".row[data-diff]").filter((row) => !seen.has(row.dataset.diff) && seen.add(row.dataset.diff));
  };
  let at = -1;
  const jump = (step) => {
    const rows = differences();
    if (!rows.length) return;
    at = Math.max(0, Math.min(rows.length - 1, at + step));
    for (const row of all(".row.here")) row.classList.remove("here");
    rows[at].classList.add("here");
    rows[at].scrollIntoView({ block: "center" });
  };
  const buttons = document.querySelector(".jump");
  if (buttons && differences().length > 1) {
    buttons.hidden = false;
    id("previous").addEventListener("click", () => jump(-1));
    id("following").addEventListener("click", () => jump(1));
  }

  // Search: ranks, hosts, places in the mesh, states, and calls with their groups and lines.
  const query = id("query");
  const found = id("found");
  id("search").hidden = false;
  let only = null; // what Enter opens: the one match
  id("search").addEventListener("submit", async (event) => {
    event.preventDefault();
    await search();
    if (only) only();
  });
  const search = async () => {
    const words = query.value.trim().toLowerCase();
    found.hidden = !words;
    only = null;
    if (!words) return;
    const data = await detail();
    const number = /^(?:rank )?(\d+)$/.exec(words);
    const each = words.split(/\s+/);
    const fits = (text) => Boolean(text) && each.every((word) => text.toLowerCase().includes(word));
    const hits = [];
    const seen = new Set();
    let total = 0;
    const add = (rank, why) => {
      if (seen.has(rank)) return;
      seen.add(rank);
      total += 1;
      if (hits.length < 24) hits.push([rank, why]);
    };
    if (number && data.ranks.some((r) => holds(r.ranks, Number(number[1])))) add(Number(number[1]), "");
    const whole = await report();
    if (mesh.length && each.every((word) => mesh.some(([name]) => new RegExp("^" + name + "\\d+$").test(word)))) {
      for (let rank = 0; rank < whole.world_size; rank += 1) {
        const place = placeOf(rank).split(" ");
        if (each.every((word) => place.includes(word))) add(rank, place.join(" "));
      }
    }
    const groups = whole.groups.filter((g) => fits(labelOf(g)));
    total += groups.length;
    for (const row of data.ranks) {
      const texts = [row.host, row.label, row.standing, ...row.events, ...row.log, ...row.stack, ...row.files];
      let why = texts.find(fits);
      if (!why && row.queue !== null) {
        const call = data.queues[row.queue].findLast((c) => fits(c.join(" ")));
        why = call && call.filter((value, i) => value && i !== 3).join(" · ");
      }
      if (why) add(first(row.ranks), why);
    }
    only = total === 1 ? (hits.length ? () => showRank(hits[0][0], query) : () => showGroup(labelOf(groups[0]), query)) : null;
    found.replaceChildren(
      make("p", total ? total + (total === 1 ? " match" : " matches") : "nothing matches"),
      ...groups.slice(0, 8).map(groupButton),
      ...hits.map(([rank, why]) => button("rank " + rank + (why ? ": " + why.slice(0, 70) : ""), (item) => showRank(rank, item))),
    );
  };
  query.addEventListener("input", search);

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const typing = /^(?:INPUT|TEXTAREA)$/.test(event.target.tagName);
    if (event.key === "Escape") {
      if (typing && event.target === query) { query.value = ""; search(); query.blur(); }
      close();
    } else if (!typing && event.key === "/") {
      event.preventDefault();
      query.focus();
    } else if (!typing && event.key === "n") jump(1);
    else if (!typing && event.key === "p") jump(-1);
    else if ((event.key === "Enter" || event.key === " ") && event.target.matches && event.target.matches(CHOICES)) {
      event.preventDefault();
      select(event.target);
    } else if (!typing && !panel.hidden && /^Arrow/.test(event.key)) move(event);
  });
  // Left and right go from rank to rank and from group to group, up and down from call to call.
  const move = async (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    const across = event.key === "ArrowRight" || event.key === "ArrowLeft";
    const [kind, value] = chosen;
    if (kind === "call" && !across) {
      event.preventDefault();
      const calls = [...new Set(all(".row[data-call]").filter((row) => row.checkVisibility()).map((row) => row.dataset.call))];
      const next = calls[calls.indexOf(value) + step];
      if (next) showCall(next);
    } else if (kind === "group" && across) {
      const labels = (await report()).groups.map(labelOf);
      const next = labels[labels.indexOf(value) + step];
      if (next) showGroup(next);
    } else if (kind === "rank" && across) {
      const next = Number(value) + step;
      if ((await detail()).ranks.some((r) => holds(r.ranks, next))) showRank(next);
    }
  };
  const restore = () => {
    if (!location.hash.includes("=")) return; // a link to a section changes nothing of what is chosen
    const wanted = new URLSearchParams(location.hash.slice(1));
    for (const name of Object.keys(filters)) filters[name] = wanted.get(name) || "";
    const rank = /^\d+$/.exec(wanted.get("rank") || "");
    const [group, call] = [wanted.get("group"), wanted.get("call")];
    const shown = rank ? showRank(Number(rank[0])) : group ? showGroup(group) : call ? showCall(call) : null;
    if (Object.values(filters).some(Boolean)) Promise.resolve(shown).then(() => filter());
  };
  addEventListener("popstate", () => {
    if (!location.hash.includes("=")) close(false);
    restore();
  });
  restore();

  // A section is copied as text, with a link to it.
  for (const title of all("figure[id] h3, section[id] > h2:not(.vh)")) {
    const part = title.closest("figure[id], section[id]");
    const item = button("Copy", () => toClipboard(part.innerText.replace(/\nCopy\n/g, "\n") + "\n" + location.href.split("#")[0] + "#" + part.id + "\n", item));
    item.className = "copy-section";
    item.setAttribute("aria-label", "Copy this section: " + title.textContent);
    title.after(item);
  }

  // A printed page cannot be opened further: what explains is printed whole, then folded again.
  let folded = [];
  addEventListener("beforeprint", () => {
    folded = all("#evidence details:not([open])");
    for (const item of folded) item.open = true;
  });
  addEventListener("afterprint", () => {
    for (const item of folded) item.open = false;
  });
})();
