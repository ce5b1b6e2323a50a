"use strict";
(() => {
  const MARKED = 2000; // the most matches that are highlighted
  const UNFOLDED = 60; // hits that are unfolded at once; others when the user moves to them
  const root = document.documentElement;
  const get = (id) => document.getElementById(id);
  const field = get("search");
  const allUnits = () => [...document.querySelectorAll("main > article")];
  const texts = new WeakMap(); // a live page replaces its articles
  let hits = [];
  let place = -1;
  let unfolded = [];

  const textOf = (unit) => {
    if (!texts.has(unit)) texts.set(unit, unit.textContent.toLowerCase());
    return texts.get(unit);
  };

  const unfold = (unit, wanted) => {
    for (const fold of unit.querySelectorAll("details:not([open])")) {
      if (!fold.textContent.toLowerCase().includes(wanted)) continue;
      fold.open = true;
      unfolded.push(fold);
    }
  };

  const colour = (wanted) => {
    if (!("highlights" in CSS)) return;
    CSS.highlights.delete("found");
    if (!wanted) return;
    const ranges = [];
    for (const unit of hits) {
      const walker = document.createTreeWalker(unit, NodeFilter.SHOW_TEXT);
      while (walker.nextNode() && ranges.length < MARKED) {
        const text = walker.currentNode.data.toLowerCase();
        let at = text.indexOf(wanted);
        while (at >= 0 && ranges.length < MARKED) {
          const end = at + wanted.length;
          if (end > walker.currentNode.length) break; // some letters are longer in lower case
          const range = new Range();
          range.setStart(walker.currentNode, at);
          range.setEnd(walker.currentNode, end);
          ranges.push(range);
          at = text.indexOf(wanted, end);
        }
      }
      if (ranges.length >= MARKED) break;
    }
    CSS.highlights.set("found", new Highlight(...ranges));
  };

  const search = () => {
    const wanted = field.value.trim().toLowerCase();
    for (const fold of unfolded) fold.open = false;
    unfolded = [];
    const units = allUnits();
    hits = wanted ? units.filter((unit) => textOf(unit).includes(wanted)) : [];
    const kept = new Set(hits);
    for (const unit of units) unit.classList.toggle("missed", Boolean(wanted) && !kept.has(unit));
    for (const unit of hits.slice(0, UNFOLDED)) unfold(unit, wanted);
    colour(wanted);
    place = -1;
    report();
  };

  const isShown = (unit) => unit.offsetParent !== null || unit.getClientRects().length > 0;
  const shown = () => hits.filter(isShown);

  const report = () => {
    const wanted = field.value.trim();
    const there = wanted ? shown() : [];
    const units = allUnits();
    const all = `${there.length} of ${units.length}`;
    get("found").textContent = !wanted ? "" : place >= 0 ? `${place + 1} of ${there.length}` : all;
    get("previous").hidden = get("next").hidden = there.length === 0;
    const any = root.classList.contains("only-problems") || wanted;
    get("nothing").hidden = !any || units.some((unit) => unit.getClientRects().length > 0);
  };

  const go = (by) => {
    const there = shown();
    if (there.length === 0) return;
    place = place < 0 && by < 0 ? there.length - 1 : (place + by + there.length) % there.length;
    unfold(there[place], field.value.trim().toLowerCase());
    there[place].scrollIntoView({ block: "start" });
    report();
  };

  let waiting = 0;
  field.addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(search, 120);
  });
  field.addEventListener("keydown", (event) => {
    if (event.key === "Enter") go(event.shiftKey ? -1 : 1);
    if (event.key === "Escape") {
      field.value = "";
      search();
      field.blur();
    }
  });
  document.addEventListener("keydown", (event) => {
    const typing = /^(INPUT|TEXTAREA)$/.test(document.activeElement?.tagName ?? "");
    if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey) {
      event.preventDefault();
      field.focus();
    }
  });
  get("next").addEventListener("click", () => go(1));
  get("previous").addEventListener("click", () => go(-1));
  get("problems").addEventListener("change", (event) => {
    root.classList.toggle("only-problems", event.target.checked);
    place = -1;
    report();
  });

  // The rests of long texts stay folded, because unfolding a thousand of them is slow.
  const all = (open) => {
    for (const fold of document.querySelectorAll("main details:not(.rest)")) fold.open = open;
    unfolded = [];
  };
  get("open").addEventListener("click", () => all(true));
  get("fold").addEventListener("click", () => all(false));

  const keep = (theme) => {
    root.dataset.theme = theme;
    try {
      localStorage.setItem("glue-theme", theme);
    } catch { /* a page that was opened from a file may have no storage */ }
  };
  try {
    const kept = localStorage.getItem("glue-theme");
    if (kept === "light" || kept === "dark") root.dataset.theme = kept;
  } catch { /* no storage */ }
  get("theme").addEventListener("click", () => {
    const systemIsDark = matchMedia("(prefers-color-scheme: dark)").matches;
    const isDark = root.dataset.theme ? root.dataset.theme === "dark" : systemIsDark;
    keep(isDark ? "light" : "dark");
  });
})();
