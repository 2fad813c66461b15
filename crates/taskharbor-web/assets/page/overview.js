/** The overview: the jobs of each queue, their rates and waits, pauses and limits. */

import { at, address } from "../api.js";
import { Action, change } from "../action.js";
import { count, counted, millis, named, rate, short, stateCount } from "../format.js";
import { html, useEffect, useMemo, useState } from "../html.js";
import { limitsText } from "../limit.js";
import { live } from "../live.js";
import { Ago, Empty, Failure, Head, Since } from "../part.js";
import { Plot } from "../plot.js";
import { useResource } from "../resource.js";
import { refine, to } from "../route.js";
import { useStore } from "../store.js";

/** @typedef {import("../../api").QueueOverview} QueueOverview */
/** @typedef {import("../../api").History} History */
/** @typedef {{at: number, queues: QueueOverview[]}} Point */

const KEPT_POINTS = 660;

/** @param {QueueOverview[]} queues @param {(queue: QueueOverview) => number | null} of */
const sum = (queues, of) => queues.reduce((total, queue) => total + (of(queue) ?? 0), 0);

/** The overviews that came since the page was opened. */
function usePoints() {
  const overview = useStore(live, (value) => value.overview);
  const [points, setPoints] = useState(/** @type {Point[]} */ ([]));
  useEffect(() => {
    if (!overview?.at) return;
    const at = Math.floor(new Date(overview.at).getTime() / 1000);
    setPoints((old) => (old.at(-1)?.at === at ? old : [...old, { at, queues: overview.queues }].slice(-KEPT_POINTS)));
  }, [overview]);
  return points;
}

const SUMS = /** @type {const} */ (["ready", "in", "out", "failed"]);
const WORST = /** @type {const} */ (["p50", "p95"]);

/** The server does not count every second: so many missing points are as the one before. */
const BRIDGED_POINTS = 5;

/** @param {(number | null)[]} values */
function bridged(values) {
  let [last, missing] = [/** @type {number | null} */ (null), 0];
  return values.map((value) => {
    [last, missing] = value === null ? [last, missing + 1] : [value, 0];
    return missing <= BRIDGED_POINTS ? last : null;
  });
}

/**
 * The lines of the plots: what the server kept, and what came since. Waits of several queues are those
 * of the slowest.
 * @param {History | null} history @param {Point[]} points @param {string} queue
 */
function lines(history, points, queue) {
  const kept = Object.entries(history?.queues ?? {}).filter(([name]) => !queue || name === queue);
  const length = Math.max(0, ...kept.map(([, of]) => of.ready.length));
  const [from, step] = [history ? new Date(history.from).getTime() / 1000 : 0, history?.step_s ?? 1];
  const times = Array.from({ length }, (_, index) => from + index * step);
  /** @type {Record<string, (number | null)[]>} */
  const values = {};
  const all = (/** @type {(number | null | undefined)[]} */ list) => /** @type {number[]} */ (list.filter((it) => it !== null && it !== undefined));
  for (const name of [...SUMS, ...WORST]) {
    const isSum = SUMS.includes(/** @type {any} */ (name));
    const found = times.map((_, index) => {
      const of_queues = all(kept.map(([, of]) => of[name][index]));
      if (!of_queues.length) return null;
      return isSum ? of_queues.reduce((a, b) => a + b, 0) : Math.max(...of_queues);
    });
    values[name] = step === 1 ? bridged(found) : found;
  }
  const end = times.at(-1) ?? 0;
  for (const point of step === 1 ? points : []) {
    if (point.at <= end) continue;
    const of = point.queues.filter((it) => !queue || it.queue === queue);
    const worst = (/** @type {(queue: QueueOverview) => number | null} */ pick) => {
      const found = all(of.map(pick));
      return found.length ? Math.max(...found) : null;
    };
    times.push(point.at);
    values["ready"]?.push(sum(of, (it) => it.ready));
    values["in"]?.push(sum(of, (it) => it.in_per_s));
    values["out"]?.push(sum(of, (it) => it.out_per_s));
    values["failed"]?.push(sum(of, (it) => it.failed_per_s));
    values["p50"]?.push(worst((it) => it.wait_p50_ms));
    values["p95"]?.push(worst((it) => it.wait_p95_ms));
  }
  return { times, values };
}

