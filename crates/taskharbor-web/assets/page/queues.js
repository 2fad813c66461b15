/** Queues: their limits, holds and lanes. */

import { address, at, may } from "../api.js";
import { Action, change } from "../action.js";
import { closeDialog, Dialog, showDialog } from "../dialog.js";
import { count, millis, rate, stateCount } from "../format.js";
import { html, useState } from "../html.js";
import { heldText, limitsText, rateText } from "../limit.js";
import { More, usePages } from "../list.js";
import { live, now } from "../live.js";
import { Empty, Head, Loaded, Meter, Since } from "../part.js";
import { useResource } from "../resource.js";
import { to } from "../route.js";
import { useStore } from "../store.js";
import { Others } from "./overview.js";

/** @typedef {import("../../api").QueueOverview} QueueOverview */
/** @typedef {import("../../api").Limits} Limits */
/** @typedef {import("../../api").LaneStatus} LaneStatus */

/** @param {{store: string, it: QueueOverview, kind?: string}} props */
const Turn = ({ store, it, kind = "small" }) =>
  html`<${Action} kind=${kind} label=${it.paused_since ? "Resume" : "Pause"}
    run=${() => change(at(store, "queues", it.queue, it.paused_since ? "resume" : "pause"), {}, `Queue ${it.queue} is ${it.paused_since ? "resumed" : "paused"}`)} />`;

/** @param {{store: string}} props */
export function Queues({ store }) {
  const { overview, away } = useStore(live);
  if (!overview?.at) return html`<${Head} title="Queues" />${away ? null : html`<p class="wait" aria-busy="true">Loading…</p>`}`;
  return html`<${Head} title="Queues" />
    ${overview.queues.length === 0 ? html`<${Empty} title="No queues yet"><p>A queue appears when the first job is enqueued in it.</p><//>` : html`<div class="scroll"><table class="rows cards">
      <thead><tr><th>Queue</th><th>Limits</th><th class="n">Ready</th><th class="n">In flight</th><th></th><th class="n">Workers</th><th><span class="sr">Actions</span></th></tr></thead>
      <tbody>${overview.queues.map((it) => html`<tr key=${it.queue} tabindex="-1">
        <th scope="row"><a href=${to(["queues", it.queue])}>${it.queue}</a>${it.paused_since && html` <span class="tag warn">paused <${Since} since=${it.paused_since} /></span>`}</th>
        <td data-label="Limits">${limitsText(it.limits) || html`<span class="dim">none</span>`}</td>
        <td class="n" data-label="Ready">${stateCount(overview, [it], "ready")}</td>
        <td class="n" data-label="In flight">${count(it.inflight)}${it.limits?.inflight ? html`<span class="dim"> of ${it.limits.inflight}</span>` : ""}</td>
        <td class="wide-cell">${it.limits?.inflight ? html`<${Meter} value=${it.inflight} max=${it.limits.inflight} />` : ""}</td>
        <td class="n" data-label="Workers">${it.workers}</td>
        <td class="end"><${Turn} store=${store} it=${it} /></td></tr>`)}</tbody></table></div><${Others} overview=${overview} />`}`;
}

/** A rate as it is typed: `90/10s`, or `90/10s burst 5`. @param {string} text @returns {import("../../api").Rate | null} */
export function readRate(text) {
  const found = /^\s*(\d+)\s*(?:\/|per)\s*(\d*(?:\.\d+)?)\s*(ms|s|min|m|h|d)\s*(?:,?\s*bursts?\s*(?:of)?\s*(\d+))?\s*$/.exec(text);
  if (!found) return null;
  const unit = { ms: 1e6, s: 1e9, m: 6e10, min: 6e10, h: 3.6e12, d: 8.64e13 }[/** @type {"s"} */ (found[3])];
  return { jobs: Number(found[1]), per_nanos: Math.round((found[2] ? Number(found[2]) : 1) * unit), burst: Number(found[4] ?? 1) };
}

/** @param {import("../../api").Rate | null | undefined} rate */
const typed = (rate) => (rate ? `${rate.jobs}/${rate.per_nanos / 1e9}s${rate.burst > 1 ? ` burst ${rate.burst}` : ""}` : "");

