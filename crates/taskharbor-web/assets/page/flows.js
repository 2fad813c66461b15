/** The list of flows, with their progress. */

import { address, at } from "../api.js";
import { html } from "../html.js";
import { More, usePages } from "../list.js";
import { Ago, Empty, Head, Loaded, Shares, State } from "../part.js";
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
  const flows = usePages(address(at(store, "flows"), { state: params["state"], name: params["name"], limit: 50 }), { every: 3000 });
  const isFiltered = params["state"] || params["name"];
  return html`<${Head} title="Flows" />
    <div class="filters"><div class="tabs states" role="group" aria-label="State">
      ${["", ...STATES].map((state) => html`<button type="button" aria-pressed=${(params["state"] ?? "") === state} onClick=${() => refine({ state })}>${state || "all"}</button>`)}</div>
      <form class="fields" onSubmit=${(/** @type {Event} */ event) => event.preventDefault()}><label>Name<input data-filter value=${params["name"] ?? ""} onChange=${(/** @type {any} */ event) => refine({ name: event.target.value.trim() })} /></label></form></div>
    <${Loaded} of=${flows}>${(/** @type {FlowPage} */ { items, next }) =>
      items.length === 0 && !next
        ? html`<${Empty} title=${isFiltered ? "No flow matches" : "No flows yet"}><p>A flow is a set of jobs that depend on each other: a chain, a group, a chord, or a flow that a handler returned.</p><//>`
        : html`<div class="scroll"><table class="rows cards">
        <thead><tr><th>State</th><th>Flow</th><th>Progress</th><th class="n">Done</th><th class="n">Began</th><th class="n">Ended</th></tr></thead>
        <tbody>${items.map((flow) => html`<${FlowRow} key=${flow.id} flow=${flow} />`)}</tbody></table></div>
        <${More} list=${flows} what="flow" />`}<//>`;
}
