/** A job as its handler sees it. */

import { fromBase64 } from "./bytes.js";
import { TaskHarborError } from "./error.js";

/** Why a handler should stop. */
export type StopReason = "requested" | "shutdown" | "timeout" | "lease_lost";

/** The reason of `job.signal` when a handler should stop. */
export class Stopped extends TaskHarborError {
  constructor(
    /** Why it should stop. */
    readonly reason: StopReason,
  ) {
    super(`the job should stop: ${reason}`);
  }
}

/** What the steps before a step of a flow have produced. */
export interface Inputs {
  /** The output of the parent, or a list; `undefined` without parents, a `Uint8Array` if it is not JSON. */
  value: unknown;
  /** Why a parent has no output, if the step runs in spite of that. */
  failure?: { state: "dlq" | "cancelled"; reason?: string };
}

/** What runs the jobs of a type. What it answers is the job's output. */
export type Handler<P = unknown> = (job: Job<P>) => unknown;

/** A job as the server hands it out. */
export interface Granted {
  id: string;
  lease: string;
  type: string;
  queue: string;
  payload?: unknown;
  payload_base64?: string;
  headers: Record<string, string>;
  attempt: number;
  max_attempts: number;
  deliveries: number;
  lane?: string;
  priority: number;
  created_at: string;
  timeout_seconds?: number;
  last_error?: string;
  inputs: boolean;
  waited_ms: number;
  alone_seconds?: number;
}

interface InputAnswer {
  input?: unknown;
  input_base64?: string;
  failure?: Inputs["failure"];
}

/** A job as its handler sees it. */
export class Job<P = unknown> {
  /** Identifies the job: the same in each execution, so it makes a good key for what a handler writes. */
  readonly id: string;
  /** What kind of work it is. */
  readonly type: string;
  /** The queue it came from. */
  readonly queue: string;
  /** What was enqueued: JSON, or a `Uint8Array` if it is not JSON. */
  readonly payload: P;
  /** Small texts that travel with the job. */
  readonly headers: Readonly<Record<string, string>>;
  /** Which execution this is, from 1. Executions that were not charged do not count. */
  readonly attempt: number;
  /** How many executions may fail before the job is dead-lettered. */
  readonly maxAttempts: number;
  /** How often a worker was given the job, this time included. */
  readonly deliveries: number;
  /** The lane of its queue that it belongs to. */
  readonly lane: string | undefined;
  /** Higher runs first. */
  readonly priority: number;
  /** When it was enqueued. */
  readonly createdAt: Date;
  /** How many seconds this execution may take. */
  readonly timeout: number | undefined;
  /** The error of the last failure. */
  readonly lastError: string | undefined;
  /** Whether it is a step of a flow that reads what the steps before it have produced. */
  readonly hasInputs: boolean;
  /** Aborted, with {@link Stopped}, when the handler should stop: pass it on to `fetch` and the like. */
  readonly signal: AbortSignal;
  readonly #links: JobLinks;

  /** @internal */
  constructor(granted: Granted, links: JobLinks) {
    this.id = granted.id;
    this.type = granted.type;
    this.queue = granted.queue;
    const raw = granted.payload_base64;
    this.payload = (raw === undefined ? granted.payload : fromBase64(raw)) as P;
    this.headers = granted.headers;
    this.attempt = granted.attempt;
    this.maxAttempts = granted.max_attempts;
    this.deliveries = granted.deliveries;
    this.lane = granted.lane;
    this.priority = granted.priority;
    this.createdAt = new Date(granted.created_at);
    this.timeout = granted.timeout_seconds;
    this.lastError = granted.last_error;
    this.hasInputs = granted.inputs;
    this.signal = links.signal;
    this.#links = links;
  }

  /** Reports how far the job is. The last report goes along with the next extension of the lease. */
  progress(text: string): void {
    this.#links.report(text);
  }

  /** Reads what the steps before this one have produced. */
  async inputs(): Promise<Inputs> {
    if (!this.hasInputs) {
      return { value: undefined };
    }
    const answer = (await this.#links.readInputs(this.id)) as InputAnswer;
    const raw = answer.input_base64;
    const value = raw === undefined ? answer.input : fromBase64(raw);
    return answer.failure === undefined ? { value } : { value, failure: answer.failure };
  }
}

/** What connects a job with its worker. */
export interface JobLinks {
  signal: AbortSignal;
  report(text: string): void;
  readInputs(id: string): Promise<unknown>;
}