const THROUGHPUT = [
  { label: "in", colour: "plot-2" },
  { label: "out", colour: "plot-1", isFilled: true },
  { label: "failed", colour: "bad" },
];
const READY = [{ label: "ready", colour: "plot-1", isFilled: true }];
const WAIT = [
  { label: "p50", colour: "plot-1" },
  { label: "p95", colour: "plot-3" },
];

/** @param {{store: string, params: Record<string, string>, queues: QueueOverview[]}} props */
function Plots({ store, params, queues }) {
  const minutes = params["minutes"] === "1440" ? 1440 : 10;
  const queue = params["queue"] ?? "";
  const history = useResource(address(at(store, "history"), { minutes }), { every: minutes === 10 ? 30_000 : 60_000 });
  const points = usePoints();
  const { times, values } = useMemo(() => lines(/** @type {any} */ (history.data), points, queue), [history.data, points, queue]);
  const of = (/** @type {string[]} */ ...names) => names.map((name) => values[name] ?? []);
  const props = useMemo(() => [of("in", "out", "failed"), of("ready"), of("p50", "p95")], [values]);
  return html`<section aria-label="Plots">
    <div class="bar">
      <span class="tabs" role="group" aria-label="Range">
        ${[[10, "10 min"], [1440, "24 h"]].map(([value, label]) => html`<button type="button" aria-pressed=${value === minutes} onClick=${() => refine({ minutes: value === 10 ? "" : value })}>${label}</button>`)}
      </span>
      <label><span class="sr">Queue of the plots</span><select value=${queue} onChange=${(/** @type {any} */ event) => refine({ queue: event.target.value })}>
        <option value="">All queues</option>
        ${queues.map((it) => html`<option value=${it.queue}>${it.queue}</option>`)}
      </select></label>
      <${Failure} error=${history.error} />
    </div>
    <div class="plots">
      <${Plot} title="Jobs per second" span=${minutes * 60} times=${times} lines=${THROUGHPUT} values=${props[0]} write=${rate} />
      <${Plot} title="Ready" span=${minutes * 60} times=${times} lines=${READY} values=${props[1]} write=${short} />
      <${Plot} title=${queue || queues.length < 2 ? "Wait until start" : "Wait until start, slowest queue"} span=${minutes * 60} times=${times} lines=${WAIT} values=${props[2]} write=${millis} />
    </div>
  </section>`;
}

/** @param {{queue: QueueOverview, store: string, overview: import("../../api").Overview}} props */
function QueueRow({ queue: it, store, overview }) {
  const jobs = (/** @type {string} */ state) => to(["jobs"], { queue: it.queue, state });
  const cell = (/** @type {string} */ label, /** @type {"ready"|"scheduled"|"blocked"|"inflight"|"dlq"} */ state) =>
    html`<td class="n" data-label=${label}>${it[state] ? html`<a class=${state === "dlq" ? "bad" : "plain"} href=${jobs(state)}>${stateCount(overview, [it], state)}</a>` : html`<span class="zero">0</span>`}</td>`;
  const turn = it.paused_since ? "resume" : "pause";
  const isUnserved = !it.workers && it.ready > 0;
  return html`<tr tabindex="-1">
    <th scope="row"><a href=${to(["queues", it.queue])}>${it.queue}</a>
      ${it.paused_since && html` <span class="tag warn">paused <${Since} since=${it.paused_since} /></span>`}</th>
    ${cell("Ready", "ready")}
    <td class="n" data-label="Oldest">${it.ready ? html`<${Since} since=${it.oldest_ready} />` : html`<span class="zero">–</span>`}</td>
    ${cell("In flight", "inflight")}
    <td class="n" data-label="In /s">${rate(it.in_per_s)}</td>
    <td class="n" data-label="Out /s">${rate(it.out_per_s)}</td>
    <td class=${it.failed_per_s ? "n bad" : "n"} data-label="Failed /s">${rate(it.failed_per_s)}</td>
    <td class="n" data-label="Wait p50">${millis(it.wait_p50_ms)}</td>
    <td class="n" data-label="Wait p95">${millis(it.wait_p95_ms)}</td>
    ${cell("Scheduled", "scheduled")} ${cell("Blocked", "blocked")} ${cell("DLQ", "dlq")}
    <td class=${isUnserved ? "n bad" : "n"} data-label="Workers" title=${isUnserved ? "No worker serves this queue" : undefined}>${count(it.workers)}</td>
    <td class="cut" data-label="Limits" title=${limitsText(it.limits)}><a class="plain dim" href=${to(["queues", it.queue])}>${limitsText(it.limits) || "–"}</a></td>
    <td class="end"><${Action} kind="small" label=${it.paused_since ? "Resume" : "Pause"}
      run=${() => change(at(store, "queues", it.queue, turn), {}, `Queue ${it.queue} is ${it.paused_since ? "resumed" : "paused"}`)} /></td>
  </tr>`;
}

