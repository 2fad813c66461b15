/**
 * The loop that keeps leases alive.
 *
 * Each lease is extended when a third of its time has passed, and those that soon will be go in the same call.
 * A lease that the server refuses to extend is lost, and its handler is told to stop.
 */

import { ApiError, TaskHarborError } from "./error.js";
import { isRunning, type Held } from "./held.js";
import { items } from "./http.js";
import { TIMED_OUT } from "./outcome.js";
import { backoff, now } from "./signal.js";
import { CALL_MS, type Worker } from "./worker.js";

const BATCH = 1_000;
/** Reports of progress are sent this often at most. */
const REPORT_MS = 1_000;
const LONGEST_PAUSE_MS = 5_000;
/** How long to wait when a store is busy with a job. */
const BUSY_MS = 1_000;
const SHORTEST_CALL_MS = 500;

interface Kept {
  lease?: string;
  cancel?: "requested" | "timeout";
  error?: { code: string; message: string };
}

/** Extends leases until the worker ends. */
export async function keep(worker: Worker): Promise<void> {
  const { leaseMs, logger } = worker.settings;
  const pace = { resumeAt: 0, reportedAt: 0 };
  let failures = 0;
  for (let due = await next(worker, pace); due.length > 0; due = await next(worker, pace)) {
    const sent = now();
    const leaving = worker.phase === "stopping";
    const body = request(worker, due, leaving);
    const reports = due.map((held) => held.progress);
    const remaining = Math.min(...due.map((held) => held.expiresAt)) - sent;
    let answers: Kept[];
    try {
      const call = Math.max(SHORTEST_CALL_MS, Math.min(remaining, CALL_MS));
      answers = items<Kept>(await worker.call("work/extend", body, call), "jobs", due.length);
    } catch (error) {
      if (!(error instanceof TaskHarborError)) {
        throw error;
      }
      for (const held of due) {
        held.isExtending = false;
      }
      failures += 1;
      pace.resumeAt = now() + backoff(failures, Math.min(LONGEST_PAUSE_MS, leaseMs / 6));
      if (failures === 1 || error instanceof ApiError) {
        logger.warn(`leases cannot be extended: ${error.message}`);
      }
      continue;
    }
    failures = 0;
    pace.resumeAt = 0;
    if (reports.some((report) => report !== undefined)) {
      pace.reportedAt = sent;
    }
    due.forEach((held, at) => {
      const answer = answers[at] ?? {};
      take(worker, held, reports[at], answer, sent);
      held.hasLeft ||= leaving && answer.error === undefined;
    });
  }
}

/** Waits until leases have to be extended, and answers them; none if the worker ends. */
async function next(worker: Worker, pace: { resumeAt: number; reportedAt: number }): Promise<Held[]> {
  while (worker.phase !== "ended") {
    const times = new Map<Held, number>();
    for (const held of newest(worker.held)) {
      times.set(held, timeOf(worker, held, pace.reportedAt));
    }
    const first = times.size === 0 ? undefined : Math.max(least(times.values()), pace.resumeAt);
    if (first !== undefined && first <= now()) {
      const soon = now() + worker.settings.leaseMs / 6;
      const due = [...times].filter(([, time]) => time <= soon).map(([held]) => held);
      return due.sort((one, other) => one.expiresAt - other.expiresAt).slice(0, BATCH);
    }
    await worker.signals.kept.wait(first === undefined ? undefined : first - now());
  }
  return [];
}

/** A job that has come back is held twice for a moment; only its newest lease can be alive. */
function newest(all: Iterable<Held>): Iterable<Held> {
  const found = new Map<string, Held>();
  for (const held of all) {
    const known = found.get(held.job.id);
    if (!held.isSettling && (known === undefined || known.job.deliveries < held.job.deliveries)) {
      found.set(held.job.id, held);
    }
  }
  return found.values();
}

function least(times: Iterable<number>): number {
  let found = Infinity;
  for (const time of times) {
    found = Math.min(found, time);
  }
  return found;
}

/** When the lease is to be extended. */
function timeOf(worker: Worker, held: Held, reportedAt: number): number {
  if (worker.phase === "stopping" && !held.hasLeft && isRunning(held)) {
    return held.leaveAt;
  }
  if (held.progress !== undefined && isRunning(held)) {
    return Math.min(held.extendAt, reportedAt + REPORT_MS);
  }
  return held.extendAt;
}

function request(worker: Worker, due: readonly Held[], leaving: boolean): string {
  for (const held of due) {
    held.isExtending = true;
  }
  return JSON.stringify({
    lease_seconds: worker.settings.leaseMs / 1_000,
    // If the process is killed from then on, that says nothing about its jobs.
    leaving,
    jobs: due.map((held) => ({ id: held.job.id, lease: held.lease, progress: held.progress })),
  });
}

/** Takes the answer about one lease. */
function take(worker: Worker, held: Held, report: string | undefined, answer: Kept, sent: number): void {
  const { error } = answer;
  held.isExtending = false;
  if (error !== undefined) {
    if (error.code === "busy") {
      held.extendAt = held.leaveAt = sent + BUSY_MS;
    } else if (isRunning(held)) {
      worker.lose(held, error.message);
    } else {
      // It has been settled meanwhile, or the settler will hear the same.
      held.extendAt = held.expiresAt;
    }
    return;
  }
  const { leaseMs, cancelWaitMs } = worker.settings;
  held.lease = answer.lease ?? held.lease;
  held.expiresAt = sent + leaseMs;
  held.extendAt = sent + leaseMs / 3;
  if (held.progress === report) {
    held.progress = undefined;
  }
  if (answer.cancel === "requested" && isRunning(held)) {
    worker.tellToStop(held, "requested", now() + cancelWaitMs);
  }
  if (answer.cancel === "timeout" && isRunning(held)) {
    worker.tellToStop(held, "timeout");
    worker.decide(held, TIMED_OUT);
  }
}
