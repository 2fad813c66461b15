// A worker and a server in trouble: leases that end, waits that are cut off.

import assert from "node:assert/strict";
import { once } from "node:events";
import { test } from "node:test";

import { granted } from "./fake.js";
import { LIMIT, settled, working } from "./rig.js";
import { aborted, deferred } from "./server.js";

test("a lease is extended while its handler runs, and used as it is then", async (t) => {
  const gate = deferred();
  const extend = ({ jobs }) => {
    gate.resolve();
    return { jobs: jobs.map(({ lease }) => ({ lease: `${lease}+` })) };
  };
  const settle = ({ jobs }) => {
    const lost = { error: { code: "lease_lost", message: "an old lease" } };
    return { jobs: jobs.map(({ lease }) => (lease === "lease-1+" ? { state: "done" } : lost)) };
  };
  const { server, worker, log } = await working(t, {
    jobs: [granted({ id: "a" })],
    answers: { extend, settle },
    options: { lease: 1 },
    handlers: {
      test: async (job) => {
        job.progress("half \ud800");
        await gate.promise;
      },
    },
  });
  const [{ body }] = await server.made("extend");
  assert.deepEqual(body, {
    lease_seconds: 1,
    leaving: false,
    jobs: [{ id: "a", lease: "lease-1", progress: "half \ufffd" }],
  });
  // The handler ends before the worker knows the new lease.
  await server.made("settle", 2);
  await worker.stop();
  assert.equal(server.calls.findLast(({ name }) => name === "settle").body.jobs[0].lease, "lease-1+");
  assert.deepEqual(log.messages.filter((message) => /is lost/.test(message)), []);
});

for (const [how, said] of [
  ["fails", { status: 503, raw: "" }],
  ["is busy", { jobs: [{ error: { code: "busy", message: "busy" } }] }],
]) {
  test(`a lease is extended after a slow call of the settler that ${how}`, LIMIT, async (t) => {
    let [isExtended, isSlow] = [false, true];
    const extend = ({ jobs }) => {
      isExtended = true;
      return { jobs: jobs.map(() => ({})) };
    };
    const settle = async () => {
      if (isSlow) {
        isSlow = false;
        // Longer than the time after which a lease is extended.
        await new Promise((resolve) => setTimeout(resolve, 600));
      }
      return isExtended ? { jobs: [{ state: "done" }] } : said;
    };
    const { server, worker, log } = await working(t, {
      jobs: [granted({ id: "a" })],
      answers: { extend, settle },
      options: { lease: 1.5 },
      handlers: { test: () => 1 },
    });
    await server.made("extend");
    await worker.stop();
    assert.deepEqual(log.messages.filter((message) => /is lost/.test(message)), []);
  });
}

test("a lease that is lost stops its handler, and nothing is recorded", async (t) => {
  const error = { code: "lease_lost", message: "another has it" };
  const extend = ({ jobs }) => ({ jobs: jobs.map(() => ({ error })) });
  const told = deferred();
  const { server, worker, log } = await working(t, {
    jobs: [granted({ id: "a" })],
    answers: { extend },
    options: { lease: 1 },
    handlers: { test: async (job) => told.resolve(await aborted(job.signal)) },
  });
  assert.equal(await told.promise, "lease_lost");
  await worker.stop();
  await log.find(/the lease of job a \(test\) is lost: another has it/);
  assert.equal(server.calls.filter(({ name }) => name === "settle").length, 0);
});

test("a handler stops before its lease ends if the server does not answer", async (t) => {
  const told = deferred();
  const { server, worker } = await working(t, {
    jobs: [granted({ id: "a" })],
    answers: { extend: (body, request, response) => void response.destroy() },
    options: { lease: 1 },
    handlers: {
      test: async (job) => {
        const began = performance.now();
        told.resolve([await aborted(job.signal), performance.now() - began]);
      },
    },
  });
  const [reason, after] = await told.promise;
  assert.equal(reason, "lease_lost");
  assert.ok(after < 1_000, `it was told after ${after} ms`);
  await worker.stop();
  assert.equal(server.calls.filter(({ name }) => name === "settle").length, 0);
});

test("a job may stop because the server says so: cancelled or out of time", async (t) => {
  for (const [cancel, reason, outcome] of [
    ["requested", "requested", { release: { reason: "requested" } }],
    ["timeout", "timeout", { timeout: {} }],
  ]) {
    const told = deferred();
    const { server } = await working(t, {
      jobs: [granted({ id: "a" })],
      answers: { extend: ({ jobs }) => ({ jobs: jobs.map(() => ({ cancel })) }) },
      options: { lease: 1 },
      handlers: {
        test: async (job) => {
          told.resolve(await aborted(job.signal));
          throw job.signal.reason;
        },
      },
    });
    assert.equal(await told.promise, reason);
    const [{ body }] = await server.made("settle");
    assert.deepEqual(body.jobs, [{ id: "a", lease: "lease-1", ...outcome }]);
  }
});

