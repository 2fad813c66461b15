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

/**
 * Loads the view of each page. The overview comes with the frame, the others when they are needed or when
 * the browser is idle.
 * @type {Record<string, () => Promise<any>>}
 */
const VIEWS = {
  overview: () => import("./page/overview.js").then((it) => it.Overview),
  jobs: () => import("./page/jobs.js").then((it) => it.Jobs),
  "jobs/": () => import("./page/job.js").then((it) => it.Job),
  dlq: () => import("./page/dlq.js").then((it) => it.Dlq),
  flows: () => import("./page/flows.js").then((it) => it.Flows),
  "flows/": () => import("./page/flow.js").then((it) => it.Flow),
  schedules: () => import("./page/schedules.js").then((it) => it.Schedules),
  "schedules/": () => import("./page/schedules.js").then((it) => it.Schedule),
  queues: () => import("./page/queues.js").then((it) => it.Queues),
  "queues/": () => import("./page/queues.js").then((it) => it.Queue),
  workers: () => import("./page/workers.js").then((it) => it.Workers),
  activity: () => import("./page/activity.js").then((it) => it.Activity),
  login: () => import("./page/login.js").then((it) => it.Login),
};

/** The views that are loaded. @type {Map<string, any>} */
const views = new Map();

/** @param {string} name */
async function load(name) {
  if (!views.has(name)) views.set(name, await VIEWS[name]?.());
  return views.get(name);
}

/** The view of this name; it is rendered again when the view has come. @param {string} name */
function useView(name) {
  const [error, setError] = useState(/** @type {{name: string, error: Error} | null} */ (null));
  const [, setLoaded] = useState("");
  useEffect(() => {
    load(name).then(() => setLoaded(name), (failure) => setError({ name, error: failure }));
  }, [name]);
  return { View: views.get(name), error: error?.name === name ? error.error : null };
}

/** Loads all other views, so that no page has to wait or is missing while the server is away. */
function loadAll() {
  const later = window.requestIdleCallback ?? ((/** @type {() => void} */ work) => setTimeout(work, 500));
  // What fails now is loaded again when it is needed.
  later(() => Object.keys(VIEWS).reduce((before, name) => before.then(() => load(name)).catch(() => {}), Promise.resolve()));
}

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
  if (status === "lost") return html`<p class="banner bad" role="alert">The server does not answer. The page shows old data, and tries again every few seconds.</p>`;
  if (!away) return null;
  return html`<p class="banner bad" role="alert">${away.since ? html`The store has been away since ${clock(away.since)} (<${Since} since=${away.since} />). The page shows data from before that.` : "The store has been away since this server started."}</p>`;
}

function Frame() {
  const { store, page, rest, params } = useRoute();
  const shown = useStore(theme);
  const [stores, setStores] = useState(/** @type {import("../api").StoreInfo[]} */ ([]));
  const main = useRef(/** @type {HTMLElement | null} */ (null));
  const name = rest.length && VIEWS[`${page}/`] ? `${page}/` : page;
  const { View, error } = useView(name);
  const place = [store, page, ...rest].join("/");
  useEffect(() => void get("v1/stores").then(setStores, () => {}), []);
  useEffect(() => watchStore(store), [store]);
  useEffect(() => {
    const heading = main.current?.querySelector("h1");
    document.title = [heading?.textContent, store === "default" ? "" : store, "TaskHarbor"].filter(Boolean).join(" · ");
    // Moves the focus, so that screen readers announce the page. The first page keeps its focus.
    if (document.activeElement !== document.body || scrollY > 0) heading?.focus({ preventScroll: true });
    scrollTo(0, 0);
  }, [place, View]);
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
      <${Failure} error=${error} retry=${() => location.reload()} />
      ${View && html`<${View} key=${place} store=${store} id=${rest.join("/")} params=${params} />`}
      ${!View && VIEWS[name] && !error && html`<p class="wait" aria-busy="true">Loading…</p>`}
      ${!VIEWS[name] && html`<header class="head"><h1>No such page</h1></header><p>There is no page <code>${page}</code>. <a href=${to(["overview"])}>To the overview</a></p>`}
    </main>`;
}

function SignIn() {
  const { View, error } = useView("login");
  return View ? html`<${View} />` : html`<div class="boot"><${Failure} error=${error} retry=${() => location.reload()} /></div>`;
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
  useEffect(() => void (who?.role && loadAll()), [who?.role]);
  if (error) return html`<div class="boot"><${Failure} error=${error} retry=${begin} /></div>`;
  if (!who) return html`<p class="boot">Loading…</p>`;
  return html`${who.role ? html`<${Frame} />` : html`<${SignIn} />`}<${Overlay} />`;
}

const place = document.getElementById("app");
if (place) {
  place.textContent = "";
  render(html`<${App} />`, place);
}
