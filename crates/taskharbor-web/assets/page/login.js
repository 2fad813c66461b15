/** Signing in with a token. */

import { get, post, session } from "../api.js";
import { html, useState } from "../html.js";
import { Mark } from "../icon.js";
import { Failure } from "../part.js";

export function Login() {
  const [token, setToken] = useState("");
  const [problem, setProblem] = useState(/** @type {Error | null} */ (null));
  const submit = async (/** @type {Event} */ event) => {
    event.preventDefault();
    try {
      await post("v1/session", { token: token.trim() });
      session.set(await get("v1/session"));
    } catch (error) {
      setProblem(/** @type {Error} */ (error));
    }
  };
  return html`<main class="login"><form class="card" onSubmit=${submit}>
    <h1><${Mark} /> TaskHarbor</h1>
    <label>Token<input type="password" autocomplete="current-password" autofocus required placeholder="th_…" value=${token} onInput=${(/** @type {any} */ event) => setToken(event.target.value)} /></label>
    <${Failure} error=${problem} />
    <button class="primary">Sign in</button>
    <p class="dim">To create a token, run <code>taskharbor token add NAME --role viewer</code> on the server.</p>
  </form></main>`;
}
