/**
 * Background jobs through a TaskHarbor server: a client that enqueues, and workers that run jobs.
 *
 * A worker is an {@link App} with handlers. A program that only enqueues needs a {@link Client}. Delivery is
 * at least once: a handler may run again if its process dies, so write handlers that can.
 */
export { App, type AppOptions, type JobOptions } from "./app.js";
export { Client, type ClientOptions, type Enqueued, type EnqueueOptions, type NewJob } from "./client.js";
export { ApiError, Discard, Retry, Snooze, TaskHarborError, Throttled, Unavailable } from "./error.js";
export { Stopped, type Handler, type Inputs, type Job, type StopReason } from "./job.js";
