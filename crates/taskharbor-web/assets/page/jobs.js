/** Jobs: found by a filter, acted on one by one, by selection, or all that match. */

import { address, at } from "../api.js";
import { Action } from "../action.js";
import { notify } from "../dialog.js";
import { counted, line, named, stateCount } from "../format.js";
import { html, useEffect, useMemo, useState } from "../html.js";
import { ACTIONS, actOnEach } from "../job_action.js";
import { live } from "../live.js";
import { Ago, Empty, Failure, Head, Since, State } from "../part.js";
import { useResource } from "../resource.js";
import { refine, to } from "../route.js";
import { useStore } from "../store.js";
import { get } from "../api.js";
import { showSweep } from "../sweep.js";
import { NoJobs } from "./overview.js";

/** @typedef {import("../../api").JobSummary} JobSummary */

const STATES = /** @type {const} */ (["ready", "scheduled", "blocked", "inflight", "done", "dlq", "cancelled"]);
const PAGE = 50;
const EVERY_MS = 3000;

/** @type {[string, string][]} */
const AGES = [
  ["", "any time"],
  ["15m", "in the last 15 min"],
  ["1h", "in the last hour"],
  ["24h", "in the last 24 h"],
  ["7d", "in the last 7 days"],
  ["-1h", "more than 1 h ago"],
  ["-24h", "more than 24 h ago"],
  ["-7d", "more than 7 days ago"],
];
const UNITS = { m: 60, h: 3600, d: 86_400 };

/** The filter as the API takes it. @param {Record<string, string>} params */
export function filterOf(params) {
  const { state, queue, type, lane, error, age = "" } = params;
  /** @type {Record<string, string>} */
  const filter = {};
  for (const [name, value] of Object.entries({ state, queue, type, lane, error })) {
    if (value) filter[name] = value;
  }
  const found = /^(-?)(\d+)([mhd])$/.exec(age);
  if (found) {
    const seconds = Number(found[2]) * UNITS[/** @type {"m"} */ (found[3])];
    const instant = new Date(Date.now() + live.value.clock - seconds * 1000).toISOString();
    filter[found[1] ? "created_before" : "created_after"] = instant;
  }
  return filter;
}

/** The most useful detail of a job in its state. @param {{job: JobSummary}} props */
function When({ job }) {
  if (job.state === "inflight") return html`for <${Since} since=${job.started_at} />`;
  if (job.state === "ready") return html`for <${Since} since=${job.due_at ?? job.created_at} />`;
  return html`<${Ago} at=${job.finished_at ?? job.due_at ?? job.created_at} />`;
}

/** @param {{job: JobSummary}} props */
function Note({ job }) {
  const text = job.state === "dlq" || job.state === "cancelled" ? job.reason ?? job.last_error : job.last_error;
  if (job.state === "inflight" && job.held) return html`<span class="dim">on ${job.held.holder}</span>`;
  return text ? html`<span class=${job.state === "dlq" ? "bad" : "dim"} title=${line(text, 600)}>${line(text, 120)}</span>` : null;
}

/** @param {{job: JobSummary, isSelected: boolean, select: (id: string, yes: boolean) => void}} props */
export function JobRow({ job, isSelected, select }) {
  return html`<tr tabindex="-1" class=${isSelected ? "selected" : ""}>
    <td class="pick"><input type="checkbox" aria-label=${`Select ${job.id}`} checked=${isSelected} onChange=${(/** @type {any} */ event) => select(job.id, event.target.checked)} /></td>
    <td data-label="State"><${State} state=${job.state} /></td>
    <th scope="row" data-label="Job"><a href=${to(["jobs", job.id])}>${job.type}</a><br /><code class="dim id">${job.id}</code></th>
    <td data-label="Queue"><a class="plain" href=${to(["jobs"], { queue: job.queue })}>${job.queue}</a>${job.lane && html` <span class="tag">${job.lane}</span>`}</td>
    <td class="n" data-label="Failed">${job.attempts ? html`${job.attempts}${job.max_attempts ? html`<span class="dim"> of ${job.max_attempts}</span>` : ""}` : html`<span class="zero">0</span>`}</td>
    <td class="n" data-label="When"><${When} job=${job} /></td>
    <td class="note" data-label="Note"><${Note} job=${job} /></td>
  </tr>`;
}

