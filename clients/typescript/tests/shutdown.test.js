// Signals: how the process of a worker ends.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { Client } from "../dist/index.js";
import { defer, Process, Server } from "./server.js";

let server;
let client;

before(async () => {
  server = await Server.start();
  client = new Client(server.url);
});

after(() => server.close());

/** A worker in a process, with one job of this type that has begun. */
async function busy(t, type, options = {}) {
  const process = new Process({ url: server.url, queue: type, lease: 30, ...options });
  defer(t, () => process.close());
  const { id } = await client.enqueue(type, null, { queue: type });
  await process.printed(({ event }) => event === "begin");
  return { process, id };
}

const isShuttingDown = ({ message }) => /^shutting down/.test(message);

for (const signal of ["SIGTERM", "SIGINT"]) {
  test(`${signal} lets handlers finish, and then the process ends by itself`, async (t) => {
    const { process, id } = await busy(t, "told");
    process.child.kill(signal);
    await process.printed(isShuttingDown);
    // What comes now is not for this worker.
    const { id: next } = await client.enqueue("told", null, { queue: "told" });
    process.child.send("go on");
    assert.deepEqual(await process.ended, [0, null]);
    assert.equal(process.events.at(-1).event, "ran");
    assert.equal((await server.job(id)).state, "done");
    const left = await server.job(next);
    assert.deepEqual([left.state, left.attempts], ["ready", 0]);
    assert.ok(process.events.every(({ event, id: begun }) => event !== "begin" || begun !== next));
    await server.command("cancel", next);
  });
}

test("a worker without jobs ends at once", async (t) => {
  const process = new Process({ url: server.url, queue: "idle" });
  defer(t, () => process.close());
  await process.printed(({ message }) => /serves idle/.test(message));
  const began = performance.now();
  assert.deepEqual(await process.end("SIGTERM"), [0, null]);
  assert.ok(performance.now() - began < 5_000);
});

test("after the grace period handlers are told to stop, and their jobs are released uncharged", async (t) => {
  const { process, id } = await busy(t, "stops", { grace: 0.2 });
  assert.deepEqual(await process.end("SIGTERM"), [0, null]);
  assert.equal(process.events.at(-1).event, "ran");
  const { state, attempts, deliveries } = await server.job(id);
  assert.deepEqual([state, attempts, deliveries], ["ready", 0, 1]);
});

test("a second signal ends the grace period", async (t) => {
  const { process, id } = await busy(t, "stops", { grace: 600 });
  // Signals that come close together count as one.
  const again = setInterval(() => process.child.kill("SIGTERM"), 100);
  defer(t, () => clearInterval(again));
  assert.deepEqual(await process.ended, [0, null]);
  assert.equal((await server.job(id)).state, "ready");
});

test("a handler that does not stop is left behind, and the process ends", async (t) => {
  const { process, id } = await busy(t, "ignores", { grace: 0, cancelWait: 0.2 });
  assert.deepEqual(await process.end("SIGTERM"), [0, null]);
  await process.printed(({ message }) => /1 handlers did not stop: the process ends/.test(message));
  assert.equal((await server.job(id)).state, "ready");
});

test("a signal ends a worker whose server has gone away", async (t) => {
  const other = await Server.start();
  defer(t, () => other.close());
  const process = new Process({ url: other.url, queue: "idle" });
  defer(t, () => process.close());
  await process.printed(({ message }) => /serves idle/.test(message));
  await other.stop();
  await process.printed(({ message }) => /no jobs can be reserved/.test(message));
  assert.deepEqual(await process.end("SIGTERM"), [0, null]);
});
