/** From what a handler returned or threw to what is recorded of its job. */

import { toBase64 } from "./bytes.js";
import { Discard, Retry, Snooze, Throttled } from "./error.js";
import type { StopReason } from "./job.js";

/** What becomes of a job, as the server takes it. */
export interface Outcome {
  ok?: { output?: unknown; output_base64?: string };
  error?: { message: string; retryable?: boolean; retry_after_seconds?: number };
  timeout?: Record<string, never>;
  snooze?: { seconds: number };
  throttled?: { seconds: number };
  release?: { reason: "requested" | "shutdown" | "unstarted" };
}

const MAX_MESSAGE = 8 * 1024;

/** The outcome of a handler that returned `output`. */
export function success(output: unknown): Outcome {
  if (output === undefined) {
    return { ok: {} };
  }
  if (output instanceof Uint8Array) {
    return { ok: { output_base64: toBase64(output) } };
  }
  try {
    const text = JSON.stringify(output);
    if (text !== undefined) {
      // As it is now: the handler may go on to change it.
      return { ok: { output: JSON.parse(text) as unknown } };
    }
  } catch (error) {
    // Running it again would come to the same.
    return permanent(`the output cannot be written as JSON: ${text(error)}`);
  }
  return permanent(`the output cannot be written as JSON: it is a ${typeof output}`);
}

/** The outcome of a job that is not tried again. */
export function permanent(message: string): Outcome {
  return { error: { message: message.slice(0, MAX_MESSAGE), retryable: false } };
}

/** The outcome of a handler that threw `error`, and had been told to stop for this reason. */
export function failure(error: unknown, stopped: StopReason | undefined): Outcome {
  if (error instanceof Snooze) {
    return { snooze: { seconds: error.seconds } };
  }
  if (error instanceof Throttled) {
    return { throttled: { seconds: error.seconds } };
  }
  if (error instanceof Discard) {
    return permanent(error.message);
  }
  // It was told to stop, so that it failed says nothing about the job.
  if (stopped === "requested" || stopped === "shutdown") {
    return { release: { reason: stopped } };
  }
  if (error instanceof Retry) {
    const message = error.message.slice(0, MAX_MESSAGE);
    return { error: error.after === undefined ? { message } : { message, retry_after_seconds: error.after } };
  }
  return { error: { message: text(error).slice(0, MAX_MESSAGE) } };
}

/** The error and its causes. */
function text(error: unknown): string {
  const parts: string[] = [];
  const seen = new Set<unknown>();
  for (let current = error; current !== undefined && !seen.has(current); ) {
    seen.add(current);
    if (!(current instanceof Error)) {
      parts.push(String(current));
      break;
    }
    parts.push(current.message === "" ? current.name : `${current.name}: ${current.message}`);
    current = current.cause;
  }
  return parts.join(": ");
}
