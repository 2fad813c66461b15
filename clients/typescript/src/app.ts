/** Workers: reserving jobs, running their handlers, recording their outcomes. */

import { hostname } from "node:os";
import { randomBytes } from "node:crypto";
import process from "node:process";

import { Client, type Enqueued, type EnqueueOptions } from "./client.js";
import { TaskHarborError } from "./error.js";
import type { Registered } from "./held.js";
import { Endpoint, type Address } from "./http.js";
import type { Handler } from "./job.js";
import { nameOf, queueOf, type TypeName } from "./jobtype.js";
import type { JsonText } from "./json.js";
import { CONSOLE, type Logger } from "./log.js";
import { now } from "./signal.js";
import { Worker, type Settings } from "./worker.js";

/** Ctrl-C reaches a process twice if npm has started it: from the terminal, and from npm. */
const SAME_SIGNAL_MS = 500;

/** The delays after failures. Times are seconds. */
export interface Backoff {
  /** The first delay. Defaults to 2. */
  base?: number;
  /** The longest delay. Defaults to 3,600. */
  cap?: number;
  /** How much longer each delay is than the one before. Defaults to 2. */
  multiplier?: number;
  /** Which part of each delay is random, from 0 to 1. Defaults to 0.25. */
  jitter?: number;
}

/** Configures an {@link App}. Times are seconds. */
export interface AppOptions extends Address {
  /** How many handlers of each queue run at once: `{ mail: 8 }`. */
  queues: Record<string, number>;
  /** Under which name leases are held. Defaults to host and process. */
  name?: string;
  /** The version of your program, for people who look at the workers. */
  version?: string;
  /** So many seconds after its last sign of life another worker gets a job. Defaults to 60. */
  lease?: number;
  /** For so many seconds handlers may go on when the worker shuts down. Defaults to 15. */
  grace?: number;
  /** So many seconds after a handler was told to stop its job is released. Defaults to 5. */
  cancelWait?: number;
  /** How many seconds a call waits at the server for jobs, up to 30. Defaults to 20. */
  poll?: number;
  /** How many executions may fail of jobs that do not say so, and whose type does not. Defaults to 20. */
  maxAttempts?: number;
  /** How long one execution may take of jobs that do not say so, and whose type does not. Defaults to no limit. */
  timeout?: number;
  /** The delays after failures. */
  backoff?: Backoff;
  /** How often the lease of a job may run out in a row before it is dead-lettered. Defaults to 5. */
  crashLimit?: number;
  /** Takes the messages of the worker. Defaults to the console. */
  logger?: Logger;
}

/** What holds for the jobs of a type that do not say so themselves. */
export interface JobOptions {
  /** Where {@link App.enqueue} puts them. Defaults to what the {@link JobType} says, else `default`. */
  queue?: string;
  /** How many executions may fail. */
  maxAttempts?: number;
  /** How many seconds one execution may take. */
  timeout?: number;
}

/**
 * A worker of a TaskHarbor server, with its handlers.
 *
 * ```ts
 * const app = new App("http://127.0.0.1:7450", { queues: { mail: 8 } });
 *
 * app.job("email:send", async (job: Job<{ to: string }>) => {
 *   await deliver(job.payload.to, { signal: job.signal });
 * });
 *
 * await app.run();
 * ```
 */
export class App {
  /** Enqueues through the same server. */
  readonly client: Client;
  readonly #settings: Settings;
  readonly #handlers = new Map<string, Registered>();
  #worker: Worker | undefined;

  /** `url` is the address of the server: `http://host:port`, with a prefix if it has one. */
  constructor(url: string, options: AppOptions) {
    this.client = new Client(url, addressed(options));
    this.#settings = settings(url, options);
  }

  /** The name under which the worker holds leases. */
  get name(): string {
    return this.#settings.name;
  }