/** @param {{params: Record<string, string>, queues: import("../../api").QueueOverview[]}} props */
function Filters({ params, queues }) {
  const field = (/** @type {string} */ name, /** @type {string} */ label, /** @type {Record<string, unknown>} */ more = {}) =>
    html`<label>${label}<input value=${params[name] ?? ""} ...${more} spellcheck=${false} autocomplete="off"
      onChange=${(/** @type {any} */ event) => refine({ [name]: event.target.value.trim() })} /></label>`;
  const total = (/** @type {typeof STATES[number]} */ state) =>
    stateCount(/** @type {any} */ (live.value.overview), queues.filter((it) => !params["queue"] || it.queue === params["queue"]), state);
  const isFiltered = ["queue", "type", "lane", "error", "age"].some((name) => params[name]);
  return html`<div class="filters">
    <div class="tabs states" role="group" aria-label="State">
      ${["", ...STATES].map((state) => html`<button type="button" aria-pressed=${(params["state"] ?? "") === state} onClick=${() => refine({ state })}>
        ${state ? named(state) : "all"}${state && live.value.overview ? html` <span class="dim">${total(/** @type {any} */ (state))}</span>` : ""}</button>`)}
    </div>
    <form class="fields" onSubmit=${(/** @type {Event} */ event) => event.preventDefault()}>
      ${field("type", "Type", { "data-filter": true, placeholder: "email:send" })}
      ${field("queue", "Queue", { list: "queues" })}
      ${field("lane", "Lane")}
      ${field("error", "Error or reason contains", { placeholder: "timed out" })}
      <label>Enqueued<select value=${params["age"] ?? ""} onChange=${(/** @type {any} */ event) => refine({ age: event.target.value })}>
        ${AGES.map(([value, text]) => html`<option value=${value}>${text}</option>`)}</select></label>
      <label>Order<select value=${params["order"] ?? ""} onChange=${(/** @type {any} */ event) => refine({ order: event.target.value })}>
        <option value="">newest first</option><option value="oldest">oldest first</option></select></label>
      ${isFiltered && html`<button type="button" class="quiet" onClick=${() => refine({ queue: "", type: "", lane: "", error: "", age: "" })}>Clear</button>`}
      <button class="sr" type="submit">Apply</button>
    </form>
    <datalist id="queues">${queues.map((it) => html`<option value=${it.queue} />`)}</datalist>
  </div>`;
}

/** The pages of a list: the first is kept fresh until a second is wanted. @param {string} store @param {Record<string, string>} params @param {boolean} isHeld */
function useJobs(store, params, isHeld) {
  const key = JSON.stringify(params);
  const query = useMemo(() => ({ ...filterOf(params), order: params["order"] || "newest", limit: PAGE }), [key]);
  const [more, setMore] = useState(/** @type {import("../../api").Page<JobSummary>[]} */ ([]));
  useEffect(() => setMore([]), [key, store]);
  const url = address(at(store, "jobs"), query);
  const first = useResource(url, more.length || isHeld ? {} : { every: EVERY_MS });
  const pages = /** @type {import("../../api").Page<JobSummary>[]} */ (first.data ? [first.data, ...more] : []);
  const last = pages.at(-1);
  const load = async () => {
    if (!last?.next) return;
    try {
      const page = await get(address(at(store, "jobs"), { ...query, after: last.next }));
      setMore((old) => [...old, page]);
    } catch (error) {
      notify(/** @type {Error} */ (error).message, { isError: true });
    }
  };
  return { first, items: pages.flatMap((page) => page.items), last, load, refresh: () => (setMore([]), first.reload()), isOld: more.length > 0 };
}

