// A worker as a program of its own, which tests kill. It prints what happens, one JSON value in each line, and
// keeps a log of its side effects: a file that survives it.

import { once } from "node:events";
import { appendFileSync } from "node:fs";

import { App } from "../dist/index.js";

const { url, queue, log, slots = 4, ...options } = JSON.parse(process.argv[2]);

const say = (event, more = {}) => process.stdout.write(`${JSON.stringify({ event, ...more })}\n`);
const logger = { info: (message) => say("log", { message }), warn: (message) => say("log", { message }) };
const app = new App(url, { queues: { [queue]: slots }, logger, ...options });

/** Writes a side effect before it is told. */
function note(event, { id, deliveries }) {
  if (log !== undefined) {
    appendFileSync(log, `${JSON.stringify({ event, id, deliveries, pid: process.pid, at: Date.now() })}\n`);
  }
  say(event, { id });
}

app.job("step", async (job) => {
  note("begin", job);
  await Promise.race([new Promise((resolve) => setTimeout(resolve, job.payload.ms)), once(job.signal, "abort")]);
  note(job.signal.aborted ? "stop" : "end", job);
  job.signal.throwIfAborted();
});

app.job("told", async (job) => {
  note("begin", job);
  await once(process, "message");
  note("end", job);
});

app.job("stops", async (job) => {
  note("begin", job);
  await once(job.signal, "abort");
  note("end", job);
  throw job.signal.reason;
});

app.job("ignores", async (job) => {
  note("begin", job);
  await new Promise((resolve) => setInterval(resolve, 1 << 30));
});

await app.run();
say("ran");
