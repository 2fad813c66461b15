// How outcomes are recorded: lost answers, refusals, a server that fails.

import assert from "node:assert/strict";
import { test } from "node:test";

import { Snooze } from "../dist/index.js";
import { callMs } from "../dist/settle.js";
import { granted } from "./fake.js";
import { LIMIT, settled, working } from "./rig.js";
import { deferred } from "./server.js";

test("an outcome whose answer is lost is sent again", async (t) => {
  let count = 0;
  const settle = ({ jobs }, request, response) => {
    count += 1;
    return count === 1 ? void response.destroy() : { jobs: jobs.map(() => ({ state: "done" })) };
  };
  const { server, worker } = await working(t, {
    jobs: [granted({ id: "a" })],
    answers: { settle },
    handlers: { test: () => "output" },
  });
  const calls = await server.made("settle", 2);
  assert.deepEqual(settled(calls)[0], settled(calls)[1]);
  assert.deepEqual(settled(calls)[1], { id: "a", lease: "lease-1", ok: { output: "output" } });
  await worker.stop();
  assert.equal(server.calls.filter(({ name }) => name === "settle").length, 2);
});

test("a release that arrived although its answer was lost is not a lost lease", async (t) => {
  let count = 0;
  const settle = ({ jobs }, request, response) => {
    count += 1;
    const error = { code: "lease_lost", message: "gone" };
    return count === 1 ? void response.destroy() : { jobs: jobs.map(() => ({ error })) };
  };
  const handlers = {
    test: () => {
      throw new Snooze(5);
    },
  };
  const { server, worker, log } = await working(t, { jobs: [granted({ id: "a" })], answers: { settle }, handlers });
  await server.made("settle", 2);
  await worker.stop();
  assert.deepEqual(log.messages.filter((message) => /is lost/.test(message)), []);
});

test("one outcome that is refused does not hold up the others", async (t) => {
  const settle = ({ jobs }) => {
    if (jobs.some(({ ok }) => ok?.output === "bad")) {
      return { status: 413, raw: '{"title":"too large","code":"too_large"}' };
    }
    return { jobs: jobs.map(() => ({ state: "done" })) };
  };
  const [gate, all] = [deferred(), deferred()];
  const jobs = ["a", "b", "c"].map((id) => granted({ id, payload: id }));
  const handler = async (job) => {
    if (job.payload === "c") {
      all.resolve();
    }
    await gate.promise;
    return job.payload === "b" ? "bad" : "good";
  };
  const { server, worker } = await working(t, { jobs, answers: { settle }, handlers: { test: handler } });
  await all.promise;
  gate.resolve();
  await worker.stop();
  const last = new Map(settled(server.calls.filter(({ name }) => name === "settle")).map((job) => [job.id, job]));
  assert.deepEqual(last.get("a").ok, { output: "good" });
  assert.deepEqual(last.get("c").ok, { output: "good" });
  assert.equal(last.get("b").error.retryable, false);
  assert.match(last.get("b").error.message, /the server refuses the outcome: too large/);
});

test("an outcome is not changed because the server fails, and does not hold up the others", LIMIT, async (t) => {
  let count = 0;
  const settle = ({ jobs }) => {
    const isBad = jobs.some(({ id }) => id === "bad");
    count += isBad ? 1 : 0;
    return isBad && count < 4 ? { status: 500, raw: "" } : { jobs: jobs.map(() => ({ state: "done" })) };
  };
  const { server, worker, log } = await working(t, {
    jobs: [granted({ id: "bad" }), granted({ id: "good" })],
    answers: { settle },
    options: { grace: 5 },
    handlers: { test: (job) => job.id },
  });
  while (count < 4) {
    await server.made("settle", server.calls.filter(({ name }) => name === "settle").length + 1);
  }
  await worker.stop();
  const calls = server.calls.filter(({ name }) => name === "settle");
  const bad = settled(calls).filter(({ id }) => id === "bad");
  assert.deepEqual(bad.map(({ ok }) => ok), Array(4).fill({ output: "bad" }));
  assert.deepEqual(calls.at(-1).body.jobs.map(({ id }) => id), ["bad"]);
  assert.deepEqual(log.messages.filter((message) => /is lost|refuse/.test(message)), []);
});

