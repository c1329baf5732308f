
"use strict";
(() => {
  const root = document.documentElement;
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  const one = (selector) => document.querySelector(selector);
  all(".tools").forEach((tools) => { tools.hidden = false; });

  // What the reader chose stays, where the browser keeps it.
  const kept = { get(key) { try { return localStorage.getItem(key); } catch { return null; } }, set(key, value) { try { localStorage.setItem(key, value); } catch { /* it is chosen anew next time */ } } };
  const choice = (name, apply) => {
    const buttons = all(`input[name=${name}]`);
    const wanted = buttons.find((button) => button.value === kept.get(`patchline.${name}`));
    if (wanted) wanted.checked = true;
    const chosen = () => buttons.find((button) => button.checked).value;
    buttons.forEach((button) => button.addEventListener("change", () => { kept.set(`patchline.${name}`, chosen()); apply(chosen()); }));
    apply(chosen());
  };
  choice("theme", (theme) => { if (theme) root.dataset.theme = theme; else delete root.dataset.theme; });

  // Side by side: what stays is shown on both sides, the second time for the eye only. A diff is made ready when it opens.
  const split = (diff) => all(".x:not(.both)", diff).forEach((rows) => {
    rows.classList.add("both");
    [...rows.children].forEach((row) => {
      const left = row.cloneNode(true);
      left.className = "other";
      left.setAttribute("aria-hidden", "true");
      left.querySelector("a").remove();
      row.before(left);
    });
  });
  const join = () => all(".x.both").forEach((rows) => { rows.classList.remove("both"); all(".other", rows).forEach((row) => row.remove()); });
  choice("diff", (way) => {
    root.classList.toggle("split", way === "split");
    if (way === "split") all("details.diff[open]").forEach(split); else join();
  });
  const diffs = all("details.diff");
  diffs.forEach((diff) => diff.addEventListener("toggle", () => { if (diff.open && root.classList.contains("split")) split(diff); }));

  const unfold = one("#unfold");
  unfold.addEventListener("click", () => {
    const open = diffs.some((diff) => !diff.open);
    diffs.forEach((diff) => { diff.open = open; });
    unfold.textContent = open ? "Close all diffs" : "Open all diffs";
  });

  // Search: every word has to be in a patch's text, its diff included.
  const search = one("#search"), hits = one("#hits"), none = one("#none");
  const patches = all("article.patch").map((element) => ({ element, row: one(`tr[data-of="${CSS.escape(element.id)}"]`), text: null }));
  const gone = all("tr.gone");
  search.addEventListener("input", () => {
    const wanted = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    let found = 0;
    for (const patch of patches) {
      if (wanted.length) patch.text ??= patch.element.textContent.toLowerCase();
      const shown = wanted.every((word) => patch.text.includes(word));
      patch.element.hidden = !shown;
      patch.row.hidden = !shown;
      found += shown;
    }
    for (const row of gone) row.hidden = !wanted.every((word) => row.textContent.toLowerCase().includes(word));
    none.hidden = found > 0;
    hits.textContent = wanted.length ? `${found} of ${patches.length} patches` : "";
  });

  // An address inside a closed diff opens it; one of a patch that the search hides shows it.
  const show = () => {
    const target = location.hash.length > 1 ? document.getElementById(decodeURIComponent(location.hash.slice(1))) : null;
    if (!target) return;
    const patch = target.closest("article.patch");
    if (patch && patch.hidden) { search.value = ""; search.dispatchEvent(new Event("input")); }
    const diff = target.closest("details");
    if (diff) diff.open = true;
    if (diff || patch) target.scrollIntoView({ block: target === patch ? "start" : "center" });
  };
  addEventListener("hashchange", show);
  show();

  // Lines are reached with the arrow keys from a hunk's heading: a long diff is one stop for Tab, not hundreds.
  const lines = ".code .x a, .code ins a, .code del a";
  all(lines).forEach((link) => { link.tabIndex = -1; });
  document.addEventListener("keydown", (event) => {
    const code = event.target.closest?.(".code");
    if (!code || !["ArrowDown", "ArrowUp"].includes(event.key) || event.altKey || event.ctrlKey || event.metaKey) return;
    const stops = all("a", code);
    const next = stops[stops.indexOf(event.target) + (event.key === "ArrowDown" ? 1 : -1)];
    if (next) { event.preventDefault(); next.focus(); }
  });

  // How long ago a day was is for the reader's clock to say, not for the file.
  all("time").forEach((time) => {
    const days = Math.floor((Date.now() - Date.parse(time.dateTime)) / 86400000);
    if (days >= 0) time.title = days === 0 ? "today" : days === 1 ? "yesterday" : `${days} days ago`;
  });
  const oldest = one(".figures time");
  if (oldest && oldest.title) { const small = document.createElement("small"); small.className = "muted"; small.textContent = ` ${oldest.title}`; oldest.after(small); }

  // On paper everything is open.
  let closed = [];
  addEventListener("beforeprint", () => { closed = all("details:not([open])"); closed.forEach((item) => { item.open = true; }); });
  addEventListener("afterprint", () => { closed.forEach((item) => { item.open = false; }); closed = []; });
})();
