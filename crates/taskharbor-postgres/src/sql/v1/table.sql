-- The tables. Times are microseconds since 1970 (TIM-2); NULL stands for none, for zero in counts, and for the default
-- of options. No function reads a clock to decide anything (TIM-1); th_now is for callers of SQL that give no time.
-- Texts compare byte by byte: two names are the same exactly when their bytes are (JOB-3).
--
-- A job has one row in th_job, with what was enqueued, which is not written again when the job is granted or becomes
-- terminal. The job also has either a row in th_live, or an entry in a row of th_finished. A statement that needs to
-- know in which of the two a job is must read both with one snapshot.
--
-- The functions join few rows at hand to many in a table, and say so as `t.seq = ANY (ARRAY[g.seq])`. Written as
-- `t.seq = g.seq`, the planner may as well read all of the table first and look for each row among those at hand; and it
-- does when its statistics are from a time at which the table was empty. Where the order or another condition would still
-- let it, the rows of the table are in a subquery with OFFSET 0, which it leaves alone.

-- How a job ended: done, dlq (dead-lettered: out of attempts, or failed permanently), or cancelled.
CREATE TYPE th_terminal AS ENUM ('done', 'dlq', 'cancelled');
-- What a job is: work for a handler; failure_job, which runs only if a parent fails; or a join, which no worker runs, named by
-- how its outputs are read: list, gather, empty, discard, first.
CREATE TYPE th_kind AS ENUM ('work', 'failure_job', 'list', 'gather', 'empty', 'discard', 'first');
-- What happens to the dependants of a job that fails: block (they wait until it is requeued), cancel (they are cancelled),
-- fail_fast (all of the flow that has not started is cancelled), continue (they run and read the failure).
CREATE TYPE th_policy AS ENUM ('block', 'cancel', 'fail_fast', 'continue');
-- How long an idempotency key is held: until_pruned (the record of the job is removed), until_done (the job succeeds),
-- until_terminal (the job is terminal), for_a_time (from the enqueue on, in every state of the job).
CREATE TYPE th_key_hold AS ENUM ('until_pruned', 'until_done', 'until_terminal', 'for_a_time');
-- Where an edge stands: waits_for_success (and is satisfied as soon as the parent is done, without a write),
-- waits_for_failure (the edge of a failure job), satisfied (of no more account), not_needed (the parent of a failure job
-- succeeded), failed (the parent failed, and the child reads that).
CREATE TYPE th_edge_status AS ENUM ('waits_for_success', 'waits_for_failure', 'satisfied', 'not_needed', 'failed');
-- What a worker does with a job that it holds: ack, retry, fail (to the DLQ), release (back without an attempt, before the
-- handler started), release_started (the same after it started), expand (into other jobs).
CREATE TYPE th_transition AS ENUM ('ack', 'retry', 'fail', 'release', 'release_started', 'expand');
-- What the holder said of its lease: started (a handler runs), leaving (the worker shuts down). It decides whether an
-- expiration counts.
CREATE TYPE th_lease_mark AS ENUM ('started', 'leaving');

-- The numbers of jobs and flows, in the order of insertion. A number is never used again, so it finds its own job or
-- nothing.
CREATE SEQUENCE th_seq;

-- One row per job: what was enqueued (JOB-1). Only joining or leaving a flow and an expansion change it later.
CREATE TABLE th_job (
  seq             bigint PRIMARY KEY,
  created_at      bigint NOT NULL,
  priority        smallint NOT NULL,
  id              text COLLATE "C" NOT NULL CONSTRAINT th_job_id UNIQUE,
  queue           text COLLATE "C" NOT NULL,
  type            text COLLATE "C" NOT NULL,
  payload         bytea NOT NULL,
  headers         jsonb,
  run_at          bigint,
  timeout_us      bigint CHECK (timeout_us > 0),
  key_time_us     bigint,
  flow            bigint,
  expanded_into   bigint,
  max_attempts    int CHECK (max_attempts > 0),
  parents         int,
  kind            th_kind,
  on_failure      th_policy,
  key_hold        th_key_hold,
  idempotency_key text COLLATE "C",
  expanded_id     text COLLATE "C",
  lane            text COLLATE "C"
) WITH (
  autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_scale_factor = 0.1
);
-- Before PostgreSQL 13, tables that are only added to are not vacuumed for that.
DO $newer$ BEGIN
  IF current_setting('server_version_num')::int >= 130000 THEN
    ALTER TABLE th_job SET (autovacuum_vacuum_insert_scale_factor = 0.1);
  END IF;