/** The queues that are not listed, as there are too many. @param {{overview: import("../../api").Overview}} props */
export function Others({ overview: { queues, other } }) {
  if (!other) return null;
  const states = /** @type {const} */ (["ready", "inflight", "dlq"]).map((state) => `${count(other[state])} ${named(state)}`);
  return html`<p class="dim">${counted(queues.length, "queue")} shown. ${counted(other.queues, "more queue")} not shown: ${states.join(", ")}.</p>`;
}

const FIRST = `taskharbor enqueue text:count '{"text": "to be or not to be"}'`;
const THEN = "taskharbor worker --exec 'text:count=wc -w' --until-idle";

export const NoJobs = () => html`<${Empty} title="No jobs yet">
  <p>Enqueue one, and run it:</p><pre><code>${FIRST}\n${THEN}</code></pre><//>`;

/** @param {{store: string, params: Record<string, string>}} props */
export function Overview({ store, params }) {
  const { overview, status, away } = useStore(live);
  // Before the first count there is nothing to show of the store.
  if (!overview?.at) {
    return html`<${Head} title="Overview" />${status === "lost" || away ? null : html`<p class="wait" aria-busy="true">Loading…</p>`}`;
  }
  const { queues, schedules_late: late } = overview;
  const totals = /** @type {[string, string, string, string?][]} */ ([
    ["Ready", stateCount(overview, queues, "ready"), to(["jobs"], { state: "ready" })],
    ["In flight", stateCount(overview, queues, "inflight"), to(["jobs"], { state: "inflight" })],
    ["In /s", rate(sum(queues, (it) => it.in_per_s)), ""],
    ["Out /s", rate(sum(queues, (it) => it.out_per_s)), ""],
    ["Failed /s", rate(sum(queues, (it) => it.failed_per_s)), "", sum(queues, (it) => it.failed_per_s) ? "bad" : ""],
    ["DLQ", stateCount(overview, queues, "dlq"), to(["dlq"]), sum(queues, (it) => it.dlq) ? "bad" : ""],
    ["Workers", count(overview.workers), to(["workers"]), overview.workers ? "" : "bad"],
    ["Late schedules", count(late), to(["schedules"]), late ? "bad" : ""],
  ]);
  return html`<${Head} title="Overview"><span class="dim" title="When the jobs were counted last">${overview.at && html`as of <${Ago} at=${overview.at} />`}</span><//>
    ${queues.length === 0 ? html`<${NoJobs} />` : html`
    <dl class="totals">${totals.map(([name, value, href, kind]) => html`<div class=${kind}><dt>${name}</dt><dd>${href ? html`<a href=${href}>${value}</a>` : value}</dd></div>`)}</dl>
    <${Plots} store=${store} params=${params} queues=${queues} />
    <section aria-label="Queues"><div class="scroll"><table class="rows cards">
      <thead><tr><th>Queue</th>${["Ready", "Oldest", "In flight", "In /s", "Out /s", "Failed /s", "Wait p50", "Wait p95", "Scheduled", "Blocked", "DLQ", "Workers"].map((name) => html`<th class="n">${name}</th>`)}<th>Limits</th><th><span class="sr">Actions</span></th></tr></thead>
      <tbody>${queues.map((queue) => html`<${QueueRow} key=${queue.queue} queue=${queue} store=${store} overview=${overview} />`)}</tbody>
    </table></div><${Others} overview=${overview} /></section>`}`;
}
