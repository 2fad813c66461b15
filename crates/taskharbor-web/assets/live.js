/**
 * Live updates of a store: server-sent events, or a request every 5 s if events do not get through. A
 * hidden tab makes no requests.
 */

import { address, at, get, session } from "./api.js";
import { Store } from "./store.js";

/**
 * @typedef {object} Live
 * @property {"connecting" | "live" | "polling" | "paused" | "lost"} status
 * @property {import("../api").Overview | null} overview
 * @property {{since: string | null, code: string} | null} away
 * @property {Record<string, import("../api").Sweep>} sweeps
 * @property {number} clock how far the store's clock is ahead of ours, in milliseconds
 */

const POLL_MS = 5000;
const FAILURES = 3;
const RETRY_EVENTS_MS = 60_000;

/** @type {Live} */
const NOTHING = { status: "connecting", overview: null, away: null, sweeps: {}, clock: 0 };

export const live = new Store(NOTHING);

/** The store's time, as far as it is known. */
export const now = () => Date.now() + live.value.clock;

let store = "";
let isPaused = false;
let failures = 0;
/** @type {EventSource | null} */
let source = null;
/** @type {ReturnType<typeof setTimeout> | undefined} */
let timer;
/** Grows with every stop: what was begun before has nothing to say any more. */
let turn = 0;

/** @param {import("../api").Overview} overview */
function overviewCame(overview) {
  const { at: counted, age_ms, away } = overview;
  const clock = counted ? new Date(counted).getTime() + age_ms - Date.now() : live.value.clock;
  // A small difference is the way of the message, and times would tremble.
  const kept = Math.abs(clock - live.value.clock) < 500 ? live.value.clock : clock;
  live.patch({ overview, away, clock: kept });
}

/** @param {import("../api").Sweep} sweep */
export function sweepCame(sweep) {
  live.patch({ sweeps: { ...live.value.sweeps, [sweep.id]: sweep } });
}

/** @param {MessageEvent} event @param {(data: any) => void} take */
function read(event, take) {
  failures = 0;
  live.patch({ status: "live" });
  try {
    take(JSON.parse(event.data));
  } catch (error) {
    console.error("unreadable event", error);
  }
}

function stop() {
  turn += 1;
  clearTimeout(timer);
  source?.close();
  source = null;
}

function listen() {
  stop();
  source = new EventSource(address(at(store, "events")));
  source.addEventListener("open", () => live.patch({ status: "live" }));
  source.addEventListener("overview", (event) => read(event, overviewCame));
  source.addEventListener("sweep", (event) => read(event, sweepCame));
  source.addEventListener("store", (event) => read(event, (data) => live.patch({ away: data.away ?? null })));
  source.addEventListener("error", () => {
    failures += 1;
    stop();
    if (failures >= FAILURES) poll();
    else timer = setTimeout(listen, 500 * failures);
  });
}

/** How long events have not got through. */
let polledMs = 0;

async function poll() {
  stop();
  const asked = turn;
  try {
    const overview = await get(at(store, "overview"));
    if (asked !== turn) return;
    overviewCame(overview);
    live.patch({ status: "polling" });
  } catch {
    if (asked !== turn) return;
    live.patch({ status: "lost" });
  }
  polledMs += POLL_MS;
  if (polledMs >= RETRY_EVENTS_MS || live.value.status === "lost") {
    polledMs = 0;
    failures = FAILURES - 1;
    timer = setTimeout(listen, POLL_MS);
  } else {
    timer = setTimeout(poll, POLL_MS);
  }
}

/** Begins or stops, as the tab, the caller and the access allow. */
function decide() {
  if (isPaused || document.hidden || !store || !session.value?.role) {
    stop();
    if (store && session.value?.role) live.patch({ status: "paused" });
  } else if (!source) {
    failures = 0;
    polledMs = 0;
    if (live.value.status !== "live") live.patch({ status: "connecting" });
    listen();
  }
}

/** Watches this store from now on. @param {string} name */
export function watchStore(name) {
  if (name === store) return;
  stop();
  store = name;
  live.set(NOTHING);
  decide();
}

export function togglePause() {
  isPaused = !isPaused;
  decide();
}

document.addEventListener("visibilitychange", decide);
session.watchers.add(() => decide());
