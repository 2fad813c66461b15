/** Requests to the public JSON API. Every address is relative to the page, so that any prefix works. */

import { Store } from "./store.js";

/** An answer of the API that is not a success. */
export class Problem extends Error {
  /** @param {number} status @param {string} code @param {string} title @param {string} [detail] */
  constructor(status, code, title, detail) {
    super(detail ? `${title}: ${detail}` : title);
    Object.assign(this, { status, code, title, detail });
    this.status = status;
    this.code = code;
    this.title = title;
    this.detail = detail;
  }
}

/**
 * Who is asking, and what the answer allows. `null` until it is known.
 * @type {Store<import("../api").Session | null>}
 */
export const session = new Store(/** @type {any} */ (null));

const RANKS = ["viewer", "operator", "admin"];

/** @param {import("../api").Role | "payloads"} what */
export function may(what) {
  const who = session.value;
  if (!who?.role) return false;
  if (what === "payloads") return who.payloads;
  return RANKS.indexOf(who.role) >= RANKS.indexOf(what);
}

/** @param {string} path @param {Record<string, string | number | null | undefined>} [params] */
export function address(path, params = {}) {
  const url = new URL(path, document.baseURI.split("#")[0]);
  for (const [name, value] of Object.entries(params)) {
    if (value !== null && value !== undefined && value !== "") url.searchParams.set(name, `${value}`);
  }
  return url;
}

/** The path of something in a store. @param {string} store @param {...string} parts */
export function at(store, ...parts) {
  return ["v1", store, ...parts].map((part) => encodeURIComponent(part)).join("/");
}

/** @param {string} method @param {string | URL} url @param {{body?: unknown, signal?: AbortSignal}} [with_] */
async function send(method, url, { body, signal } = {}) {
  /** @type {RequestInit} */
  const init = { method, credentials: "same-origin", ...(signal && { signal }) };
  if (method !== "GET") {
    init.headers = { "content-type": "application/json" };
    init.body = typeof body === "string" ? body : JSON.stringify(body ?? {});
  }
  let answer;
  try {
    answer = await fetch(address(`${url}`), init);
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Problem(0, "unreachable", "The server does not answer");
  }
  if (answer.ok) return answer;
  const problem = await answer.json().catch(() => ({}));
  const title = problem.title ?? answer.statusText ?? "Request failed";
  if (answer.status === 401) session.patch({ role: null });
  throw new Problem(answer.status, problem.code ?? `${answer.status}`, title, problem.detail);
}

/** @param {Response} answer */
const json = async (answer) => (answer.status === 204 ? null : answer.json().catch(() => null));

/** @param {string | URL} url @param {AbortSignal} [signal] @returns {Promise<any>} */
export const get = async (url, signal) => json(await send("GET", url, signal ? { signal } : {}));

/** @param {string | URL} url @returns {Promise<string>} */
export const getText = async (url) => (await send("GET", url)).text();

/** `body` as a text is sent as it is. @param {string | URL} url @param {unknown} [body] @returns {Promise<any>} */
export const post = async (url, body) => json(await send("POST", url, { body }));

/** @param {string | URL} url @returns {Promise<any>} */
export const remove = async (url) => json(await send("DELETE", url));
