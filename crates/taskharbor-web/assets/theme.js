/** Light, dark, or as the system has it. */

import { Store } from "./store.js";

const KEY = "taskharbor-theme";
const system = matchMedia("(prefers-color-scheme: dark)");

const chosen = () => document.documentElement.dataset["theme"] ?? "";
const isDark = () => (chosen() ? chosen() === "dark" : system.matches);

/** What is shown. */
export const theme = new Store(isDark() ? "dark" : "light");

system.addEventListener("change", () => theme.set(isDark() ? "dark" : "light"));

/** Shows the other theme; what the system has is not kept as a choice. */
export function toggleTheme() {
  const next = isDark() ? "light" : "dark";
  const isSystems = (next === "dark") === system.matches;
  if (isSystems) delete document.documentElement.dataset["theme"];
  else document.documentElement.dataset["theme"] = next;
  try {
    if (isSystems) localStorage.removeItem(KEY);
    else localStorage.setItem(KEY, next);
  } catch {
    // Not kept: it holds until the page is left.
  }
  theme.set(next);
}

/** A colour of the style sheet, as a canvas takes it. @param {string} name */
export function colour(name) {
  const probe = document.createElement("span");
  probe.className = "probe";
  probe.style.color = `var(--${name})`;
  document.body.append(probe);
  const value = getComputedStyle(probe).color;
  probe.remove();
  return value;
}
