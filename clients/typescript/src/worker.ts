/**
 * The loops of a worker.
 *
 * A reserver for each queue asks for as many jobs as slots are free, and waits at the server for them. The
 * keeper extends leases, the settler records outcomes in batches, the watch notes deadlines, the announcer
 * tells others that the worker is there, and `#supervise` shuts all of them down. Handlers run beside them on
 * the one event loop: between two `await`s nothing else happens, so no state needs a lock.
 */

import { random, hex } from "./bytes.js";
import { announce, announceOften } from "./announce.js";
import { Unavailable } from "./error.js";
import { isRunning, leased, Tally, type Held, type Registered } from "./held.js";
import type { Endpoint } from "./http.js";
import { readInput } from "./input.js";
import { Job, Stopped, type Granted, type StopReason } from "./job.js";
import { keep } from "./keep.js";
import type { Logger } from "./log.js";
import { failure, isFailure, released, success, type Outcome } from "./outcome.js";
import { Poll } from "./poll.js";
import { reserve } from "./reserve.js";
import { settle } from "./settle.js";
import { now, Signal } from "./signal.js";
import { watch } from "./watch.js";

/** What the server is asked within; a lease lives longer. */
export const CALL_MS = 10_000;
/** How long outcomes are sent after all handlers have ended or were given up. */
const FLUSH_MS = 4_000;
const LAST_CALL_MS = 1_000;

/** What was configured. */
export interface Settings {
  endpoint: Endpoint;
  queues: ReadonlyMap<string, number>;
  name: string;
  version: string | undefined;
  leaseMs: number;
  graceMs: number;
  cancelWaitMs: number;
  pollMs: number;
  maxAttempts: number | undefined;
  timeout: number | undefined;
  crashLimit: number | undefined;
  backoff: { base?: number; cap?: number; multiplier?: number; jitter?: number } | undefined;
  logger: Logger;
}

/** How far a worker is on its way. */
export type Phase = "starting" | "working" | "stopping" | "ended";

/** A worker that has been started. */
export class Worker {
  /** @internal */
  readonly settings: Settings;
  /** @internal */
  readonly handlers: ReadonlyMap<string, Registered>;
  /** @internal */
  readonly held = new Set<Held>();
  /** @internal */
  readonly busy = new Map<string, number>();
  /** @internal */
  readonly tallies = new Map<string, Tally>();
  /** @internal */
  readonly signals = {
    slots: new Signal(),
    kept: new Signal(),
    outcomes: new Signal(),
    timed: new Signal(),
    idle: new Signal(),
    phase: new Signal(),
  };
  /** @internal */
  phase: Phase = "starting";
  /** @internal */
  incarnation = "";
  /** Whether jobs wait for their handlers to be started. @internal */
  isStarting = false;
  /** Resolves when the worker has ended; rejects if that is because of an error in this package. */
  readonly ended: Promise<void>;
  readonly #polls = new Set<Poll>();
  readonly #starts: Held[] = [];
  readonly #calls = new AbortController();
  #isStopping = false;
  #isGraceOver = false;
  #error: unknown;
  #resolve: () => void = () => undefined;
  #reject: (error: unknown) => void = () => undefined;

  /** @internal */
  constructor(settings: Settings, handlers: ReadonlyMap<string, Registered>) {
    this.settings = settings;
    this.handlers = handlers;
    for (const queue of settings.queues.keys()) {
      this.busy.set(queue, 0);
      this.tallies.set(queue, new Tally());
    }
    this.ended = new Promise((resolve, reject) => {
      this.#resolve = resolve;
      this.#reject = reject;
    });
    // It may be awaited late, or never.
    this.ended.catch(() => undefined);
  }

  /** The name under which it holds leases. */
  get name(): string {
    return this.settings.name;
  }

  /** How many handlers run. */
  get running(): number {
    let count = 0;
    for (const busy of this.busy.values()) {
      count += busy;
    }
    return count;
  }

  /** Shuts down: reserves nothing more, and lets handlers finish. Resolves when the worker has ended. */
  stop(): Promise<void> {
    this.#isStopping = true;
    this.signals.phase.notify();
    return this.ended;
  }

