/** Numbers, times and sizes as text. */

const SPANS = /** @type {const} */ ([["d", 86_400], ["h", 3_600], ["min", 60], ["s", 1]]);

/** @param {number} number @param {Intl.NumberFormatOptions} [options] */
const local = (number, options) => number.toLocaleString(navigator.language, options);

/** @param {number | null | undefined} number */
export const count = (number) => (number === null || number === undefined ? "–" : local(number));

/**
 * How many jobs of these queues are in a state. Where counting stopped at its bound, the number is that
 * bound, and means at least, or an older exact count, and means about.
 * @param {import("../api").Overview} overview
 * @param {import("../api").QueueOverview[]} queues
 * @param {import("../api").JobState} state
 */
export function stateCount({ at_most }, queues, state) {
  const number = queues.reduce((sum, queue) => sum + queue[state], 0);
  const estimated = queues.filter((queue) => queue.estimated.includes(state));
  if (estimated.some((queue) => queue[state] <= at_most)) return `${local(number)}+`;
  return estimated.length ? `≈ ${local(number)}` : local(number);
}

/** @param {number} number @param {string} noun */
export const counted = (number, noun) => `${local(number)} ${noun}${number === 1 ? "" : "s"}`;

/** A count in four characters. @param {number} number */
export const short = (number) =>
  number < 1e4 ? local(number) : local(number, { notation: "compact", maximumFractionDigits: 1 });

/** Jobs per second. @param {number | null | undefined} number */
export function rate(number) {
  if (number === null || number === undefined) return "–";
  if (number === 0) return "0";
  return number < 10 ? local(number, { maximumFractionDigits: number < 0.1 ? 2 : 1 }) : short(Math.round(number));
}

/** A duration in its two largest units. @param {number} ms */
export function span(ms) {
  const seconds = Math.max(0, ms) / 1000;
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 10) return `${local(seconds, { maximumFractionDigits: 1 })} s`;
  let left = Math.round(seconds);
  const parts = [];
  for (const [unit, size] of SPANS) {
    if (left >= size && parts.length < 2) parts.push(`${Math.floor(left / size)} ${unit}`);
    else if (parts.length) break;
    left %= size;
  }
  return parts.join(" ");
}

/** A duration on an axis or in a narrow cell. @param {number | null | undefined} ms */
export function millis(ms) {
  if (ms === null || ms === undefined) return "–";
  return ms < 1000 ? `${Math.round(ms)} ms` : span(ms);
}

/** @param {number | null | undefined} nanos */
export const nanos = (nanos) => (nanos === null || nanos === undefined ? "–" : span(nanos / 1e6));

/** @param {number} bytes */
export function bytes(bytes) {
  if (bytes < 1024) return counted(bytes, "byte");
  const [unit, size] = bytes < 1024 ** 2 ? ["KiB", 1024] : ["MiB", 1024 ** 2];
  return `${local(bytes / Number(size), { maximumFractionDigits: 1 })} ${unit}`;
}

/** @param {string | number} at */
export const instant = (at) => new Date(at);

/** @param {Date} date */
const isToday = (date) => date.toDateString() === new Date().toDateString();

/** A point in time, with the date unless it is today. @param {string | number} at */
export function clock(at) {
  const date = instant(at);
  const time = date.toLocaleTimeString(navigator.language, { hour12: false });
  if (isToday(date)) return time;
  const day = { day: "numeric", month: "short", year: date.getFullYear() === new Date().getFullYear() ? undefined : "numeric" };
  return `${date.toLocaleDateString(navigator.language, /** @type {Intl.DateTimeFormatOptions} */ (day))}, ${time}`;
}

/** Everything about a point in time, for a tooltip. @param {string | number} at */
export const exact = (at) => `${clock(at)} (${at})`;

/** @param {string | number} at @param {number} now */
export function relative(at, now) {
  const ms = instant(at).getTime() - now;
  if (Math.abs(ms) < 1000) return "now";
  return ms > 0 ? `in ${span(ms)}` : `${span(-ms)} ago`;
}

/** The first line of a text, not too long. @param {string} text @param {number} [max] */
export function line(text, max = 160) {
  const first = text.trim().split("\n", 1)[0] ?? "";
  return first.length > max ? `${first.slice(0, max)}…` : first;
}

/** The name of a state for people. @param {string} state */
export const named = (state) => ({ dlq: "DLQ", inflight: "in flight" })[state] ?? state.replaceAll("_", " ");
