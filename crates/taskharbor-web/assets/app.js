/** The frame around the pages: navigation, stores, live status, access. */

import { get, may, remove, session } from "./api.js";
import { notify, Overlay } from "./dialog.js";
import { clock, short } from "./format.js";
import { html, render, useEffect, useRef, useState } from "./html.js";
import { Icon, Mark } from "./icon.js";
import { PAGES, showHelp } from "./keyboard.js";
import { live, togglePause, watchStore } from "./live.js";
import { Failure, Since } from "./part.js";
import { go, to, useRoute } from "./route.js";
import { useStore } from "./store.js";
import { theme, toggleTheme } from "./theme.js";
import { Activity } from "./page/activity.js";
import { Dlq } from "./page/dlq.js";
import { Flow } from "./page/flow.js";
import { Flows } from "./page/flows.js";
import { Job } from "./page/job.js";
import { Jobs } from "./page/jobs.js";
import { Login } from "./page/login.js";
import { Overview } from "./page/overview.js";
import { Queue, Queues } from "./page/queues.js";
import { Schedule, Schedules } from "./page/schedules.js";
import { Workers } from "./page/workers.js";

/** A page, and the page of one thing on it. @type {Record<string, [any, any?]>} */
const VIEWS = {
  overview: [Overview],
  jobs: [Jobs, Job],
  dlq: [Dlq],
  flows: [Flows, Flow],
  schedules: [Schedules, Schedule],
  queues: [Queues, Queue],
  workers: [Workers],
  activity: [Activity],
};

const STATUS = {
  connecting: "Connecting…",
  live: "Live",
  polling: "Every 5 s",
  paused: "Paused",
  lost: "Server away",
};

function Status() {
  const { status, away } = useStore(live);
  const shown = away && status !== "lost" ? "Store away" : STATUS[status];
  const title = status === "paused" ? "Resume live updates (p)" : "Pause live updates (p)";
  return html`<button type="button" class=${`quiet status ${away ? "lost" : status}`} title=${title} onClick=${togglePause}>
    <i></i><span role="status">${shown}</span></button>`;
}

/** What a page's entry in the navigation counts. @param {string} page @param {import("../api").Overview | null} overview */
function badge(page, overview) {
  if (!overview) return null;
  const dlq = overview.queues.reduce((sum, queue) => sum + queue.dlq, 0);
  /** @type {Record<string, [number, string, string]>} */
  const badges = {
    dlq: [dlq, "bad", "dead-lettered"],
    schedules: [overview.schedules_late, "bad", "late"],
    workers: [overview.workers, "", "announced"],
  };
  const found = badges[page];
  if (!found?.[0]) return null;
  const [number, kind, what] = found;
  return html`<span class=${`badge ${kind}`} title=${`${number} ${what}`}>${short(number)}</span>`;
}

/** @param {{page: string}} props */
function Navigation({ page }) {
  const overview = useStore(live, (value) => value.overview);
  return html`<nav aria-label="Pages">
    ${Object.entries(PAGES).map(([key, [name, title]]) => html`<a href=${to([name])} title=${`g ${key}`}
      class=${name === page ? "here" : ""} aria-current=${name === page ? "page" : undefined}>
      <${Icon} name=${name} /><span>${title}</span>${badge(name, overview)}</a>`)}
  </nav>`;
}

/** @param {{stores: import("../api").StoreInfo[], store: string}} props */
function Stores({ stores, store }) {
  if (stores.length < 2) return null;
  const value = stores.some(({ name }) => name === store) ? store : stores[0]?.name;
  return html`<label class="stores"><span class="sr">Store</span>
    <select value=${value} onChange=${(/** @type {any} */ event) => (location.hash = to(["overview"], {}, event.target.value))}>
      ${stores.map(({ name, kind }) => html`<option value=${name}>${name} · ${kind}</option>`)}
    </select></label>`;
}

