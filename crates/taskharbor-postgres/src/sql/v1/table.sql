-- The tables. Times are microseconds since 1970 (TIM-2); NULL stands for none, or zero where something is counted. No
-- function reads a clock to decide anything (TIM-1); th_now is for callers of SQL that give no time.
-- Texts compare byte by byte: two names are the same exactly when their bytes are (JOB-3).
--
-- The functions join few rows at hand to many in a table, and say so as `t.seq = ANY (ARRAY[g.seq])`. Written as
-- `t.seq = g.seq`, the planner may as well read all of the table first and look for each row among those at hand; and it
-- does when its statistics are from a time at which the table was empty. Where the order or another condition would still
-- let it, the rows of the table are in a subquery with OFFSET 0, which it leaves alone.

-- Numbers jobs and flows in the order of insertion. Never used again, so a number finds its job or nothing.
CREATE SEQUENCE th_seq;

-- One row per job. What was enqueued is written once (JOB-1); how the job ended is added when it is over, as a HOT update:
-- no column that changes then is in an index, and the fillfactor leaves the room.
CREATE TABLE th_job (
  seq             bigint PRIMARY KEY,
  created_at      bigint NOT NULL,
  priority        smallint NOT NULL,
  kind            "char" NOT NULL,            -- w: work, x: failure job; joins: l: list, g: gather, e: empty, d: discard, f: first
  key_hold        "char" NOT NULL,            -- p: until pruned, d: until done, t: until terminal, f: for a time
  on_failure      "char" NOT NULL,            -- b: block, c: cancel, f: fail fast, n: continue
  id              text COLLATE "C" NOT NULL CONSTRAINT th_job_id UNIQUE,
  queue           text COLLATE "C" NOT NULL,
  type            text COLLATE "C" NOT NULL,
  payload         bytea NOT NULL,
  timeout_us      bigint CHECK (timeout_us > 0),
  max_attempts    int CHECK (max_attempts > 0),
  run_at          bigint,
  headers         jsonb,
  idempotency_key text COLLATE "C",
  parents         int,                        -- how many outputs it reads
  flow            bigint,                     -- th_flow.seq
  expanded_into   bigint,                     -- the job whose output stands for this one's
  expanded_id     text COLLATE "C",
  key_time_us     bigint,                     -- for how long the key is held, if for a time
  -- While the job lives, all of this is NULL and th_hot has what there is to know.
  state           "char",                     -- d: done, q: dlq, c: cancelled
  finished_at     bigint,
  kept_until      bigint,                     -- the end, or that of the lease under which it ended if later
  secret          uuid,                       -- the token that ended it
  started_at      bigint,
  deliveries      int,
  attempts        int,
  expirations     int,
  failures        int,
  epoch           int,
  attempt_limit   int,
  progress        text,
  reason          text,
  output          bytea,
  CONSTRAINT th_job_end_chk CHECK (
    CASE WHEN state IS NULL THEN finished_at IS NULL AND kept_until IS NULL AND secret IS NULL
         ELSE state IN ('d', 'q', 'c') AND finished_at IS NOT NULL AND kept_until >= finished_at END)
) WITH (
  fillfactor = 45, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0,
  autovacuum_analyze_scale_factor = 0.1
);
-- Before PostgreSQL 13, tables that are only added to are not vacuumed for that.
DO $newer$ BEGIN
  IF current_setting('server_version_num')::int >= 130000 THEN
    ALTER TABLE th_job SET (autovacuum_vacuum_insert_scale_factor = 0.1);
  END IF;
END $newer$;
CREATE INDEX th_job_flow ON th_job (flow, seq) WHERE flow IS NOT NULL;

