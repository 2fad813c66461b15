/** The loop that tells people and other workers that the worker is there. */

import { hostname } from "node:os";
import process from "node:process";

import { TaskHarborError } from "./error.js";
import { now } from "./signal.js";
import { CALL_MS, type Worker } from "./worker.js";

const ANNOUNCE_MS = 10_000;
const LIBRARY = "typescript 0.1.0";

/** Announces the worker until it ends. */
export async function announceOften(worker: Worker): Promise<void> {
  let next = now() + ANNOUNCE_MS;
  while (worker.phase !== "ended") {
    if (now() < next) {
      await worker.signals.phase.wait(next - now());
      continue;
    }
    next = now() + ANNOUNCE_MS;
    try {
      await announce(worker, CALL_MS / 2);
    } catch (error) {
      // That the server is away is said where it matters: by the other loops.
      if (!(error instanceof TaskHarborError)) {
        throw error;
      }
    }
  }
}

/** Tells others that the worker is there; when it has ended, that it is not. */
export async function announce(worker: Worker, timeoutMs: number): Promise<void> {
  const { settings, phase } = worker;
  let oldest: number | undefined;
  for (const held of worker.held) {
    oldest = held.hasEnded ? oldest : Math.min(oldest ?? Infinity, held.beganAt);
  }
  const queues = [...settings.queues].map(([name, slots]) =>
    worker.tallies.get(name)?.announced(name, slots, worker.busy.get(name) ?? 0),
  );
  const body = {
    worker: settings.name,
    incarnation: worker.incarnation,
    valid_seconds: phase === "ended" ? 0 : (3 * ANNOUNCE_MS) / 1_000,
    info: {
      library: LIBRARY,
      host: hostname(),
      pid: process.pid,
      phase,
      wake_ups: true,
      queues,
      types: [...worker.handlers.keys()].sort(),
      version: settings.version,
      oldest_secs: oldest === undefined ? undefined : Math.floor((now() - oldest) / 1_000),
    },
  };
  await worker.call("work/announce", JSON.stringify(body), timeoutMs);
}
