/**
 * Edit and requeue: a copy of a job with another payload. The payload is text all the way, so numbers
 * keep their digits.
 */

import { address, at, getText, may, post, Problem } from "./api.js";
import { closeDialog, Dialog, notify, showDialog } from "./dialog.js";
import { html, useEffect, useState } from "./html.js";
import { Failure } from "./part.js";
import { go } from "./route.js";

/** @typedef {{store: string, id: string}} Original */

const MAX_CHARACTERS = 512 * 1024;

/** @param {Original} original */
export const showEditor = (original) => showDialog(() => html`<${Editor} original=${original} />`);

/** Lines and indents of JSON, with every token kept as it is. @param {string} text */
export function indented(text) {
  try {
    JSON.parse(text);
  } catch {
    return text;
  }
  let depth = 0;
  const tokens = text.match(/"(?:[^"\\]|\\.)*"|[[\]{},:]|[^\s[\]{},:"]+/g) ?? [];
  const start = () => `\n${"  ".repeat(depth)}`;
  return tokens.reduce((out, token, index) => {
    const [before, after] = [tokens[index - 1] ?? "", tokens[index + 1] ?? ""];
    if (token === "{" || token === "[") {
      depth += 1;
      return out + token + (after === "}" || after === "]" ? "" : start());
    }
    if (token === "}" || token === "]") {
      depth -= 1;
      return out + (before === "{" || before === "[" ? "" : start()) + token;
    }
    return out + token + (token === "," ? start() : token === ":" ? " " : "");
  }, "");
}

/** The request for the copy; the payload goes in as it was typed. @param {import("../api").JobRecord} record @param {string} payload */
function request(record, payload) {
  const { job } = record;
  const headers = Object.entries(job.headers ?? {}).filter(([name]) => !name.startsWith("th-"));
  const rest = {
    type: job.type,
    queue: job.queue,
    priority: job.priority,
    ...(job.lane && { lane: job.lane }),
    ...(job.max_attempts && { max_attempts: job.max_attempts }),
    ...(job.timeout_nanos && { timeout_seconds: job.timeout_nanos / 1e9 }),
    ...(headers.length && { headers: Object.fromEntries(headers) }),
  };
  return `{"payload":${payload},${JSON.stringify(rest).slice(1)}`;
}

/** @param {string} text */
function invalid(text) {
  try {
    JSON.parse(text);
    return "";
  } catch (error) {
    return /** @type {Error} */ (error).message;
  }
}

/** @param {{original: Original}} props */
function Editor({ original: { store, id } }) {
  const [text, setText] = useState(/** @type {string | null} */ (null));
  const [record, setRecord] = useState(/** @type {import("../api").JobRecord | null} */ (null));
  const [problem, setProblem] = useState(/** @type {Error | null} */ (null));
  const [isReplaced, setReplaced] = useState(may("admin"));
  useEffect(() => {
    const job = at(store, "jobs", id);
    Promise.all([getText(job), getText(address(`${job}/payload`, { download: 1 }))]).then(([found, payload]) => {
      if (payload.length > MAX_CHARACTERS) throw new Problem(0, "too_large", "The payload is too large to edit here", "enqueue a job with the changed payload from a program");
      setRecord(JSON.parse(found));
      setText(indented(payload));
    }).catch(setProblem);
  }, [id]);
  const wrong = text === null ? "" : invalid(text);
  const enqueue = async () => {
    if (!record || text === null) return;
    try {
      const made = await post(at(store, "jobs"), request(record, text));
      if (isReplaced) await post(at(store, "jobs", id, "purge"));
      notify(isReplaced ? "Enqueued with the new payload; the old job is purged" : "Enqueued with the new payload");
      closeDialog();
      go(["jobs", made.id ?? made.jobs?.[0]?.id]);
    } catch (error) {
      setProblem(/** @type {Error} */ (error));
    }
  };
  return html`<${Dialog} title="Edit and requeue" wide>
    <p class="dim">A payload never changes. This enqueues a new job of type <b>${record?.job.type ?? "…"}</b> in queue <b>${record?.job.queue ?? "…"}</b> with the payload below. Its attempts start at zero.</p>
    <${Failure} error=${problem} />
    ${text === null ? !problem && html`<p class="wait" aria-busy="true">Loading…</p>` : html`
      <textarea class="code" rows="14" aria-label="Payload" aria-invalid=${Boolean(wrong)} spellcheck=${false} value=${text} onInput=${(/** @type {any} */ event) => setText(event.target.value)}></textarea>
      <p class=${wrong ? "bad" : "dim"} role="status">${wrong || "Valid JSON"}</p>
      ${may("admin") && html`<label class="check"><input type="checkbox" checked=${isReplaced} onChange=${(/** @type {any} */ event) => setReplaced(event.target.checked)} /> Purge the old job afterwards</label>`}`}
    <footer><button type="button" onClick=${closeDialog}>Keep as it is</button>
      <button type="button" class="primary" disabled=${text === null || Boolean(wrong)} onClick=${enqueue}>Enqueue</button></footer>
  <//>`;
}
