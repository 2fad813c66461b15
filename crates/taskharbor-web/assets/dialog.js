/** Dialogs and short notices. */

import { html, useEffect, useRef } from "./html.js";
import { Store, useStore } from "./store.js";

/** @typedef {import("./vendor/preact.js").VNode<any>} VNode */

const open = new Store(/** @type {(() => VNode) | null} */ (null));

/** Shows a dialog in place of the one that is shown. @param {() => VNode} draw */
export const showDialog = (draw) => open.set(draw);

export const closeDialog = () => open.set(null);

export const isDialogOpen = () => open.value !== null;

/** @param {{title: string, children?: any, wide?: boolean}} props */
export function Dialog({ title, children, wide }) {
  const ref = useRef(/** @type {HTMLDialogElement | null} */ (null));
  useEffect(() => {
    const dialog = ref.current;
    dialog?.showModal();
    return () => dialog?.close();
  }, []);
  return html`<dialog ref=${ref} class=${wide ? "wide" : ""} aria-labelledby="dialog-title"
    onCancel=${(/** @type {Event} */ event) => (event.preventDefault(), closeDialog())}
    onMouseDown=${(/** @type {Event} */ event) => event.target === ref.current && closeDialog()}>
    <div class="dialog">
      <header><h2 id="dialog-title">${title}</h2>
        <button class="quiet icon" type="button" aria-label="Close" onClick=${closeDialog}>✕</button></header>
      ${children}
    </div>
  </dialog>`;
}

/**
 * Asks before something is done.
 * @param {{title: string, text: string, verb: string, isDangerous?: boolean}} question
 * @returns {Promise<boolean>}
 */
export function confirm({ title, text, verb, isDangerous }) {
  return new Promise((answer) => {
    const say = (/** @type {boolean} */ yes) => {
      answer(yes);
      closeDialog();
    };
    showDialog(() => html`<${Dialog} key=${title} title=${title}>
      <p>${text}</p>
      <footer>
        <button type="button" onClick=${() => say(false)}>Keep as it is</button>
        <button type="button" autofocus class=${isDangerous ? "danger" : "primary"} onClick=${() => say(true)}>${verb}</button>
      </footer>
    <//>`);
    const watch = (/** @type {unknown} */ shown) => {
      if (shown) return;
      open.watchers.delete(watch);
      answer(false);
    };
    open.watchers.add(watch);
  });
}

/** @typedef {{id: number, text: string, isError: boolean}} Notice */

const notices = new Store(/** @type {Notice[]} */ ([]));
let lastNotice = 0;

/** @param {string} text @param {{isError?: boolean}} [options] */
export function notify(text, { isError = false } = {}) {
  const id = (lastNotice += 1);
  notices.set([...notices.value.slice(-3), { id, text, isError }]);
  setTimeout(() => dismiss(id), isError ? 12_000 : 5000);
}

/** @param {number} id */
const dismiss = (id) => notices.set(notices.value.filter((notice) => notice.id !== id));

/** Where dialogs and notices appear. */
export function Overlay() {
  const draw = useStore(open);
  const shown = useStore(notices);
  return html`${draw?.()}
    <div class="notices" role="status" aria-live="polite">
      ${shown.map(({ id, text, isError }) => html`<p key=${id} class=${isError ? "notice bad" : "notice"}>
        <span>${text}</span><button class="quiet icon" aria-label="Dismiss" onClick=${() => dismiss(id)}>✕</button></p>`)}
    </div>`;
}
