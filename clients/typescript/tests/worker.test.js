// Workers and a real server.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { ApiError, App, Client, Discard, JsonText, Retry, Snooze, Throttled } from "../dist/index.js";
import { aborted, defer, deferred, Log, Server } from "./server.js";

let server;
let client;

before(async () => {
  server = await Server.start();
  client = new Client(server.url);
});

after(() => server.close());

let queues = 0;

/** Starts a worker of a queue of its own. Its handlers may settle `done`. */
async function working(t, handlers, options = {}) {
  queues += 1;
  const queue = `queue-${queues}`;
  const log = new Log();
  const times = { lease: 6, grace: 1, cancelWait: 0.5 };
  const app = new App(server.url, { queues: { [queue]: 4 }, logger: log, ...times, ...options });
  for (const [type, [handler, more]] of Object.entries(handlers)) {
    app.job(type, handler, more);
  }
  const worker = await app.start();
  defer(t, () => worker.stop());
  const put = (type, payload, more) => client.enqueue(type, payload, { queue, ...more });
  return { app, worker, queue, log, put };
}

/** Waits until the store has a job in this state, by asking it. */
async function reaches(id, state) {
  for (;;) {
    const job = await server.job(id);
    if (job?.state === state) {
      return job;
    }
    assert.ok(!["done", "dlq", "cancelled"].includes(job?.state), `${id} is ${job?.state}: ${job?.last_error}`);
  }
}

test("a job runs with all that was enqueued, and its output is kept", async (t) => {
  const seen = deferred();
  const { put, queue } = await working(t, {
    "email:send": [
      (job) => {
        const { signal, ...rest } = { ...job, payload: job.payload };
        seen.resolve({ ...rest, isAborted: signal.aborted });
        return { sent: job.payload.to };
      },
    ],
  });
  const before = Date.now();
  const options = { headers: { trace: "é" }, priority: 4, lane: "acme" };
  const { id, existed } = await put("email:send", { to: "zoë@😀", list: [1.5, null] }, options);
  const job = await seen.promise;
  assert.equal(existed, false);
  assert.ok(Math.abs(job.createdAt.getTime() - before) < 60_000);
  assert.deepEqual(
    { ...job, createdAt: undefined },
    {
      id,
      type: "email:send",
      queue,
      payload: { to: "zoë@😀", list: [1.5, null] },
      payloadText: '{"to":"zoë@😀","list":[1.5,null]}',
      headers: { trace: "é" },
      attempt: 1,
      maxAttempts: 20,
      deliveries: 1,
      lane: "acme",
      priority: 4,
      createdAt: undefined,
      timeout: undefined,
      lastError: undefined,
      hasInputs: false,
      isAborted: false,
    },
  );
  await reaches(id, "done");
});

test("many jobs run, each once", async (t) => {
  const seen = new Map();
  const all = deferred();
  let runs = 0;
  const handler = async ({ payload }) => {
    seen.set(payload, (seen.get(payload) ?? 0) + 1);
    runs += 1;
    if (runs === 600) {
      all.resolve();
    }
  };
  const { queue, worker } = await working(t, { count: [handler] });
  const jobs = Array.from({ length: 600 }, (_, at) => ({ type: "count", payload: at, queue }));
  const stored = await client.enqueueMany(jobs);
  assert.equal(new Set(stored.map(({ id }) => id)).size, 600);
  await all.promise;
  await worker.stop();
  assert.deepEqual([seen.size, runs], [600, 600]);
  const [{ state }] = await server.command("inspect", stored[599].id);
  assert.equal(state, "done");
});

test("a key keeps a second job from being stored", async (t) => {
  const { put } = await working(t, { once: [() => 1] });
  const first = await put("once", 1, { idempotencyKey: "k", delay: 60 });
  const second = await put("once", 2, { idempotencyKey: "k", delay: 60 });
  assert.deepEqual(second, { id: first.id, existed: true });
  assert.deepEqual(await put("once", 3, { id: first.id }), { id: first.id, existed: true });
});

