/** Schedules: when they are due, the jobs that they made, and the actions on them. */

import { address, at, post } from "../api.js";
import { Action, change } from "../action.js";
import { closeDialog, Dialog, notify, showDialog } from "../dialog.js";
import { clock, count, counted, exact } from "../format.js";
import { html, useState } from "../html.js";
import { now } from "../live.js";
import { More, usePages } from "../list.js";
import { Ago, Empty, Failure, Head, Loaded } from "../part.js";
import { useResource } from "../resource.js";
import { go, to } from "../route.js";

/** @typedef {import("../../api").ScheduleView} ScheduleView */

/** @param {ScheduleView} it */
const isLate = (it) => !it.paused_since && it.next_slot !== null && new Date(it.next_slot).getTime() < now() - 10_000;

/** @param {{it: ScheduleView}} props */
function Standing({ it }) {
  if (it.paused_since) return html`<span class="tag warn">paused <${Ago} at=${it.paused_since} /></span>`;
  if (isLate(it)) return html`<span class="tag bad">late</span>`;
  if (it.error) return html`<span class="tag bad">failed</span>`;
  return it.next_slot ? null : html`<span class="tag">ended</span>`;
}

/** @param {{store: string, it: ScheduleView, reload: () => void}} props */
function Actions({ store, it, reload }) {
  const act = (/** @type {string} */ action, /** @type {string} */ done) => async () =>
    (await change(at(store, "schedules", it.name, action), {}, done)) && reload();
  return html`<${Action} kind="small" label="Run now" run=${act("run_now", `${it.name} is enqueued`)} />
    ${it.paused_since ? html`<${Action} kind="small" label="Resume" run=${act("resume", `${it.name} is resumed`)} />` : html`<${Action} kind="small" label="Pause" run=${act("pause", `${it.name} is paused`)} />`}`;
}

/** @param {{it: ScheduleView}} props */
function Last({ it }) {
  const last = it.firings?.at(-1);
  if (!last) return html`<span class="dim">never</span>`;
  return html`<a class="plain" href=${to(["jobs", last.job])}><${Ago} at=${last.slot} /></a>${last.is_new ? "" : html` <span class="tag">skipped</span>`}`;
}

/** @param {{store: string}} props */
export function Schedules({ store }) {
  const resource = usePages(at(store, "schedules"), { every: 5000 });
  return html`<${Head} title="Schedules" />
    <${Loaded} of=${resource}>${(/** @type {{items: ScheduleView[]}} */ { items }) =>
      items.length === 0
        ? html`<${Empty} title="No schedules yet"><p>Declare schedules in a service, or store one from a terminal:</p><pre><code>taskharbor schedule put nightly report:build --cron '0 3 * * *'</code></pre><//>`
        : html`<div class="scroll"><table class="rows cards">
          <thead><tr><th>Schedule</th><th>When</th><th class="n">Next</th><th class="n">Last</th><th class="n">Made</th><th class="n">Skipped</th><th class="n">Missed</th><th><span class="sr">Actions</span></th></tr></thead>
          <tbody>${items.map((it) => html`<tr key=${it.name} tabindex="-1">
            <th scope="row"><a href=${to(["schedules", it.name])}>${it.name}</a> <${Standing} it=${it} />${it.owner && html`<br /><span class="dim">of ${it.owner}</span>`}</th>
            <td data-label="When"><code>${it.when ?? "–"}</code>${it.zone && html` <span class="dim">${it.zone}</span>`}</td>
            <td class="n" data-label="Next">${it.paused_since ? html`<span class="dim">–</span>` : html`<${Ago} at=${it.next_slot} />`}</td>
            <td class="n" data-label="Last"><${Last} it=${it} /></td>
            <td class="n" data-label="Made">${count(it.totals.stored)}</td><td class="n" data-label="Skipped">${count(it.totals.skipped)}</td><td class="n" data-label="Missed">${count(it.totals.missed)}</td>
            <td class="end"><${Actions} store=${store} it=${it} reload=${resource.reload} /></td></tr>`)}</tbody></table></div>
          <${More} list=${resource} what="schedule" />`}
    <//>`;
}

/** A local time of a form as an instant. @param {string} text */
const instant = (text) => (text ? new Date(text).toISOString() : "");