END $newer$;

-- One narrow row per job that is not terminal: its position in the queue, and the lease on it.
-- A lease touches no indexed column, so granting one is a HOT update if the page has room for a second, longer version of
-- each row: that takes the fill factor.
CREATE TABLE th_live (
  seq              bigint PRIMARY KEY,
  available_at     bigint NOT NULL CHECK (available_at BETWEEN 0 AND 253402300799999999),
  priority         smallint NOT NULL,
  queue            text COLLATE "C" NOT NULL,
  waits_for        int CHECK (waits_for > 0),
  flow             bigint,
  moved_from       bigint,
  run_at           bigint,
  lease_expires_at bigint,
  started_at       bigint,
  lease_token      bigint,
  deliveries       int,
  attempts         int,
  expirations      int,
  failures         int,
  epoch            int,
  attempt_limit    int,
  is_large         boolean,
  is_special       boolean,
  is_in_lane       boolean,
  cancel_requested boolean,
  lease_mark       th_lease_mark,
  holder           text,
  progress         text,
  released         text,
  lane             text COLLATE "C",
  CONSTRAINT th_live_lane_chk CHECK (is_in_lane IS NULL OR lane IS NOT NULL),
  CONSTRAINT th_live_lease_chk CHECK (
    CASE WHEN lease_expires_at IS NULL
         THEN lease_token IS NULL AND holder IS NULL AND cancel_requested IS NULL AND lease_mark IS NULL
           AND moved_from IS NULL
         ELSE lease_token IS NOT NULL AND holder IS NOT NULL AND waits_for IS NULL END)
) WITH (
  fillfactor = 30, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000,
  autovacuum_vacuum_cost_delay = 0, vacuum_truncate = off
);
-- The sort key of a lane: lanes of a queue are sorted by priority, the highest first, then by name. One text is found
-- in half the time that three columns take. No name has a character that sorts before a space, so the keys of a queue
-- lie between the queue's name with chr(1) and with chr(2) behind it.
CREATE FUNCTION th_lane_key(p_queue text, p_priority int, p_lane text) RETURNS text LANGUAGE sql IMMUTABLE AS $$
  SELECT p_queue || chr(1) || lpad((32767 - p_priority)::text, 5, '0') || p_lane
$$;

-- The order of Reserve (ORD-1, ORD-2). The jobs of a priority stand one after another in it, those that are due first.
-- A job that is terminal has no row here and is never granted (SET-5).
CREATE INDEX th_live_position ON th_live (queue, priority DESC, available_at, seq) WHERE waits_for IS NULL AND lane IS NULL;
-- Jobs with a lane. Those that were due when they were stored, or when a reserve found them, stand in their lanes; the
-- others wait by their times, so that a lane in which no job is due is not looked at. LAN-1, LAN-2, LAN-3.
CREATE INDEX th_live_lane ON th_live (th_lane_key(queue, priority, lane), available_at, seq) WHERE waits_for IS NULL AND is_in_lane;
CREATE INDEX th_live_before_lane ON th_live (queue, available_at, seq)
  WHERE waits_for IS NULL AND lane IS NOT NULL AND is_in_lane IS NULL;
CREATE INDEX th_live_flow ON th_live (flow, seq) WHERE flow IS NOT NULL;

-- The terminal jobs. A row holds jobs that were granted by one call and became terminal by one call with the same
-- state, and whose numbers are in one span of 512: 512n to 512n + 511. So the row of a job is found by the primary key
-- without leaving the span, and the columns of a row apply to all its jobs.
CREATE TABLE th_finished (
  first           bigint PRIMARY KEY,
  kept_until      bigint NOT NULL,
  finished_at     bigint NOT NULL,
  started_at      bigint,
  lease_token     bigint,
  flow            bigint,
  state           th_terminal NOT NULL,
  has_outcomes    boolean,
  queue           text COLLATE "C" NOT NULL,
  offsets         smallint[] NOT NULL,
  CONSTRAINT th_finished_chk CHECK (
    kept_until >= finished_at AND cardinality(offsets) > 0 AND offsets[1] = (first & 511)::smallint)
) WITH (autovacuum_vacuum_cost_delay = 0);
CREATE INDEX th_finished_age ON th_finished (state, kept_until, first) WHERE flow IS NULL;
CREATE INDEX th_finished_flow ON th_finished (flow, first) WHERE flow IS NOT NULL;
CREATE INDEX th_finished_failed ON th_finished (state, (first >> 9)) WHERE state <> 'done';

