/**
 * Background jobs through a TaskHarbor server: a client that enqueues, and workers that run jobs.
 *
 * A worker is an {@link App} with handlers. A program that only enqueues needs a {@link Client}. Delivery is
 * at least once: a handler may run again if its process dies, so write handlers that can.
 */
export * from "./enqueue.js";
export { App, type AppOptions, type Backoff, type JobOptions } from "./app.js";
export { Discard, Retry, Snooze, Throttled } from "./error.js";
export { Stopped, type Handler, type Inputs, type Job, type StopReason } from "./job.js";
export type { Logger } from "./log.js";
export type { Worker } from "./worker.js";
