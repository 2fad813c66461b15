/** The loop that ends what takes too long: handlers with a timeout, those that do not stop, lost leases. */

import { isRunning, type Held } from "./held.js";
import { released, TIMED_OUT } from "./outcome.js";
import { now } from "./signal.js";
import type { Worker } from "./worker.js";

/** How long before its end a lease counts as lost, in parts and in milliseconds. */
const MARGIN_PART = 10;
const MIN_MARGIN_MS = 2_000;

/** Watches the time until the worker ends. */
export async function watch(worker: Worker): Promise<void> {
  const { leaseMs } = worker.settings;
  const margin = Math.min(Math.max(leaseMs / MARGIN_PART, MIN_MARGIN_MS), leaseMs / 3);
  while (worker.phase !== "ended") {
    let wakeAt = Infinity;
    for (const held of [...worker.held].filter(isRunning)) {
      wakeAt = Math.min(wakeAt, look(worker, held, held.expiresAt - margin));
    }
    await worker.signals.timed.wait(wakeAt === Infinity ? undefined : wakeAt - now());
  }
}

/** Ends a job whose time has ended; answers when to look again. */
function look(worker: Worker, held: Held, lostAt: number): number {
  const time = now();
  const { deadline, stopAt } = held;
  if (deadline !== undefined && deadline <= time) {
    // The handler may go on and keeps its slot; the job is tried again.
    worker.tellToStop(held, "timeout");
    worker.decide(held, TIMED_OUT);
  } else if (stopAt !== undefined && stopAt <= time) {
    worker.decide(held, released(held.stopReason === "requested" ? "requested" : "shutdown"));
  } else if (lostAt <= time) {
    worker.lose(held, "it could not be extended in time");
  } else {
    return Math.min(deadline ?? Infinity, stopAt ?? Infinity, lostAt);
  }
  return Infinity;
}
