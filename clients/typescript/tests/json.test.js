// JSON whose values are kept as texts.

import assert from "node:assert/strict";
import { test } from "node:test";

import { JsonText, TaskHarborError } from "../dist/index.js";
import { picked, wellFormed, written } from "../dist/json.js";

test("a picked value is the text that was written", () => {
  const big = '{"n": 12345678901234567890, "s": "a\\"}]", "f":1.0}';
  const text = `{"jobs":[{"id":"a","payload": ${big} ,"n":1},{"payload":7}],"x":{}}`;
  const { document, texts } = picked(text, "payload", 3);
  assert.deepEqual(texts, [big, "7"]);
  assert.deepEqual(JSON.parse(document), { jobs: [{ id: "a", payload: 0, n: 1 }, { payload: 1 }], x: {} });
});

test("only members of the depth are picked, and no strings that look like them", () => {
  const text = '{"payload":1,"jobs":[{"headers":{"payload":"x"},"type":"payload","payload":{"payload":[2]}}]}';
  const { document, texts } = picked(text, "payload", 3);
  assert.deepEqual(texts, ['{"payload":[2]}']);
  assert.deepEqual(JSON.parse(document).jobs, [{ headers: { payload: "x" }, type: "payload", payload: 0 }]);
});

test("each kind of value is picked whole", () => {
  const values = ['"a\\\\"', '"\\\\\\"}"', "null", "-1.5e+9", "[]", "{}", '[{"a":"]"},[1]]', "true", '""'];
  for (const value of values) {
    for (const end of ["}", " }", ',"b":1}', "\n}"]) {
      assert.deepEqual(picked(`{"input":${value}${end}`, "input", 1).texts, [value], value + end);
    }
  }
});

test("what is cut off is no document, and ends", () => {
  const text = '{"jobs":[{"payload":{"a":"b\\"c","d":[1,2]},"id":"x"}]}';
  for (let end = 0; end < text.length; end += 1) {
    const { document } = picked(text.slice(0, end), "payload", 3);
    assert.throws(() => JSON.parse(document), SyntaxError);
  }
});

test("what JSON cannot express is refused, and not stored as something else", () => {
  const circle = {};
  circle.self = circle;
  for (const value of [NaN, { a: [Infinity] }, 10n, circle, undefined, () => 1, Symbol("s")]) {
    assert.throws(() => written(value, "payload"), TaskHarborError);
  }
  assert.throws(() => written({ n: 10n }, "payload"), /BigInt.*use a string or JsonText/);
  assert.throws(() => written({ rate: NaN }, "output"), /the output cannot be written as JSON: "rate" is NaN/);
  assert.equal(written({ a: null, b: "null", c: undefined }, "payload"), '{"a":null,"b":"null"}');
});

test("a text of JSON is passed on as it is", () => {
  assert.equal(written(new JsonText('{"n": 12345678901234567890}'), "payload"), '{"n": 12345678901234567890}');
  assert.throws(() => new JsonText("{"), TaskHarborError);
});

test("messages become valid Unicode", () => {
  assert.equal(wellFormed("a\ud800b", 10), "a\ufffdb");
  assert.equal(wellFormed("abc😀", 4), "abc\ufffd");
  assert.equal(wellFormed("😀", 10), "😀");
});
