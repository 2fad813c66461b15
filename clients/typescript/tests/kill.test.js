// Workers that are killed at any moment. The witness is a file: a worker writes there what a job does, before it
// says so anywhere else.

import assert from "node:assert/strict";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";

import { Client } from "../dist/index.js";
import { defer, Process, Server } from "./server.js";

const KILLS = 20;
const JOBS_PER_KILL = 12;
/** Within that time all jobs have run that were left when the last worker was killed. */
const PATIENCE_MS = 40_000;

/** Numbers from 0 to 1 that a seed decides (mulberry32). */
function randomness(seed) {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296;
  };
}

/** The times between which each execution of a job ran. One that was killed ran until then. */
function executions(file, killed) {
  const runs = new Map();
  for (const line of readFileSync(file, "utf8").split("\n").filter(Boolean)) {
    const { event, id, deliveries, pid, at } = JSON.parse(line);
    const all = runs.get(id) ?? new Map();
    runs.set(id, all);
    const run = all.get(deliveries) ?? { begin: at, end: killed.get(pid), hasEnded: false };
    all.set(deliveries, run);
    if (event !== "begin") {
      Object.assign(run, { end: at, hasEnded: event === "end" });
    }
  }
  return runs;
}

test(`workers are killed ${KILLS} times: each job runs, none is lost, and no two executions overlap`, async (t) => {
  const seed = Number(process.env.TASKHARBOR_SEED ?? Math.floor(Math.random() * 2 ** 31));
  t.diagnostic(`TASKHARBOR_SEED=${seed}`);
  const random = randomness(seed);
  const server = await Server.start();
  defer(t, () => server.close());
  const log = join(server.directory, "effects.log");
  const client = new Client(server.url);
  const start = () => new Process({ url: server.url, queue: "kill", log, lease: 2, cancelWait: 0.2 });
  const workers = [start(), start()];
  defer(t, () => Promise.all(workers.map((worker) => worker.close())));
  const [acknowledged, killed] = [[], new Map()];
  for (let kill = 0; kill < KILLS; kill += 1) {
    const jobs = Array.from({ length: JOBS_PER_KILL }, () => ({ type: "step", queue: "kill", payload: { ms: random() * 60 } }));
    acknowledged.push(...(await client.enqueueMany(jobs)).map(({ id }) => id));
    const at = random() < 0.5 ? 0 : 1;
    // It has work at that moment; how far it is with it is left to chance.
    await workers[at].printed(({ event }) => event === "begin");
    await new Promise((resolve) => setTimeout(resolve, random() * 80));
    await workers[at].end("SIGKILL");
    killed.set(workers[at].pid, Date.now());
    workers[at] = start();
  }
  const late = AbortSignal.timeout(PATIENCE_MS);
  for (;;) {
    const runs = executions(log, killed);
    const left = acknowledged.find((id) => ![...(runs.get(id)?.values() ?? [])].some(({ hasEnded }) => hasEnded));
    if (left === undefined) {
      break;
    }
    const ends = workers.map((worker) => worker.printed(({ event, id }) => event === "end" && id === left));
    await Promise.race([...ends, once(late, "abort")]);
    assert.ok(!late.aborted, `a job has not run within ${PATIENCE_MS} ms: ${JSON.stringify(await server.job(left))}`);
  }
  for (const worker of workers) {
    assert.deepEqual(await worker.end("SIGTERM"), [0, null]);
  }
  const runs = executions(log, killed);
  for (const id of acknowledged) {
    const all = [...runs.get(id).values()].sort((one, other) => one.begin - other.begin);
    assert.ok(all.some(({ hasEnded }) => hasEnded), `${id} has not run`);
    for (let at = 1; at < all.length; at += 1) {
      assert.ok(all[at].begin >= all[at - 1].end, `two executions of ${id} overlap: ${JSON.stringify(all)}`);
    }
  }
  assert.equal(runs.size, acknowledged.length);
  const states = new Set();
  for (const id of acknowledged) {
    states.add((await server.job(id)).state);
  }
  assert.deepEqual([...states], ["done"]);
});
