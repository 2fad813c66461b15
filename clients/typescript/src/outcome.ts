/** From what a handler returned or threw to what is recorded of its job. */

import { toBase64 } from "./bytes.js";
import { Discard, Retry, Snooze, TaskHarborError, Throttled } from "./error.js";
import type { StopReason } from "./job.js";
import { wellFormed, written } from "./json.js";

/** The outcome of a job: the name and the JSON of a member, as the server takes it. */
export interface Outcome {
  readonly kind: "ok" | "error" | "timeout" | "snooze" | "throttled" | "release";
  readonly json: string;
}

const MAX_MESSAGE = 8 * 1024;
const DONE: Outcome = { kind: "ok", json: "{}" };

/** The outcome of a handler that took longer than it may. */
export const TIMED_OUT: Outcome = { kind: "timeout", json: "{}" };

/** The outcome of a handler that returned `output`, as it is now. */
export function success(output: unknown): Outcome {
  if (output === undefined) {
    return DONE;
  }
  if (output instanceof Uint8Array) {
    return { kind: "ok", json: `{"output_base64":"${toBase64(output)}"}` };
  }
  try {
    return { kind: "ok", json: `{"output":${written(output, "output")}}` };
  } catch (error) {
    // Running it again would come to the same.
    return permanent(error instanceof TaskHarborError ? error.message : described(error));
  }
}

/** The outcome of a job that is not tried again. */
export function permanent(message: string): Outcome {
  return failed(message, { retryable: false });
}

/** The outcome of a handler that was stopped, or did not start. */
export function released(reason: "requested" | "shutdown" | "unstarted"): Outcome {
  return { kind: "release", json: JSON.stringify({ reason }) };
}

/** The outcome of a handler that threw `error`, and had been told to stop for this reason. */
export function failure(error: unknown, stopped: StopReason | undefined): Outcome {
  if (error instanceof Snooze) {
    return paused("snooze", error.seconds);
  }
  if (error instanceof Throttled) {
    return paused("throttled", error.seconds);
  }
  if (error instanceof Discard) {
    return permanent(error.message);
  }
  // It was told to stop, so that it failed says nothing about the job.
  if (stopped === "requested" || stopped === "shutdown") {
    return released(stopped);
  }
  if (error instanceof Retry) {
    return failed(error.message, error.after === undefined ? {} : { retry_after_seconds: error.after });
  }
  return failed(described(error), {});
}

/** Whether an attempt has failed. */
export function isFailure(outcome: Outcome): boolean {
  return outcome.kind === "error" || outcome.kind === "timeout";
}

function failed(message: string, more: { retryable?: boolean; retry_after_seconds?: number }): Outcome {
  return { kind: "error", json: JSON.stringify({ message: wellFormed(message, MAX_MESSAGE), ...more }) };
}

function paused(kind: "snooze" | "throttled", seconds: number): Outcome {
  return { kind, json: JSON.stringify({ seconds }) };
}

/** The error and its causes. */
function described(error: unknown): string {
  const parts: string[] = [];
  const seen = new Set<unknown>();
  for (let current = error; current !== undefined && !seen.has(current); ) {
    seen.add(current);
    if (!(current instanceof Error)) {
      parts.push(asText(current));
      break;
    }
    parts.push(current.message === "" ? current.name : `${current.name}: ${current.message}`);
    current = current.cause;
  }
  return parts.length === 0 ? "undefined was thrown" : parts.join(": ");
}

/** Anything can be thrown, also what cannot be made a text. */
function asText(thrown: unknown): string {
  try {
    return typeof thrown === "object" && thrown !== null ? JSON.stringify(thrown) : String(thrown);
  } catch {
    return `a thrown ${typeof thrown}`;
  }
}
