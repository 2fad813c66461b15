// From what a handler returned or threw to what is recorded.

import assert from "node:assert/strict";
import { test } from "node:test";

import { Discard, JsonText, Retry, Snooze, Stopped, Throttled } from "../dist/index.js";
import { failure, success } from "../dist/outcome.js";

const read = ({ kind, json }) => ({ [kind]: JSON.parse(json) });

test("what a handler returns is the output", () => {
  assert.deepEqual(read(success(undefined)), { ok: {} });
  assert.deepEqual(read(success(null)), { ok: { output: null } });
  assert.deepEqual(read(success({ a: [1, "é"] })), { ok: { output: { a: [1, "é"] } } });
  assert.deepEqual(read(success(new Uint8Array([0, 255]))), { ok: { output_base64: "AP8=" } });
  assert.equal(success(new JsonText("12345678901234567890")).json, '{"output":12345678901234567890}');
});

test("an output is what it was when the handler returned", () => {
  const output = { count: 1 };
  const outcome = success(output);
  output.count = 2;
  assert.deepEqual(read(outcome), { ok: { output: { count: 1 } } });
});

test("an output that is not JSON fails permanently", () => {
  for (const output of [NaN, 1n, () => 1]) {
    const { error } = read(success(output));
    assert.match(error.message, /^the output cannot be written as JSON/);
    assert.equal(error.retryable, false);
  }
});

test("errors are failures with their causes", () => {
  const error = new Error("no mail", { cause: new TypeError("no host", { cause: "down" }) });
  assert.deepEqual(read(failure(error, undefined)), { error: { message: "Error: no mail: TypeError: no host: down" } });
  error.cause.cause = error;
  assert.deepEqual(read(failure(error, undefined)), { error: { message: "Error: no mail: TypeError: no host" } });
});

test("anything can be thrown", () => {
  const odd = { toString: () => assert.fail(), toJSON: () => assert.fail() };
  const messages = [undefined, null, 0, "text", Symbol("s"), { code: 7 }, odd].map(
    (thrown) => read(failure(thrown, undefined)).error.message,
  );
  const texts = ["undefined was thrown", "null", "0", "text", "Symbol(s)", '{"code":7}', "a thrown object"];
  assert.deepEqual(messages, texts);
});

test("a long message is cut, and stays valid Unicode", () => {
  const { message } = read(failure(new Error(`${"x".repeat(8184)}😀`), undefined)).error;
  assert.equal(message.length, 8192);
  assert.equal(message.at(-1), "\ufffd");
});

test("a handler decides with an error about its job", () => {
  assert.deepEqual(read(failure(new Discard("no such user"), undefined)), {
    error: { message: "no such user", retryable: false },
  });
  assert.deepEqual(read(failure(new Retry("later", { after: 7 }), undefined)), {
    error: { message: "later", retry_after_seconds: 7 },
  });
  assert.deepEqual(read(failure(new Retry("later"), undefined)), { error: { message: "later" } });
  assert.deepEqual(read(failure(new Snooze(2), undefined)), { snooze: { seconds: 2 } });
  assert.deepEqual(read(failure(new Throttled(3), undefined)), { throttled: { seconds: 3 } });
  const wrong = [
    () => new Snooze(-1),
    () => new Throttled(NaN),
    () => new Throttled(86_401),
    () => new Retry("x", { after: Infinity }),
  ];
  for (const make of wrong) {
    assert.throws(make, RangeError);
  }
});

test("a handler that was told to stop has not failed", () => {
  const stopped = new Stopped("requested");
  assert.deepEqual(read(failure(stopped, "requested")), { release: { reason: "requested" } });
  assert.deepEqual(read(failure(new Error("aborted"), "shutdown")), { release: { reason: "shutdown" } });
  assert.deepEqual(read(failure(new Discard("never"), "shutdown")), { error: { message: "never", retryable: false } });
});