  /**
   * Registers the handler of a job type. What it returns, or resolves to, is the job's output.
   *
   * An error that it throws is a failed attempt, which is retried with growing delays until `maxAttempts`
   * have failed. {@link Discard}, {@link Retry}, {@link Snooze} and {@link Throttled} say something else.
   * After `timeout` seconds the attempt has failed and `job.signal` is aborted: the slot is free again when
   * the handler has ended.
   */
  job<P = unknown, R = unknown>(type: TypeName<P, R>, handler: Handler<P, R>, options: JobOptions = {}): this {
    const name = nameOf(type);
    if (this.#handlers.has(name)) {
      throw new TaskHarborError(`job type ${name} has a handler already: register one`);
    }
    positive("timeout", options.timeout);
    positive("maxAttempts", options.maxAttempts);
    this.#handlers.set(name, {
      handler: handler as Handler<unknown, unknown>,
      queue: options.queue ?? queueOf(type),
      maxAttempts: options.maxAttempts,
      timeout: options.timeout,
    });
    return this;
  }

  /** Stores a job of a type, in the queue that its registration names; the rest as {@link Client.enqueue}. */
  enqueue<P = unknown>(type: TypeName<P>, payload?: P | JsonText, options: EnqueueOptions = {}): Promise<Enqueued> {
    const queue = options.queue ?? this.#handlers.get(nameOf(type))?.queue;
    return this.client.enqueue(type, payload, queue === undefined ? options : { ...options, queue });
  }

  /**
   * Works until SIGTERM or SIGINT, then lets handlers finish: within 25 s with the default options.
   *
   * What has not ended by then is released for another worker. A second signal ends the grace period. If a
   * handler goes on although its job was released, the process ends: JavaScript cannot stop it otherwise.
   * {@link start} works without signals, and never ends the process.
   */
  async run(): Promise<void> {
    const worker = this.#prepared();
    let toldAt: number | undefined;
    const told = (): void => {
      toldAt ??= now();
      if (now() - toldAt > SAME_SIGNAL_MS) {
        worker.endGrace();
      }
      void worker.stop();
    };
    process.on("SIGINT", told);
    process.on("SIGTERM", told);
    try {
      await worker.start();
      await worker.ended;
    } finally {
      process.off("SIGINT", told);
      process.off("SIGTERM", told);
    }
    if (worker.running > 0) {
      this.#settings.logger.warn(`${worker.running} handlers did not stop: the process ends`);
      process.exit();
    }
  }

  /**
   * Starts to work, and resolves when the worker is started: {@link Worker.stop} shuts it down. Throws what
   * the server says to the first call; a server that is away is waited for.
   */
  async start(): Promise<Worker> {
    const worker = this.#prepared();
    await worker.start();
    return worker;
  }

  #prepared(): Worker {
    if (this.#worker !== undefined && this.#worker.phase !== "ended") {
      throw new TaskHarborError("the app is running already");
    }
    if (this.#handlers.size === 0) {
      throw new TaskHarborError("no handlers were registered: add one with app.job(type, handler)");
    }
    this.#worker = new Worker(this.#settings, new Map(this.#handlers));
    return this.#worker;
  }
}

function addressed({ token, store }: AppOptions): Address {
  return { ...(token === undefined ? {} : { token }), ...(store === undefined ? {} : { store }) };
}

function settings(url: string, options: AppOptions): Settings {
  const queues = new Map(Object.entries(options.queues));
  if (queues.size === 0) {
    throw new TaskHarborError("no queue was added: pass { queues: { mail: 8 } }");
  }
  for (const [queue, slots] of queues) {
    if (!Number.isInteger(slots) || slots < 1) {
      throw new TaskHarborError(`queue ${queue} has ${slots} slots: choose a whole number from 1`);
    }
  }
  positive("timeout", options.timeout);
  positive("maxAttempts", options.maxAttempts);
  positive("crashLimit", options.crashLimit);
  return {
    endpoint: new Endpoint(url, options),
    queues,
    name: options.name ?? `${hostname()}-${process.pid}-${randomBytes(2).toString("hex")}`,
    version: options.version,
    leaseMs: millis("lease", options.lease ?? 60, 1, 86_400),
    graceMs: millis("grace", options.grace ?? 15, 0, 86_400),
    cancelWaitMs: millis("cancelWait", options.cancelWait ?? 5, 0, 86_400),
    pollMs: millis("poll", options.poll ?? 20, 0, 30),
    maxAttempts: options.maxAttempts,
    timeout: options.timeout,
    crashLimit: options.crashLimit,
    backoff: options.backoff,
    logger: options.logger ?? CONSOLE,
  };
}

function millis(what: string, seconds: number, min: number, max: number): number {
  const isIn = seconds >= min && seconds <= max;
  if (!isIn) {
    throw new TaskHarborError(`${what} is ${seconds} s: choose ${min} to ${max}`);
  }
  return seconds * 1_000;
}

function positive(what: string, value: number | undefined): void {
  if (value !== undefined && !(value > 0)) {
    throw new TaskHarborError(`${what} is ${value}: choose more than 0`);
  }
}
