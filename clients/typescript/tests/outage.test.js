// Servers that go away and come back, and servers that do not let a caller in.

import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";

import { ApiError, App, Client } from "../dist/index.js";
import { defer, deferred, Log, Server } from "./server.js";

async function server(t) {
  const started = await Server.start();
  defer(t, () => started.close());
  return started;
}

async function working(t, url, handler, options = {}) {
  const log = new Log();
  const app = new App(url, { queues: { default: 2 }, logger: log, grace: 1, cancelWait: 0.5, ...options });
  const worker = await app.job("test", handler).start();
  defer(t, () => worker.stop());
  return { worker, log, app };
}

test("a server that restarts costs no job an attempt, and no outcome", async (t) => {
  const store = await server(t);
  const [begun, gate] = [deferred(), deferred()];
  const { worker, log, app } = await working(t, store.url, async (job) => {
    if (job.payload === 1) {
      begun.resolve();
      await gate.promise;
    }
  });
  const first = await app.enqueue("test", 1);
  await begun.promise;
  await store.stop();
  gate.resolve();
  await log.find(/outcomes cannot be recorded/);
  await log.find(/no jobs can be reserved from default/);
  await store.restart();
  const second = await app.enqueue("test", 2);
  await log.find(/jobs of default are reserved again/);
  const look = async () => [(await store.job(first.id)).state, (await store.job(second.id)).state];
  while ((await look()).some((state) => state !== "done"));
  await worker.stop();
  const { attempts, deliveries, errors } = await store.job(first.id);
  assert.deepEqual([attempts, deliveries, errors], [0, 1, []]);
});

test("a server that is away at the start is waited for", async (t) => {
  const store = await server(t);
  await store.stop();
  const ran = deferred();
  const { log } = await working(t, store.url, () => ran.resolve());
  await log.find(/waiting for the server/);
  await store.restart();
  await new Client(store.url).enqueue("test");
  await ran.promise;
});

test("a client waits for a server that restarts, and stores its job once", async (t) => {
  const store = await server(t);
  await store.stop();
  const stored = new Client(store.url, { timeout: 60 }).enqueue("test", 7, { queue: "later" });
  await store.restart();
  const { id, existed } = await stored;
  assert.equal(existed, false);
  assert.equal((await store.job(id)).state, "ready");
});

test("a worker needs a token that may act as a worker", async (t) => {
  const store = await server(t);
  const tokens = join(store.directory, "tokens.json");
  const add = async (...words) => {
    const printed = await store.print(["token", "add", ...words, "--tokens", tokens]);
    return printed.trim().split("\n").at(-1);
  };
  const right = await add("workers", "--workers");
  const viewer = await add("viewer", "--role", "viewer");
  await store.stop();
  await store.restart(["--tokens", tokens]);
  const isRefused = (status) => (error) => error instanceof ApiError && error.status === status;
  await assert.rejects(working(t, store.url, () => 1, { token: "wrong" }), isRefused(401));
  await assert.rejects(working(t, store.url, () => 1), isRefused(401));
  await assert.rejects(working(t, store.url, () => 1, { token: viewer }), isRefused(403));
  await assert.rejects(new Client(store.url, { token: "wrong" }).enqueue("test"), isRefused(401));
  const ran = deferred();
  const { app } = await working(t, store.url, () => ran.resolve(), { token: right });
  await app.enqueue("test");
  await ran.promise;
});

test("the address may have the store and the token in it", async (t) => {
  const store = await server(t);
  const { id } = await new Client(`${store.url}/?store=main`).enqueue("test", null, { queue: "q" });
  assert.equal((await store.job(id)).queue, "q");
  await assert.rejects(new Client(store.url, { store: "other" }).enqueue("test"), (error) => error.status === 404);
});
