/** One job: its timeline, the reason for its state, its origin, and the actions on it. */

import { address, at, get, getText, may } from "../api.js";
import { Action, change } from "../action.js";
import { closeDialog, Dialog, showDialog } from "../dialog.js";
import { indented, showEditor } from "../editor.js";
import { bytes, clock, exact, nanos } from "../format.js";
import { html, useEffect, useState } from "../html.js";
import { ACTIONS } from "../job_action.js";
import { Ago, Copy, Failure, Head, Loaded, Since, State } from "../part.js";
import { useResource } from "../resource.js";
import { to } from "../route.js";

/** @typedef {import("../../api").JobRecord} JobRecord */

const TERMINAL = ["done", "dlq", "cancelled"];

/** @param {{record: JobRecord}} props */
function Timeline({ record }) {
  const errors = new Map(record.errors.map((failure) => [failure.failed_at, failure]));
  return html`<section><h2>Timeline</h2><ol class="timeline">
    ${record.timeline.map(({ at: when, what, detail }) => html`<li class=${`t-${what}`}>
      <span class="what">${what.replaceAll("_", " ")}</span> <time class="dim" datetime=${when} title=${exact(when)}>${clock(when)}</time>
      ${detail && (detail.length < 60 && !errors.has(when) ? html` <span>${detail}</span>` : html`<pre class=${errors.has(when) ? "bad" : ""}>${detail}</pre>`)}</li>`)}
  </ol></section>`;
}

/** @param {[string, any][]} rows */
const facts = (rows) => rows.filter(([, value]) => value !== null && value !== undefined && value !== "" && value !== false).map(([name, value]) => html`<dt>${name}</dt><dd>${value}</dd>`);

/** @param {{record: JobRecord}} props */
function Facts({ record }) {
  const { job } = record;
  const link = (/** @type {string} */ id) => html`<a href=${to(["jobs", id])}><code class="id">${id}</code></a>`;
  const { "th-schedule": schedule, "th-slot": slot, "th-label": label } = job.headers ?? {};
  const hold = typeof record.key_hold === "string" ? record.key_hold.replaceAll("_", " ") : record.key_hold ? `for ${nanos(/** @type {any} */ (record.key_hold).for)}` : "";
  return html`<section><h2>Facts</h2><dl class="facts">${facts([
    ["Queue", html`<a href=${to(["queues", job.queue])}>${job.queue}</a>`],
    ["Lane", job.lane],
    ["Label", label],
    ["Priority", job.priority],
    ["Enqueued", html`<${Ago} at=${job.created_at} />`],
    ["Due", record.due_at && html`<${Ago} at=${record.due_at} />`],
    ["Started last", record.started_at && html`<${Ago} at=${record.started_at} />`],
    ["Finished", record.finished_at && html`<${Ago} at=${record.finished_at} />`],
    ["Worker", record.held && html`${record.held.holder}, lease ends <${Ago} at=${record.held.expires_at} />`],
    ["Cancel", record.cancel_requested && "requested"],
    ["Failed", `${job.attempts}${job.max_attempts ? ` of ${job.max_attempts}` : ""} attempts`],
    ["Deliveries", `${job.deliveries}${job.expirations ? `, ${job.expirations} leases expired` : ""}`],
    ["Requeued", record.epoch ? `${record.epoch} ×` : ""],
    ["Timeout", job.timeout_nanos ? nanos(job.timeout_nanos) : ""],
    ["Key", job.idempotency_key && html`${job.idempotency_key} <span class="dim">held ${hold}</span>`],
    ["Flow", job.flow && html`<a href=${to(["flows", job.flow])}><code class="id">${job.flow}</code></a>`],
    ["Waits for", record.parents.length ? html`${record.parents.slice(0, 10).map((id) => html`${link(id)}<br />`)}${job.parent_count > 10 ? `and ${job.parent_count - 10} more, ` : ""}${record.pending} not terminal yet` : ""],
    ["Runs if", job.condition === "parents_failed" ? "its parents fail" : ""],
    ["Expanded into", record.expanded_into && link(record.expanded_into)],
    ["Schedule", schedule && html`<a href=${to(["schedules", schedule])}>${schedule}</a>${slot ? html`, slot ${slot}` : ""}`],
    ["Failure policy", job.flow && job.on_failure && job.on_failure.replaceAll("_", " ")],
  ])}</dl></section>`;
}

/** @param {{headers: Record<string, string>}} props */
function Headers({ headers }) {
  const rows = Object.entries(headers ?? {});
  if (!rows.length) return null;
  return html`<section><h2>Headers</h2><dl class="facts">${rows.map(([name, value]) => html`<dt><code>${name}</code></dt><dd class="wrap">${value}</dd>`)}</dl></section>`;
}

