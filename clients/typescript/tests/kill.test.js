// Workers that are killed at any moment. The witness is a file: a worker writes there what a job does, before it
// says so anywhere else.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";

import { Client } from "../dist/index.js";
import { defer, Process, Server } from "./server.js";

const KILLS = 20;
const JOBS_PER_KILL = 12;
/** Within that time all jobs have run that were left when the last worker was killed. */
const WAIT_LIMIT_MS = 40_000;

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

const STATES = ["ready", "scheduled", "blocked", "inflight", "done", "dlq", "cancelled"];

/** How many jobs are in each state; states without jobs are left out. */
async function counted(server) {
  const [queue] = await server.command("stats");
  return Object.fromEntries(STATES.map((state) => [state, queue[state]]).filter(([, count]) => count > 0));
}

test(`workers are killed ${KILLS} times: each job runs, none is lost, and no two executions overlap`, async (t) => {
  const seed = Number(process.env.TASKHARBOR_SEED ?? Math.floor(Math.random() * 2 ** 31));
  t.diagnostic(`TASKHARBOR_SEED=${seed}`);
  const random = randomness(seed);
  const server = await Server.start();
  defer(t, () => server.close());
  const log = join(server.directory, "effects.log");
  const client = new Client(server.url);
  const start = () => new Process({ url: server.url, queue: "kill", log, lease: 2, cancelWait: 0.2, crashLimit: 100 });
  const workers = [start(), start()];
  defer(t, () => Promise.all(workers.map((worker) => worker.close())));
  const [acknowledged, killed] = [[], new Map()];
  for (let kill = 0; kill < KILLS; kill += 1) {
    const job = () => ({ type: "step", queue: "kill", payload: { ms: random() * 60 } });
    const jobs = Array.from({ length: JOBS_PER_KILL }, job);
    acknowledged.push(...(await client.enqueueMany(jobs)).map(({ id }) => id));
    // One that has got as far as that; how far it is with its jobs is left to chance.
    const hasBegun = ({ event }) => event === "begin";
    await Promise.race(workers.map((worker) => worker.printed(hasBegun)));
    const found = [0, 1].filter((at) => workers[at].events.some(hasBegun));
    const at = found[Math.floor(random() * found.length)];
    await new Promise((resolve) => setTimeout(resolve, random() * 80));
    await workers[at].end("SIGKILL");
    killed.set(workers[at].pid, Date.now());
    workers[at] = start();
  }
  // A job whose end was not recorded runs again, so the store has the last word.
  const late = AbortSignal.timeout(WAIT_LIMIT_MS);
  for (let counts = await counted(server); Object.keys(counts).join() !== "done"; counts = await counted(server)) {
    assert.ok(!late.aborted, `some jobs have not run within ${WAIT_LIMIT_MS} ms: ${JSON.stringify(counts)}`);
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
});