/** @param {{store: string, queue: string, limits: Limits, reload: () => void}} props */
function LimitsDialog({ store, queue, limits, reload }) {
  const [fields, setFields] = useState(
    /** @type {Record<string, string>} */ ({ inflight: `${limits.inflight ?? ""}`, rate: typed(limits.rate), per_lane: `${limits.per_lane ?? ""}`, lane_rate: typed(limits.lane_rate), lanes: Object.entries(limits.lanes ?? {}).map(([name, lane]) => [name, lane.inflight && `inflight=${lane.inflight}`, lane.rate && `rate=${typed(lane.rate).replace(" burst ", "+")}`, lane.weight && `weight=${lane.weight}`].filter(Boolean).join(" ")).join("\n") }),
  );
  const field = (/** @type {string} */ name, /** @type {string} */ label, /** @type {string} */ hint, type = "text") =>
    html`<label>${label}<input type=${type} min="1" placeholder=${hint} value=${fields[name]} onInput=${(/** @type {any} */ event) => setFields((old) => ({ ...old, [name]: event.target.value }))} /></label>`;
  const { made, wrong } = read(fields);
  const save = async () => {
    if (await change(at(store, "queues", queue, "limits"), { limits: Object.keys(made).length ? made : null }, `Limits of ${queue} are set`)) {
      closeDialog();
      reload();
    }
  };
  return html`<${Dialog} title=${`Limits of ${queue}`} wide>
    <p class="dim">They apply to all workers together. An empty field means no limit. Write a rate as <code>90/10s</code> or <code>90/10s burst 5</code>.</p>
    <div class="fields">${field("inflight", "In flight", "no limit", "number")}${field("rate", "Rate", "no limit")}${field("per_lane", "In flight per lane", "no limit", "number")}${field("lane_rate", "Rate per lane", "no limit")}</div>
    <label>Lanes with their own settings, one per line<textarea class="code" rows="5" placeholder="gold weight=3\ntrial inflight=1 rate=10/60s" value=${fields["lanes"]} onInput=${(/** @type {any} */ event) => setFields((old) => ({ ...old, lanes: event.target.value }))}></textarea></label>
    <p class="bad" role="status">${wrong}</p>
    <footer><button type="button" onClick=${closeDialog}>Keep as they are</button><button type="button" class="primary" disabled=${Boolean(wrong)} onClick=${save}>Set limits</button></footer><//>`;
}

/** What was typed as limits, and what is wrong with it. @param {Record<string, string>} fields */
function read(fields) {
  /** @type {Limits} */
  const made = {};
  let wrong = "";
  const rateOf = (/** @type {string} */ text) => {
    const found = readRate(text.replace("+", " burst "));
    if (!found) wrong = `invalid rate “${text}”: write 90/10s or 90/10s burst 5`;
    return /** @type {import("../../api").Rate} */ (found);
  };
  if (fields["inflight"]) made.inflight = Number(fields["inflight"]);
  if (fields["per_lane"]) made.per_lane = Number(fields["per_lane"]);
  if (fields["rate"]) made.rate = rateOf(fields["rate"]);
  if (fields["lane_rate"]) made.lane_rate = rateOf(fields["lane_rate"]);
  for (const text of (fields["lanes"] ?? "").split("\n").filter((it) => it.trim())) {
    const [, name = "", rest = ""] = /^\s*(.*?)((?:\s+(?:inflight|rate|weight)=\S+)+)\s*$/.exec(text) ?? [];
    if (!name) wrong = `“${text.trim()}” has no setting: write NAME inflight=2 rate=10/60s weight=3`;
    /** @type {Record<string, any>} */
    const lane = {};
    for (const [, key = "", value = ""] of rest.matchAll(/(inflight|rate|weight)=(\S+)/g)) lane[key] = key === "rate" ? rateOf(value) : Number(value);
    if (name) made.lanes = { ...made.lanes, [name]: lane };
  }
  return { made, wrong };
}

/** @param {{store: string, queue: string, lane?: string | null, reload: () => void}} props */
function HoldDialog({ store, queue, lane, reload }) {
  const [minutes, setMinutes] = useState(10);
  const hold = async (/** @type {string | null} */ until) => {
    const body = { ...(lane && { lane }), until };
    if (await change(at(store, "queues", queue, "hold"), body, until ? `Held for ${minutes} min` : "The hold has ended")) {
      closeDialog();
      reload();
    }
  };
  return html`<${Dialog} title=${`Hold ${lane ? `lane ${lane} of ` : ""}${queue}`}>
    <p class="dim">No job of it starts during the hold. Jobs in flight go on.</p>
    <label>Minutes<input type="number" min="1" max="10080" value=${minutes} onInput=${(/** @type {any} */ event) => setMinutes(Number(event.target.value))} /></label>
    <footer><button type="button" onClick=${() => hold(null)}>End the hold</button><button type="button" class="primary" onClick=${() => hold(new Date(now() + minutes * 60_000).toISOString())}>Hold</button></footer><//>`;
}

