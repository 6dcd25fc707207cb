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
      return JSON.parse(await new Response(stream).text());
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

  const copy = id("copy");
  if (copy) {
    copy.hidden = false;
    copy.addEventListener("click", async () => {
      const text = JSON.parse(id("markdown-data").textContent);
      try {
        await navigator.clipboard.writeText(text);
        flash(copy, "Copied");
      } catch (refused) {
        // Without clipboard rights, select the text so that the keyboard can copy it.
        const area = make("textarea", text);
        area.value = text;
        document.body.append(area);
        area.select();
        const done = document.execCommand("copy");
        flash(copy, done ? "Copied" : "Selected below: press Ctrl+C");
        if (done) area.remove();
      }
    });
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

  // Ranks as text: 0-2,5 and 0-1016:8.
  const holds = (ranks, wanted) => String(ranks).split(",").some((run) => {
    const [span, step] = run.split(":");
    const [from, to] = span.split("-").map(Number);
    return wanted >= from && wanted <= (to === undefined ? from : to) && (wanted - from) % (Number(step) || 1) === 0;
  });
  const first = (ranks) => Number.parseInt(String(ranks), 10);

  const panel = id("panel");
  let opener = null;
  const close = () => {
    if (panel.hidden) return;
    panel.hidden = true;
    for (const item of all(".chosen")) item.classList.remove("chosen");
    history.replaceState(null, "", location.pathname + location.search);
    if (opener) opener.focus({ preventScroll: true });
  };
  const section = (title, lines, ordered) => {
    if (!lines || !lines.length) return [];
    const list = make(ordered ? "ol" : "ul");
    list.append(...lines.map((line) => make("li", line)));
    return [make("h4", title), list];
  };
  const queueOf = (lines) => {
    if (!lines) return [];
    const filter = make("input");
    filter.type = "search";
    filter.id = "panel-filter";
    filter.placeholder = "filter its last " + lines.length + " calls";
    filter.setAttribute("aria-label", "Filter its calls");
    const list = make("ol", undefined, "queue");
    const draw = () => {
      const words = filter.value.toLowerCase();
      list.replaceChildren(...lines.filter((l) => l.toLowerCase().includes(words)).map((line) => {
        const state = [" · pending", " · started"].find((s) => line.includes(s));
        return make("li", line, state ? state.slice(3) : "");
      }));
      list.scrollTop = list.scrollHeight;
    };
    filter.addEventListener("input", draw);
    draw();
    return [make("h4", "Its calls, the newest last"), filter, list];
  };
  const show = async (wanted, from) => {
    const data = await detail();
    const row = data.ranks.find((r) => holds(r.ranks, wanted));
    opener = from || opener;
    id("panel-title").textContent = "Rank " + wanted;
    const body = id("panel-body");
    if (!row) {
      body.replaceChildren(make("p", "Nothing is recorded of rank " + wanted + "."));
    } else {
      const facts = [row.state, row.absence, row.host && "host " + row.host, row.label];
      if (row.ranks !== String(wanted)) facts.push("as all of ranks " + row.ranks.slice(0, 120));
      body.replaceChildren(
        make("p", facts.filter(Boolean).join(" · ")),
        ...section("Its way to the root", row.waits, true),
        ...(row.queue === null ? [] : queueOf(data.queues[row.queue])),
        ...section("Its stack, innermost first", row.stack, true),
        ...section("What its log told last", row.told),
        ...section("Its files", row.files),
      );
    }
    panel.hidden = false;
    panel.focus({ preventScroll: true });
    for (const item of all("[data-rank], [data-ranks]")) {
      item.classList.toggle("chosen", holds(item.dataset.rank || item.dataset.ranks, wanted));
    }
    history.replaceState(null, "", "#rank=" + wanted);
    const list = panel.querySelector(".queue");
    if (list) list.scrollTop = list.scrollHeight;
  };
  id("panel-close").addEventListener("click", close);

  // A group's chip dims the calls of all other groups; once more shows them again.
  let group = null;
  const choose = (name) => {
    group = group === name ? null : name;
    for (const row of all(".row")) {
      const chips = [...row.querySelectorAll(".chip")];
      row.classList.toggle("dimmed", group !== null && !chips.some((c) => c.dataset.group === group));
    }
  };
  document.addEventListener("click", (event) => {
    const chip = event.target.closest("[data-group]");
    if (chip) return choose(chip.dataset.group);
    const item = event.target.closest("[data-rank], [data-ranks]");
    if (item && (item.dataset.rank || item.dataset.ranks)) show(first(item.dataset.rank || item.dataset.ranks), item);
    return undefined;
  });
  for (const node of all(".node[data-ranks]")) {
    if (!node.dataset.ranks) continue;
    node.setAttribute("tabindex", "0");
    node.setAttribute("role", "button");
  }
  for (const head of all(".head, .part[data-rank]")) head.setAttribute("role", "button");

  // A drawing that is wider than its place begins with what matters, at its right end.
  for (const root of all(".graph .root")) {
    const place = root.closest(".scroll");
    const right = root.getBoundingClientRect().right - place.getBoundingClientRect().right;
    if (right > 0) place.scrollLeft += right + 12;
  }

  const map = id("rankmap");
  if (map && map.dataset.tile) {
    map.classList.add("live");
    map.addEventListener("click", (event) => {
      const box = map.getBoundingClientRect();
      const zoom = map.viewBox.baseVal.width / box.width;
      const tile = Number(map.dataset.tile);
      const perHost = Number(map.dataset.perHost);
      const hosts = Number(map.dataset.hosts);
      const column = Math.floor(((event.clientX - box.left) * zoom - Number(map.dataset.x)) / tile);
      const row = Math.floor(((event.clientY - box.top) * zoom - Number(map.dataset.y)) / tile);
      const local = row % (perHost + 1);
      const rank = (Math.floor(row / (perHost + 1)) * hosts + column) * perHost + local;
      if (column < 0 || column >= hosts || row < 0 || local === perHost || rank >= Number(map.dataset.size)) return;
      show(rank);
    });
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
  id("search").addEventListener("submit", (event) => event.preventDefault());
  const search = async () => {
    const words = query.value.trim().toLowerCase();
    found.hidden = !words;
    if (!words) return;
    const data = await detail();
    const number = /^(?:rank )?(\d+)$/.exec(words);
    const hits = [];
    const seen = new Set();
    const add = (rank, why) => {
      if (hits.length < 24 && !seen.has(rank)) {
        seen.add(rank);
        hits.push([rank, why]);
      }
    };
    if (number && data.ranks.some((r) => holds(r.ranks, Number(number[1])))) add(Number(number[1]), "");
    let total = hits.length;
    for (const row of data.ranks) {
      const texts = [row.host, row.label, row.state, ...row.told, ...row.stack, ...row.files];
      let why = texts.find((t) => t && t.toLowerCase().includes(words));
      if (!why && row.queue !== null) why = data.queues[row.queue].findLast((l) => l.toLowerCase().includes(words));
      if (why) {
        total += 1;
        add(first(row.ranks), why);
      }
    }
    found.replaceChildren(make("p", total ? total + (total === 1 ? " match" : " matches") : "nothing matches"), ...hits.map(([rank, why]) => {
      const button = make("button", "rank " + rank + (why ? ": " + why.slice(0, 70) : ""));
      button.type = "button";
      button.addEventListener("click", () => show(rank, button));
      return button;
    }));
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
    else if ((event.key === "Enter" || event.key === " ") && event.target.matches && event.target.matches("[data-rank], [data-ranks]")) {
      event.preventDefault();
      show(first(event.target.dataset.rank || event.target.dataset.ranks), event.target);
    } else if (!typing && !panel.hidden && (event.key === "ArrowRight" || event.key === "ArrowLeft")) {
      const now = Number(id("panel-title").textContent.slice(5));
      const next = now + (event.key === "ArrowRight" ? 1 : -1);
      detail().then((data) => { if (data.ranks.some((r) => holds(r.ranks, next))) show(next); });
    }
  });
  const restore = () => {
    const wanted = /^#rank=(\d+)$/.exec(location.hash);
    if (wanted) show(Number(wanted[1]));
  };
  addEventListener("hashchange", restore);
  restore();

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