/** A payload or an output, on demand. @param {{store: string, id: string, name: "payload" | "output", size: number | null}} props */
function Content({ store, id, name, size }) {
  const [isOpen, setOpen] = useState(false);
  const [content, setContent] = useState(/** @type {{text: string, isCut: boolean} | null} */ (null));
  const [problem, setProblem] = useState(/** @type {Error | null} */ (null));
  const path = at(store, "jobs", id, name);
  useEffect(() => {
    if (!isOpen) return;
    get(path).then((answer) => setContent(shown(answer)), setProblem);
  }, [isOpen]);
  if (size === null || size === undefined) return null;
  const title = name === "payload" ? "Payload" : "Output";
  return html`<section><div class="bar"><h2>${title}</h2><span class="dim">${bytes(size)}</span>
    ${may("payloads") ? html`<button type="button" class="small" aria-expanded=${isOpen} onClick=${() => setOpen(!isOpen)}>${isOpen ? "Hide" : "Show"}</button>
      <a class="small" download=${`${id}.${name}`} href=${address(path, { download: 1 })}>Download</a>` : html`<span class="dim">hidden: needs the permission to see payloads</span>`}</div>
    ${isOpen && html`<${Failure} error=${problem} />${content && html`
      ${content.isCut && html`<p class="warn">Only the first 64 KiB are shown.</p>`}
      <pre class="code content" tabindex="0">${content.text}</pre><${Copy} text=${content.text} />`}`}
  </section>`;
}

/** @param {import("../../api").Content} answer */
function shown(answer) {
  const isCut = Boolean(answer.truncated);
  const text = answer.text ?? answer.base64 ?? "";
  return { text: isCut ? text : indented(text), isCut };
}

/** @param {{store: string, id: string, now: number, reload: () => void}} props */
function PriorityDialog({ store, id, now: current, reload }) {
  const [value, setValue] = useState(current);
  const save = async () => {
    if (await change(at(store, "jobs", id, "priority"), { priority: value }, "Priority set")) {
      closeDialog();
      reload();
    }
  };
  return html`<${Dialog} title="Priority"><p class="dim">Jobs with a higher priority are reserved first.</p>
    <label>Priority<input type="number" min="-32768" max="32767" value=${value} onInput=${(/** @type {any} */ event) => setValue(Number(event.target.value))} /></label>
    <footer><button type="button" onClick=${closeDialog}>Keep as it is</button><button type="button" class="primary" onClick=${save}>Set</button></footer><//>`;
}

/** @param {{store: string, record: JobRecord, reload: () => void}} props */
function Actions({ store, record, reload }) {
  const { id } = record.job;
  return html`${Object.entries(ACTIONS).filter(([, { states }]) => states.includes(record.state)).map(([name, { label, role, done, ask }]) => {
    const run = name === "priority"
      ? () => showDialog(() => html`<${PriorityDialog} store=${store} id=${id} now=${record.job.priority} reload=${reload} />`)
      : async () => (await change(at(store, "jobs", id, name), {}, `The job is ${done}`)) && reload();
    return html`<${Action} key=${name} role=${role} label=${name === "priority" ? `${label}…` : label} kind=${name === "purge" ? "danger" : name === "requeue" ? "primary" : ""} ask=${ask && { title: `${label} this job?`, text: ask }} run=${run} />`;
  })}
  ${TERMINAL.includes(record.state) && html`<${Action} payloads label="Edit and requeue…" run=${() => showEditor({ store, id })} />`}`;
}

/** @param {{store: string, id: string}} props */
export function Job({ store, id }) {
  const path = at(store, "jobs", id);
  const [every, setEvery] = useState(/** @type {number | undefined} */ (2000));
  const resource = useResource(path, every ? { every } : {});
  const record = /** @type {JobRecord | null} */ (resource.data);
  useEffect(() => {
    if (record) setEvery(TERMINAL.includes(record.state) ? 15_000 : 2000);
  }, [record?.state]);
  const back = html`<a href=${to(["jobs"])}>Jobs</a>`;
  const title = record ? html`${record.job.type} <${State} state=${record.state} />` : "Job";
  return html`<${Head} back=${back} title=${title}>${record && html`<${Actions} store=${store} record=${record} reload=${resource.reload} />`}<//>
    <p class="ids"><code class="id">${id}</code> <${Copy} text=${id} /></p>
    <${Loaded} of=${resource}>${(/** @type {JobRecord} */ it) => html`
      <p class=${`why w-${it.state}`}>${it.why}</p>
      ${it.progress && html`<p class="told"><span class="dim">Progress</span> ${it.progress}</p>`}
      <div class="columns"><${Timeline} record=${it} /><div><${Facts} record=${it} /><${Headers} headers=${it.job.headers} /></div></div>
      <${Content} store=${store} id=${id} name="payload" size=${it.payload_bytes} />
      <${Content} store=${store} id=${id} name="output" size=${it.output_bytes} />`}
    <//>`;
}
