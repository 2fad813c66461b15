/** One flow, as a live graph. The server computes the layout. */

import { at } from "../api.js";
import { Action, change } from "../action.js";
import { line, named } from "../format.js";
import { html, useEffect, useRef, useState } from "../html.js";
import { Ago, Copy, Failure, Head, Loaded, Shares, State } from "../part.js";
import { useResource } from "../resource.js";
import { to } from "../route.js";
import { members } from "./flows.js";

/** @typedef {import("../../api").Graph} Graph */
/** @typedef {import("../../api").GraphNode} GraphNode */

const BOX = { width: 168, height: 46 };
const GAP = { x: 72, y: 22 };
const ENDED = ["done", "failed", "cancelled"];
const ZOOMS = [0.35, 0.5, 0.7, 0.85, 1, 1.25, 1.6];

/** @param {GraphNode} node */
const left = (node) => node.layer * (BOX.width + GAP.x) + 12;
/** @param {GraphNode} node */
const top = (node) => node.position * (BOX.height + GAP.y) + 12;

/** The state that a group shows: what needs a person first, then what goes on. @param {Record<string, number>} counts */
function stateOf(counts) {
  const order = ["dlq", "inflight", "ready", "scheduled", "blocked", "cancelled", "done"];
  return order.find((state) => (counts[state] ?? 0) > 0) ?? "done";
}

/** @param {{node: GraphNode}} props */
function Box({ node }) {
  const total = node.counts ? Object.values(node.counts).reduce((sum, number) => sum + number, 0) : 1;
  const state = node.state ?? stateOf(node.counts ?? {});
  const told = node.counts && Object.entries(node.counts).filter(([, number]) => number).map(([name, number]) => `${number} ${named(name)}`).join(", ");
  const body = html`<title>${`${node.type}: ${told ?? named(state)}`}</title>
    ${total > 1 && html`<rect class="behind" x="4" y="4" width=${BOX.width} height=${BOX.height} rx="7" />`}
    <rect class="box" width=${BOX.width} height=${BOX.height} rx="7" />
    <rect class=${`edge f-${state}`} width="4" height=${BOX.height - 16} x="7" y="8" rx="2" />
    <text x="18" y="20">${line(node.label ?? node.type, 22)}</text>
    <text class="dim" x="18" y="36">${told ? line(told, 26) : `${named(state)}${node.attempts ? `, failed ${node.attempts} ×` : ""}`}</text>`;
  const place = `translate(${left(node)},${top(node)})`;
  if (!node.job) return html`<g class=${`node s-${state}`} transform=${place}>${body}</g>`;
  return html`<a href=${to(["jobs", node.job])} class=${`node s-${state}`} transform=${place} aria-label=${`${node.type}, ${named(state)}`}>${body}</a>`;
}

/** @param {{graph: Graph}} props */
function Picture({ graph }) {
  const [zoom, setZoom] = useState(4);
  const [isFit, setFit] = useState(true);
  const frame = useRef(/** @type {HTMLDivElement | null} */ (null));
  const nodes = new Map(graph.nodes.map((node) => [node.id, node]));
  const width = Math.max(...graph.nodes.map(left), 0) + BOX.width + 24;
  const height = Math.max(...graph.nodes.map(top), 0) + BOX.height + 24;
  useEffect(() => {
    const room = frame.current?.clientWidth ?? width;
    if (!isFit) return;
    const fits = ZOOMS.findLastIndex((scale) => scale <= 1 && scale * width <= room);
    setZoom(Math.max(0, fits));
  }, [width, isFit]);
  const scale = ZOOMS[zoom] ?? 1;
  const step = (/** @type {number} */ by) => {
    setFit(false);
    setZoom(Math.min(ZOOMS.length - 1, Math.max(0, zoom + by)));
  };
  const drag = (/** @type {PointerEvent} */ event) => {
    const element = frame.current;
    if (!element || event.button !== 0 || event.pointerType === "touch" || (event.target instanceof Element && event.target.closest("a"))) return;
    const [x, y, atX, atY] = [event.clientX, event.clientY, element.scrollLeft, element.scrollTop];
    const move = (/** @type {PointerEvent} */ now) => element.scrollTo(atX - now.clientX + x, atY - now.clientY + y);
    element.setPointerCapture(event.pointerId);
    element.addEventListener("pointermove", move);
    element.addEventListener("pointerup", () => element.removeEventListener("pointermove", move), { once: true });
  };
  return html`<div class="graph">
    <div class="zoom" role="group" aria-label="Zoom"><button type="button" class="small" aria-label="Smaller" onClick=${() => step(-1)}>−</button>
      <button type="button" class="small" onClick=${() => setFit(true)}>${Math.round(scale * 100)} %</button>
      <button type="button" class="small" aria-label="Larger" onClick=${() => step(1)}>+</button></div>
    <div class="canvas" ref=${frame} tabindex="0" role="group" aria-label="Graph of the flow" onPointerDown=${drag}>
      <svg width=${width * scale} height=${height * scale} viewBox=${`0 0 ${width} ${height}`}>
        ${graph.edges.map(({ from, to: into, count }) => {
          const [a, b] = [nodes.get(from), nodes.get(into)];
          if (!a || !b) return null;
          const [x1, y1, x2, y2] = [left(a) + BOX.width, top(a) + BOX.height / 2, left(b), top(b) + BOX.height / 2];
          const bend = Math.max(24, (x2 - x1) / 2);
          return html`<path class="link-line" d=${`M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}`} stroke-width=${count && count > 1 ? 2.5 : 1.5} />`;
        })}
        ${graph.nodes.map((node) => html`<${Box} key=${node.id} node=${node} />`)}
      </svg></div></div>`;
}

