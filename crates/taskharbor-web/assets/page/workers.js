/** The workers that have announced themselves: their queues, their work and their health. */

import { at } from "../api.js";
import { Action, change } from "../action.js";
import { count, counted, span } from "../format.js";
import { html } from "../html.js";
import { More, usePages } from "../list.js";
import { Ago, Empty, Head, Loaded, Meter, Since } from "../part.js";
import { to } from "../route.js";

/** @typedef {import("../../api").WorkerView} WorkerView */

/** @param {{it: WorkerView}} props */
function Health({ it }) {
  const info = it.info;
  if (it.overdue) return html`<span class="tag bad">overdue</span>`;
  if (info?.problems?.length) return html`<span class="tag bad">not consuming</span>`;
  return html`<span class=${`tag ${info?.phase === "working" ? "good" : "warn"}`}>${info?.phase ?? "unknown"}</span>`;
}

/** @param {{it: WorkerView}} props */
function Served({ it }) {
  const queues = it.info?.queues ?? [];
  return html`<table class="served"><thead><tr><th>Queue</th><th class="n">Busy</th><th></th><th class="n">Done</th><th class="n">Failed</th><th class="n">DLQ</th><th class="n">Lost</th></tr></thead>
    <tbody>${queues.map((queue) => html`<tr><th scope="row"><a href=${to(["queues", queue.name])}>${queue.name}</a></th>
      <td class="n">${queue.busy}<span class="dim"> of ${queue.slots}</span></td><td class="wide-cell"><${Meter} value=${queue.busy} max=${queue.slots} /></td>
      <td class="n">${count(queue.done)}</td><td class="n">${count(queue.failed)}</td><td class=${queue.dead ? "n bad" : "n"}>${count(queue.dead)}</td><td class=${queue.lost ? "n warn" : "n"}>${count(queue.lost)}</td></tr>`)}</tbody></table>
    ${it.info?.queues_left_out ? html`<p class="dim">and ${counted(it.info.queues_left_out, "more queue")}</p>` : ""}`;
}

/** @param {{store: string, it: WorkerView, reload: () => void}} props */
function Worker({ store, it, reload }) {
  const info = it.info;
  const evict = async () => (await change(at(store, "workers", it.holder, "evict"), {}, `The leases of ${it.holder} have ended`)) && reload();
  const about = [info?.host, info?.pid && `pid ${info.pid}`, info?.version && `version ${info.version}`, info?.library && `taskharbor ${info.library}`].filter(Boolean).join(", ");
  return html`<li class="card worker" tabindex="-1"><div class="bar"><h2>${it.holder}</h2><${Health} it=${it} />
      <span class="dim grow">${about}</span>
      <${Action} role="admin" kind="danger small" label="Evict" ask=${{ title: `Evict ${it.holder}?`, text: "All its leases end now, and other workers get its jobs. Evict a worker that has died. If it is alive, the store refuses its outcomes, and its jobs run twice." }} run=${evict} /></div>
    ${info?.problems?.map((problem) => html`<p class="bad">${problem}</p>`)}
    <p class="dim">started <${Ago} at=${it.started_at} />, seen <${Ago} at=${it.seen_at} />${it.overdue ? html`, overdue for <${Since} since=${it.expires_at} />` : ""}${info?.oldest_secs ? `, oldest handler has been running for ${span(info.oldest_secs * 1000)}` : ""}${info && !info.wake_ups ? ", gets no wake-ups and polls" : ""}</p>
    ${info?.queues?.length ? html`<${Served} it=${it} />` : ""}
    ${info?.types?.length ? html`<details><summary>${counted(info.types.length + (info.types_left_out ?? 0), "type")}</summary><p class="types">${info.types.map((type) => html`<span class="chip">${type}</span> `)}</p></details>` : ""}
  </li>`;
}

/** @param {{store: string}} props */
export function Workers({ store }) {
  const resource = usePages(at(store, "workers"), { every: 5000 });
  return html`<${Head} title="Workers" />
    <${Loaded} of=${resource}>${(/** @type {{items: WorkerView[]}} */ { items }) =>
      items.length === 0
        ? html`<${Empty} title="No worker has announced itself"><p>Start one from your program, or from a terminal:</p><pre><code>taskharbor worker --exec 'text:count=wc -w'</code></pre><//>`
        : html`<ul class="list">${items.map((it) => html`<${Worker} key=${it.holder + it.incarnation} store=${store} it=${it} reload=${resource.reload} />`)}</ul>
          <${More} list=${resource} what="worker" />`}<//>`;
}
