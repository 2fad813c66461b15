/** What the API answers, as far as the pages read it. */

export type Role = "viewer" | "operator" | "admin";

export interface Session {
  role: Role | null;
  name?: string;
  payloads: boolean;
  workers?: boolean;
  signed_in?: boolean;
}

export interface StoreInfo {
  name: string;
  kind: string;
}

/** Times are RFC 3339. */
export type Time = string;

export interface Page<T> {
  items: T[];
  next: string | null;
  looked_back_to?: Time | null;
}

export interface Rate {
  jobs: number;
  per_nanos: number;
  burst: number;
}

export interface LaneLimits {
  inflight?: number | null;
  rate?: Rate | null;
  weight?: number | null;
}

export interface Limits extends Omit<LaneLimits, "weight"> {
  per_lane?: number | null;
  lane_rate?: Rate | null;
  lanes?: Record<string, LaneLimits>;
}

export interface LimitsRecord {
  queue: string;
  owner: string | null;
  limits: Limits | null;
}

export interface HeldJob {
  by_lane: boolean;
  why: { on_hold: { until: Time } } | { full: { inflight: number; limit: number } } | { rate: { next: Time } };
}

export interface LaneStatus {
  lane: string | null;
  ready: number;
  inflight: number;
  held_back: HeldJob | null;
}

export type JobState = "ready" | "scheduled" | "blocked" | "inflight" | "done" | "dlq" | "cancelled";
export type StateCounts = Record<JobState, number>;

export interface QueueOverview extends StateCounts {
  queue: string;
  /** States with `at_most` jobs or more. Their numbers are older, or mean that many or more. */
  estimated: JobState[];
  oldest_ready: Time | null;
  paused_since: Time | null;
  workers: number;
  in_per_s: number | null;
  out_per_s: number | null;
  failed_per_s: number | null;
  wait_p50_ms: number | null;
  wait_p95_ms: number | null;
  limits: Limits | null;
}

export interface Overview {
  at: Time | null;
  age_ms: number;
  away: { since: Time | null; code: string } | null;
  poll_ms: number;
  /** Where counting stops. */
  at_most: number;
  /** At most 500, by name. */
  queues: QueueOverview[];
  /** The queues that are not listed. */
  other: (StateCounts & { queues: number }) | null;
  workers: number;
  workers_overdue: number;
  schedules_late: number;
}

export type SeriesName = "ready" | "in" | "out" | "failed" | "p50" | "p95";

export interface History {
  step_s: number;
  from: Time;
  queues: Record<string, Record<SeriesName, (number | null)[]>>;
}

export interface Held {
  holder: string;
  expires_at: Time;
}

export interface JobSummary {
  id: string;
  type: string;
  queue: string;
  state: JobState;
  priority: number;
  lane: string | null;
  due_at: Time | null;
  created_at: Time;
  started_at: Time | null;
  finished_at: Time | null;
  attempts: number;
  max_attempts: number | null;
  held: Held | null;
  last_error: string | null;
  reason: string | null;
  flow: string | null;
  payload_bytes: number;
}

export interface JobView {
  id: string;
  type: string;
  queue: string;
  headers: Record<string, string>;
  priority: number;
  lane: string | null;
  run_at: Time | null;
  timeout_nanos: number | null;
  created_at: Time;
  attempts: number;
  max_attempts: number | null;
  deliveries: number;
  expirations: number;
  idempotency_key: string | null;
  flow: string | null;
  parent_count: number;
  condition: string;
  on_failure: string;
}

export interface JobRecord {
  job: JobView;
  state: JobState;
  due_at: Time | null;
  started_at: Time | null;
  held: Held | null;
  cancel_requested: boolean;
  progress: string | null;
  expanded_into: string | null;
  errors: { attempts: number; error: string; failed_at: Time }[];
  reason: string | null;
  finished_at: Time | null;
  epoch: number;
  key_hold: string | { for: number };
  /** The first 100. */
  parents: string[];
  pending: number;
  payload_bytes: number;
  output_bytes: number | null;
  timeline: { at: Time; what: string; detail: string | null }[];
  why_code: string;
  why: string;
}

export interface Content {
  text?: string;
  base64?: string;
  truncated: boolean;
}

export interface DlqGroup {
  fingerprint: string;
  error: string;
  count: number;
  types: string[];
  queues: string[];
  first_at: Time;
  last_at: Time;
  sample_ids: string[];
}

export interface DlqGroups {
  looked_at: number;
  /** Whether these were all that match. */
  is_complete: boolean;
  groups: DlqGroup[];
  /** How many groups are not in the answer. */
  left_out: number;
}

export interface FlowRecord {
  id: string;
  name: string | null;
  state: "running" | "blocked" | "done" | "failed" | "cancelled";
  tail: string;
  members: StateCounts;
  created_at: Time;
  finished_at: Time | null;
}

export interface GraphNode {
  id: string;
  job?: string | null;
  type: string;
  label?: string | null;
  layer: number;
  position: number;
  state?: JobState | null;
  attempts?: number;
  counts?: Partial<StateCounts> | null;
}

export interface Graph {
  grouped: boolean;
  /** Of how many members it is known what they wait for. */
  read: number;
  members: number;
  nodes: GraphNode[];
  edges: { from: string; to: string; count?: number }[];
}

export interface ScheduleView {
  name: string;
  owner: string | null;
  when: string | null;
  zone: string | null;
  definition: unknown;
  next_slot: Time | null;
  next?: Time[];
  paused_since: Time | null;
  totals: { stored: number; skipped: number; missed: number };
  error: string | null;
  firings: { slot: Time; fired_at: Time; job: string; is_new: boolean }[];
}

export interface Backfill {
  /** The first 1,000. */
  slots: Time[];
  count: number;
  stored?: number;
}

export interface WorkerInfo {
  version?: string;
  library: string;
  host?: string;
  pid: number;
  phase: string;
  problems?: string[];
  wake_ups: boolean;
  oldest_secs?: number;
  lost_in_hour?: number;
  queues: { name: string; slots: number; busy: number; done: number; failed: number; dead: number; lost: number }[];
  queues_left_out?: number;
  types: string[];
  types_left_out?: number;
}

export interface WorkerView {
  holder: string;
  incarnation: string;
  info: WorkerInfo | null;
  started_at: Time;
  seen_at: Time;
  expires_at: Time;
  overdue: boolean;
}

export interface SweepPreview {
  count: number;
  count_is_exact: boolean;
  samples: JobSummary[];
  digest: string;
}

export interface Sweep {
  id: string;
  action: string;
  filter: Record<string, unknown>;
  state: string;
  count: number | null;
  done: number;
  refused: number;
  error?: string | null;
  who?: string;
  started_at: Time;
  finished_at: Time | null;
}

export interface ActionRecord {
  at: Time | null;
  who: string;
  role: Role;
  action: string;
  target: Record<string, string>;
  details?: unknown;
  count?: number;
  result: string;
}
