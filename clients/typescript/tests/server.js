// The program under test: `taskharbor serve` on a file, as a process of its own.

import { fork, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";

const PROGRAM = process.env.TASKHARBOR_PROGRAM;

if (PROGRAM === undefined) {
  throw new Error("set TASKHARBOR_PROGRAM to the program: cargo build -p taskharbor-cli makes target/debug/taskharbor");
}

/** A server on a file of its own, which is removed with it. */
export class Server {
  #child;
  #arguments;
  #bind = "127.0.0.1:0";

  /** Starts a server. `more` are arguments of `serve`. */
  static async start(more = []) {
    const server = new Server();
    server.directory = await mkdtemp(join(tmpdir(), "taskharbor-ts-"));
    await server.restart(more);
    return server;
  }

  /** Starts the process again, at the same address; with other arguments if some are given. */
  async restart(more = this.#arguments) {
    this.#arguments = more;
    const file = join(this.directory, "jobs.db");
    const options = ["serve", "--bind", this.#bind, "--url", `main=sqlite:${file}?create=true`];
    const env = { ...process.env, TASKHARBOR_URL: "", TASKHARBOR_TOKEN: "" };
    const child = spawn(PROGRAM, [...options, ...this.#arguments], { stdio: ["ignore", "pipe", "pipe"], env });
    this.#child = child;
    this.url = await address(child);
    this.#bind = new URL(this.url).host;
  }

  /** Ends the process; the file stays. */
  async stop(signal = "SIGKILL") {
    if (this.#child.exitCode === null && this.#child.signalCode === null) {
      const ended = once(this.#child, "exit");
      this.#child.kill(signal);
      await ended;
    }
  }

  /** Ends the process and removes the file. */
  async close() {
    await this.stop();
    await rm(this.directory, { recursive: true, force: true });
  }

  /** Runs a command of the program on the store, and answers what it prints. */
  async print(words, input = "") {
    const url = `sqlite:${join(this.directory, "jobs.db")}`;
    const child = spawn(PROGRAM, ["--url", url, ...words], { stdio: ["pipe", "pipe", "pipe"] });
    // A command that reads nothing may have ended by then.
    child.stdin.on("error", () => undefined).end(input);
    let [text, problem] = ["", ""];
    child.stdout.setEncoding("utf8").on("data", (part) => (text += part));
    child.stderr.setEncoding("utf8").on("data", (part) => (problem += part));
    const [code] = await once(child, "close");
    if (code !== 0) {
      throw new Error(`taskharbor ${words.join(" ")} has ended with ${code}: ${problem}`);
    }
    return text;
  }

  /** Runs a command of the program on the store, and answers the lines of JSON that it prints. */
  async command(...words) {
    const lines = (await this.print(["--json", ...words])).split("\n");
    return lines.filter((line) => line !== "").map((line) => JSON.parse(line));
  }

  /** Starts a flow of these nodes, and answers what it has produced, as text. */
  async flow(nodes) {
    return this.print(["flow", "start", "-", "--wait"], JSON.stringify({ nodes }));
  }

  /** What the store knows of a job. */
  async job(id) {
    const [found] = await this.command("inspect", id);
    return found;
  }
}

/** The address that a server prints once it listens. */
async function address(child) {
  const said = [];
  const found = new Promise((resolve, reject) => {
    for (const stream of [child.stdout, child.stderr]) {
      createInterface({ input: stream }).on("line", (line) => {
        said.push(line);
        const match = /https?:\/\/[\w.:[\]]+/.exec(line);
        if (match !== null) {
          resolve(match[0]);
        }
      });
    }
    child.on("exit", (code) => reject(new Error(`the server has ended with ${code}:\n${said.join("\n")}`)));
    child.on("error", reject);
  });
  return found;
}

/** A worker in a process of its own: `program.js` with these settings. */
export class Process {
  /** What it has printed: one JSON value for each line. */
  events = [];
  #waiting = new Set();

  constructor(settings) {
    const stdio = ["ignore", "pipe", "inherit", "ipc"];
    this.child = fork(new URL("program.js", import.meta.url), [JSON.stringify(settings)], { stdio, execArgv: [] });
    this.ended = once(this.child, "exit");
    createInterface({ input: this.child.stdout }).on("line", (line) => {
      this.events.push(JSON.parse(line));
      for (const look of this.#waiting) {
        look();
      }
    });
  }

  get pid() {
    return this.child.pid;
  }

  /** Resolves when it has printed what `isIt` says. */
  async printed(isIt) {
    return new Promise((resolve) => {
      const look = () => {
        if (this.events.some(isIt)) {
          this.#waiting.delete(look);
          resolve();
        }
      };
      this.#waiting.add(look);
      look();
    });
  }

  /** Sends a signal and answers how it ended: `[code, signal]`. */
  async end(signal) {
    this.child.kill(signal);
    return this.ended;
  }

  /** Ends it if it still runs. */
  async close() {
    if (this.child.exitCode === null && this.child.signalCode === null) {
      await this.end("SIGKILL");
    }
  }
}

/** Keeps messages, and calls back for each. */
export class Log {
  messages = [];
  #waiting = new Set();

  info(message, error) {
    this.#add(message, error);
  }

  warn(message, error) {
    this.#add(message, error);
  }

  #add(message, error) {
    this.messages.push(error === undefined ? message : `${message}: ${error}`);
    for (const look of this.#waiting) {
      look();
    }
  }

  /** Resolves with the first message that matches, also an earlier one. */
  async find(pattern) {
    return new Promise((resolve) => {
      const look = () => {
        const found = this.messages.find((message) => pattern.test(message));
        if (found !== undefined) {
          this.#waiting.delete(look);
          resolve(found);
        }
      };
      this.#waiting.add(look);
      look();
    });
  }
}

const cleanups = new WeakMap();

/** Has something done after a test, before what was to be done earlier: workers end before their server. */
export function defer(t, work) {
  if (!cleanups.has(t)) {
    cleanups.set(t, []);
    t.after(async () => {
      for (const next of cleanups.get(t).reverse()) {
        await next();
      }
    });
  }
  cleanups.get(t).push(work);
}

/** A promise with its resolve and reject. */
export function deferred() {
  const made = {};
  made.promise = new Promise((resolve, reject) => {
    made.resolve = resolve;
    made.reject = reject;
  });
  return made;
}

/** Waits until a signal is aborted, and answers why. */
export async function aborted(signal) {
  if (!signal.aborted) {
    await once(signal, "abort");
  }
  return signal.reason.reason;
}
