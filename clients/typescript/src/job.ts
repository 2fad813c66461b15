/** A job as its handler sees it. */

import { fromBase64 } from "./bytes.js";
import { TaskHarborError } from "./error.js";
import { wellFormed } from "./json.js";

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
export interface Inputs<I = unknown> {
  /** The output of the parent, or a list; `undefined` without parents, a `Uint8Array` if it is not JSON. */
  value: I;
  /** The JSON of the value as it is written; `undefined` if it is not JSON. */
  text?: string;
  /** Why a parent has no output, if the step runs in spite of that. */
  failure?: { state: "dlq" | "cancelled"; reason?: string };
}

/** What runs the jobs of a type. What it returns is the job's output. */
export type Handler<P = unknown, R = unknown> = (job: Job<P>) => R | Promise<R>;

/** A job as the server hands it out. Its payload is the index of a text, if it has one. */
export interface Granted {
  id: string;
  lease: string;
  type: string;
  queue: string;
  payload?: number;
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

/** What the server says of the steps before a job. */
export interface InputAnswer {
  text?: string;
  base64?: string;
  failure?: NonNullable<Inputs["failure"]>;
}

const MAX_REPORT = 8 * 1024;

/** A job as its handler sees it. */
export class Job<P = unknown> {
  /** Identifies the job: the same in each execution, so it makes a good key for what a handler writes. */
  readonly id: string;
  /** What kind of work it is. */
  readonly type: string;
  /** The queue it came from. */
  readonly queue: string;
  /**
   * The JSON of the payload as it was enqueued; `undefined` if it is not JSON. Integers beyond 2^53 are
   * exact in it, while those of {@link payload} are rounded.
   */
  readonly payloadText: string | undefined;
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
  readonly #bytes: Uint8Array | undefined;
  #payload: { value: P } | undefined;

  /** @internal */
  constructor(granted: Granted, text: string | undefined, links: JobLinks) {
    this.id = granted.id;
    this.type = granted.type;
    this.queue = granted.queue;
    this.payloadText = text;
    this.#bytes = granted.payload_base64 === undefined ? undefined : fromBase64(granted.payload_base64);
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

  /** What was enqueued: a JSON value, or a `Uint8Array` if it is not JSON. Bytes that are JSON count as JSON. */
  get payload(): P {
    if (this.#payload === undefined) {
      const value: unknown = this.#bytes ?? JSON.parse(this.payloadText ?? "null");
      this.#payload = { value: value as P };
    }
    return this.#payload.value;
  }

  /** What was enqueued, byte for byte. */
  get payloadBytes(): Uint8Array {
    return this.#bytes ?? new TextEncoder().encode(this.payloadText ?? "null");
  }

  /** Reports how far the job is. The last report goes along with the next extension of the lease. */
  progress(text: string): void {
    this.#links.report(wellFormed(String(text), MAX_REPORT));
  }

  /** Reads what the steps before this one have produced. */
  async inputs<I = unknown>(): Promise<Inputs<I>> {
    const answer = this.hasInputs ? await this.#links.readInputs() : {};
    const { text, base64, failure } = answer;
    const value: unknown = base64 !== undefined ? fromBase64(base64) : text && JSON.parse(text);
    const inputs: Inputs<I> = { value: value as I };
    if (text !== undefined) {
      inputs.text = text;
    }
    if (failure !== undefined) {
      inputs.failure = failure;
    }
    return inputs;
  }
}

/** What connects a job with its worker. */
export interface JobLinks {
  signal: AbortSignal;
  report(text: string): void;
  readInputs(): Promise<InputAnswer>;
}
