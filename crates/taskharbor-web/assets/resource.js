/** What a page shows of the API: fetched, kept while it is fetched again, told if it fails. */

import { get, session } from "./api.js";
import { useCallback, useEffect, useRef, useState } from "./html.js";
import { live } from "./live.js";
import { useStore } from "./store.js";

/**
 * @template T
 * @typedef {{data: T | null, error: Error | null, isLoading: boolean, reload: () => void}} Resource
 */

/**
 * Fetches an address, again when the address changes, and every `every` milliseconds while the page is
 * visible and not paused.
 * @template T
 * @param {string | URL | null} url
 * @param {{every?: number | undefined, read?: typeof get, turn?: number}} [options] how to fetch it, and a number that changes when it is to be fetched in another way
 * @returns {Resource<T>}
 */
export function useResource(url, { every, read = get, turn: other } = {}) {
  const key = url && `${url}`;
  const [state, setState] = useState({ key, data: /** @type {T | null} */ (null), error: /** @type {Error | null} */ (null), isLoading: true });
  const [turn, setTurn] = useState(0);
  const reload = useCallback(() => setTurn((old) => old + 1), []);
  useEffect(() => {
    if (!key) return;
    const abort = new AbortController();
    setState((old) => (old.key === key ? { ...old, isLoading: true } : { key, data: null, error: null, isLoading: true }));
    read(key, abort.signal).then(
      (data) => setState({ key, data, error: null, isLoading: false }),
      (error) => {
        if (!abort.signal.aborted) setState((old) => ({ ...old, error, isLoading: false }));
      },
    );
    return () => abort.abort();
  }, [key, turn, other]);
  useRepeat(reload, key ? every : undefined);
  const status = useStore(live, (value) => value.status);
  // What failed while the server was away is asked for again when it is back.
  useEffect(() => void (status === "live" && state.error && reload()), [status]);
  const isOf = state.key === key;
  return { data: isOf ? state.data : null, error: isOf ? state.error : null, isLoading: !isOf || state.isLoading, reload };
}

/** Runs `work` every so often, unless the page is hidden or paused. @param {() => void} work @param {number} [every] */
export function useRepeat(work, every) {
  const kept = useRef(work);
  kept.current = work;
  useEffect(() => {
    if (!every) return;
    const timer = setInterval(() => {
      const isWatched = !document.hidden && live.value.status !== "paused" && session.value?.role;
      if (isWatched) kept.current();
    }, every);
    return () => clearInterval(timer);
  }, [every]);
}
