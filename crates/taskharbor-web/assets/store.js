/** A value that components watch. */

import { useEffect, useState } from "./html.js";

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
  const [picked, setPicked] = useState(() => ({ of: pick(store.value) }));
  useEffect(() => {
    const watch = (/** @type {T} */ value) => {
      const of = pick(value);
      setPicked((old) => (Object.is(old.of, of) ? old : { of }));
    };
    store.watchers.add(watch);
    watch(store.value);
    return () => void store.watchers.delete(watch);
  }, [store]);
  return picked.of;
}