test("a refused outcome is not sent again at once", LIMIT, async (t) => {
  const times = [];
  const settle = () => {
    times.push(performance.now());
    return { status: 400, raw: "" };
  };
  const { server, log } = await working(t, {
    jobs: [granted({ id: "a" })],
    answers: { settle },
    handlers: { test: () => 1 },
  });
  await server.made("settle", 2);
  await log.find(/the lease of job a .* is lost: its outcome is refused/);
  assert.ok(times[1] - times[0] > 50, `it was sent again after ${times[1] - times[0]} ms`);
});

test("a busy store is asked again", async (t) => {
  let count = 0;
  const settle = ({ jobs }) => {
    count += 1;
    return { jobs: jobs.map(() => (count === 1 ? { error: { code: "busy", message: "busy" } } : { state: "done" })) };
  };
  const { server, worker } = await working(t, {
    jobs: [granted({ id: "a" })],
    answers: { settle },
    handlers: { test: () => 1 },
  });
  await server.made("settle", 2);
  await worker.stop();
  assert.equal(settled(server.calls.filter(({ name }) => name === "settle")).length, 2);
});

test("outcomes that arrive while a call is in flight are batched in the next", async (t) => {
  const [first, rest, all] = [deferred(), deferred(), deferred()];
  let begun = 0;
  const settle = async ({ jobs }) => {
    if (jobs.length === 1) {
      await first.promise;
    }
    return { jobs: jobs.map(() => ({ state: "done" })) };
  };
  const jobs = Array.from({ length: 10 }, (_, at) => granted({ id: `job-${at}` }));
  const handler = async (job) => {
    begun += 1;
    if (begun === jobs.length) {
      all.resolve();
    }
    return job.id === "job-0" ? undefined : rest.promise;
  };
  const { server } = await working(t, { jobs, answers: { settle }, handlers: { test: handler } });
  await all.promise;
  while (server.calls.every(({ name }) => name !== "settle")) {
    await new Promise(setImmediate);
  }
  rest.resolve();
  await new Promise(setImmediate);
  first.resolve();
  const [, second] = await server.made("settle", 2);
  assert.equal(second.body.jobs.length, 9);
});

test("an outcome that may have arrived is sent with a new lease, too", LIMIT, async (t) => {
  const refused = deferred();
  let isExtending = false;
  const extend = async () => {
    isExtending = true;
    await refused.promise;
    return { jobs: [{ lease: "lease-2" }] };
  };
  const settle = async ({ jobs: [{ lease }] }) => {
    if (lease === "lease-2") {
      return { jobs: [{ state: "ready" }] };
    }
    if (!isExtending) {
      // It is lost on its way, and the lease is extended then.
      return { status: 503, raw: "" };
    }
    refused.resolve();
    // The worker knows the new lease by now.
    await new Promise((resolve) => setTimeout(resolve, 200));
    return { jobs: [{ error: { code: "lease_lost", message: "an old lease" } }] };
  };
  const handlers = {
    test: () => {
      throw new Error("no");
    },
  };
  const { server, worker } = await working(t, {
    jobs: [granted({ id: "a" })],
    answers: { extend, settle },
    options: { lease: 1.5, grace: 5 },
    handlers,
  });
  await refused.promise;
  await worker.stop();
  assert.equal(server.calls.findLast(({ name }) => name === "settle").body.jobs[0].lease, "lease-2");
});

test("a call may take longer the more it sends", () => {
  assert.equal(callMs(""), 10_000);
  assert.equal(callMs("é".repeat(2 * 1024 * 1024)), 26_000);
});