/** @param {{store: string, params: Record<string, string>, ids: string[], clear: () => void, refresh: () => void}} props */
function Selection({ store, params, ids, clear, refresh }) {
  const act = async (/** @type {string} */ action) => {
    await actOnEach(store, ids, action);
    clear();
    refresh();
  };
  return html`<div class="bar selection" role="region" aria-label="Selected jobs">
    <strong>${counted(ids.length, "job")} selected</strong>
    ${Object.entries(ACTIONS).filter(([name]) => name !== "priority").map(([name, { label, role, ask }]) => html`<${Action} key=${name} role=${role} label=${label} kind=${name === "purge" ? "danger small" : "small"}
      ask=${ask && { title: `${label} ${counted(ids.length, "job")}?`, text: ask }} run=${() => act(name)} />`)}
    <button type="button" class="small primary" onClick=${() => showSweep({ store, filter: filterOf(params) })}>All that match the filter…</button>
    <button type="button" class="quiet small" onClick=${clear}>Clear</button>
  </div>`;
}

/** @param {{store: string, params: Record<string, string>}} props */
export function Jobs({ store, params }) {
  const overview = useStore(live, (value) => value.overview);
  const [selected, setSelected] = useState(/** @type {Set<string>} */ (new Set()));
  const { first, items, last, load, refresh, isOld } = useJobs(store, params, selected.size > 0);
  useEffect(() => setSelected(new Set()), [JSON.stringify(params)]);
  const select = (/** @type {string} */ id, /** @type {boolean} */ yes) =>
    setSelected((old) => {
      const next = new Set(old);
      if (yes) next.add(id);
      else next.delete(id);
      return next;
    });
  const queues = overview?.queues ?? [];
  const isAll = items.length > 0 && items.every(({ id }) => selected.has(id));
  const hasNone = first.data && items.length === 0;
  const isUnfiltered = Object.keys(filterOf(params)).length === 0;
  return html`<${Head} title="Jobs">
      ${isOld && html`<button type="button" onClick=${refresh}>Refresh</button>`}
      <button type="button" onClick=${() => showSweep({ store, filter: filterOf(params) })}>Act on all that match…</button>
    <//>
    <${Filters} params=${params} queues=${queues} />
    <${Failure} error=${first.error} retry=${first.reload} />
    ${selected.size > 0 && html`<${Selection} store=${store} params=${params} ids=${[...selected]} clear=${() => setSelected(new Set())} refresh=${refresh} />`}
    ${hasNone && (isUnfiltered && queues.length === 0 ? html`<${NoJobs} />` : html`<${Empty} title=${last?.next ? "No match among the jobs read so far" : "No job matches"}><p>${last?.next ? "Load more to look further back." : "Change the filter to see others."}</p><//>`)}
    ${items.length > 0 && html`<div class="scroll"><table class="rows cards">
      <thead><tr><th class="pick"><input type="checkbox" aria-label="Select all that are shown" checked=${isAll} onChange=${(/** @type {any} */ event) => setSelected(new Set(event.target.checked ? items.map(({ id }) => id) : []))} /></th>
        <th>State</th><th>Job</th><th>Queue</th><th class="n">Failed</th><th class="n">When</th><th>Note</th></tr></thead>
      <tbody>${items.map((job) => html`<${JobRow} key=${job.id} job=${job} isSelected=${selected.has(job.id)} select=${select} />`)}</tbody>
    </table></div>`}
    ${first.data ? html`<p class="bar dim more">${counted(items.length, "job")} shown${last?.looked_back_to ? html`, looked back to <${Ago} at=${last.looked_back_to} />` : ""}
      ${last?.next ? html` <button type="button" onClick=${load}>Load more</button>` : ", that is all"}</p>` : !first.error && html`<p class="wait" aria-busy="true">Loading…</p>`}`;
}