test("a failure is retried, and the next attempt knows of it", async (t) => {
  const seen = deferred();
  const { put, log } = await working(t, {
    flaky: [
      (job) => {
        if (job.attempt < 3) {
          throw new Retry(`attempt ${job.attempt} of ${job.maxAttempts}`, { after: 0 });
        }
        seen.resolve([job.attempt, job.deliveries, job.lastError]);
      },
      { maxAttempts: 5 },
    ],
  });
  await put("flaky");
  assert.deepEqual(await seen.promise, [3, 3, "attempt 2 of 5"]);
  await log.find(/job .* \(flaky\) has failed: Retry: attempt 1 of 5/);
});

test("the delays after failures are those of the worker", async (t) => {
  const seen = deferred();
  const handler = (job) => {
    if (job.attempt < 3) {
      throw new Error("not yet");
    }
    seen.resolve(job.attempt);
  };
  const backoff = { base: 0.01, cap: 0.02, multiplier: 1, jitter: 0 };
  const { put } = await working(t, { patient: [handler] }, { backoff });
  await put("patient");
  assert.equal(await seen.promise, 3);
});

test("the last attempt that fails ends in the DLQ with its error", async (t) => {
  const handler = () => Promise.reject(new TypeError("no such thing"));
  const { put } = await working(t, { broken: [handler, { maxAttempts: 1 }] });
  const { id } = await put("broken");
  const job = await reaches(id, "dlq");
  assert.match(JSON.stringify(job), /TypeError: no such thing/);
});

test("a job that is discarded is not tried again", async (t) => {
  let runs = 0;
  const { put } = await working(t, {
    hopeless: [
      () => {
        runs += 1;
        throw new Discard("the account is gone");
      },
    ],
  });
  const { id } = await put("hopeless");
  assert.match(JSON.stringify(await reaches(id, "dlq")), /the account is gone/);
  assert.equal(runs, 1);
});

test("a job that is snoozed or throttled runs again, and no attempt is charged", async (t) => {
  const seen = [deferred(), deferred()];
  const later = (at, error) => (job) => {
    if (job.deliveries === 1) {
      throw error;
    }
    seen[at].resolve([job.attempt, job.deliveries]);
  };
  const { put } = await working(t, { early: [later(0, new Snooze(0.05))], fast: [later(1, new Throttled(0.05))] });
  await put("early");
  await put("fast", null, { lane: "api" });
  assert.deepEqual(await seen[0].promise, [1, 2]);
  assert.deepEqual(await seen[1].promise, [1, 2]);
});

test("an attempt that takes too long has failed, and its signal is aborted", async (t) => {
  const told = deferred();
  const { put } = await working(t, {
    slow: [
      async (job) => {
        told.resolve([job.timeout, await aborted(job.signal)]);
        return "too late";
      },
      { timeout: 0.2, maxAttempts: 1 },
    ],
  });
  const { id } = await put("slow");
  assert.deepEqual(await told.promise, [0.2, "timeout"]);
  assert.match(JSON.stringify(await reaches(id, "dlq")), /timed out/);
});

test("a job whose cancellation is requested stops", async (t) => {
  const [begun, told] = [deferred(), deferred()];
  const { put } = await working(
    t,
    {
      long: [
        async (job) => {
          begun.resolve();
          told.resolve(await aborted(job.signal));
          throw job.signal.reason;
        },
      ],
    },
    { lease: 1 },
  );
  const { id } = await put("long");
  await begun.promise;
  await server.command("cancel", id);
  assert.equal(await told.promise, "requested");
  await reaches(id, "cancelled");
});

test("progress is stored while the job runs", async (t) => {
  const gate = deferred();
  const { put } = await working(t, {
    import: [
      async (job) => {
        job.progress("row 7 of 9");
        await gate.promise;
      },
    ],
  });
  const { id } = await put("import");
  for (let text = ""; !text.includes("row 7 of 9"); text = JSON.stringify(await server.job(id)));
  gate.resolve();
  await reaches(id, "done");
});

