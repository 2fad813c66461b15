/** Addresses within the pages: `#/STORE/PAGE/…?filter`. Reloading one shows the same. */

import { Store, useStore } from "./store.js";

/** @typedef {{store: string, page: string, rest: string[], params: Record<string, string>}} Route */

/** @param {string} part */
function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** @returns {Route} */
function parse() {
  const [path = "", query = ""] = location.hash.replace(/^#\/?/, "").split(/\?(.*)/s);
  const [store = "", page = "", ...rest] = path.split("/").map(decoded);
  const params = Object.fromEntries(new URLSearchParams(query));
  return { store: store || "default", page: page || "overview", rest, params };
}

export const route = new Store(parse());

addEventListener("hashchange", () => route.set(parse()));

/** @typedef {Record<string, string | number | null | undefined>} Params */

/** The address of a page. @param {string[]} parts @param {Params} [params] @param {string} [store] */
export function to(parts, params = {}, store = route.value.store) {
  const kept = Object.entries(params).filter(([, value]) => value || value === 0);
  const query = new URLSearchParams(kept.map(([name, value]) => [name, `${value}`])).toString();
  return `#/${[store, ...parts].map(encodeURIComponent).join("/")}${query ? `?${query}` : ""}`;
}

/** @param {string[]} parts @param {Params} [params] */
export function go(parts, params) {
  location.hash = to(parts, params);
}

/** Changes the filter of this page without a step in the history. @param {Params} change */
export function refine(change) {
  const { page, rest, params } = route.value;
  history.replaceState(null, "", to([page, ...rest], { ...params, ...change }));
  route.set(parse());
}

export const useRoute = () => useStore(route);
