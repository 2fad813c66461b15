/** Actions on single jobs. */

import { at, post } from "./api.js";
import { notify } from "./dialog.js";
import { counted } from "./format.js";

/**
 * @typedef {object} JobAction
 * @property {string} label
 * @property {string} done
 * @property {import("../api").Role} role
 * @property {string[]} states in which it can be done
 * @property {string} [ask] what to know before
 */

/** @type {Record<string, JobAction>} */
export const ACTIONS = {
  requeue: { label: "Requeue", done: "requeued", role: "operator", states: ["dlq", "cancelled"] },
  run_now: { label: "Run now", done: "due now", role: "operator", states: ["scheduled"] },
  cancel: {
    label: "Cancel",
    done: "cancelled",
    role: "operator",
    states: ["ready", "scheduled", "blocked", "inflight"],
    ask: "A cancelled job does not run. The worker of a job in flight is told to stop; its handler may finish first.",
  },
  priority: { label: "Priority", done: "given the priority", role: "operator", states: ["ready", "scheduled", "blocked"] },
  purge: {
    label: "Purge",
    done: "purged",
    role: "admin",
    states: ["done", "dlq", "cancelled"],
    ask: "The job is removed with its payload, output and errors. This cannot be undone.",
  },
};

const AT_ONCE = 4;

/** Applies an action to each of these jobs, and shows for how many it succeeded. @param {string} store @param {string[]} ids @param {string} action */
export async function actOnEach(store, ids, action) {
  const left = [...ids];
  /** @type {Map<string, number>} */
  const failures = new Map();
  let done = 0;
  const work = async () => {
    for (let id = left.shift(); id; id = left.shift()) {
      try {
        await post(at(store, "jobs", id, action));
        done += 1;
      } catch (error) {
        const { title } = /** @type {import("./api.js").Problem} */ (error);
        failures.set(title, (failures.get(title) ?? 0) + 1);
      }
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
  if (done) notify(`${counted(done, "job")} ${ACTIONS[action]?.done}`);
  for (const [title, times] of failures) notify(`${counted(times, "job")}: ${title}`, { isError: true });
}
