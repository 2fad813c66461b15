/** Small parts that every page uses. */

import { html, useEffect, useState } from "./html.js";
import { exact, named, relative, span } from "./format.js";
import { now } from "./live.js";
import { Store, useStore } from "./store.js";

const second = new Store(0);
setInterval(() => document.hidden || second.set(second.value + 1), 1000);

/** A point in time, seen from now. @param {{at: string | null | undefined, none?: string}} props */
export function Ago({ at, none = "–" }) {
  useStore(second);
  if (!at) return html`<span class="dim">${none}</span>`;
  return html`<time datetime=${at} title=${exact(at)}>${relative(at, now())}</time>`;
}

/** How long something has lasted. @param {{since: string | null | undefined}} props */
export function Since({ since }) {
  useStore(second);
  if (!since) return html`<span class="dim">–</span>`;
  return html`<time datetime=${since} title=${exact(since)}>${span(now() - new Date(since).getTime())}</time>`;
}

/** @param {{state: string}} props */
export const State = ({ state }) => html`<span class=${`state s-${state}`}>${named(state)}</span>`;

/** A problem, as the API told it. @param {{error: any, retry?: () => void}} props */
export function Failure({ error, retry }) {
  if (!error) return null;
  return html`<div class="failure" role="alert"><div><strong>${error.title ?? "Something failed"}</strong>
    <p>${error.detail ?? (error.title ? "" : error.message)}</p></div>
    ${retry && html`<button type="button" onClick=${retry}>Try again</button>`}</div>`;
}

/** The text in place of an empty list. @param {{title: string, children?: any}} props */
export const Empty = ({ title, children }) =>
  html`<div class="empty"><p><strong>${title}</strong></p>${children}</div>`;

/** @param {{text: string}} props */
export function Copy({ text }) {
  const [isCopied, setCopied] = useState(false);
  useEffect(() => {
    if (!isCopied) return;
    const timer = setTimeout(() => setCopied(false), 1500);
    return () => clearTimeout(timer);
  }, [isCopied]);
  if (!navigator.clipboard) return null;
  const copy = () => navigator.clipboard.writeText(text).then(() => setCopied(true), () => {});
  return html`<button type="button" class="quiet small" onClick=${copy} aria-label="Copy">${isCopied ? "Copied" : "Copy"}</button>`;
}

/** A resource: its content, what stands for it while it loads, and its problem. @param {{of: import("./resource.js").Resource<any>, children: (data: any) => any}} props */
export function Loaded({ of: { data, error, reload }, children }) {
  return html`<${Failure} error=${error} retry=${reload} />
    ${data ? children(data) : !error && html`<p class="wait" aria-busy="true">Loading…</p>`}`;
}

/** The heading of a page. @param {{title: any, children?: any, back?: any}} props */
export const Head = ({ title, children, back }) =>
  html`<header class="head"><div>${back && html`<p class="back">${back}</p>`}<h1 tabindex="-1">${title}</h1></div><div class="actions">${children}</div></header>`;

/** How many of a whole are in which state. @param {{counts: Record<string, number>, total: number}} props */
export function Shares({ counts, total }) {
  const shown = Object.entries(counts).filter(([, number]) => number > 0);
  const text = shown.map(([state, number]) => `${number} ${named(state)}`).join(", ");
  return html`<span class="shares" role="img" aria-label=${text} title=${text}>
    ${shown.map(([state, number]) => html`<i class=${`b-${state}`} style=${{ flexGrow: number / Math.max(1, total) }}></i>`)}</span>`;
}

/** @param {{value: number, max: number, label?: string}} props */
export const Meter = ({ value, max, label }) =>
  html`<span class=${`meter ${value >= max ? "full" : ""}`} title=${label}><i style=${{ width: `${Math.min(100, (100 * value) / Math.max(1, max))}%` }}></i></span>`;
