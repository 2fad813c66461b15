/** A value that components watch. */

import { useEffect, useRef, useState } from "./html.js";

/** @template T */
export class Store {
  /** @param {T} value */
  constructor(value) {
    this.value = value;
    /** @type {Set<(value: T) => void>} */
    this.watchers = new Set();
  }

  /** @param {T} value */
  set(value) {
    if (Object.is(value, this.value)) return;
    this.value = value;
    for (const watcher of [...this.watchers]) watcher(value);
  }

  /** @param {Partial<T>} change */
  patch(change) {
    this.set({ ...this.value, ...change });
  }
}

/**
 * The value of a store, or what `pick` takes of it. Renders again if that changes.
 * @template T
 * @template [U=T]
 * @param {Store<T>} store
 * @param {(value: T) => U} [pick]
 * @returns {U}
 */
export function useStore(store, pick = (value) => /** @type {any} */ (value)) {
  const [, render] = useState({});
  const picked = pick(store.value);
  // What is picked may differ from one rendering to the next: the watcher asks for what the last one picked.
  const last = useRef({ pick, picked });
  last.current = { pick, picked };
  useEffect(() => {
    const watch = (/** @type {T} */ value) => {
      if (!Object.is(last.current.pick(value), last.current.picked)) render({});
    };
    store.watchers.add(watch);
    watch(store.value);
    return () => void store.watchers.delete(watch);
  }, [store]);
  return picked;
}
