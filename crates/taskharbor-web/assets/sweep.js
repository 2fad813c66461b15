/** Sweeps: one action on all jobs that match a filter. It is previewed, confirmed, watched, stopped. */

import { at, get, may, post, remove } from "./api.js";
import { Action } from "./action.js";
import { closeDialog, Dialog, notify, showDialog } from "./dialog.js";
import { count, counted, line, named } from "./format.js";
import { html, useEffect, useState } from "./html.js";
import { ACTIONS } from "./job_action.js";
import { live, sweepCame } from "./live.js";
import { Ago, Failure, Meter, State } from "./part.js";
import { useRepeat } from "./resource.js";
import { to } from "./route.js";
import { useStore } from "./store.js";

/** @typedef {import("../api").Sweep} Sweep */
/** @typedef {{store: string, filter: Record<string, string>, action?: string, fingerprint?: string, error?: string}} Wanted */

/** @param {Wanted} wanted */
export const showSweep = (wanted) => showDialog(() => html`<${SweepDialog} wanted=${wanted} />`);

/** The filter in words. @param {{filter: Record<string, any>, error?: string}} props */
export function FilterText({ filter, error }) {
  const said = Object.entries(filter ?? {}).filter(([, value]) => value !== null && value !== "");
  if (!said.length && !error) return html`<span>all jobs of the store</span>`;
  return html`${said.map(([name, value]) => html`<span class="chip"><span class="dim">${name.replaceAll("_", " ")}</span> ${typeof value === "string" ? value : JSON.stringify(value)}</span> `)}
    ${error && html`<span class="chip"><span class="dim">error</span> ${line(error, 80)}</span>`}`;
}

const RUNNING = ["running", "stopping"];

/** @param {Sweep} sweep */
export const isRunning = (sweep) => RUNNING.includes(sweep.state);

/** How far a sweep is. @param {{store: string, sweep: Sweep}} props */
export function Progress({ store, sweep }) {
  const stop = () =>
    remove(at(store, "sweeps", sweep.id)).then(
      () => notify("The sweep stops after the jobs of the current call"),
      (error) => notify(error.message, { isError: true }),
    );
  const { done = 0, refused = 0 } = sweep;
  const total = Math.max(sweep.count ?? 0, done + refused);
  return html`<div class="progress" role="group" aria-label="Progress">
    <div class="bar"><span class=${`state s-${sweep.state}`}>${named(sweep.state)}</span>
      <span>${count(done)} done${refused ? html`, <span class="warn">${count(refused)} refused</span>` : ""} of ${count(total)}</span>
      ${isRunning(sweep) && html`<${Action} kind="small" label="Stop" run=${stop} />`}</div>
    <${Meter} value=${done + refused} max=${total} />
    ${refused > 0 && html`<p class="dim">Refused jobs have changed since the preview, or their state does not allow it. Nothing happened to them.</p>`}
    ${sweep.error && html`<p class="bad">${sweep.error}</p>`}
  </div>`;
}

/** Watches one sweep: by events, or by asking if they do not get through. @param {string} store @param {string | null} id */
function useSweep(store, id) {
  const sweep = useStore(live, (value) => (id ? value.sweeps[id] : undefined)) ?? null;
  const ask = () => id && get(at(store, "sweeps", id)).then(sweepCame, () => {});
  useEffect(() => void ask(), [id]);
  const [isOver] = [sweep && !isRunning(sweep)];
  useRepeat(() => void ask(), id && !isOver ? 2000 : undefined);
  return sweep;
}

/** @param {{value: number | "", set: (value: number | "") => void, label: string, hint: string, min?: number}} props */
function NumberField({ value, set, label, hint, min = 1 }) {
  return html`<label>${label}<input type="number" min=${min} value=${value} placeholder=${hint}
    onInput=${(/** @type {any} */ event) => set(event.target.value === "" ? "" : Number(event.target.value))} /></label>`;
}

