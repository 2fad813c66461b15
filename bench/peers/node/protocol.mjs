// The line protocol of `../protocol`, for systems in JavaScript: see there for the commands.

import { createInterface } from "node:readline";

/** How long a worker is idle before latencies are measured. */
const IDLE_MS = 2000;
/** How long a worker may take to end. */
const SHUTDOWN_MS = 10000;
/** How often a side looks whether the last jobs are recorded. */
const LOOK_MS = 2;

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const seconds = (since) => (performance.now() - since) / 1e3;

/** Counts the jobs that have run, and notes when. */
class Probe {
  constructor(target, work) {
    this.target = target;
    this.work = work;
    this.count = 0;
    this.starts = [];
    this.reached = new Promise((resolve) => {
      this.resolve = resolve;
    });
  }

  /** Is called by each handler with the number of its job. */
  async handle(number) {
    this.starts.push([number, performance.now()]);
    if (this.work > 0) await sleep(this.work);
    this.count += 1;
    if (this.count === this.target) this.resolve(true);
  }
}

const within = (promise, ms) => Promise.race([promise, sleep(ms).then(() => false)]);
const pad = (length) => "x".repeat(Math.max(0, length - 21));

function percentile(sorted, percent) {
  return sorted[Math.max(0, Math.ceil((sorted.length * percent) / 100) - 1)];
}

async function fill(system, sizes) {
  await system.open();
  const [started, text] = [performance.now(), pad(sizes.payload)];
  let done = 0;
  while (done < sizes.jobs && seconds(started) < sizes.limit) {
    const count = Math.min(sizes.bulk, sizes.jobs - done);
    await system.many(count, text);
    done += count;
  }
  return [seconds(started), done];
}

async function single(system, sizes) {
  await system.open();
  const [started, text] = [performance.now(), pad(sizes.payload)];
  let count = 0;
  while (seconds(started) < sizes.seconds) {
    await system.one(count, text);
    count += 1;
  }
  return [count];
}

async function drain(system, sizes) {
  const probe = new Probe(sizes.jobs, sizes.work ?? 0);
  await system.open();
  await system.isDrained();
  const started = performance.now();
  await system.start(sizes, probe);
  await within(probe.reached, sizes.limit * 1e3);
  const done = Math.min(probe.count, sizes.jobs);
  while (sizes.all > 0 && done >= sizes.jobs && !(await system.isDrained())) {
    if (seconds(started) > sizes.limit + SHUTDOWN_MS / 1e3) {
      throw new Error("all jobs have run, and not all are recorded as finished");
    }
    await sleep(LOOK_MS);
  }
  const took = seconds(started);
  await within(system.stop(), SHUTDOWN_MS);
  return [took, done];
}

async function latency(system, sizes) {
  const probe = new Probe(sizes.jobs, 0);
  await system.open();
  await system.start(sizes, probe);
  await sleep(IDLE_MS);
  const [first, enqueued] = [performance.now(), []];
  for (let number = 0; number < sizes.jobs; number += 1) {
    await sleep(Math.max(0, first + (number * 1e3) / sizes.rate - performance.now()));
    enqueued.push(performance.now());
    await system.one(number, pad(sizes.payload));
  }
  const all = await within(probe.reached, sizes.limit * 1e3);
  await within(system.stop(), SHUTDOWN_MS);
  if (!all) throw new Error(`${probe.count} of ${sizes.jobs} jobs have started in time`);
  const millis = probe.starts.map(([number, start]) => Math.max(0, start - enqueued[number]));
  millis.sort((a, b) => a - b);
  return [percentile(millis, 50), percentile(millis, 99)];
}

async function obey(system, state, line) {
  const [command, ...pairs] = line.trim().split(" ");
  const sizes = Object.fromEntries(
    pairs.map((pair) => pair.split("=")).map(([name, value]) => [name, Number(value)]),
  );
  switch (command) {
    case "migrate":
      await system.migrate();
      return [0];
    case "fill":
      return fill(system, sizes);
    case "single":
      return single(system, sizes);
    case "drain":
      return drain(system, sizes);
    case "latency":
      return latency(system, sizes);
    case "start":
      await system.open();
      state.probe = new Probe(0, sizes.work ?? 0);
      await system.start(sizes, state.probe);
      return [0];
    case "count":
      return [state.probe.count];
    case "stop":
      await within(system.stop(), SHUTDOWN_MS);
      return [state.probe.count];
    case "prune":
      await system.open();
      return [await system.prune()];
    default:
      throw new Error(`unknown command ${JSON.stringify(command)}`);
  }
}

/** Obeys the lines on the standard input. Nothing else may be printed. */
export async function serve(system) {
  const state = {};
  for await (const line of createInterface({ input: process.stdin })) {
    let answer;
    try {
      answer = `ok ${(await obey(system, state, line)).join(" ")}`;
    } catch (error) {
      answer = `error ${String(error?.message ?? error).replaceAll("\n", " ")}`;
    }
    process.stdout.write(`${answer}\n`);
  }
  process.exit(0);
}
