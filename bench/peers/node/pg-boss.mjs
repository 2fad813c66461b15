// pg-boss, driven by the benchmarks: `node pg-boss.mjs <url> <schema>`.

import { PgBoss } from "pg-boss";
import pg from "pg";

import { serve } from "./protocol.mjs";

const QUEUE = "noop";
/** Fetches as long as there are enough jobs, and is woken by notifications. */
const BEST = { batchSize: 500, localConcurrency: 4, burstWhenBatchFull: true };

const [url, schema] = process.argv.slice(2);

class Boss {
  async open() {
    if (this.boss) return;
    this.boss = await this.connect({ supervise: false, schedule: false });
    this.watch = new pg.Client({ connectionString: url });
    await this.watch.connect();
  }

  async connect(options) {
    const boss = new PgBoss({ connectionString: url, schema, ...options });
    // What it warns about is not for the standard output.
    boss.on("error", (error) => console.error(error.message));
    await boss.start();
    return boss;
  }

  async migrate() {
    await this.open();
    await this.boss.createQueue(QUEUE, { notify: true });
  }

  async one(number, pad) {
    await this.boss.send(QUEUE, { number, pad });
  }

  async many(count, pad) {
    await this.boss.insert(QUEUE, Array.from({ length: count }, (_, number) => ({ data: { number, pad } })));
  }

  async start(sizes, probe) {
    const isBest = sizes.best > 0;
    this.worker = await this.connect(isBest ? { useListenNotify: true } : {});
    const options = isBest ? { ...BEST } : {};
    if (sizes.handlers) options.localConcurrency = sizes.handlers;
    await this.worker.work(QUEUE, options, async (jobs) => {
      await Promise.all(jobs.map((job) => probe.handle(job.data.number)));
    });
  }

  async stop() {
    await this.worker.stop({ graceful: true, timeout: 5000 });
  }

  async isDrained() {
    const sql = `SELECT NOT EXISTS (SELECT FROM ${schema}.job WHERE state < 'completed') AS drained`;
    return (await this.watch.query(sql)).rows[0].drained;
  }

  /** As its supervisor does after `deleteAfterSeconds`. */
  async prune() {
    const sql = `DELETE FROM ${schema}.job WHERE state = 'completed' AND name = '${QUEUE}'`;
    return (await this.watch.query(sql)).rowCount;
  }
}

await serve(new Boss());
