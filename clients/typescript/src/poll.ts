/**
 * The call that waits at the server for jobs.
 *
 * `fetch` can only drop a call, and then jobs may be on their way that the worker never sees; they would come
 * back when their leases end. Here the worker says that it sends no more and goes on to read: the server ends
 * the wait, and what it has granted already arrives.
 */

import http, { type Agent, type ClientRequest } from "node:http";
import https from "node:https";

import { TaskHarborError } from "./error.js";
import { answered, unanswered, type Endpoint } from "./http.js";

/** How long a server may take to notice that a call was ended. */
const END_MS = 2_000;
/** What is known of a connection that the server has closed while nothing was sent. */
const CLOSED = new Set(["ECONNRESET", "EPIPE"]);

/** A connection to a server that is kept between calls, of which there is one at a time. */
export class Poll {
  readonly #endpoint: Endpoint;
  readonly #web: typeof http;
  readonly #agent: Agent;
  #request: ClientRequest | undefined;
  #isEnded = false;

  constructor(endpoint: Endpoint) {
    this.#endpoint = endpoint;
    this.#web = endpoint.url("").startsWith("https:") ? https : http;
    this.#agent = new this.#web.Agent({ keepAlive: true });
  }

  /** Sends a call and answers the text of its answer. Throws {@link Unavailable} or {@link ApiError}. */
  async post(path: string, body: string, timeoutMs: number): Promise<string> {
    for (let isAgain = false; ; isAgain = true) {
      if (this.#isEnded) {
        throw unanswered(new Error("the worker shuts down"));
      }
      const sent: { request?: ClientRequest } = {};
      try {
        const { status, text } = await this.#send(path, body, timeoutMs, sent);
        return answered(status, text);
      } catch (error) {
        if (error instanceof TaskHarborError) {
          throw error;
        }
        // A server closes connections that were idle for long. It has read nothing then.
        const isStale = sent.request?.reusedSocket === true && CLOSED.has((error as { code?: string }).code ?? "");
        if (!isStale || isAgain) {
          throw unanswered(error);
        }
      }
    }
  }

  #send(path: string, body: string, timeoutMs: number, sent: { request?: ClientRequest }): Promise<Answer> {
    return new Promise((resolve, reject) => {
      const size = new TextEncoder().encode(body).length;
      const headers = { ...this.#endpoint.headers, "content-length": String(size) };
      const options = { method: "POST", headers, agent: this.#agent };
      let hasAnswer = false;
      const request = this.#web.request(this.#endpoint.url(path), options, (response) => {
        let text = "";
        hasAnswer = true;
        response.setEncoding("utf8");
        response.on("data", (part) => (text += part));
        response.on("error", reject);
        response.on("end", () => resolve({ status: response.statusCode ?? 0, text }));
        response.on("close", () => reject(new NoAnswer("the answer was cut off")));
      });
      sent.request = this.#request = request;
      const timer = setTimeout(
        () => request.destroy(new NoAnswer(`no answer within ${Math.round(timeoutMs)} ms`)),
        timeoutMs,
      );
      request.on("error", reject);
      request.on("close", () => {
        clearTimeout(timer);
        // A connection that is not kept closes late, perhaps after the next call has begun.
        if (this.#request === request) {
          this.#request = undefined;
        }
        if (!hasAnswer) {
          reject(new NoAnswer("the connection was closed"));
        }
      });
      request.end(body);
    });
  }

  /** Ends the call that is in flight, if there is one. An answer that was sent already still arrives. */
  end(): void {
    this.#isEnded = true;
    const request = this.#request;
    if (request === undefined) {
      return;
    }
    const ended = (): void => request.destroy(new NoAnswer("the worker shuts down"));
    if (request.socket === null || request.socket.connecting) {
      ended();
      return;
    }
    request.socket.end();
    const timer = setTimeout(ended, END_MS);
    request.on("close", () => clearTimeout(timer));
  }

  /** Closes the connection, also if a call is in flight. */
  close(): void {
    this.#agent.destroy();
  }
}

interface Answer {
  status: number;
  text: string;
}

class NoAnswer extends Error {}
