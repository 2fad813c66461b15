// Enqueueing, against a server that answers as a test wants it.

import assert from "node:assert/strict";
import { test } from "node:test";

import { ApiError, App, Client, JobType, JsonText, TaskHarborError, Unavailable } from "../dist/index.js";
import { Fake } from "./fake.js";

async function fake(t, answers) {
  const started = await Fake.start(answers);
  t.after(() => started.close());
  return started;
}

test("a job is sent with what was given", async (t) => {
  const server = await fake(t);
  const client = new Client(`${server.url}/admin/jobs/`, { token: "secret", store: "eu west" });
  const runAt = new Date("2030-01-02T03:04:05Z");
  const bounds = { maxAttempts: 2, timeout: 1.5 };
  const options = { queue: "mail", idempotencyKey: "k", runAt, priority: 3, lane: "acme", ...bounds };
  const { id, existed } = await client.enqueue("email:send", { to: "é" }, { ...options, headers: { trace: "1" } });
  const [{ path, body, headers }] = server.calls;
  assert.equal(path, "/admin/jobs/v1/eu%20west/work/enqueue");
  assert.equal(headers.authorization, "Bearer secret");
  assert.equal(existed, false);
  assert.match(id, /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
  assert.deepEqual(body.jobs, [
    {
      type: "email:send",
      id,
      queue: "mail",
      idempotency_key: "k",
      run_at: "2030-01-02T03:04:05.000Z",
      priority: 3,
      lane: "acme",
      max_attempts: 2,
      timeout_seconds: 1.5,
      headers: { trace: "1" },
      payload: { to: "é" },
    },
  ]);
});

test("bytes, texts of JSON and nothing are payloads, too", async (t) => {
  const server = await fake(t);
  const client = new Client(server.url);
  await client.enqueue("t", new Uint8Array([1, 2, 255]));
  await client.enqueue("t", new JsonText("[12345678901234567890]"));
  await client.enqueue("t");
  const [bytes, text, none] = server.calls;
  assert.equal(bytes.body.jobs[0].payload_base64, "AQL/");
  assert.ok(!("payload" in bytes.body.jobs[0]));
  assert.ok(text.text.includes('"payload":[12345678901234567890]'));
  assert.equal(none.body.jobs[0].payload, null);
});

test("a type carries its queue to the client and to the app", async (t) => {
  const server = await fake(t);
  const type = new JobType("email:send", { queue: "mail" });
  await new Client(server.url).enqueue(type, {});
  await new Client(server.url).enqueue(type, {}, { queue: "other" });
  const app = new App(server.url, { queues: { mail: 1 } }).job("count", () => 1, { queue: "sums" });
  await app.enqueue("count");
  assert.deepEqual(
    server.calls.map(({ body }) => body.jobs[0].queue),
    ["mail", "other", "sums"],
  );
});

test("a call that got no answer is sent again, with the same ids", async (t) => {
  let failures = 0;
  const away = (body, request, response) => {
    failures += 1;
    if (failures === 1) {
      return { status: 503, raw: '{"title":"the store is away","code":"unavailable"}' };
    }
    if (failures === 2) {
      response.destroy();
      return undefined;
    }
    return { jobs: body.jobs.map(({ id }) => ({ id, existed: true })) };
  };
  const server = await fake(t, { enqueue: away });
  const { id, existed } = await new Client(server.url).enqueue("t");
  // The job was stored by this call.
  assert.equal(existed, false);
  assert.deepEqual(
    server.calls.map(({ body }) => body.jobs[0].id),
    [id, id, id],
  );
  assert.equal((await new Client(server.url).enqueue("t", null, { id: "mine" })).existed, true);
});

test("a job that was stored before is named", async (t) => {
  const server = await fake(t, { enqueue: ({ jobs }) => ({ jobs: jobs.map(() => ({ id: "first", existed: true })) }) });
  const jobs = [{ type: "t", idempotencyKey: "k" }, { type: "t", id: "first" }];
  const stored = await new Client(server.url).enqueueMany(jobs);
  assert.deepEqual(stored, [
    { id: "first", existed: true },
    { id: "first", existed: true },
  ]);
});

test("a server that stays away is unavailable after the timeout", async (t) => {
  const server = await fake(t, { enqueue: () => ({ status: 502, raw: "<html>bad gateway</html>" }) });
  const client = new Client(server.url, { timeout: 0.2 });
  await assert.rejects(client.enqueue("t"), (error) => error instanceof Unavailable && /502/.test(error.message));
  const silent = await fake(t, { enqueue: () => undefined });
  await assert.rejects(new Client(silent.url, { timeout: 0.2 }).enqueue("t"), /no answer within/);
});

test("what the server refuses is told with its reason, and not sent again", async (t) => {
  const problem = { title: "unauthorized", code: "unauthorized", detail: "the token is unknown" };
  const server = await fake(t, { enqueue: () => ({ status: 401, raw: JSON.stringify(problem) }) });
  await assert.rejects(new Client(server.url).enqueue("t"), (error) => {
    assert.ok(error instanceof ApiError);
    assert.equal(error.status, 401);
    assert.equal(error.code, "unauthorized");
    assert.equal(error.message, "unauthorized: the token is unknown (401 unauthorized)");
    return true;
  });
  assert.equal(server.calls.length, 1);
});

test("a job that is refused among many is named", async (t) => {
  const error = { code: "rejected", message: "too large" };
  const refuse = ({ jobs }) => ({
    jobs: jobs.map(({ id }, at) => (at === 1 ? { error } : { id, existed: false })),
  });
  const server = await fake(t, { enqueue: refuse });
  const jobs = [{ type: "a" }, { type: "b" }, { type: "c" }];
  await assert.rejects(new Client(server.url).enqueueMany(jobs), /job 1 of 3, from 0.*too large \(200 rejected\)/);
});

test("many jobs go in calls of a thousand, and large ones in smaller calls", async (t) => {
  const server = await fake(t);
  const client = new Client(server.url);
  const stored = await client.enqueueMany(Array.from({ length: 2_001 }, (_, at) => ({ type: "t", id: `job-${at}` })));
  assert.deepEqual(
    server.calls.map(({ body }) => body.jobs.length),
    [1_000, 1_000, 1],
  );
  assert.deepEqual([stored.length, stored[2_000].id], [2_001, "job-2000"]);
  server.calls.length = 0;
  await client.enqueueMany(Array.from({ length: 3 }, () => ({ type: "t", payload: "x".repeat(3_000_000) })));
  assert.equal(server.calls.length, 3);
  assert.deepEqual(await client.enqueueMany([]), []);
});

test("if one of many cannot be written, none is sent", async (t) => {
  const server = await fake(t);
  const jobs = [{ type: "a", payload: 1 }, { type: "b", payload: NaN }];
  await assert.rejects(new Client(server.url).enqueueMany(jobs), TaskHarborError);
  assert.equal(server.calls.length, 0);
});

test("an answer of another server is refused", async (t) => {
  for (const raw of ["<html>", "{}", '{"jobs":[]}', "null"]) {
    const server = await fake(t, { enqueue: () => ({ raw }) });
    await assert.rejects(new Client(server.url, { timeout: 0.05 }).enqueue("t"), Unavailable);
  }
});

test("a redirect is not followed: it could take the token elsewhere", async (t) => {
  const other = await fake(t);
  const redirect = (body, request, response) => response.writeHead(307, { location: other.url }).end() && undefined;
  const server = await fake(t, { enqueue: redirect });
  await assert.rejects(new Client(server.url, { token: "secret", timeout: 0.1 }).enqueue("t"), Unavailable);
  assert.equal(other.calls.length, 0);
});

test("invalid addresses and tokens are refused, and not shown", () => {
  for (const url of ["", "localhost", "localhost:7450", "ftp://secret@x", "http://", "//secret@x"]) {
    const isRefused = (error) => error instanceof TaskHarborError && !error.message.includes("secret");
    assert.throws(() => new Client(url), isRefused);
  }
  for (const token of ["", "secret\n", "se cret"]) {
    assert.throws(() => new Client("http://x", { token }), /^TaskHarborError: the token is invalid(?!.*cret)/);
  }
});

test("a token is an option, a parameter or a variable, in this order", async (t) => {
  const server = await fake(t);
  process.env.TASKHARBOR_TOKEN = "variable";
  t.after(() => delete process.env.TASKHARBOR_TOKEN);
  for (const [query, options, path, token] of [
    ["", {}, "/v1/default/work/enqueue", "variable"],
    ["?token=a%26b+c&store=eu%20west", {}, "/v1/eu%20west/work/enqueue", "a&b+c"],
    ["?store=eu&token=parameter", { store: "us", token: "option" }, "/v1/us/work/enqueue", "option"],
  ]) {
    await new Client(`${server.url}/${query}`, options).enqueue("t");
    const call = server.calls.at(-1);
    assert.deepEqual([call.path, call.headers.authorization], [path, `Bearer ${token}`]);
  }
});

test("unknown parameters of an address are refused", () => {
  for (const [query, pattern] of [
    ["tokn=secret", /unknown parameter `tokn` in the address of the server: use store or token$/],
    ["token=a&secret2=b", /write & = # % of a value as/],
    ["token=", /the parameter `token` in the address of the server is empty/],
    ["store", /the parameter `store` in the address of the server is empty/],
    ["token=a#secret", /remove the part from there on/],
    ["token=%zzsecret", /the address of the server is invalid/],
  ]) {
    const isRefused = (error) =>
      error instanceof TaskHarborError && pattern.test(error.message) && !error.message.includes("secret");
    assert.throws(() => new Client(`http://x/?${query}`), isRefused);
  }
});

test("invalid options of an app are refused with what to do", () => {
  const url = "http://127.0.0.1:7450";
  const queues = { mail: 1 };
  for (const [options, pattern] of [
    [{ queues: {} }, /no queue was added/],
    [{ queues: { mail: 0 } }, /queue mail has 0 slots: choose a whole number from 1/],
    [{ queues: { mail: 1.5 } }, /1\.5 slots/],
    [{ queues, lease: 0.5 }, /lease is 0\.5 s: choose 1 to 86400/],
    [{ queues, poll: 31 }, /poll is 31 s: choose 0 to 30/],
    [{ queues, grace: NaN }, /grace is NaN s/],
    [{ queues, timeout: 0 }, /timeout is 0/],
  ]) {
    assert.throws(() => new App(url, options), pattern);
  }
  const app = new App(url, { queues }).job("a", () => 1);
  assert.throws(() => app.job("a", () => 2), /job type a has a handler already/);
  assert.throws(() => app.job("b", () => 2, { maxAttempts: -1 }), /maxAttempts is -1/);
});

test("an app without handlers does not start", async () => {
  await assert.rejects(new App("http://127.0.0.1:1", { queues: { a: 1 } }).start(), /no handlers were registered/);
});
