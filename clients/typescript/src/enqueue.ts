/** Enqueueing jobs, with nothing of Node: what `taskharbor/client` has in it. */
export { Client, type ClientOptions, type Enqueued, type EnqueueOptions, type NewJob } from "./client.js";
export { ApiError, TaskHarborError, Unavailable } from "./error.js";
export type { Address } from "./http.js";
export { JobType, type JobTypeOptions, type TypeName } from "./jobtype.js";
export { JsonText } from "./json.js";
