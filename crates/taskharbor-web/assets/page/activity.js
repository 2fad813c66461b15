/** The actions that were taken through this server: sweeps, and the action log. */

import { address, at } from "../api.js";
import { clock, counted, exact } from "../format.js";
import { html } from "../html.js";
import { ACTIONS } from "../job_action.js";
import { live } from "../live.js";
import { Ago, Empty, Head, Loaded } from "../part.js";
import { useResource } from "../resource.js";
import { useStore } from "../store.js";
import { FilterText, Progress } from "../sweep.js";

/** @typedef {import("../../api").Sweep} Sweep */
/** @typedef {import("../../api").ActionRecord} ActionRecord */

/** @param {{record: ActionRecord}} props */
function Row({ record }) {
  const target = Object.values(record.target ?? {}).join(" ");
  return html`<tr tabindex="-1"><td data-label="Time">${record.at ? html`<time title=${exact(record.at)}>${clock(record.at)}</time>` : "–"}</td>
    <td data-label="Caller">${record.who} <span class="dim">${record.role}</span></td>
    <th scope="row" data-label="Action">${record.action}</th>
    <td class="note" data-label="Target">${target && html`<code class="id">${target}</code>`} ${record.details ? html`<span class="dim">${JSON.stringify(record.details)}</span>` : ""}</td>
    <td class="n" data-label="Count">${record.count ?? ""}</td>
    <td data-label="Result" class=${record.result === "ok" ? "dim" : "bad"}>${record.result}</td></tr>`;
}

/** @param {{store: string}} props */
export function Activity({ store }) {
  const sweeps = useResource(at(store, "sweeps"), { every: 10_000 });
  const actions = useResource(address(at(store, "actions"), { limit: 200 }), { every: 5000 });
  const told = useStore(live, (value) => value.sweeps);
  return html`<${Head} title="Activity" />
    <section><h2>Sweeps</h2><${Loaded} of=${sweeps}>${(/** @type {{items: Sweep[]}} */ { items }) =>
      items.length === 0 ? html`<p class="dim">None since the server started. “Act on all that match” on the page Jobs starts one.</p>`
        : html`<ul class="list">${items.map((it) => told[it.id] ?? it).map((it) => html`<li class="card" key=${it.id}><div class="bar"><b>${ACTIONS[it.action]?.label ?? it.action}</b><span class="grow"><${FilterText} filter=${it.filter} /></span><span class="dim">${it.who} <${Ago} at=${it.started_at} /></span></div><${Progress} store=${store} sweep=${it} /></li>`)}</ul>`}<//></section>
    <section><h2>Action log</h2><${Loaded} of=${actions}>${(/** @type {{items: ActionRecord[]}} */ { items }) =>
      items.length === 0 ? html`<${Empty} title="No action was taken through this server yet" />`
        : html`<div class="scroll"><table class="rows cards"><thead><tr><th>Time</th><th>Caller</th><th>Action</th><th>Target</th><th class="n">Count</th><th>Result</th></tr></thead><tbody>${items.map((record) => html`<${Row} record=${record} />`)}</tbody></table></div>
          <p class="dim">The last ${counted(items.length, "action")}, newest first.</p>`}<//></section>`;
}