test("jobs that are on their way when the worker shuts down are released unstarted", async (t) => {
  const [asked, ended] = [deferred(), deferred()];
  let count = 0;
  const reserve = async (body, request, response) => {
    count += 1;
    if (count === 1) {
      // The worker says that it sends no more. It has been granted a job at that moment.
      server.keepHalfOpen();
      asked.resolve();
      await once(request.socket, "end");
      ended.resolve();
      return { jobs: [granted({ id: "late" })], granted_after_ms: 0 };
    }
    return void response.destroy();
  };
  let runs = 0;
  const handlers = { test: () => (runs += 1) };
  const { server, worker } = await working(t, { jobs: [], answers: { reserve }, handlers });
  await asked.promise;
  const stopped = worker.stop();
  await ended.promise;
  await stopped;
  const [{ body }] = await server.made("settle");
  assert.deepEqual(body.jobs, [{ id: "late", lease: "lease-1", release: { reason: "unstarted" } }]);
  assert.equal(runs, 0);
});

test("a server that does not notice the end of a wait does not hold up the shutdown", async (t) => {
  const asked = deferred();
  const reserve = () => {
    server.keepHalfOpen();
    asked.resolve();
  };
  const { server, worker } = await working(t, {
    jobs: [],
    answers: { reserve },
    options: { grace: 20 },
    handlers: { test: () => 1 },
  });
  await asked.promise;
  const began = performance.now();
  await worker.stop();
  assert.ok(performance.now() - began < 5_000);
});

test("a server that keeps no connection does not hold up the shutdown", LIMIT, async (t) => {
  const [asked, closed] = [deferred(), deferred()];
  let count = 0;
  const reserve = (body, request, response) => {
    count += 1;
    if (count > 1) {
      return asked.resolve();
    }
    request.socket.on("close", closed.resolve);
    response.setHeader("connection", "close");
    return { jobs: [], granted_after_ms: 0 };
  };
  const { worker } = await working(t, {
    jobs: [],
    answers: { reserve },
    options: { grace: 15 },
    handlers: { test: () => 1 },
  });
  await Promise.all([asked.promise, closed.promise]);
  const began = performance.now();
  await worker.stop();
  assert.ok(performance.now() - began < 1_000);
});

test("leases are marked when the worker shuts down, and a handler that goes on is released", async (t) => {
  const gate = deferred();
  const began = deferred();
  const { server, worker } = await working(t, {
    jobs: [granted({ id: "a" })],
    options: { grace: 0, cancelWait: 0.2 },
    handlers: {
      test: () => {
        began.resolve();
        return gate.promise;
      },
    },
  });
  await began.promise;
  await worker.stop();
  assert.equal(worker.running, 1);
  const [{ body }] = await server.made("extend");
  assert.equal(body.leaving, true);
  const [settle] = await server.made("settle");
  assert.deepEqual(settle.body.jobs, [{ id: "a", lease: "lease-1", release: { reason: "shutdown" } }]);
  gate.resolve();
  const announced = server.calls.filter(({ name }) => name === "announce").at(-1).body;
  assert.deepEqual([announced.valid_seconds, announced.info.phase], [0, "ended"]);
});

for (const [how, said] of [
  ["fails", { status: 503, raw: "" }],
  ["is busy", { jobs: [{ error: { code: "busy", message: "busy" } }] }],
]) {
  test(`leases are marked again when the call ${how}`, LIMIT, async (t) => {
    const [began, gate] = [deferred(), deferred()];
    const times = [];
    const extend = () => {
      times.push(performance.now());
      return times.length === 1 ? said : { jobs: [{}] };
    };
    const { server, worker } = await working(t, {
      jobs: [granted({ id: "a" })],
      answers: { extend },
      options: { grace: 10 },
      handlers: {
        test: () => {
          began.resolve();
          return gate.promise;
        },
      },
    });
    await began.promise;
    const stopped = worker.stop();
    const calls = await server.made("extend", 2);
    gate.resolve();
    await stopped;
    assert.deepEqual(calls.map(({ body }) => body.leaving), [true, true]);
    assert.ok(times[1] - times[0] > 50, `it was sent again after ${times[1] - times[0]} ms`);
  });
}

