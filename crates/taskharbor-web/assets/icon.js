/** The pictures in the navigation. */

import { html } from "./html.js";

/** @type {Record<string, string>} */
const PATHS = {
  overview: "M2 9h3l2-6 3 10 2-4h2",
  jobs: "M5 4h9M5 8h9M5 12h9M2 4h.01M2 8h.01M2 12h.01",
  dlq: "M8 2 1.5 13.5h13zM8 6.5v3M8 11.5v.01",
  flows: "M4 3.5h0M4 6v4M4 12.5h0M6 3.5h2c3 0 4 1 4 4M2.5 3.5a1.5 1.5 0 1 0 3 0a1.5 1.5 0 1 0-3 0M2.5 12a1.5 1.5 0 1 0 3 0a1.5 1.5 0 1 0-3 0M10.5 9a1.5 1.5 0 1 0 3 0a1.5 1.5 0 1 0-3 0",
  schedules: "M8 4.5V8l2.5 1.5M2 8a6 6 0 1 0 12 0A6 6 0 1 0 2 8",
  queues: "M2 4h12M2 8h8M2 12h5",
  workers: "M3 2.5h10v4H3zM3 9.5h10v4H3zM5.5 4.5h.01M5.5 11.5h.01",
  activity: "M3 2.5h7l3 3v8H3zM5.5 8h5M5.5 10.5h3",
};

/** @param {{name: string}} props */
export const Icon = ({ name }) =>
  html`<svg class="ico" viewBox="0 0 16 16" width="16" height="16" fill="none" stroke="currentColor" stroke-width="1.5" stroke-linecap="round" stroke-linejoin="round" aria-hidden="true"><path d=${PATHS[name]} /></svg>`;

export const Mark = () =>
  html`<svg viewBox="0 0 32 32" width="24" height="24" aria-hidden="true"><rect width="32" height="32" rx="8" fill="var(--accent-strong)" /><path d="M16 6v17M10 12h12M7 18c0 4.5 4 8 9 8s9-3.5 9-8" fill="none" stroke="#fff" stroke-width="2.5" stroke-linecap="round" /></svg>`;