-- Details of a terminal job, unless it was acknowledged at its first delivery and has no output.
CREATE TABLE th_outcome (
  seq             bigint PRIMARY KEY,
  run_at          bigint,
  priority        smallint NOT NULL,
  deliveries      int,
  attempts        int,
  expirations     int,
  failures        int,
  epoch           int,
  attempt_limit   int,
  progress        text,
  reason          text,
  output          bytea
);

-- The last failures of a job, numbered from one.
CREATE TABLE th_error (
  seq             bigint NOT NULL,
  failure         int NOT NULL,
  attempts        int NOT NULL,
  failed_at       bigint NOT NULL,
  error           text NOT NULL,
  PRIMARY KEY (seq, failure)
);

-- Keys that are held, each by the job that was enqueued with it. A key that is held for a time outlives the record of
-- its job.
CREATE TABLE th_key (
  queue           text COLLATE "C" NOT NULL,
  key             text COLLATE "C" NOT NULL,
  seq             bigint,
  job             text COLLATE "C" NOT NULL,
  held_until      bigint,
  PRIMARY KEY (queue, key),                   -- KEY-2
  CONSTRAINT th_key_left_chk CHECK (seq IS NOT NULL OR held_until IS NOT NULL)
);
CREATE INDEX th_key_left ON th_key (held_until) WHERE seq IS NULL;

-- Edges: which job reads the output of which, and whether it still waits for it. A row with a run stands for this many
-- edges, all waiting for success, to parents whose numbers follow each other: (child, ord + n, parent + n) for n from 0.
-- The numbers lie in one span of 512, so the runs that a parent is in are found by their first parents. Before an edge of
-- a run changes, th_split_runs makes a row of each.
CREATE TABLE th_edge (
  child           bigint NOT NULL,
  parent          bigint NOT NULL,
  ord             int NOT NULL,
  run             int,
  status          th_edge_status NOT NULL,
  failed_state    th_terminal,
  parent_id       text COLLATE "C",
  failed_reason   text,
  PRIMARY KEY (child, ord),
  CONSTRAINT th_edge_run_chk CHECK (
    CASE WHEN run IS NULL THEN parent_id IS NOT NULL
         ELSE run > 1 AND parent_id IS NULL AND status = 'waits_for_success' AND parent >> 9 = (parent + run - 1) >> 9 END)
);
CREATE INDEX th_edge_parent ON th_edge (parent) WHERE run IS NULL;
CREATE INDEX th_edge_run ON th_edge (parent) WHERE run IS NOT NULL;

-- The edges, a row for each.
CREATE VIEW th_each_edge AS
SELECT e.child, e.ord + n.n AS ord, e.parent + n.n AS parent, e.status, e.failed_state,
  coalesce(e.parent_id, (SELECT j.id FROM th_job j WHERE j.seq = e.parent + n.n)) AS parent_id, e.failed_reason
FROM th_edge e CROSS JOIN LATERAL generate_series(0, coalesce(e.run, 1) - 1) AS n (n);

CREATE TABLE th_flow (
  seq             bigint PRIMARY KEY,
  id              text COLLATE "C" NOT NULL UNIQUE,
  name            text COLLATE "C",
  created_at      bigint NOT NULL,
  tail            bigint NOT NULL,
  state           th_terminal,
  kept_until      bigint,
  CONSTRAINT th_flow_end_chk CHECK ((state IS NULL) = (kept_until IS NULL))
);
CREATE INDEX th_flow_end ON th_flow (state, kept_until, seq) WHERE state IS NOT NULL;
CREATE INDEX th_flow_name ON th_flow (name, seq) WHERE name IS NOT NULL;

