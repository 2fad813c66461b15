/** The loop that reserves the jobs of one queue. */

import { ApiError, TaskHarborError } from "./error.js";
import { isRunning } from "./held.js";
import { items, parsed } from "./http.js";
import type { Granted } from "./job.js";
import { picked } from "./json.js";
import type { Poll } from "./poll.js";
import { backoff, now } from "./signal.js";
import { CALL_MS, type Worker } from "./worker.js";

/** No more is reserved while so many outcomes wait for a store in trouble. */
const MAX_OUTCOMES = 1_000;
/** What one call asks for at most. */
const MAX_JOBS = 1_000;
/** Where payloads stand in an answer: `{"jobs": [{"payload": …}]}`. */
const PAYLOAD_DEPTH = 3;

/** Reserves jobs until the worker shuts down. */
export async function reserve(worker: Worker, queue: string, slots: number, poll: Poll): Promise<void> {
  const { logger, pollMs } = worker.settings;
  let failures = 0;
  try {
    while (await hasSlot(worker, queue, slots)) {
      const free = Math.min(slots - (worker.busy.get(queue) ?? 0), MAX_JOBS);
      const sent = now();
      let granted: Reserved;
      try {
        granted = read(await poll.post("work/reserve", request(worker, queue, free), pollMs + CALL_MS));
      } catch (error) {
        if (!(error instanceof TaskHarborError)) {
          throw error;
        }
        if (worker.phase !== "working") {
          break;
        }
        failures += 1;
        if (failures === 1 || error instanceof ApiError) {
          logger.warn(`no jobs can be reserved from ${queue}: ${error.message}`);
        }
        await pause(worker, backoff(failures));
        continue;
      }
      if (failures > 0) {
        logger.info(`jobs of ${queue} are reserved again`);
      }
      failures = 0;
      for (const job of granted.jobs) {
        const text = job.payload === undefined ? undefined : granted.texts[job.payload];
        worker.begin(job, text, sent + granted.afterMs);
      }
    }
  } finally {
    worker.closed(poll);
  }
}

/** Waits until a job of the queue can run; `false` if the worker reserves no more. */
async function hasSlot(worker: Worker, queue: string, slots: number): Promise<boolean> {
  while (worker.phase === "working") {
    let [aloneUntil, waiting] = [0, 0];
    for (const held of worker.held) {
      aloneUntil = isRunning(held) ? Math.max(aloneUntil, held.aloneUntil) : aloneUntil;
      waiting += held.outcome === undefined ? 0 : 1;
    }
    const left = aloneUntil - now();
    // Short jobs that were granted together end together: then one call asks for as many again.
    const isFree = (worker.busy.get(queue) ?? 0) < slots && !worker.isStarting;
    if (isFree && left <= 0 && waiting < MAX_OUTCOMES) {
      return true;
    }
    await worker.signals.slots.wait(left > 0 ? left : undefined);
  }
  return false;
}

/** Waits so long, or until the worker shuts down. */
async function pause(worker: Worker, ms: number): Promise<void> {
  const until = now() + ms;
  while (worker.phase === "working" && now() < until) {
    await worker.signals.phase.wait(until - now());
  }
}

function request(worker: Worker, queue: string, free: number): string {
  const { name, leaseMs, pollMs, maxAttempts, timeout, crashLimit, backoff: retry } = worker.settings;
  return JSON.stringify({
    queues: { [queue]: free },
    worker: name,
    lease_seconds: leaseMs / 1_000,
    wait_seconds: pollMs / 1_000,
    types: [...worker.handlers].map(([type, given]) => ({
      type,
      max_attempts: given.maxAttempts,
      timeout_seconds: given.timeout,
    })),
    max_attempts: maxAttempts,
    timeout_seconds: timeout,
    crash_limit: crashLimit,
    retry: retry && {
      base_seconds: retry.base,
      cap_seconds: retry.cap,
      multiplier: retry.multiplier,
      jitter: retry.jitter,
    },
  });
}

interface Reserved {
  jobs: Granted[];
  texts: string[];
  afterMs: number;
}

function read(text: string): Reserved {
  const { document, texts } = picked(text, "payload", PAYLOAD_DEPTH);
  const jobs = items<Granted>(document, "jobs");
  const { granted_after_ms: afterMs } = parsed<{ granted_after_ms?: number }>(document);
  return { jobs, texts, afterMs: afterMs ?? 0 };
}