-- One narrow row per job that is not over: its place in the line, and the lease on it.
-- A lease touches no indexed column, so it is a HOT update.
CREATE TABLE th_hot (
  seq             bigint PRIMARY KEY,
  line_at         bigint NOT NULL,            -- where the line index has it; due_at unless a heartbeat moved it
  priority        smallint NOT NULL,
  queue           text COLLATE "C" NOT NULL,
  pending         int CHECK (pending > 0),    -- parents it waits for: not in line
  flow            bigint,
  due_at          bigint,                     -- its place in line where line_at is not
  run_at          bigint,
  lease_exp       bigint,                     -- inflight while not NULL
  started_at      bigint,
  secret          uuid,
  deliveries      int,
  attempts        int,
  expirations     int,
  failures        int,
  epoch           int,
  attempt_limit   int,
  large           boolean,                    -- has a payload of more than 64 KiB
  cancel          boolean,
  holder          text,
  progress        text,
  CONSTRAINT th_hot_lease_chk CHECK (
    CASE WHEN lease_exp IS NULL THEN secret IS NULL AND holder IS NULL AND cancel IS NULL AND due_at IS NULL
         ELSE secret IS NOT NULL AND holder IS NOT NULL AND pending IS NULL END)
) WITH (
  fillfactor = 35, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000,
  autovacuum_vacuum_cost_delay = 0, vacuum_truncate = off
);
-- The order of Reserve (ORD-1, ORD-2). The jobs of a priority stand one after another in it, those that are due first.
-- A job that is over has no row here and is never granted (SET-5).
CREATE INDEX th_hot_line ON th_hot (queue, priority DESC, line_at, seq) WHERE pending IS NULL;
CREATE INDEX th_hot_flow ON th_hot (flow, seq) WHERE flow IS NOT NULL;

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
  seq             bigint,                     -- NULL if the record of the job was removed
  job             text COLLATE "C" NOT NULL,  -- its id
  held_until      bigint,                     -- the first instant at which it is free, if it is held for a time
  PRIMARY KEY (queue, key),                   -- KEY-2
  CONSTRAINT th_key_left_chk CHECK (seq IS NOT NULL OR held_until IS NOT NULL)
);
CREATE INDEX th_key_left ON th_key (held_until) WHERE seq IS NULL;

-- Edges: which job reads the output of which, and whether it still waits for it. An edge is closed by a HOT update: what
-- changes then is in no index, and the fillfactor leaves room for the members of a group, which are done together.
CREATE TABLE th_edge (
  child           bigint NOT NULL,
  ord             int NOT NULL,
  parent          bigint NOT NULL,
  parent_id       text COLLATE "C" NOT NULL,
  -- o: open, waits for success; f: open, waits for failure; c: closed; n: closed since the parent of a failure job is
  -- done, so that the job is not needed; s: spent, the parent failed as the columns below say.
  tie             "char" NOT NULL DEFAULT 'o',
  spent_state     "char",
  spent_reason    text,
  PRIMARY KEY (child, ord)
) WITH (fillfactor = 50);
CREATE INDEX th_edge_parent ON th_edge (parent);

CREATE TABLE th_flow (
  seq             bigint PRIMARY KEY,
  id              text COLLATE "C" NOT NULL UNIQUE,
  name            text COLLATE "C",
  created_at      bigint NOT NULL,
  tail            bigint NOT NULL,            -- the member whose output is the flow's
  state           "char",                     -- how it ended; NULL while a member is not over
  kept_until      bigint,
  CONSTRAINT th_flow_end_chk CHECK ((state IS NULL) = (kept_until IS NULL))
);
CREATE INDEX th_flow_end ON th_flow (state, kept_until, seq) WHERE state IS NOT NULL;
CREATE INDEX th_flow_name ON th_flow (name, seq) WHERE name IS NOT NULL;

-- Every job that is over, in one row per call that ended jobs in the same way: what pruning and counting read.
CREATE TABLE th_end (
  queue           text COLLATE "C" NOT NULL,
  state           "char" NOT NULL,
  kept_until      bigint NOT NULL,
  flow            bigint,
  seqs            bigint[] NOT NULL
) WITH (autovacuum_vacuum_cost_delay = 0);
CREATE INDEX th_end_job ON th_end (state, kept_until) WHERE flow IS NULL;
CREATE INDEX th_end_flow ON th_end (flow, kept_until) WHERE flow IS NOT NULL;

CREATE TABLE th_queue (
  name            text COLLATE "C" PRIMARY KEY,
  paused_since    bigint NOT NULL
);