  /** Tells handlers to stop now, if the worker is shutting down. */
  endGrace(): void {
    this.#isGraceOver = true;
    this.signals.idle.notify();
  }

  /** Announces the worker and starts its loops. @internal */
  async start(): Promise<void> {
    const { settings } = this;
    this.incarnation = hex(await random(8));
    try {
      await announce(this, CALL_MS / 2);
    } catch (error) {
      if (!(error instanceof Unavailable)) {
        this.phase = "ended";
        this.#resolve();
        throw error;
      }
      settings.logger.warn(`waiting for the server: ${error.message}`);
    }
    if (!this.#isStopping) {
      this.phase = "working";
      for (const [queue, slots] of settings.queues) {
        const poll = new Poll(settings.endpoint);
        this.#polls.add(poll);
        this.#spawn(reserve(this, queue, slots, poll));
      }
    }
    this.#spawn(keep(this));
    this.#spawn(settle(this));
    this.#spawn(watch(this));
    this.#spawn(announceOften(this));
    this.#spawn(this.#supervise());
    settings.logger.info(`worker ${this.name} serves ${[...settings.queues.keys()].join(", ")}`);
  }

  /** A loop that fails takes the worker with it: without one of them jobs would be lost silently. */
  #spawn(loop: Promise<void>): void {
    loop.catch((error: unknown) => {
      this.#error ??= error;
      this.settings.logger.warn("a loop of the worker has failed, which is an error in taskharbor", error);
      void this.stop();
    });
  }

  async #supervise(): Promise<void> {
    while (!this.#isStopping) {
      await this.signals.phase.wait();
    }
    const { graceMs, cancelWaitMs, logger } = this.settings;
    const began = now();
    this.phase = "stopping";
    this.signals.phase.notify();
    this.signals.slots.notify();
    this.signals.kept.notify();
    logger.info(`shutting down: ${this.running} jobs have ${graceMs / 1_000} s to finish`);
    for (const poll of this.#polls) {
      poll.end();
    }
    await this.#waitIdle(began + graceMs, () => this.#isGraceOver || this.#isDrained());
    const told = now();
    for (const held of this.held) {
      if (isRunning(held)) {
        this.tellToStop(held, "shutdown", told + cancelWaitMs);
      }
    }
    await this.#waitIdle(told + cancelWaitMs + FLUSH_MS / 4, () => this.#isDrained());
    await this.#waitIdle(told + cancelWaitMs + FLUSH_MS, () => this.#polls.size === 0 && this.held.size === 0);
    await this.#end();
  }

  /** Whether the outcome of each job is decided, and no more jobs come. */
  #isDrained(): boolean {
    return this.#polls.size === 0 && ![...this.held].some(isRunning);
  }

  async #waitIdle(until: number, isDone: () => boolean): Promise<void> {
    while (!isDone() && now() < until) {
      await this.signals.idle.wait(until - now());
    }
  }

  async #end(): Promise<void> {
    const { logger } = this.settings;
    this.phase = "ended";
    for (const signal of Object.values(this.signals)) {
      signal.notify();
    }
    if (this.held.size > 0) {
      logger.warn(`${this.held.size} jobs were left: they come back when their leases end`);
    }
    try {
      await announce(this, LAST_CALL_MS);
    } catch (error) {
      logger.warn(`the worker could not say that it ends: ${(error as Error).message}`);
    }
    // A call that a server does not answer would keep the process alive.
    this.#calls.abort(new Error("the worker has ended"));
    for (const poll of this.#polls) {
      poll.close();
    }
    logger.info(`worker ${this.name} has ended`);
    if (this.#error === undefined) {
      this.#resolve();
    } else {
      this.#reject(this.#error);
    }
  }

  /** Sends a call, which ends with the worker at the latest. @internal */
  call(path: string, body: string, timeoutMs: number): Promise<string> {
    return this.settings.endpoint.post(path, body, timeoutMs, this.#calls.signal);
  }

  /** A reserver has ended. @internal */
  closed(poll: Poll): void {
    poll.close();
    this.#polls.delete(poll);
    this.signals.idle.notify();
  }

  /** Takes a job, or releases it if the worker may not start it any more. @internal */
  begin(granted: Granted, text: string | undefined, grantedAt: number): void {
    const { settings } = this;
    const registered = this.handlers.get(granted.type);
    const control = new AbortController();
    const links = {
      signal: control.signal,
      report: (report: string) => {
        held.progress = report;
        this.signals.kept.notify();
      },
      readInputs: () => readInput(this, held),
    };
    const job = new Job(granted, text, links);
    const expiresAt = grantedAt + settings.leaseMs;
    const held = leased(job, granted, { registered, control, grantedAt, expiresAt });
    held.extendAt = grantedAt + settings.leaseMs / 3;
    const isLate = this.#isAlone(grantedAt);
    this.held.add(held);
    if (isLate) {
      // It was on its way when a job began that has to run alone.
      held.hasEnded = true;
      held.outcome = released("unstarted");
      this.signals.outcomes.notify();
      return;
    }
    this.busy.set(granted.queue, (this.busy.get(granted.queue) ?? 0) + 1);
    this.tallies.get(granted.queue)?.begin(granted.waited_ms);
    this.signals.kept.notify();
    this.signals.timed.notify();
    this.#starts.push(held);
    if (!this.isStarting) {
      this.isStarting = true;
      setImmediate(() => this.#startNext());
    }
  }

  /** Whether a job runs alone that was granted by an earlier answer. */
  #isAlone(grantedAt: number): boolean {
    const time = now();
    return [...this.held].some((held) => isRunning(held) && held.aloneUntil > time && held.grantedAt < grantedAt);
  }

  /** Starts the handlers one after the other, so that between two that compute for long leases are extended. */
  #startNext(): void {
    const held = this.#starts.shift();
    if (held === undefined) {
      this.isStarting = false;
      this.signals.slots.notify();
      return;
    }
    setImmediate(() => this.#startNext());
    if (this.phase !== "working" || held.registered === undefined) {
      this.#endedWith(held, released("unstarted"));
    } else if (!isRunning(held)) {
      // The time or the lease of the job has run out before its turn.
      this.#endedWith(held, released("unstarted"));
    } else {
      void this.#run(held, held.registered);
    }
  }

  async #run(held: Held, registered: Registered): Promise<void> {
    let outcome: Outcome;
    try {
      outcome = success(await registered.handler(held.job));
    } catch (error) {
      outcome = failure(error, held.stopReason);
      if (isFailure(outcome)) {
        this.settings.logger.info(`job ${held.job.id} (${held.job.type}) has failed`, error);
      }
    }
    this.#endedWith(held, outcome);
  }

  /** A handler has ended: its slot is free, and its outcome counts unless the job was given up. */
  #endedWith(held: Held, outcome: Outcome): void {
    held.hasEnded = true;
    this.busy.set(held.job.queue, (this.busy.get(held.job.queue) ?? 1) - 1);
    if (isRunning(held)) {
      this.decide(held, outcome);
    }
    this.signals.slots.notify();
    this.signals.idle.notify();
  }

  /** Decides the outcome of a job. @internal */
  decide(held: Held, outcome: Outcome): void {
    held.outcome = outcome;
    this.tallies.get(held.job.queue)?.end(now() - held.beganAt, outcome);
    this.signals.outcomes.notify();
    this.signals.idle.notify();
  }

  /** Tells a handler to stop; if it does not until `stopAt`, its job is released. @internal */
  tellToStop(held: Held, reason: StopReason, stopAt?: number): void {
    if (held.stopReason !== undefined && reason !== "lease_lost") {
      return;
    }
    held.stopReason = reason;
    held.stopAt = stopAt;
    held.control.abort(new Stopped(reason));
    this.signals.timed.notify();
  }

  /** The lease is lost: nothing is recorded, and the handler is told to stop. @internal */
  lose(held: Held, why: string): void {
    if (held.isOver) {
      return;
    }
    this.settings.logger.warn(`the lease of job ${held.job.id} (${held.job.type}) is lost: ${why}`);
    this.tallies.get(held.job.queue)?.lose();
    this.tellToStop(held, "lease_lost");
    this.forget(held);
  }

  /** Nothing more is to be done for a job. @internal */
  forget(held: Held): void {
    held.isOver = true;
    this.held.delete(held);
    this.signals.slots.notify();
    this.signals.idle.notify();
  }
}
