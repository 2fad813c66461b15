/** Enqueueing jobs. */

import { newId, toBase64 } from "./bytes.js";
import { ApiError, Unavailable } from "./error.js";
import { Endpoint, type Address } from "./http.js";
import { sleep } from "./signal.js";

const MAX_JOBS = 1_000;

/** Configures a {@link Client}. */
export interface ClientOptions extends Address {
  /** For so many seconds a call that the server did not answer is repeated. Defaults to 10. */
  timeout?: number;
}

/** How a job is stored. */
export interface EnqueueOptions {
  /** The queue it waits in. Defaults to `default`. */
  queue?: string;
  /** Its id. Defaults to a new one; enqueueing an id again changes nothing. */
  id?: string;
  /** Keeps a second job with this key from being stored in the same queue. */
  idempotencyKey?: string;
  /** Not before this time. */
  runAt?: Date;
  /** Not before so many seconds have passed. */
  delay?: number;
  /** Higher runs first. Defaults to 0. */
  priority?: number;
  /** The lane of its queue: a tenant, host or account. */
  lane?: string;
  /** How many executions may fail. Defaults to what the worker says. */
  maxAttempts?: number;
  /** How many seconds one execution may take. Defaults to what the worker says. */
  timeout?: number;
  /** Small texts that travel with the job. */
  headers?: Record<string, string>;
}

/** A job to be enqueued with others. */
export interface NewJob extends EnqueueOptions {
  /** What kind of work it is. */
  type: string;
  /** What the handler receives: JSON, or a `Uint8Array` that is passed on as it is. */
  payload?: unknown;
}

/** A job that is stored. */
export interface Enqueued {
  /** Identifies the job. */
  id: string;
  /** Whether a job of the same id or key was stored before; then that one is named, and none was added. */
  existed: boolean;
}

interface Stored {
  id?: string;
  existed?: boolean;
  error?: { code: string; message: string };
}

/** Enqueues jobs. */
export class Client {
  readonly #endpoint: Endpoint;
  readonly #timeoutMs: number;

  constructor(options: ClientOptions) {
    this.#endpoint = new Endpoint(options);
    this.#timeoutMs = (options.timeout ?? 10) * 1_000;
  }

  /**
   * Stores a job. Throws {@link ApiError} if the job is refused, {@link Unavailable} if it is unknown whether
   * it is stored.
   */
  async enqueue(type: string, payload?: unknown, options: EnqueueOptions = {}): Promise<Enqueued> {
    const [stored] = await this.enqueueMany([{ ...options, type, payload }]);
    return stored as Enqueued;
  }

  /**
   * Stores jobs, a thousand in one call, and answers them in their order. Each is stored by itself. Throws
   * {@link ApiError} for the first that is refused; the others of its call are stored.
   */
  async enqueueMany(jobs: readonly NewJob[]): Promise<Enqueued[]> {
    const all: Enqueued[] = [];
    for (let at = 0; at < jobs.length; at += MAX_JOBS) {
      const items = await Promise.all(jobs.slice(at, at + MAX_JOBS).map(written));
      const answer = await this.#call<{ jobs: Stored[] }>("work/enqueue", { jobs: items });
      for (const { id, existed, error } of answer.jobs) {
        if (error !== undefined) {
          throw new ApiError(200, error.code, "the job was refused", error.message);
        }
        all.push({ id: id ?? "", existed: existed ?? false });
      }
    }
    return all;
  }

  async #call<T>(path: string, body: unknown): Promise<T> {
    const end = Date.now() + this.#timeoutMs;
    for (let pause = 50; ; pause = Math.min(pause * 2, 1_000)) {
      try {
        return await this.#endpoint.post<T>(path, body, Math.max(end - Date.now(), 50));
      } catch (error) {
        if (!(error instanceof Unavailable) || Date.now() + pause >= end) {
          throw error;
        }
      }
      await sleep(pause);
    }
  }
}

/** A job as the server takes it. It has an id, so that it can be sent again when an answer was lost. */
async function written(job: NewJob): Promise<Record<string, unknown>> {
  const { payload } = job;
  const isBytes = payload instanceof Uint8Array;
  return {
    type: job.type,
    id: job.id ?? (await newId()),
    ...(isBytes ? { payload_base64: toBase64(payload) } : { payload: payload ?? null }),
    queue: job.queue,
    idempotency_key: job.idempotencyKey,
    run_at: job.runAt?.toISOString(),
    delay_seconds: job.delay,
    priority: job.priority,
    lane: job.lane,
    max_attempts: job.maxAttempts,
    timeout_seconds: job.timeout,
    headers: job.headers,
  };
}
