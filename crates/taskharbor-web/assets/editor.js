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

/** A new id, as the library makes them: of the time, then random. */
function newId() {
  const random = [...crypto.getRandomValues(new Uint8Array(10))];
  const hex = (/** @type {number} */ number, length = 2) => number.toString(16).padStart(length, "0");
  const digits = `${hex(Date.now(), 12)}7${random.map((byte) => hex(byte)).join("").slice(0, 19)}`;
  const marked = `${digits.slice(0, 16)}${"89ab"[(random[9] ?? 0) % 4]}${digits.slice(17)}`;
  return marked.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, "$1-$2-$3-$4-$5");
}

/** The request for the copy; the payload goes in as it was typed. @param {string} id @param {import("../api").JobRecord} record @param {string} payload */
function request(id, { job }, payload) {
  const headers = Object.entries(job.headers ?? {}).filter(([name]) => !name.startsWith("th-"));
  const rest = {
    id,
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
  const [isBusy, setBusy] = useState(false);
  // One id for all tries, so that the job is stored once. While the result of a try is unknown, the
  // payload stays as it was sent.
  const [copy] = useState(newId);
  const [isSent, setSent] = useState(false);
  useEffect(() => {
    const job = at(store, "jobs", id);
    Promise.all([getText(job), getText(address(`${job}/payload`, { download: 1 }))]).then(([found, payload]) => {
      if (payload.length > MAX_CHARACTERS) throw new Problem(0, "too_large", "The payload is too large to edit here", "enqueue a job with the changed payload from a program");
      setRecord(JSON.parse(found));
      setText(indented(payload));
    }).catch(setProblem);
  }, [id]);
  const wrong = text === null ? "" : invalid(text);
  // The members of a flow are removed with it.
  const canReplace = may("admin") && !record?.job.flow;
  const purge = () => post(at(store, "jobs", id, "purge")).then(
    () => notify("Enqueued with the new payload; the old job is purged"),
    (error) => notify(`Enqueued with the new payload. The old job is still there: ${error.message}`, { isError: true }),
  );
  const enqueue = async () => {
    if (!record || text === null) return;
    setBusy(true);
    setSent(true);
    try {
      await post(at(store, "jobs"), request(copy, record, text));
      if (canReplace && isReplaced) await purge();
      else notify("Enqueued with the new payload");
      closeDialog();
      go(["jobs", copy]);
    } catch (error) {
      const { status } = /** @type {Problem} */ (error);
      setProblem(/** @type {Error} */ (error));
      // A refusal has stored nothing.
      setSent(isSent || !(status >= 400 && status < 500));
      setBusy(false);
    }
  };
  return html`<${Dialog} title="Edit and requeue" wide>
    <p class="dim">A payload never changes. This enqueues a new job of type <b>${record?.job.type ?? "…"}</b> in queue <b>${record?.job.queue ?? "…"}</b> with the payload below. Its attempts start at zero.</p>
    <${Failure} error=${problem} />
    ${text === null ? !problem && html`<p class="wait" aria-busy="true">Loading…</p>` : html`
      <textarea class="code" rows="14" aria-label="Payload" aria-invalid=${Boolean(wrong)} spellcheck=${false} readonly=${isSent} value=${text} onInput=${(/** @type {any} */ event) => setText(event.target.value)}></textarea>
      <p class=${wrong ? "bad" : "dim"} role="status">${wrong || "Valid JSON"}</p>
      ${canReplace && html`<label class="check"><input type="checkbox" checked=${isReplaced} onChange=${(/** @type {any} */ event) => setReplaced(event.target.checked)} /> Purge the old job afterwards</label>`}`}
    <footer><button type="button" onClick=${closeDialog}>Keep as it is</button>
      <button type="button" class="primary" disabled=${text === null || Boolean(wrong) || isBusy} onClick=${enqueue}>${isSent && !isBusy ? "Try again" : "Enqueue"}</button></footer>
  <//>`;
}