/** @param {{store: string, queue: string, lane: LaneStatus, limits: Limits | null, reload: () => void}} props */
function LaneRow({ store, queue, lane: it, limits, reload }) {
  const own = it.lane === null ? undefined : limits?.lanes?.[it.lane];
  const bound = it.lane === null ? undefined : own?.inflight ?? limits?.per_lane;
  return html`<tr tabindex="-1"><th scope="row">${it.lane === null ? html`<span class="dim">without a lane</span>` : html`<a href=${to(["jobs"], { queue, lane: it.lane })}>${it.lane}</a>`}</th>
    <td class="n" data-label="Ready">${count(it.ready)}</td>
    <td class="n" data-label="In flight">${count(it.inflight)}${bound ? html`<span class="dim"> of ${bound}</span>` : ""}</td>
    <td class="wide-cell">${bound ? html`<${Meter} value=${it.inflight} max=${bound} />` : ""}</td>
    <td class="n" data-label="Weight">${own?.weight ?? 1}</td>
    <td data-label="Held back" class=${it.held_back ? "warn" : ""}>${heldText(it.held_back, now())}</td>
    <td class="end">${it.lane !== null && html`<${Action} kind="small" label="Hold…" run=${() => showDialog(() => html`<${HoldDialog} store=${store} queue=${queue} lane=${it.lane} reload=${reload} />`)} />`}</td></tr>`;
}

/** @param {{store: string, id: string}} props */
export function Queue({ store, id }) {
  const it = useStore(live, (value) => value.overview?.queues.find((found) => found.queue === id));
  const limits = useResource(at(store, "queues", id, "limits"), { every: 10_000 });
  const lanes = usePages(at(store, "queues", id, "lanes"), { every: 3000 });
  const record = /** @type {import("../../api").LimitsRecord | null} */ (limits.data);
  const set = record?.limits ?? null;
  const edit = () => showDialog(() => html`<${LimitsDialog} store=${store} queue=${id} limits=${set ?? {}} reload=${limits.reload} />`);
  return html`<${Head} back=${html`<a href=${to(["queues"])}>Queues</a>`} title=${html`${id} ${it?.paused_since ? html`<span class="tag warn">paused <${Since} since=${it.paused_since} /></span>` : ""}`}>
      ${it && html`<${Turn} store=${store} it=${it} kind="" />`}
      <${Action} label="Hold…" run=${() => showDialog(() => html`<${HoldDialog} store=${store} queue=${id} reload=${lanes.reload} />`)} />
      <a class="button" href=${to(["jobs"], { queue: id })}>Jobs</a><//>
    ${it && html`<dl class="totals">${[["Ready", count(it.ready)], ["In flight", count(it.inflight)], ["In /s", rate(it.in_per_s)], ["Out /s", rate(it.out_per_s)], ["Wait p50", millis(it.wait_p50_ms)], ["Wait p95", millis(it.wait_p95_ms)], ["DLQ", count(it.dlq)], ["Workers", count(it.workers)]].map(([name, value]) => html`<div><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>`}
    <section><div class="bar"><h2>Limits</h2>${may("admin") ? html`<${Action} role="admin" kind="small" label="Change…" run=${edit} />` : ""}${record?.owner && html`<span class="dim">declared by ${record.owner}</span>`}</div>
      <${Loaded} of=${limits}>${() => set ? html`<dl class="facts">${[["In flight", set.inflight], ["Rate", set.rate && rateText(set.rate)], ["In flight per lane", set.per_lane], ["Rate per lane", set.lane_rate && rateText(set.lane_rate)]].map(([name, value]) => html`<dt>${name}</dt><dd>${value ?? html`<span class="dim">no limit</span>`}</dd>`)}</dl>` : html`<p class="dim">None. Only the slots of the workers limit how many jobs are in flight.</p>`}<//></section>
    <section><h2>Lanes</h2><${Loaded} of=${lanes}>${(/** @type {{items: LaneStatus[]}} */ { items }) =>
      items.length ? html`<div class="scroll"><table class="rows cards"><thead><tr><th>Lane</th><th class="n">Ready</th><th class="n">In flight</th><th></th><th class="n">Weight</th><th>Held back</th><th><span class="sr">Actions</span></th></tr></thead>
        <tbody>${items.map((lane) => html`<${LaneRow} key=${lane.lane} store=${store} queue=${id} lane=${lane} limits=${set} reload=${lanes.reload} />`)}</tbody></table></div><${More} list=${lanes} what="lane" />`
        : html`<p class="dim">No lane has jobs that are ready or in flight.</p>`}<//></section>`;
}
