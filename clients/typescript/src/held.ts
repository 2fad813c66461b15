/** A job that the worker holds, and what the worker counts of its queues. */

import type { Granted, Handler, Job, StopReason } from "./job.js";
import { isFailure, type Outcome } from "./outcome.js";
import { now } from "./signal.js";

/** A handler, and what holds for its jobs. */
export interface Registered {
  handler: Handler;
  queue: string | undefined;
  maxAttempts: number | undefined;
  timeout: number | undefined;
}

/** A job under a lease. Times are milliseconds of the monotonic clock. */
export interface Held {
  readonly job: Job;
  readonly registered: Registered | undefined;
  readonly control: AbortController;
  lease: string;
  expiresAt: number;
  extendAt: number;
  readonly deadline: number | undefined;
  readonly aloneUntil: number;
  readonly grantedAt: number;
  readonly beganAt: number;
  /** What its handler has reported and the server does not know yet. */
  progress: string | undefined;
  stopReason: StopReason | undefined;
  /** When the job is released although its handler has not ended. */
  stopAt: number | undefined;
  /** The outcome of the job, once it is decided; the handler may still run then. */
  outcome: Outcome | undefined;
  /** Whether its handler has ended, and whether nothing more is to be done for it. */
  hasEnded: boolean;
  isOver: boolean;
  isSettling: boolean;
  /** Its lease is being extended, and may be another afterwards. */
  isExtending: boolean;
  /** An outcome was sent, and it is unknown whether it arrived. */
  isUnanswered: boolean;
  refusals: number;
  resumeAt: number;
  /** The server knows that the worker shuts down, or is too busy to hear it before `leaveAt`. */
  hasLeft: boolean;
  leaveAt: number;
}

/** A job that has just been granted. */
export function leased(
  job: Job,
  granted: Granted,
  given: Pick<Held, "registered" | "control" | "grantedAt" | "expiresAt">,
): Held {
  const began = now();
  return {
    ...given,
    job,
    lease: granted.lease,
    extendAt: given.expiresAt,
    deadline: granted.timeout_seconds === undefined ? undefined : began + granted.timeout_seconds * 1_000,
    aloneUntil: began + (granted.alone_seconds ?? 0) * 1_000,
    beganAt: began,
    progress: undefined,
    stopReason: undefined,
    stopAt: undefined,
    outcome: undefined,
    hasEnded: false,
    isOver: false,
    isSettling: false,
    isExtending: false,
    isUnanswered: false,
    refusals: 0,
    resumeAt: 0,
    hasLeft: false,
    leaveAt: 0,
  };
}

/** Whether its outcome is not decided yet. */
export function isRunning(held: Held): boolean {
  return held.outcome === undefined && !held.isOver;
}

/** The upper ends of the buckets of times, in milliseconds, as all workers announce them. */
const BUCKETS = [1, 5, 25, 100, 250, 1_000, 2_500, 10_000, 30_000, 120_000, 600_000];

/** What the worker has done with the jobs of a queue, as it is announced. */
export class Tally {
  #counts = { started: 0, done: 0, failed: 0, dead: 0, released: 0, lost: 0 };
  readonly #wait = new Array<number>(BUCKETS.length + 1).fill(0);
  readonly #run = new Array<number>(BUCKETS.length + 1).fill(0);

  /** A handler begins. */
  begin(waitedMs: number): void {
    this.#counts.started += 1;
    count(this.#wait, waitedMs);
  }

  /** A handler has ended, or was given up. */
  end(ranMs: number, outcome: Outcome): void {
    count(this.#run, ranMs);
    if (isFailure(outcome)) {
      this.#counts.failed += 1;
    }
  }

  /** The outcome is recorded. */
  settle(outcome: Outcome, state: string | undefined): void {
    if (outcome.kind === "ok") {
      this.#counts.done += 1;
    } else if (state === "dlq") {
      this.#counts.dead += 1;
    } else if (!isFailure(outcome)) {
      this.#counts.released += 1;
    }
  }

  /** A lease was lost. */
  lose(): void {
    this.#counts.lost += 1;
  }

  /** As it is announced. */
  announced(name: string, slots: number, busy: number): Record<string, unknown> {
    return { name, slots, busy, ...this.#counts, wait: this.#wait, run: this.#run };
  }
}

function count(buckets: number[], ms: number): void {
  const found = BUCKETS.findIndex((end) => ms <= end);
  const at = found === -1 ? BUCKETS.length : found;
  buckets[at] = (buckets[at] ?? 0) + 1;
}
