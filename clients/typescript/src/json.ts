/**
 * JSON whose values are kept as texts.
 *
 * `JSON.parse` rounds integers beyond 2^53, and `JSON.stringify` writes NaN as `null`. So payloads and outputs
 * travel as the texts that they are, and what cannot be written as JSON is refused.
 */

import { TaskHarborError } from "./error.js";

/**
 * JSON that is passed on as it is written, as a payload or an output.
 *
 * It carries what a JavaScript value cannot: integers beyond 2^53, or the order and form that a signature
 * covers.
 *
 * ```ts
 * await client.enqueue("invoice:book", new JsonText('{"amount":12345678901234567890}'));
 * ```
 */
export class JsonText {
  /** The JSON. */
  readonly text: string;

  /** Throws {@link TaskHarborError} if the text is not JSON. */
  constructor(text: string) {
    try {
      JSON.parse(text);
    } catch (error) {
      throw new TaskHarborError(`the text is not JSON: ${(error as Error).message}`, { cause: error });
    }
    this.text = text;
  }
}

/** A value as JSON. Throws {@link TaskHarborError} for values that JSON cannot express. */
export function written(value: unknown, what: string): string {
  if (value instanceof JsonText) {
    return value.text;
  }
  let text: string | undefined;
  try {
    text = JSON.stringify(value);
    // Only then can a number be among it that JSON does not have; looking at each value takes longer.
    if (text?.includes("null") === true) {
      JSON.stringify(value, finite);
    }
  } catch (error) {
    const advice = error instanceof TypeError && error.message.includes("BigInt") ? ": use a string or JsonText" : "";
    const reason = error instanceof Error ? error.message : String(error);
    throw new TaskHarborError(`the ${what} cannot be written as JSON: ${reason}${advice}`, { cause: error });
  }
  if (text === undefined) {
    throw new TaskHarborError(`the ${what} cannot be written as JSON: it is a ${typeof value}`);
  }
  return text;
}

function finite(key: string, value: unknown): unknown {
  if (typeof value === "number" && !Number.isFinite(value)) {
    throw new RangeError(`${key === "" ? "the value" : JSON.stringify(key)} is ${value}`);
  }
  return value;
}

/** JSON, and the texts of some of its values. */
export interface Picked {
  /** The document. In the place of each picked value is its index in `texts`. */
  document: string;
  /** The picked values as they are written. */
  texts: string[];
}

const MARK = /["{}[\]]/g;
const NUMBER_END = /[\s,}\]]/g;

/** Picks the values of the members of this name, of all objects at this depth; the outermost has depth 1. */
export function picked(text: string, name: string, depth: number): Picked {
  const key = JSON.stringify(name);
  const [parts, texts]: [string[], string[]] = [[], []];
  let [from, level, at] = [0, 0, next(text, MARK, 0)];
  while (at < text.length) {
    const mark = text[at];
    if (mark !== '"') {
      level += mark === "{" || mark === "[" ? 1 : -1;
      at = next(text, MARK, at + 1);
      continue;
    }
    let end = stringEnd(text, at);
    const colon = notBlank(text, end);
    if (level === depth && text[colon] === ":" && text.slice(at, end) === key) {
      const start = notBlank(text, colon + 1);
      end = valueEnd(text, start);
      parts.push(text.slice(from, start), String(texts.length));
      texts.push(text.slice(start, end));
      from = end;
    }
    at = next(text, MARK, end);
  }
  parts.push(text.slice(from));
  return { document: parts.join(""), texts };
}

function next(text: string, pattern: RegExp, from: number): number {
  pattern.lastIndex = from;
  return pattern.exec(text)?.index ?? text.length;
}

function notBlank(text: string, from: number): number {
  let at = from;
  while (at < text.length && " \t\r\n".includes(text[at] as string)) {
    at += 1;
  }
  return at;
}

/** Where a string ends that begins here. */
function stringEnd(text: string, start: number): number {
  for (let at = start; ; ) {
    at = text.indexOf('"', at + 1);
    if (at === -1) {
      return text.length;
    }
    let slashes = 0;
    while (text[at - 1 - slashes] === "\\") {
      slashes += 1;
    }
    if (slashes % 2 === 0) {
      return at + 1;
    }
  }
}

/** Where a value ends that begins here. */
function valueEnd(text: string, start: number): number {
  const first = text[start];
  if (first === '"') {
    return stringEnd(text, start);
  }
  if (first !== "{" && first !== "[") {
    return next(text, NUMBER_END, start);
  }
  let level = 0;
  for (let at = start; at < text.length; ) {
    const mark = text[at];
    if (mark === '"') {
      at = next(text, MARK, stringEnd(text, at));
      continue;
    }
    level += mark === "{" || mark === "[" ? 1 : -1;
    if (level === 0) {
      return at + 1;
    }
    at = next(text, MARK, at + 1);
  }
  return text.length;
}

/** A text that is valid Unicode and has at most so many characters; the server takes no other. */
export function wellFormed(text: string, longest: number): string {
  return text.slice(0, longest).replace(/\p{Surrogate}/gu, "\ufffd");
}