function Who() {
  const who = useStore(session);
  const leave = async () => {
    await remove("v1/session").catch((error) => notify(error.message, { isError: true }));
    session.set(await get("v1/session").catch(() => ({ role: null })));
  };
  if (!who?.role) return null;
  const rights = [who.role, who.payloads && "payloads"].filter(Boolean).join(" + ");
  return html`<p class="who" title=${rights}><span>${who.name ?? "you"}</span> <span class="dim">${rights}</span>
    ${who.signed_in && html` <button type="button" class="link" onClick=${leave}>Sign out</button>`}</p>`;
}

function Banner() {
  const { away, status } = useStore(live);
  if (status === "lost") return html`<p class="banner bad" role="alert">The server does not answer. What you see is old; it is asked again every few seconds.</p>`;
  if (!away) return null;
  return html`<p class="banner bad" role="alert">${away.since ? html`The store has been away since ${clock(away.since)} (<${Since} since=${away.since} />). What you see is from before.` : "The store has been away since this server started."}</p>`;
}

function Frame() {
  const { store, page, rest, params } = useRoute();
  const shown = useStore(theme);
  const [stores, setStores] = useState(/** @type {import("../api").StoreInfo[]} */ ([]));
  const main = useRef(/** @type {HTMLElement | null} */ (null));
  const [View, One] = VIEWS[page] ?? [];
  const place = [store, page, ...rest].join("/");
  useEffect(() => void get("v1/stores").then(setStores, () => {}), []);
  useEffect(() => watchStore(store), [store]);
  useEffect(() => {
    const heading = main.current?.querySelector("h1");
    document.title = [heading?.textContent, store === "default" ? "" : store, "TaskHarbor"].filter(Boolean).join(" · ");
    // The reader of a screen is told where it is; the first page keeps its focus.
    if (document.activeElement !== document.body || scrollY > 0) heading?.focus({ preventScroll: true });
    scrollTo(0, 0);
  }, [place]);
  const Shown = rest.length && One ? One : View;
  return html`<a class="skip" href="#main" onClick=${(/** @type {Event} */ event) => (event.preventDefault(), main.current?.focus())}>Skip to content</a>
    <aside>
      <a class="brand" href=${to(["overview"])}><${Mark} /><span>TaskHarbor</span></a>
      <${Stores} stores=${stores} store=${store} />
      <${Navigation} page=${page} />
      <div class="foot">
        <${Status} />
        <button type="button" class="quiet icon" aria-label=${shown === "dark" ? "Light" : "Dark"} title="Light or dark (t)" onClick=${toggleTheme}>${shown === "dark" ? "☀" : "☾"}</button>
        <button type="button" class="quiet icon" aria-label="Keys" title="Keys (?)" onClick=${showHelp}>?</button>
        <${Who} />
      </div>
    </aside>
    <main id="main" tabindex="-1" ref=${main}>
      <${Banner} />
      ${Shown
        ? html`<${Shown} key=${place} store=${store} id=${rest.join("/")} params=${params} />`
        : html`<header class="head"><h1>No such page</h1></header><p>There is no page <code>${page}</code>. <a href=${to(["overview"])}>To the overview</a></p>`}
    </main>`;
}

function App() {
  const who = useStore(session);
  const [error, setError] = useState(/** @type {Error | null} */ (null));
  const begin = () => {
    setError(null);
    get("v1/session").then((answer) => session.set(answer ?? { role: null }), (problem) => {
      if (problem.status === 401) session.set(/** @type {any} */ ({ role: null }));
      else setError(problem);
    });
  };
  useEffect(begin, []);
  if (error) return html`<div class="boot"><${Failure} error=${error} retry=${begin} /></div>`;
  if (!who) return html`<p class="boot">Loading…</p>`;
  return html`${who.role ? html`<${Frame} />` : html`<${Login} />`}<${Overlay} />`;
}

const place = document.getElementById("app");
if (place) {
  place.textContent = "";
  render(html`<${App} />`, place);
}