/** @param {{store: string, name: string}} props */
function Backfill({ store, name }) {
  const [from, setFrom] = useState("");
  const [until, setUntil] = useState("");
  const [preview, setPreview] = useState(/** @type {import("../../api").Backfill | null} */ (null));
  const [problem, setProblem] = useState(/** @type {Error | null} */ (null));
  const send = async (/** @type {boolean} */ dry_run) => {
    try {
      const answer = await post(at(store, "schedules", name, "backfill"), { from: instant(from), before: instant(until), dry_run });
      setProblem(null);
      if (dry_run) return setPreview(answer);
      notify(`${counted(answer.stored ?? answer.slots.length, "job")} enqueued`);
      closeDialog();
    } catch (error) {
      setPreview(null);
      setProblem(/** @type {Error} */ (error));
    }
  };
  const field = (/** @type {string} */ label, /** @type {string} */ value, /** @type {(value: string) => void} */ set) =>
    html`<label>${label}<input type="datetime-local" step="1" required value=${value} onInput=${(/** @type {any} */ event) => (set(event.target.value), setPreview(null))} /></label>`;
  return html`<${Dialog} title=${`Backfill ${name}`} wide>
    <p class="dim">Enqueues the jobs of slots that have passed. A slot whose job is stored already is skipped.</p>
    <form class="fields" onSubmit=${(/** @type {Event} */ event) => (event.preventDefault(), send(true))}>${field("From", from, setFrom)}${field("Before", until, setUntil)}<button disabled=${!from || !until}>Preview</button></form>
    <${Failure} error=${problem} />
    ${preview && html`<p class="big">${counted(preview.count, "slot")}</p><ul class="slots">${preview.slots.slice(0, 100).map((slot) => html`<li title=${exact(slot)}>${clock(slot)}</li>`)}</ul>`}
    <footer><button type="button" onClick=${closeDialog}>Keep as it is</button><button type="button" class="primary" disabled=${!preview?.count} onClick=${() => send(false)}>Enqueue ${preview ? counted(preview.count, "job") : ""}</button></footer>
  <//>`;
}

/** @param {{store: string, id: string}} props */
export function Schedule({ store, id }) {
  const resource = useResource(address(at(store, "schedules", id), { next: 5 }), { every: 5000 });
  const it = /** @type {ScheduleView | null} */ (resource.data);
  const drop = async () => (await change(at(store, "schedules", id, "remove"), {}, `Schedule ${id} is removed`)) && go(["schedules"]);
  return html`<${Head} back=${html`<a href=${to(["schedules"])}>Schedules</a>`} title=${html`${id} ${it && html`<${Standing} it=${it} />`}`}>
      ${it && html`<${Actions} store=${store} it=${it} reload=${resource.reload} />
        <${Action} role="admin" kind="small" label="Backfill…" run=${() => showDialog(() => html`<${Backfill} store=${store} name=${id} />`)} />
        <${Action} role="admin" kind="danger small" label="Remove" ask=${{ title: `Remove schedule ${id}?`, text: it.owner ? `It is declared by ${it.owner}, which may store it again when it starts. Its jobs stay.` : "Its jobs stay." }} run=${drop} />`}
    <//>
    <${Loaded} of=${resource}>${(/** @type {ScheduleView} */ found) => html`
      ${found.error && html`<div class="failure"><div><strong>${found.when === null ? "The definition cannot be read" : "The last firing failed"}</strong><p>${found.error}</p></div></div>`}
      <div class="columns"><section><h2>Next</h2>${found.next?.length ? html`<ol class="slots">${found.next.map((slot) => html`<li><span>${clock(slot)}</span> <span class="dim"><${Ago} at=${slot} /></span></li>`)}</ol>` : html`<p class="dim">None.</p>`}
        <h2>Last</h2>${found.firings?.length ? html`<table><tbody>${[...found.firings].reverse().map((firing) => html`<tr><td title=${exact(firing.slot)}>${clock(firing.slot)}</td><td class="dim">fired <${Ago} at=${firing.fired_at} /></td><td><a href=${to(["jobs", firing.job])}>${firing.is_new ? "job" : "skipped: this job was already stored"}</a></td></tr>`)}</tbody></table>` : html`<p class="dim">It has not been fired.</p>`}</section>
      <section><h2>Definition</h2><dl class="facts"><dt>When</dt><dd><code>${found.when ?? "–"}</code> ${found.zone}</dd>${found.owner && html`<dt>Declared by</dt><dd>${found.owner}</dd>`}<dt>Slots</dt><dd>${count(found.totals.stored)} made, ${count(found.totals.skipped)} skipped, ${count(found.totals.missed)} missed</dd></dl>
        ${found.definition !== null && html`<pre class="code content">${typeof found.definition === "string" ? found.definition : JSON.stringify(found.definition, null, 2)}</pre>`}</section></div>`}<//>`;
}
