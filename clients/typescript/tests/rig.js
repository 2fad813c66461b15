// A worker of a fake server.

import { App } from "../dist/index.js";
import { Fake } from "./fake.js";
import { Log } from "./server.js";

/** A fake server that grants these jobs once, and a worker of it that has started. */
export async function working(t, { jobs, answers = {}, options = {}, handlers }) {
  const waiting = [...jobs];
  const reserve = () => (waiting.length > 0 ? { jobs: waiting.splice(0), granted_after_ms: 0 } : undefined);
  const server = await Fake.start({ reserve, ...answers });
  const log = new Log();
  const app = new App(server.url, { queues: { default: 10 }, logger: log, grace: 1, cancelWait: 0.1, ...options });
  for (const [type, handler] of Object.entries(handlers)) {
    app.job(type, handler);
  }
  const worker = await app.start();
  t.after(async () => {
    worker.endGrace();
    await worker.stop();
    await server.close();
  });
  return { server, worker, log };
}

/** Ends a test that waits in vain. */
export const LIMIT = { timeout: 30_000 };

/** The outcomes of the jobs of these calls. */
export const settled = (calls) => calls.flatMap(({ body }) => body.jobs);
