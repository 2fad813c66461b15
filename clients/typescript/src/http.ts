/** Calls of the JSON API of a server, with its answers and errors. */

import { ApiError, TaskHarborError, Unavailable } from "./error.js";

/** Answers that say nothing about the call itself: the server, its store or a proxy is away or busy. */
const AWAY = new Set([408, 425, 429, 502, 503, 504]);

/** Where a server is. */
export interface Address {
  /** `http://host:port` or `https://…`, with a prefix if the server has one; it may have `?store=NAME`. */
  url: string;
  /** The token. Defaults to the environment variable `TASKHARBOR_TOKEN`. */
  token?: string;
  /** Which store of the server. Defaults to its first. */
  store?: string;
}

/** Where a server is, and with which token it is called. */
export class Endpoint {
  readonly #base: string;
  readonly #headers: Record<string, string>;

  constructor(address: Address) {
    let url: URL;
    try {
      url = new URL(address.url);
    } catch {
      // The text may have a token in it.
      throw new TaskHarborError("the address of the server is invalid: use http://host:port");
    }
    if (url.protocol !== "http:" && url.protocol !== "https:") {
      throw new TaskHarborError(`not the address of a server: ${url.protocol}: use http://host:port`);
    }
    const store = address.store ?? url.searchParams.get("store") ?? "default";
    const token = address.token ?? (url.password === "" ? undefined : decodeURIComponent(url.password));
    const secret = token ?? environment("TASKHARBOR_TOKEN");
    const prefix = url.pathname.replace(/\/+$/, "");
    this.#base = `${url.origin}${prefix}/v1/${encodeURIComponent(store)}/`;
    this.#headers = { "content-type": "application/json", accept: "application/json" };
    if (secret !== undefined) {
      this.#headers["authorization"] = `Bearer ${secret}`;
    }
  }

  /**
   * Sends a call and answers its JSON. Throws {@link Unavailable} or {@link ApiError}; an abort of `signal`
   * is `Unavailable`, too.
   */
  async post<T>(path: string, body: unknown, timeoutMs: number, signal?: AbortSignal): Promise<T> {
    const control = new AbortController();
    const timer = setTimeout(() => control.abort(new Error(`no answer within ${timeoutMs} ms`)), timeoutMs);
    const end = (): void => control.abort(signal?.reason);
    signal?.addEventListener("abort", end, { once: true });
    try {
      if (signal?.aborted === true) {
        end();
      }
      const response = await fetch(this.#base + path, {
        method: "POST",
        headers: this.#headers,
        body: JSON.stringify(body),
        signal: control.signal,
        redirect: "error",
      });
      const text = await response.text();
      if (response.ok) {
        return parse<T>(text, response.status);
      }
      throw refusal(response.status, text);
    } catch (error) {
      if (error instanceof TaskHarborError) {
        throw error;
      }
      throw new Unavailable(`no answer from the server: ${reason(error)}`, { cause: error });
    } finally {
      clearTimeout(timer);
      signal?.removeEventListener("abort", end);
    }
  }
}

/** A variable of the environment, where there is one. */
export function environment(name: string): string | undefined {
  const host = globalThis as { process?: { env?: Record<string, string | undefined> } };
  return host.process?.env?.[name];
}

function reason(error: unknown): string {
  // fetch hides what went wrong behind "fetch failed".
  const cause = error instanceof Error ? (error.cause ?? error) : error;
  if (cause instanceof Error) {
    return cause.message !== "" ? cause.message : String((cause as { code?: string }).code ?? cause.name);
  }
  return String(cause);
}

function parse<T>(text: string, status: number): T {
  try {
    return JSON.parse(text) as T;
  } catch (error) {
    throw new Unavailable(`the answer (status ${status}) is not JSON: is this a TaskHarbor server?`, { cause: error });
  }
}

/** The error that a problem document, or a proxy's page, tells of. */
function refusal(status: number, text: string): TaskHarborError {
  let problem: { code?: unknown; title?: unknown; detail?: unknown } = {};
  try {
    const parsed: unknown = JSON.parse(text);
    if (typeof parsed === "object" && parsed !== null) {
      problem = parsed;
    }
  } catch {
    // Not a problem document: the status has to do.
  }
  const title = typeof problem.title === "string" ? problem.title : `the server answered ${status}`;
  const detail = typeof problem.detail === "string" ? problem.detail : "";
  if (AWAY.has(status)) {
    return new Unavailable(detail === "" ? title : `${title}: ${detail}`);
  }
  return new ApiError(status, typeof problem.code === "string" ? problem.code : "unknown", title, detail);
}
