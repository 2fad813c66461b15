/** Enqueueing jobs. */

import { newId, toBase64 } from "./bytes.js";
import { ApiError, Unavailable } from "./error.js";
import { Endpoint, items, type Address } from "./http.js";
import { nameOf, queueOf, type TypeName } from "./jobtype.js";
import { written, type JsonText } from "./json.js";
import { now, sleep } from "./signal.js";

const MAX_JOBS = 1_000;
/** A call that is larger than that has one job only. The server takes 32 MiB. */
const MAX_CHARS = 4 * 1024 * 1024;

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
  type: TypeName;
  /** What the handler receives: JSON, or a `Uint8Array` that is passed on as it is. Defaults to `null`. */
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

/**
 * Enqueues jobs.
 *
 * It needs nothing but `fetch`, keeps no state, and is made once for a program.
 */
export class Client {
  readonly #endpoint: Endpoint;
  readonly #timeoutMs: number;

  /** `url` is the address of the server: `http://host:port`, with a prefix if it has one, and `?store=…&token=…`. */
  constructor(url: string, options: ClientOptions = {}) {
    this.#endpoint = new Endpoint(url, options);
    this.#timeoutMs = (options.timeout ?? 10) * 1_000;
  }

  /**
   * Stores a job. Throws {@link ApiError} if the job is refused, {@link Unavailable} if it is unknown whether
   * it is stored.
   */
  async enqueue<P = unknown>(
    type: TypeName<P>,
    payload?: P | JsonText,
    options: EnqueueOptions = {},
  ): Promise<Enqueued> {
    const [stored] = await this.enqueueMany([{ ...options, type, payload }]);
    return stored as Enqueued;
  }

  /**
   * Stores jobs, up to a thousand in one call, and answers them in their order. Each is stored by itself.
   * Throws {@link ApiError} for the first that is refused; the others of its call are stored, the calls after
   * it are not made.
   */
  async enqueueMany(jobs: readonly NewJob[]): Promise<Enqueued[]> {
    const all: Enqueued[] = [];
    // All of them are written first: if one cannot be, none is stored.
    const own = await Promise.all(jobs.map(async (job) => (job.id === undefined ? newId() : undefined)));
    const texts = jobs.map((job, at) => asJson(job, own[at]));
    while (all.length < texts.length) {
      const batch = texts.slice(all.length, all.length + batchSize(texts, all.length));
      const answer = await this.#call("work/enqueue", `{"jobs":[${batch.join(",")}]}`);
      for (const { id, existed, error } of items<Stored>(answer, "jobs", batch.length)) {
        if (error !== undefined) {
          const at = jobs.length === 1 ? "" : ` (job ${all.length} of ${jobs.length}, from 0)`;
          throw new ApiError(200, error.code, `the job was refused${at}`, error.message);
        }
        // A new id that is stored already was stored by an earlier sending of this call.
        all.push({ id: id ?? "", existed: existed === true && id !== own[all.length] });
      }
    }
    return all;
  }

  async #call(path: string, body: string): Promise<string> {
    const end = now() + this.#timeoutMs;
    for (let pause = 50; ; pause = Math.min(pause * 2, 1_000)) {
      try {
        return await this.#endpoint.post(path, body, Math.max(end - now(), 50));
      } catch (error) {
        if (!(error instanceof Unavailable) || now() + pause >= end) {
          throw error;
        }
      }
      await sleep(pause);
    }
  }
}

/** How many of the texts go into one call. */
function batchSize(texts: readonly string[], from: number): number {
  let [count, chars] = [0, 0];
  while (count < MAX_JOBS && from + count < texts.length) {
    chars += texts[from + count]?.length ?? 0;
    if (count > 0 && chars > MAX_CHARS) {
      break;
    }
    count += 1;
  }
  return count;
}

/** A job as the server takes it. It has an id, so that it can be sent again when an answer was lost. */
function asJson(job: NewJob, ownId: string | undefined): string {
  const { payload } = job;
  const isBytes = payload instanceof Uint8Array;
  const head = JSON.stringify({
    type: nameOf(job.type),
    id: job.id ?? ownId,
    ...(isBytes ? { payload_base64: toBase64(payload) } : {}),
    queue: job.queue ?? queueOf(job.type),
    idempotency_key: job.idempotencyKey,
    run_at: job.runAt?.toISOString(),
    delay_seconds: job.delay,
    priority: job.priority,
    lane: job.lane,
    max_attempts: job.maxAttempts,
    timeout_seconds: job.timeout,
    headers: job.headers,
  });
  return isBytes ? head : `${head.slice(0, -1)},"payload":${written(payload ?? null, "payload")}}`;
}