test("a step of a flow reads what the steps before it have produced", async (t) => {
  const read = deferred();
  const { queue } = await working(t, {
    pick: [() => new JsonText('{"n":12345678901234567890}')],
    sum: [
      async (job) => {
        const { value, text, failure } = await job.inputs();
        read.resolve([job.hasInputs, typeof value.n, text, failure]);
        return "summed";
      },
    ],
  });
  const printed = await server.flow([
    { id: "pick", type: "pick", queue },
    { id: "sum", type: "sum", queue, after: ["pick"] },
  ]);
  assert.deepEqual(await read.promise, [true, "number", '{"n":12345678901234567890}', undefined]);
  assert.match(printed, /"summed"/);
});

test("a step reads the failure of the step before it", async (t) => {
  const read = deferred();
  const { queue } = await working(t, {
    fail: [() => Promise.reject(new Discard("no such file"))],
    after: [async (job) => read.resolve(await job.inputs())],
  });
  await server.flow([
    { id: "fail", type: "fail", queue, on_failure: "continue" },
    { id: "after", type: "after", queue, after: ["fail"] },
  ]);
  const { value, failure } = await read.promise;
  assert.equal(value ?? null, null);
  assert.deepEqual(failure, { state: "dlq", reason: "no such file" });
});

test("bytes come as they were sent", async (t) => {
  const seen = deferred();
  const bytes = Uint8Array.from({ length: 100_000 }, (_, at) => (at * 7) % 256);
  const { put } = await working(t, { blob: [(job) => seen.resolve([job.payload, job.payloadText, job.payloadBytes])] });
  await put("blob", bytes);
  const [payload, text, again] = await seen.promise;
  assert.deepEqual(payload, bytes);
  assert.equal(text, undefined);
  assert.deepEqual(again, bytes);
});

test("integers beyond 2^53 survive as text, to the handler and in the output", async (t) => {
  const text = '{"amount": 98765432109876543210, "rate":1.10}';
  const [seen, read] = [deferred(), deferred()];
  const { put, queue } = await working(t, {
    book: [(job) => seen.resolve(job.payloadText)],
    make: [() => new JsonText(text)],
    read: [async (job) => read.resolve((await job.inputs()).text)],
  });
  await put("book", new JsonText(text));
  assert.equal(await seen.promise, text);
  await server.flow([
    { id: "make", type: "make", queue },
    { id: "read", type: "read", queue, after: ["make"] },
  ]);
  assert.equal(await read.promise, text);
});

test("a large payload and a large output go through", async (t) => {
  const text = "é😀".repeat(150_000);
  const read = deferred();
  const { queue } = await working(t, {
    echo: [(job) => job.payload],
    read: [async (job) => read.resolve((await job.inputs()).value)],
  });
  await server.flow([
    { id: "echo", type: "echo", queue, payload: text },
    { id: "read", type: "read", queue, after: ["echo"] },
  ]);
  assert.equal(await read.promise, text);
});

test("no more handlers run at once than the queue has slots", async (t) => {
  let [running, most, ended] = [0, 0, 0];
  const all = deferred();
  const gate = deferred();
  const { queue } = await working(t, {
    narrow: [
      async () => {
        running += 1;
        most = Math.max(most, running);
        if (running === 4) {
          gate.resolve();
        }
        await gate.promise;
        await new Promise(setImmediate);
        running -= 1;
        ended += 1;
        if (ended === 40) {
          all.resolve();
        }
      },
    ],
  });
  await client.enqueueMany(Array.from({ length: 40 }, () => ({ type: "narrow", queue })));
  await all.promise;
  assert.equal(most, 4);
});

test("a worker announces itself while it works, and no longer", async (t) => {
  const { worker } = await working(t, { any: [() => 1] }, { name: "announced-1", version: "v7" });
  const shown = JSON.stringify(await server.command("workers"));
  assert.match(shown, /announced-1/);
  await worker.stop();
  assert.doesNotMatch(JSON.stringify(await server.command("workers")), /announced-1/);
});

test("a job that is refused says why", async () => {
  await assert.rejects(client.enqueue("", null, { queue: "q" }), ApiError);
  await assert.rejects(client.enqueue("ok", null, { queue: "" }), ApiError);
  await assert.rejects(client.enqueue("ok", null, { delay: -1 }), /delay_seconds/);
});
