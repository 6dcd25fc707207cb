"use strict";
(() => {
  const id = (name) => document.getElementById(name);
  const holder = id("report-data");

  // The data is JSON, or a JSON string that holds base64 of raw deflate when the job is large.
  let loading = null;
  const load = () => {
    loading = loading || (async () => {
      const value = JSON.parse(holder.textContent);
      if (typeof value !== "string") return value;
      const bytes = Uint8Array.from(atob(value), (c) => c.charCodeAt(0));
      const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
      return JSON.parse(await new Response(stream).text());
    })();
    return loading;
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
      const text = id("markdown").textContent;
      try {
        await navigator.clipboard.writeText(text);
        flash(copy, "Copied");
      } catch (refused) {
        // Without clipboard rights, select the text so that the keyboard can copy it.
        id("markdown").closest("details").open = true;
        getSelection().selectAllChildren(id("markdown"));
        flash(copy, document.execCommand("copy") ? "Copied" : "Selected below: press Ctrl+C");
      }
    });
  }

  const download = id("download");
  download.hidden = false;
  download.addEventListener("click", async () => {
    const text = JSON.stringify(await load(), null, 2) + "\n";
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type: "application/json" }));
    link.download = "hangscope-report.json";
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  });

  const holds = (ranks, wanted) => {
    if (Array.isArray(ranks)) return ranks.includes(wanted);
    return String(ranks).split(",").some((run) => {
      const [span, step] = run.split(":");
      const [from, to] = span.split("-").map(Number);
      return wanted >= from && wanted <= (to === undefined ? from : to) && (wanted - from) % (Number(step) || 1) === 0;
    });
  };
  const plain = (value) => {
    if (value === null || value === undefined) return "not known";
    if (Array.isArray(value)) return value.map(plain).join(", ") || "none";
    if (typeof value === "object") return Object.entries(value).map(([k, v]) => k + " " + plain(v)).join(", ");
    return String(value);
  };
  const show = async (wanted) => {
    const report = await load();
    const entry = (report.ranks || []).find((e) => e && (e.rank === wanted || (e.ranks !== undefined && e.ranks !== null && holds(e.ranks, wanted))));
    const detail = id("detail");
    detail.replaceChildren();
    detail.hidden = !entry;
    id("answer").textContent = entry ? "" : "nothing is recorded of rank " + wanted;
    for (const [key, value] of Object.entries(entry || {})) {
      const row = document.createElement("div");
      const name = document.createElement("dt");
      const text = document.createElement("dd");
      name.textContent = key.replace(/_/g, " ");
      text.textContent = plain(value).slice(0, 2000);
      row.append(name, text);
      detail.append(row);
    }
  };

  const form = id("lookup");
  form.hidden = false;
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const wanted = Number.parseInt(id("rank").value, 10);
    if (Number.isInteger(wanted)) show(wanted);
  });
  for (const note of document.querySelectorAll(".noscript")) note.hidden = true;

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
      id("rank").value = rank;
      show(rank);
      form.scrollIntoView({ block: "center" });
    });
  }

  // A printed page cannot be opened further: print everything, then fold again what was folded.
  let folded = [];
  addEventListener("beforeprint", () => {
    folded = [...document.querySelectorAll("details:not([open])")];
    for (const item of folded) item.open = true;
  });
  addEventListener("afterprint", () => {
    for (const item of folded) item.open = false;
  });
})();
