/** Calls of the JSON API of a server, with its answers and errors. */

import { ApiError, TaskHarborError, Unavailable } from "./error.js";

/** Besides 5xx, answers that say nothing about the call itself: the server, its store or a proxy is busy. */
const AWAY = new Set([408, 425, 429]);

/** How a server is called. */
export interface Address {
  /** The token. Defaults to the one in the URL, then to the environment variable `TASKHARBOR_TOKEN`. */
  token?: string;
  /** Which store of the server. Defaults to the one in the URL, then to `default`. */
  store?: string;
}

/** Where a server is, and with which token it is called. */
export class Endpoint {
  /** What is sent along with each call. */
  readonly headers: Record<string, string>;
  readonly #base: string;

  /** `server` is `http://host:port` or `https://…`, with a prefix if it has one; it may have `?store=…&token=…`. */
  constructor(server: string, address: Address) {
    let url: URL;
    let password: string;
    let named: Map<string, string>;
    try {
      url = new URL(server);
      password = decodeURIComponent(url.password);
      named = parameters(url.search.slice(1));
    } catch (error) {
      if (error instanceof TaskHarborError) {
        throw error;
      }
      // The text may have a token in it.
      throw new TaskHarborError("the address of the server is invalid: use http://host:port");
    }
    if (url.protocol !== "http:" && url.protocol !== "https:") {
      throw new TaskHarborError(`not the address of a server: ${url.protocol}: use http://host:port`);
    }
    if (url.hash !== "") {
      throw new TaskHarborError("the address of the server has a #: remove the part from there on, or write %23");
    }
    const store = address.store ?? named.get("store") ?? "default";
    const token = address.token ?? named.get("token") ?? (password === "" ? undefined : password);
    const secret = token ?? environment("TASKHARBOR_TOKEN");
    const prefix = url.pathname.replace(/\/+$/, "");
    this.#base = `${url.origin}${prefix}/v1/${encodeURIComponent(store)}/`;
    this.headers = { "content-type": "application/json", accept: "application/json" };
    if (secret !== undefined) {
      if (!/^[\x21-\x7e]+$/.test(secret)) {
        throw new TaskHarborError("the token is invalid: it is empty or has spaces or line breaks in it");
      }
      this.headers["authorization"] = `Bearer ${secret}`;
    }
  }

  /** The address of a call. */
  url(path: string): string {
    return this.#base + path;
  }

  /**
   * Sends a call and answers the text of its answer. Throws {@link Unavailable} or {@link ApiError}; an abort of
   * `signal` is `Unavailable`, too.
   */
  async post(path: string, body: string, timeoutMs: number, signal?: AbortSignal): Promise<string> {
    const control = new AbortController();
    const end = (): void => control.abort(signal?.reason);
    signal?.addEventListener("abort", end, { once: true });
    const timer = setTimeout(() => control.abort(new Error(`no answer within ${Math.round(timeoutMs)} ms`)), timeoutMs);
    try {
      if (signal?.aborted === true) {
        end();
      }
      const response = await fetch(this.url(path), {
        method: "POST",
        headers: this.headers,
        body,
        signal: control.signal,
        // It could take the token elsewhere.
        redirect: "error",
      });
      return answered(response.status, await response.text());
    } catch (error) {
      throw error instanceof TaskHarborError ? error : unanswered(error);
    } finally {
      clearTimeout(timer);
      signal?.removeEventListener("abort", end);
    }
  }
}

/** The text of an answer, unless it is a refusal. */
export function answered(status: number, text: string): string {
  if (status >= 200 && status < 300) {
    return text;
  }
  throw refusal(status, text);
}

/** The error of a call that got no answer. */
export function unanswered(error: unknown): Unavailable {
  return new Unavailable(`no answer from the server: ${reason(error)}`, { cause: error });
}

/** The items of an answer, one for each that was asked about if there are so many. */
export function items<T>(document: string, name: string, count?: number): T[] {
  const all = parsed<Record<string, T[]>>(document)?.[name];
  if (!Array.isArray(all) || (count !== undefined && all.length !== count)) {
    throw new Unavailable("the answer is not one of a TaskHarbor server: look at the address");
  }
  return all;
}

/** The JSON of an answer. */
export function parsed<T>(text: string): T {
  try {
    return JSON.parse(text) as T;
  } catch (error) {
    throw new Unavailable("the answer is not JSON: is this a TaskHarbor server?", { cause: error });
  }
}

/** The parameters of an address. No message repeats a value, or a name that could be a part of one. */
function parameters(query: string): Map<string, string> {
  const named = new Map<string, string>();
  for (const parameter of query.split("&").filter((part) => part !== "")) {
    const [name = "", ...rest] = parameter.split("=");
    if (name !== "store" && name !== "token") {
      const what = /^[a-z_-]{1,20}$/.test(name)
        ? `unknown parameter \`${name}\` in the address of the server: use store or token`
        : "unknown parameter in the address of the server: write & = # % of a value as %26 …";
      throw new TaskHarborError(what);
    }
    // A plus sign stands for itself, as in the URLs of the HTTP driver.
    const value = decodeURIComponent(rest.join("="));
    if (value === "") {
      throw new TaskHarborError(`the parameter \`${name}\` in the address of the server is empty`);
    }
    named.set(name, value);
  }
  return named;
}

/** A variable of the environment, where there is one; an empty one is none. */
function environment(name: string): string | undefined {
  const host = globalThis as { process?: { env?: Record<string, string | undefined> } };
  const value = host.process?.env?.[name];
  return value === "" ? undefined : value;
}

function reason(error: unknown): string {
  // fetch hides what went wrong behind "fetch failed".
  const cause = error instanceof Error ? (error.cause ?? error) : error;
  if (cause instanceof Error) {
    return cause.message !== "" ? cause.message : String((cause as { code?: string }).code ?? cause.name);
  }
  return String(cause);
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
  if (status >= 500 || AWAY.has(status)) {
    return new Unavailable(detail === "" ? title : `${title}: ${detail}`, { status });
  }
  return new ApiError(status, typeof problem.code === "string" ? problem.code : "unknown", title, detail);
}