-- A paused queue (PAU-1).
CREATE TABLE th_queue (
  name            text COLLATE "C" PRIMARY KEY,
  paused_since    bigint NOT NULL
);

-- The limits of a queue, as the driver reads and writes them, and their use: the time up to which its rate is charged,
-- the end of its hold, and since when a limit of inflight jobs has kept a job from starting. Reserve locks the row of
-- each queue that has one, so racing calls together grant no more than the limits allow. LIM-2, LIM-8.
CREATE TABLE th_limit (
  queue           text COLLATE "C" PRIMARY KEY,
  owner           text COLLATE "C",
  limits          jsonb,
  tat             bigint,
  held_until      bigint,
  starved_since   bigint
) WITH (fillfactor = 30, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);
CREATE INDEX th_limit_starved ON th_limit (queue) WHERE starved_since IS NOT NULL;

-- Up to when the rate of a lane is charged, and until when the lane is on hold.
CREATE TABLE th_lane (
  queue           text COLLATE "C" NOT NULL,
  lane            text COLLATE "C" NOT NULL,
  tat             bigint,
  held_until      bigint,
  PRIMARY KEY (queue, lane)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 500);

-- The numbers of the jobs that were granted in queues whose limits count inflight jobs, a row for each call. A job that is
-- noted counts as long as its row in th_live has a valid lease, so every end of the lease frees the place; notes of other
-- jobs are dropped by a later reserve. LIM-1, LIM-5.
CREATE TABLE th_grant_note (
  queue           text COLLATE "C" NOT NULL,
  note            bigint NOT NULL,
  jobs            int NOT NULL,
  seqs            bigint[] NOT NULL,
  PRIMARY KEY (queue, note)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);

-- Lease tokens that another store issued, of jobs that were imported with a lease or as terminal. MOV-7.
CREATE TABLE th_imported_token (
  seq             bigint PRIMARY KEY,
  lease_token     bigint NOT NULL,
  token           uuid NOT NULL
);

-- Schedules (SCH-1). The revision is another with every change, and never used again.
CREATE SEQUENCE th_revision;
-- A slot of a schedule that was fired: when, which job stands for it, and whether that was stored by the firing.
CREATE TYPE th_firing AS (slot bigint, fired_at bigint, job text, is_stored boolean);
CREATE TABLE th_schedule (
  name            text COLLATE "C" PRIMARY KEY,
  owner           text COLLATE "C",
  next_slot       bigint CHECK (next_slot BETWEEN 0 AND 253402300799999999),
  paused_since    bigint,
  revision        bigint NOT NULL,
  stored          bigint NOT NULL DEFAULT 0,
  skipped         bigint NOT NULL DEFAULT 0,
  missed          bigint NOT NULL DEFAULT 0,
  error           text,
  firings         th_firing[] NOT NULL DEFAULT '{}',
  definition      bytea NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
-- The order in which schedules fall due (SCH-8).
CREATE INDEX th_schedule_due ON th_schedule (next_slot, name) WHERE paused_since IS NULL AND next_slot IS NOT NULL;
CREATE INDEX th_schedule_owned ON th_schedule (owner, name) WHERE owner IS NOT NULL;

-- The version of its schedules that an owner has declared. SCH-11.
CREATE TABLE th_schedule_owner (
  owner           text COLLATE "C" PRIMARY KEY,
  version         bigint NOT NULL
);

-- Workers as they have announced themselves. WRK-1. No job refers to a row (WRK-6). An announcement changes no indexed column
-- of its own row, and the page has room for the next version, so it is a HOT update that meets no other worker.
CREATE TABLE th_worker (
  holder          text COLLATE "C" NOT NULL,
  incarnation     text COLLATE "C" NOT NULL CONSTRAINT th_worker_incarnation_chk CHECK (incarnation ~ '^[0-9a-f]{16}$'),
  started_at      bigint NOT NULL,
  seen_at         bigint NOT NULL,
  expires_at      bigint NOT NULL,
  info            bytea NOT NULL,
  PRIMARY KEY (holder, incarnation),
  CONSTRAINT th_worker_end_chk CHECK (expires_at > seen_at)
) WITH (fillfactor = 40, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);
