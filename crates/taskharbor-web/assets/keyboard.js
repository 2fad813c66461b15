/** Keyboard shortcuts. While a text is being typed, only Escape has an effect. */

import { Dialog, isDialogOpen, showDialog } from "./dialog.js";
import { html } from "./html.js";
import { togglePause } from "./live.js";
import { go } from "./route.js";
import { toggleTheme } from "./theme.js";

/** @type {Record<string, [string, string]>} */
export const PAGES = {
  o: ["overview", "Overview"],
  j: ["jobs", "Jobs"],
  d: ["dlq", "DLQ"],
  f: ["flows", "Flows"],
  s: ["schedules", "Schedules"],
  q: ["queues", "Queues"],
  w: ["workers", "Workers"],
  a: ["activity", "Activity"],
};

const KEYS = [
  ["/", "go to the filter"],
  ["↓ ↑ or j k", "next, previous row"],
  ["Enter", "open the row"],
  ["x", "select the row"],
  ["p", "pause or resume live updates"],
  ["t", "light or dark"],
  ["?", "this help"],
  ["Esc", "close a dialog, leave a field"],
];

export function showHelp() {
  showDialog(() => html`<${Dialog} title="Keys">
    <dl class="keys">
      ${Object.entries(PAGES).map(([key, [, name]]) => html`<dt><kbd>g</kbd> <kbd>${key}</kbd></dt><dd>${name}</dd>`)}
      ${KEYS.map(([key, text]) => html`<dt><kbd>${key}</kbd></dt><dd>${text}</dd>`)}
    </dl>
  <//>`);
}

/** Moves the focus between the rows of a list. @param {number} step */
function moveRow(step) {
  const rows = /** @type {HTMLElement[]} */ ([...document.querySelectorAll("main tr[tabindex], main li[tabindex]")]);
  if (!rows.length) return false;
  const focused = document.activeElement?.closest("tr[tabindex], li[tabindex]");
  const from = focused ? rows.indexOf(/** @type {HTMLElement} */ (focused)) : step > 0 ? -1 : 0;
  const row = rows[Math.min(rows.length - 1, Math.max(0, from + step))];
  row?.focus();
  row?.scrollIntoView({ block: "nearest" });
  return true;
}

/** @param {Element | null} row @param {string} selector */
function click(row, selector) {
  const target = row?.matches("tr[tabindex], li[tabindex]") && row.querySelector(selector);
  if (!(target instanceof HTMLElement)) return false;
  target.click();
  return true;
}

function focusFilter() {
  const field = document.querySelector("main [data-filter]");
  if (!(field instanceof HTMLInputElement)) return false;
  field.focus();
  field.select();
  return true;
}

/** @type {Record<string, () => boolean | void>} */
const HANDLERS = {
  "/": focusFilter,
  "?": showHelp,
  p: togglePause,
  t: toggleTheme,
  j: () => moveRow(1),
  ArrowDown: () => moveRow(1),
  k: () => moveRow(-1),
  ArrowUp: () => moveRow(-1),
  Enter: () => click(document.activeElement, "a"),
  x: () => click(document.activeElement, "input[type=checkbox]"),
};

let isGoing = false;

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || isDialogOpen()) return;
  const field = document.activeElement;
  if (field instanceof HTMLElement && field.matches("input:not([type=checkbox]), textarea, select")) {
    if (event.key === "Escape") field.blur();
    return;
  }
  const page = isGoing && PAGES[event.key];
  isGoing = event.key === "g" && !isGoing;
  if (page) go([page[0]]);
  else if (isGoing) setTimeout(() => (isGoing = false), 1500);
  else if (HANDLERS[event.key]?.() === false || !HANDLERS[event.key]) return;
  event.preventDefault();
});
