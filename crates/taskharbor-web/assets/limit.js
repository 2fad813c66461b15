/** Limits of queues and lanes as text, and why a lane is held back. */

import { counted, relative, span } from "./format.js";

/** @typedef {import("../api").Rate} Rate */

/** @param {Rate} rate */
export const rateText = (rate) =>
  `${rate.jobs} per ${span(rate.per_nanos / 1e6)}${rate.burst > 1 ? `, bursts of ${rate.burst}` : ""}`;

/** @param {import("../api").Limits | null | undefined} limits */
export function limitsText(limits) {
  if (!limits) return "";
  const lanes = Object.keys(limits.lanes ?? {}).length;
  return [
    limits.inflight && `${limits.inflight} in flight`,
    limits.rate && rateText(limits.rate),
    limits.per_lane && `${limits.per_lane} per lane`,
    limits.lane_rate && `${rateText(limits.lane_rate)} per lane`,
    lanes && counted(lanes, "lane"),
  ].filter(Boolean).join(" · ");
}

/** @param {import("../api").HeldJob | null | undefined} held @param {number} now */
export function heldText(held, now) {
  if (!held) return "";
  const [of, why] = [held.by_lane ? "the lane" : "the queue", held.why];
  if ("on_hold" in why) return `${of} is on hold, ${relative(why.on_hold.until, now)}`;
  if ("rate" in why) return `the rate of ${of} allows the next job ${relative(why.rate.next, now)}`;
  if ("full" in why) return `${of} has ${why.full.inflight} of ${why.full.limit} jobs in flight`;
  return "";
}
