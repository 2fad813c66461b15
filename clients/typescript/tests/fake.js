// A server that answers as a test wants it, for what a real one does too rarely to be waited for.

import { once } from "node:events";
import { createServer } from "node:http";

/** What is known of a job that a fake server grants. */
export function granted(more) {
  return {
    lease: "lease-1",
    type: "test",
    queue: "default",
    payload: null,
    headers: {},
    attempt: 1,
    max_attempts: 20,
    deliveries: 1,
    priority: 0,
    created_at: "2026-01-01T00:00:00.000000Z",
    lease_expires_at: "2026-01-01T00:01:00.000000Z",
    inputs: false,
    waited_ms: 0,
    ...more,
  };
}

/** A server whose `answers` are functions from a body to an answer, by the last part of the path. */
export class Fake {
  /** The calls that were made: `{ path, body, headers }`. */
  calls = [];
  /** What is answered to a call, by its name; it gets `(body, request, response)`. */
  answers = {
    announce: () => ({}),
    // A worker that finds nothing waits at the server.
    reserve: () => undefined,
    extend: ({ jobs }) => ({ jobs: jobs.map(() => ({ lease_expires_at: "2026-01-01T00:01:00Z" })) }),
    settle: ({ jobs }) => ({ jobs: jobs.map(() => ({ state: "done" })) }),
    enqueue: ({ jobs }) => ({ jobs: jobs.map(({ id }) => ({ id, existed: false })) }),
  };
  #server;
  #waiting = new Set();

  static async start(answers = {}) {
    const fake = new Fake();
    Object.assign(fake.answers, answers);
    fake.#server = createServer((request, response) => fake.#take(request, response));
    fake.#server.listen(0, "127.0.0.1");
    await once(fake.#server, "listening");
    fake.url = `http://127.0.0.1:${fake.#server.address().port}`;
    return fake;
  }

  async #take(request, response) {
    let text = "";
    for await (const part of request.setEncoding("utf8")) {
      text += part;
    }
    const name = request.url.split("/").at(-1);
    const body = JSON.parse(text);
    this.calls.push({ name, path: request.url, body, text, headers: request.headers });
    const answer = await this.answers[name](body, request, response);
    for (const look of this.#waiting) {
      look();
    }
    if (answer !== undefined && !response.writableEnded && !response.destroyed) {
      response.writeHead(answer.status ?? 200, { "content-type": "application/json" });
      response.end(typeof answer.raw === "string" ? answer.raw : JSON.stringify(answer));
    }
  }

  /** From now on a caller that sends no more still gets answers. Otherwise its calls are given up. */
  keepHalfOpen() {
    this.#server.httpAllowHalfOpen = true;
  }

  /** Resolves when so many calls of this name were made, and answers them. */
  async made(name, count = 1) {
    return new Promise((resolve) => {
      const look = () => {
        const found = this.calls.filter((call) => call.name === name);
        if (found.length >= count) {
          this.#waiting.delete(look);
          resolve(found);
        }
      };
      this.#waiting.add(look);
      look();
    });
  }

  /** Ends the server and its connections. */
  async close() {
    this.#server.closeAllConnections();
    this.#server.close();
  }
}