test("calls that are not answered end with the worker", async (t) => {
  const [asked, cut] = [deferred(), deferred()];
  const settle = (body, request, response) => {
    asked.resolve();
    response.on("close", cut.resolve);
  };
  const { worker, log } = await working(t, {
    jobs: [granted({ id: "a" })],
    answers: { settle },
    options: { grace: 0, cancelWait: 0 },
    handlers: { test: () => 1 },
  });
  await asked.promise;
  const began = performance.now();
  await worker.stop();
  await cut.promise;
  assert.ok(performance.now() - began < 6_000);
  await log.find(/1 jobs were left: they come back when their leases end/);
});

test("nothing is reserved beside a job that may have killed its worker", async (t) => {
  const gate = deferred();
  const began = deferred();
  const handler = () => {
    began.resolve();
    return gate.promise;
  };
  const { server } = await working(t, {
    jobs: [granted({ id: "a", alone_seconds: 600 })],
    handlers: { test: handler },
  });
  await began.promise;
  await new Promise(setImmediate);
  assert.equal(server.calls.filter(({ name }) => name === "reserve").length, 1);
  gate.resolve();
  await server.made("reserve", 2);
});

test("a job of another queue that is on its way is released while a job runs alone", LIMIT, async (t) => {
  const [asked, began, gate] = [deferred(), deferred(), deferred()];
  const order = [];
  const counts = { suspect: 0, other: 0 };
  const reserve = async ({ queues }) => {
    const [queue] = Object.keys(queues);
    counts[queue] += 1;
    if (counts[queue] > 1) {
      return undefined;
    }
    if (queue === "suspect") {
      await asked.promise;
      return { jobs: [granted({ id: "a", queue, alone_seconds: 600 })], granted_after_ms: 0 };
    }
    asked.resolve();
    await began.promise;
    return { jobs: [granted({ id: "b", queue })], granted_after_ms: 1_000 };
  };
  const { server } = await working(t, {
    jobs: [],
    answers: { reserve },
    options: { queues: { suspect: 1, other: 1 } },
    handlers: {
      test: async (job) => {
        order.push(job.id);
        began.resolve();
        await gate.promise;
      },
    },
  });
  const [{ body }] = await server.made("settle");
  assert.deepEqual(body.jobs, [{ id: "b", lease: "lease-1", release: { reason: "unstarted" } }]);
  gate.resolve();
  await server.made("settle", 2);
  assert.deepEqual(order, ["a"]);
});

test("handlers that compute for long let leases be extended in between", async (t) => {
  const jobs = Array.from({ length: 6 }, (_, at) => granted({ id: `job-${at}` }));
  const order = [];
  const handler = (job) => {
    const end = performance.now() + 200;
    while (performance.now() < end);
    order.push(job.id);
  };
  const extend = ({ jobs }) => {
    order.push("extend");
    return { jobs: jobs.map(() => ({})) };
  };
  const { server, log } = await working(t, {
    jobs,
    answers: { extend },
    options: { lease: 1.5 },
    handlers: { test: handler },
  });
  while (settled(server.calls.filter(({ name }) => name === "settle")).length < 6) {
    await new Promise(setImmediate);
  }
  assert.ok(order.indexOf("extend") < 5, order.join());
  assert.deepEqual(log.messages.filter((message) => /lost/.test(message)), []);
});

test("invalid answers are an outage, and do not end the worker", async (t) => {
  let count = 0;
  const reserve = () => {
    count += 1;
    return count < 4 ? { raw: ["<html>", "{}", '{"jobs":7}'][count - 1] } : undefined;
  };
  const { log } = await working(t, { jobs: [], answers: { reserve }, handlers: { test: () => 1 } });
  while (count < 4) {
    await new Promise(setImmediate);
  }
  await log.find(/no jobs can be reserved from default: the answer is not/);
});

test("an integer beyond 2^53 is exact in the text of the payload", async (t) => {
  const read = deferred();
  const reserve = () => {
    const job = JSON.stringify(granted({ id: "a" })).replace('"payload":null', '"payload":{"n":12345678901234567890}');
    return { raw: `{"jobs":[${job}],"granted_after_ms":0}` };
  };
  const handler = (job) => read.resolve([job.payloadText, new TextDecoder().decode(job.payloadBytes)]);
  const options = { queues: { default: 1 } };
  await working(t, { jobs: [], answers: { reserve }, options, handlers: { test: handler } });
  assert.deepEqual(await read.promise, ['{"n":12345678901234567890}', '{"n":12345678901234567890}']);
});
