/**
 * The loop that records outcomes.
 *
 * Outcomes that arrive while a call is in flight are batched in the next one. A batch that fails is sent
 * again while the lease lives. After a call that the server refused as a whole, or failed to answer because of an
 * error of its own, each outcome is sent alone, so that one cannot hold up the others. Only a refusal changes an
 * outcome.
 */

import { ApiError, TaskHarborError, Unavailable } from "./error.js";
import type { Held } from "./held.js";
import { items } from "./http.js";
import { permanent, type Outcome } from "./outcome.js";
import { backoff, now } from "./signal.js";
import { CALL_MS, type Worker } from "./worker.js";

const BATCH = 500;
const BATCH_CHARS = 4 * 1024 * 1024;
const LONGEST_PAUSE_MS = 1_000;
const SHORTEST_CALL_MS = 500;
/** The server waits a second more for each of these parts of a body. */
const BYTES_PER_SECOND = 256 * 1024;
/** The call is refused for who sends it, and not for what it says. */
const NOT_ITS_FAULT = new Set([401, 403, 404]);
/** The server itself has failed, perhaps on one of the outcomes. */
const SERVER_ERROR = 500;

/** A job that has an outcome. */
type Decided = Held & { outcome: Outcome };

interface Recorded {
  state?: string;
  error?: { code: string; message: string };
}

/** Records outcomes until the worker ends. */
export async function settle(worker: Worker): Promise<void> {
  const { logger } = worker.settings;
  let [failures, resumeAt] = [0, 0];
  for (let batch = await next(worker, 0); batch.length > 0; batch = await next(worker, resumeAt)) {
    const leases = batch.map((held) => held.lease);
    const remaining = Math.min(...batch.map((held) => held.expiresAt)) - now();
    let answers: Recorded[];
    try {
      const body = request(batch);
      const call = Math.max(SHORTEST_CALL_MS, Math.min(remaining, callMs(body)));
      answers = items<Recorded>(await worker.call("work/settle", body, call), "jobs", batch.length);
    } catch (error) {
      if (!(error instanceof TaskHarborError)) {
        throw error;
      }
      if (failures === 0 && worker.phase !== "ended") {
        logger.warn(`outcomes cannot be recorded: ${error.message}`);
      }
      const isAway = error instanceof Unavailable || (error instanceof ApiError && NOT_ITS_FAULT.has(error.status));
      if (isAway) {
        failures += 1;
        resumeAt = now() + backoff(failures, LONGEST_PAUSE_MS);
      }
      for (const held of batch) {
        held.isSettling = false;
        held.isUnanswered ||= isAway;
        if (error instanceof Unavailable && error.status === SERVER_ERROR) {
          held.refusals = Math.max(held.refusals, 1);
          held.resumeAt = now() + LONGEST_PAUSE_MS;
        } else if (!isAway) {
          retryIndividually(worker, held, error.message, batch.length === 1);
        }
      }
      // Their leases may be extended again.
      worker.signals.kept.notify();
      continue;
    }
    [failures, resumeAt] = [0, 0];
    batch.forEach((held, at) => {
      held.isSettling = false;
      take(worker, held, leases[at] ?? "", answers[at] ?? {});
    });
    worker.signals.kept.notify();
  }
}

/** How long a call may take: large outcomes take longer to send. */
export function callMs(body: string): number {
  return CALL_MS + (new TextEncoder().encode(body).length / BYTES_PER_SECOND) * 1_000;
}

/** Waits for outcomes, and answers some to be sent; none if the worker ends. */
async function next(worker: Worker, resumeAt: number): Promise<Decided[]> {
  while (worker.phase !== "ended") {
    const ready: Decided[] = [];
    let wakeAt = Infinity;
    for (const held of [...worker.held].filter(isDecided)) {
      const time = Math.max(held.resumeAt, resumeAt);
      if (held.expiresAt <= now()) {
        worker.lose(held, "its outcome could not be recorded in time");
      } else if (time <= now()) {
        ready.push(held);
      } else {
        wakeAt = Math.min(wakeAt, time, held.expiresAt);
      }
    }
    if (ready.length > 0) {
      return batchOf(ready);
    }
    await worker.signals.outcomes.wait(wakeAt === Infinity ? undefined : wakeAt - now());
  }
  return [];
}

function isDecided(held: Held): held is Decided {
  return held.outcome !== undefined;
}

/** As many as go into one call; one that was refused goes alone. */
function batchOf(ready: Decided[]): Decided[] {
  ready.sort((one, other) => one.refusals - other.refusals || one.expiresAt - other.expiresAt);
  const batch: Decided[] = [];
  const ids = new Set<string>();
  let chars = 0;
  for (const held of ready) {
    const isAlone = held.refusals > 0;
    chars += held.outcome.json.length;
    if (batch.length > 0 && (isAlone || chars > BATCH_CHARS)) {
      break;
    }
    if (!ids.has(held.job.id)) {
      ids.add(held.job.id);
      held.isSettling = true;
      batch.push(held);
    }
    if (isAlone || batch.length === BATCH) {
      break;
    }
  }
  return batch;
}

function request(batch: readonly Decided[]): string {
  const jobs = batch.map(({ job, lease, outcome }) => {
    const head = JSON.stringify({ id: job.id, lease });
    return `${head.slice(0, -1)},"${outcome.kind}":${outcome.json}}`;
  });
  return `{"jobs":[${jobs.join(",")}]}`;
}

/** The server refuses the outcome. Alone and refused again, it becomes a failure, then is given up. */
function retryIndividually(worker: Worker, held: Held, message: string, wasAlone: boolean): void {
  held.refusals += 1;
  held.resumeAt = now() + backoff(held.refusals, LONGEST_PAUSE_MS);
  if (wasAlone && held.refusals > 2) {
    worker.lose(held, `its outcome is refused: ${message}`);
  } else if (wasAlone) {
    held.refusals = 2;
    held.outcome = permanent(`the server refuses the outcome: ${message}`);
  }
}

/** Takes the answer about one outcome, which was sent with this lease. */
function take(worker: Worker, held: Decided, lease: string, answer: Recorded): void {
  const { error } = answer;
  if (error === undefined) {
    worker.tallies.get(held.job.queue)?.settle(held.outcome, answer.state);
    worker.forget(held);
  } else if (error.code === "busy" || held.isExtending) {
    held.resumeAt = now() + backoff(held.refusals + 1, LONGEST_PAUSE_MS);
  } else if (error.code !== "lease_lost") {
    retryIndividually(worker, held, `${error.message} (${error.code})`, true);
  } else if (held.lease !== lease) {
    // The lease was extended meanwhile and has changed: the outcome is sent again with the new one.
    return;
  } else if (held.isUnanswered && held.outcome.kind !== "ok") {
    // An earlier call has arrived: a job that was retried or released is not inflight any more.
    worker.forget(held);
  } else {
    worker.lose(held, error.message);
  }
}
