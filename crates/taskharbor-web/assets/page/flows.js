/** The list of flows, with their progress. */

import { address, at, get } from "../api.js";
import { notify } from "../dialog.js";
import { counted } from "../format.js";
import { html, useEffect, useState } from "../html.js";
import { Ago, Empty, Head, Loaded, Shares, State } from "../part.js";
import { useResource } from "../resource.js";
import { refine, to } from "../route.js";

/** @typedef {import("../../api").FlowRecord} FlowRecord */
/** @typedef {import("../../api").Page<FlowRecord>} FlowPage */

const STATES = ["running", "blocked", "done", "failed", "cancelled"];

/** How many members a flow has. @param {FlowRecord} flow */
export const members = (flow) => Object.values(flow.members).reduce((sum, number) => sum + number, 0);

/** @param {{flow: FlowRecord}} props */
function FlowRow({ flow }) {
  const total = members(flow);
  return html`<tr tabindex="-1">
    <td data-label="State"><${State} state=${flow.state} /></td>
    <th scope="row" data-label="Flow"><a href=${to(["flows", flow.id])}>${flow.name ?? html`<code class="id">${flow.id}</code>`}</a>${flow.name && html`<br /><code class="dim id">${flow.id}</code>`}</th>
    <td data-label="Progress" class="wide-cell"><${Shares} counts=${flow.members} total=${total} /></td>
    <td class="n" data-label="Members">${flow.members.done} <span class="dim">of ${total}</span></td>
    <td class="n" data-label="Began"><${Ago} at=${flow.created_at} /></td>
    <td class="n" data-label="Ended"><${Ago} at=${flow.finished_at} /></td>
  </tr>`;
}

/** @param {{store: string, params: Record<string, string>}} props */
export function Flows({ store, params }) {
  const query = { state: params["state"], name: params["name"], limit: 50 };
  const key = JSON.stringify(query);
  const [more, setMore] = useState(/** @type {FlowPage[]} */ ([]));
  useEffect(() => setMore([]), [key, store]);
  const first = useResource(address(at(store, "flows"), query), more.length ? {} : { every: 3000 });
  const isFiltered = params["state"] || params["name"];
  const load = (/** @type {string} */ after) =>
    get(address(at(store, "flows"), { ...query, after })).then(
      (page) => setMore((old) => [...old, page]),
      (error) => notify(error.message, { isError: true }),
    );
  return html`<${Head} title="Flows" />
    <div class="filters"><div class="tabs states" role="group" aria-label="State">
      ${["", ...STATES].map((state) => html`<button type="button" aria-pressed=${(params["state"] ?? "") === state} onClick=${() => refine({ state })}>${state || "all"}</button>`)}</div>
      <form class="fields" onSubmit=${(/** @type {Event} */ event) => event.preventDefault()}><label>Name<input data-filter value=${params["name"] ?? ""} onChange=${(/** @type {any} */ event) => refine({ name: event.target.value.trim() })} /></label></form></div>
    <${Loaded} of=${first}>${(/** @type {FlowPage} */ data) => {
      const pages = [data, ...more];
      const items = pages.flatMap((page) => page.items);
      const next = pages.at(-1)?.next;
      if (!items.length && !next) {
        return html`<${Empty} title=${isFiltered ? "No flow matches" : "No flows yet"}><p>A flow is a set of jobs that depend on each other: a chain, a group, a chord, or a flow that a handler returned.</p><//>`;
      }
      return html`<div class="scroll"><table class="rows cards">
        <thead><tr><th>State</th><th>Flow</th><th>Progress</th><th class="n">Done</th><th class="n">Began</th><th class="n">Ended</th></tr></thead>
        <tbody>${items.map((flow) => html`<${FlowRow} key=${flow.id} flow=${flow} />`)}</tbody></table></div>
        <p class="bar dim more">${counted(items.length, "flow")} shown${next ? html` <button type="button" onClick=${() => load(next)}>Load more</button>` : ", that is all"}</p>`;
    }}<//>`;
}
