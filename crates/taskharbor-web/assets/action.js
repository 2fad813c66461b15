/** Buttons that change something. */

import { may, post, session } from "./api.js";
import { confirm, notify } from "./dialog.js";
import { html, useState } from "./html.js";
import { useStore } from "./store.js";

/**
 * Sends a change and shows the result. Returns whether it was made.
 * @param {string | URL} url
 * @param {unknown} body
 * @param {string} done
 */
export async function change(url, body, done) {
  try {
    await post(url, body);
    notify(done);
    return true;
  } catch (error) {
    notify(/** @type {Error} */ (error).message, { isError: true });
    return false;
  }
}

/**
 * A button that needs a role. Without the role it is disabled and says why.
 * @param {{role?: import("../api").Role, payloads?: boolean, label: string, title?: string, kind?: string, ask?: {title: string, text: string}, disabled?: boolean, run: () => unknown}} props
 */
export function Action({ role = "operator", payloads, label, title, kind = "", ask, disabled, run }) {
  useStore(session);
  const [isBusy, setBusy] = useState(false);
  const missing = !may(role) ? `needs the role ${role}` : payloads && !may("payloads") ? "needs the permission to see payloads" : "";
  const click = async () => {
    if (ask && !(await confirm({ ...ask, verb: label, isDangerous: kind.includes("danger") }))) return;
    setBusy(true);
    await Promise.resolve(run()).finally(() => setBusy(false));
  };
  return html`<button type="button" class=${kind} disabled=${Boolean(missing) || disabled || isBusy}
    title=${missing ? `${label}: ${missing}` : title} onClick=${click}>${label}</button>`;
}
