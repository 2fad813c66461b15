// Graphile Worker, driven by the benchmarks: `node graphile-worker.mjs <url> <schema>`.

import { makeWorkerUtils, Logger, run } from "graphile-worker";
import pg from "pg";

import { serve } from "./protocol.mjs";

/** As its page on performance advises for jobs that take no time. */
const BEST = {
  concurrentJobs: 24,
  maxPoolSize: 25,
  localQueue: { size: 500 },
  completeJobBatchDelay: 0,
  failJobBatchDelay: 0,
};

const [url, schema] = process.argv.slice(2);
const quiet = new Logger(() => () => {});

class Graphile {
  async open() {
    if (this.utils) return;
    this.utils = await makeWorkerUtils({ connectionString: url, schema, logger: quiet });
    this.watch = new pg.Client({ connectionString: url });
    await this.watch.connect();
  }

  async migrate() {
    await this.open();
    await this.utils.migrate();
  }

  async one(number, pad) {
    await this.utils.addJob("noop", { number, pad });
  }

  async many(count, pad) {
    const job = (_, number) => ({ identifier: "noop", payload: { number, pad } });
    await this.utils.addJobs(Array.from({ length: count }, job));
  }

  async start(sizes, probe) {
    const worker = { connectionString: url, schema, logger: quiet, ...(sizes.best > 0 ? BEST : {}) };
    if (sizes.handlers) worker.concurrentJobs = sizes.handlers;
    const noop = (payload) => probe.handle(payload.number);
    this.runner = await run({ preset: { worker }, taskList: { noop }, noHandleSignals: true });
  }

  async stop() {
    await this.runner.stop();
  }

  async isDrained() {
    const sql = `SELECT NOT EXISTS (SELECT FROM ${schema}._private_jobs) AS drained`;
    return (await this.watch.query(sql)).rows[0].drained;
  }

  /** Jobs that succeed are deleted at once. */
  async prune() {
    return 0;
  }
}

await serve(new Graphile());
