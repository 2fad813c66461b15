/** Reading what the steps before a step of a flow have produced. */

import { Unavailable } from "./error.js";
import { isRunning, type Held } from "./held.js";
import { parsed } from "./http.js";
import type { InputAnswer } from "./job.js";
import { picked } from "./json.js";
import { backoff, sleep } from "./signal.js";
import { CALL_MS, type Worker } from "./worker.js";

const MAX_FAILURES = 10;

/** Reads the inputs of a job; waits for an unavailable store until the outcome of the job is decided. */
export async function readInput(worker: Worker, held: Held): Promise<InputAnswer> {
  for (let failures = 1; ; failures += 1) {
    // The lease may be another after each extension.
    const body = JSON.stringify({ id: held.job.id, lease: held.lease });
    try {
      return asInput(await worker.call("work/inputs", body, CALL_MS));
    } catch (error) {
      if (!(error instanceof Unavailable) || failures > MAX_FAILURES || !isRunning(held)) {
        throw error;
      }
    }
    await sleep(backoff(failures));
  }
}

function asInput(text: string): InputAnswer {
  const { document, texts } = picked(text, "input", 1);
  const answer = parsed<{ input_base64?: string; failure?: NonNullable<InputAnswer["failure"]> }>(document);
  const read: InputAnswer = {};
  if (texts[0] !== undefined) {
    read.text = texts[0];
  }
  if (answer.input_base64 !== undefined) {
    read.base64 = answer.input_base64;
  }
  if (answer.failure !== undefined) {
    read.failure = answer.failure;
  }
  return read;
}