/** @param {{wanted: Wanted}} props */
function SweepDialog({ wanted }) {
  const { store, filter, fingerprint, error: errorText } = wanted;
  const fits = Object.entries(ACTIONS).filter(([, { role, states }]) => may(role) && (!filter["state"] || states.includes(filter["state"])));
  const [action, setAction] = useState(wanted.action ?? fits[0]?.[0] ?? "");
  const [priority, setPriority] = useState(/** @type {number | ""} */ (0));
  const [rate, setRate] = useState(/** @type {number | ""} */ (""));
  const [cap, setCap] = useState(/** @type {number | ""} */ (""));
  const [preview, setPreview] = useState(/** @type {import("../api").SweepPreview | null} */ (null));
  const [problem, setProblem] = useState(/** @type {Error | null} */ (null));
  const [id, setId] = useState(/** @type {string | null} */ (null));
  const sweep = useSweep(store, id);
  const request = {
    action,
    filter,
    ...(fingerprint && { fingerprint }),
    ...(action === "priority" && { options: { priority: Number(priority) } }),
  };
  const key = JSON.stringify(request);
  useEffect(() => {
    let isLate = false;
    setPreview(null);
    setProblem(null);
    if (!action) return;
    post(at(store, "sweeps", "preview"), request).then(
      (answer) => isLate || setPreview(answer),
      (failure) => isLate || setProblem(failure),
    );
    return () => void (isLate = true);
  }, [key]);
  const start = async () => {
    if (!preview) return;
    try {
      const more = { digest: preview.digest, ...(rate !== "" && { rate_per_s: rate }), ...(cap !== "" && { cap }) };
      setId((await post(at(store, "sweeps"), { ...request, ...more })).id);
    } catch (failure) {
      setProblem(/** @type {Error} */ (failure));
    }
  };
  if (id) {
    return html`<${Dialog} title=${`${ACTIONS[action]?.label}: ${preview ? count(preview.count) : ""} jobs`}>
      ${sweep ? html`<${Progress} store=${store} sweep=${sweep} />` : html`<p class="wait" aria-busy="true">Starting…</p>`}
      <footer><a href=${to(["activity"])} onClick=${closeDialog}>All sweeps</a><button type="button" class="primary" onClick=${closeDialog}>${sweep && !isRunning(sweep) ? "Close" : "Leave it running"}</button></footer>
    <//>`;
  }
  const rule = ACTIONS[action];
  const total = preview && `${preview.count_is_exact ? "" : "at least "}${counted(preview.count, "job")}`;
  return html`<${Dialog} title="Act on all jobs that match" wide>
    <p>${html`<${FilterText} filter=${filter} error=${errorText} />`}</p>
    <div class="fields">
      <label>Action<select value=${action} onChange=${(/** @type {any} */ event) => setAction(event.target.value)}>
        ${fits.map(([name, { label }]) => html`<option value=${name}>${label}</option>`)}</select></label>
      ${action === "priority" && html`<${NumberField} label="Priority" value=${priority} set=${setPriority} hint="0" min=${-32768} />`}
      <${NumberField} label="Jobs per second" value=${rate} set=${setRate} hint="no limit" />
      <${NumberField} label="At most" value=${cap} set=${setCap} hint="all of them" />
    </div>
    ${fits.length === 0 && html`<p>Your role allows no action on jobs in this state.</p>`}
    <${Failure} error=${problem} />
    ${preview && html`<section class="preview" aria-live="polite">
      <p class="big">${total}</p>
      ${preview.samples.length > 0 && html`<table><tbody>${preview.samples.map((job) => html`<tr><td><${State} state=${job.state} /></td><td>${job.type}</td><td><code class="dim id">${job.id}</code></td><td class="n dim"><${Ago} at=${job.created_at} /></td></tr>`)}</tbody></table>
        <p class="dim">${preview.count > preview.samples.length ? `${preview.samples.length} of them are shown. ` : ""}${rule?.ask ?? ""}</p>`}
    </section>`}
    ${action && !preview && !problem && html`<p class="wait" aria-busy="true">Counting…</p>`}
    <footer><button type="button" onClick=${closeDialog}>Keep as it is</button>
      <button type="button" class=${action === "purge" ? "danger" : "primary"} disabled=${!preview?.count} onClick=${start}>${rule?.label} ${total ?? ""}</button></footer>
  <//>`;
}
