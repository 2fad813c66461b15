/** Dead-lettered jobs, grouped by error: many failures usually have few causes. */

import { address, at } from "../api.js";
import { Action } from "../action.js";
import { showEditor } from "../editor.js";
import { count, counted, line } from "../format.js";
import { html } from "../html.js";
import { Ago, Empty, Head, Loaded } from "../part.js";
import { useResource } from "../resource.js";
import { refine, to } from "../route.js";
import { showSweep } from "../sweep.js";

/** @typedef {import("../../api").DlqGroup} DlqGroup */

/** @param {{store: string, group: DlqGroup, filter: Record<string, string>}} props */
function Group({ store, group, filter }) {
  const { fingerprint, error } = group;
  const sweep = (/** @type {string} */ action) => showSweep({ store, action, fingerprint, error, filter: { state: "dlq", ...filter } });
  return html`<li class="card group" tabindex="-1">
    <div class="bar"><b class="big n">${count(group.count)}</b>
      <div class="grow"><p class="error" title=${line(error, 2000)}>${line(error, 240)}</p>
        <p class="dim">${group.types.join(", ")} in ${group.queues.join(", ")}. Last <${Ago} at=${group.last_at} />, first <${Ago} at=${group.first_at} /></p></div>
      <div class="actions"><${Action} kind="primary" label="Requeue" run=${() => sweep("requeue")} /><${Action} role="admin" kind="danger" label="Purge" run=${() => sweep("purge")} /></div></div>
    <details><summary>${counted(group.sample_ids.length, "sample")}</summary>
      <ul class="samples">${group.sample_ids.map((id) => html`<li><a href=${to(["jobs", id])}><code class="id">${id}</code></a>
        <${Action} kind="small" payloads label="Edit and requeue…" run=${() => showEditor({ store, id })} /></li>`)}</ul></details>
  </li>`;
}

/** @param {{store: string, params: Record<string, string>}} props */
export function Dlq({ store, params }) {
  const { queue = "", type = "" } = params;
  const resource = useResource(address(at(store, "dlq", "groups"), { queue, type }), { every: 10_000 });
  const filter = { ...(queue && { queue }), ...(type && { type }) };
  const field = (/** @type {string} */ name, /** @type {string} */ label, /** @type {string} */ value, isFirst = false) =>
    html`<label>${label}<input value=${value} data-filter=${isFirst} onChange=${(/** @type {any} */ event) => refine({ [name]: event.target.value.trim() })} /></label>`;
  return html`<${Head} title="DLQ"><a class="button" href=${to(["jobs"], { state: "dlq", ...filter })}>Show as list</a><//>
    <form class="fields" onSubmit=${(/** @type {Event} */ event) => event.preventDefault()}>${field("type", "Type", type, true)}${field("queue", "Queue", queue)}</form>
    <${Loaded} of=${resource}>${(/** @type {import("../../api").DlqGroups} */ data) =>
      data.groups.length === 0
        ? html`<${Empty} title=${queue || type ? "No dead-lettered job matches" : "No dead-lettered jobs"}><p>Jobs are dead-lettered after their last failed attempt, or at once after a permanent failure.</p><//>`
        : html`<ul class="list">${data.groups.map((group) => html`<${Group} key=${group.fingerprint} store=${store} group=${group} filter=${filter} />`)}</ul>
          <p class="dim">${counted(data.groups.length, "group")} of the ${data.is_complete ? "" : "newest "}${counted(data.looked_at, "dead-lettered job")}.${data.left_out ? ` ${counted(data.left_out, "smaller group")} not shown: filter by type or queue to see them.` : ""}${data.is_complete ? "" : " Older ones are in the list."} Errors are in one group if they differ only in numbers, ids, quoted parts, paths and addresses.</p>`}
    <//>`;
}