/** @param {{store: string, id: string}} props */
export function Flow({ store, id }) {
  const [every, setEvery] = useState(2000);
  const flow = useResource(at(store, "flows", id), { every });
  const graph = useResource(at(store, "flows", id, "graph"), { every });
  const record = /** @type {import("../../api").FlowRecord | null} */ (flow.data);
  const drawn = /** @type {Graph | null} */ (graph.data);
  const isOver = record && ENDED.includes(record.state);
  useEffect(() => setEvery(isOver ? 15_000 : 2000), [isOver]);
  const act = (/** @type {string} */ action, /** @type {string} */ done) => async () =>
    (await change(at(store, "flows", id, action), {}, done)) && flow.reload();
  const title = record ? html`${record.name ?? "Flow"} <${State} state=${record.state} />` : "Flow";
  return html`<${Head} back=${html`<a href=${to(["flows"])}>Flows</a>`} title=${title}>
      ${record && !isOver && html`<${Action} label="Cancel" ask=${{ title: "Cancel this flow?", text: "All its jobs that are not terminal are cancelled. Workers of jobs in flight are told to stop them." }} run=${act("cancel", "The flow is cancelled")} />`}
      ${record && record.members.dlq > 0 && html`<${Action} label="Requeue dead-lettered jobs" run=${act("requeue", "The dead-lettered jobs are requeued")} />`}
      ${isOver && html`<${Action} role="admin" kind="danger" label="Purge" ask=${{ title: "Purge this flow?", text: "All its jobs are removed with their payloads, outputs and errors. This cannot be undone." }} run=${act("purge", "The flow is purged")} />`}
    <//>
    <p class="ids"><code class="id">${id}</code> <${Copy} text=${id} /></p>
    <${Loaded} of=${flow}>${(/** @type {import("../../api").FlowRecord} */ it) => html`
      <div class="bar"><${Shares} counts=${it.members} total=${members(it)} />
        <span>${it.members.done} of ${members(it)} done</span><span class="dim">began <${Ago} at=${it.created_at} />${it.finished_at && html`, ended <${Ago} at=${it.finished_at} />`}</span>
        ${it.members.dlq > 0 && html`<span class="bad">${it.members.dlq} in the DLQ</span>`}
        <a href=${to(["jobs", it.tail])}>last job</a></div>`}<//>
    <${Failure} error=${graph.error} retry=${graph.reload} />
    ${drawn && html`${drawn.grouped && html`<p class="dim">This flow is large: jobs of one type in one step are drawn as one box with their counts.${drawn.read < drawn.members && ` The edges of ${drawn.read} of ${drawn.members} jobs are known. The others are drawn beside jobs of their type.`}</p>`}<${Picture} graph=${drawn} />
      <p class="legend">${["blocked", "scheduled", "ready", "inflight", "done", "dlq", "cancelled"].map((state) => html`<${State} state=${state} />`)}</p>`}`;
}
