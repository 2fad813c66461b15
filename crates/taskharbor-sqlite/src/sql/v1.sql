-- The tables. Times are microseconds since 1970 (TIM-2). NULL stands for none. Names and free text are as core has
-- checked or cleaned them, and compared byte by byte (JOB-3, JOB-4).
--
-- SQLite writes a changed row whole, so a job has two: a narrow row in th_state that each step reads or writes, and one
-- in th_job with the rest of what was enqueued, which is written once. Numbers stand for words where a row is read for every step:
--   state:      0 waiting, 1 blocked, 2 inflight, 3 done, 4 dlq, 5 cancelled
--   kind:       0 work, 1 failure job, joins by how they are read: 2 list, 3 gather, 4 empty, 5 discard, 6 first
--   key_hold:   0 until pruned, 1 until done, 2 until terminal, 3 for a time
--   on_failure: 0 block, 1 cancel, 2 fail fast, 3 continue
--   edge state: 0 waits for success, 1 closed, 2 spent: the parent failed, 3 waits for failure

-- One row: the version of the store, and the last number that a job or a flow was given. Numbers are never used again,
-- so a number finds its job or nothing.
CREATE TABLE th_meta (
  one     INTEGER PRIMARY KEY CHECK (one = 1),
  version INTEGER NOT NULL,
  seq     INTEGER NOT NULL
) STRICT;
INSERT INTO th_meta (one, version, seq) VALUES (1, 1, 0);

-- The state of each job: its position, its lease, its end.
CREATE TABLE th_state (
  seq              INTEGER PRIMARY KEY,         -- the order of insertion
  state            INTEGER NOT NULL,
  available_at     INTEGER,                     -- from when Reserve may grant it: when it is due, or its lease ends
  due_at           INTEGER NOT NULL,            -- its position (ORD-2), also while it is inflight
  priority         INTEGER NOT NULL,
  pending          INTEGER NOT NULL,            -- how many parents it waits for
  kind             INTEGER NOT NULL,
  key_hold         INTEGER NOT NULL,
  on_failure       INTEGER NOT NULL,
  keyed            INTEGER NOT NULL,            -- whether it was enqueued with a key
  attempts         INTEGER NOT NULL DEFAULT 0,
  deliveries       INTEGER NOT NULL DEFAULT 0,
  expirations      INTEGER NOT NULL DEFAULT 0,
  epoch            INTEGER NOT NULL DEFAULT 0,
  failures         INTEGER NOT NULL DEFAULT 0,  -- how many were recorded; the last ten are in th_error
  cancel_requested INTEGER NOT NULL DEFAULT 0,  -- inflight, and its cancellation was asked for
  lease_mark       INTEGER NOT NULL DEFAULT 0,  -- inflight, and its holder marked the lease: 1 started, 2 leaving
  flow             INTEGER,                     -- th_flow.seq
  run_at           INTEGER,
  started_at       INTEGER,
  lease_expires_at INTEGER,                     -- the end of the lease it is or was finished under
  finished_at      INTEGER,
  kept_until       INTEGER,                     -- its end, or that of the lease under which it ended if later
  attempt_limit    INTEGER,
  key_us           INTEGER,                     -- how long its key is held, if for a time
  expanded_into    INTEGER,                     -- the job whose output stands for this one's
  id               TEXT NOT NULL,
  queue            TEXT NOT NULL,
  holder           TEXT,
  expanded_id      TEXT,
  lease_token      BLOB,                        -- of the lease it is or was finished under
  progress         TEXT,
  released         TEXT,                        -- not terminal, and what was noted of its last release
  reason           TEXT,
  output           BLOB,
  lane             TEXT,
  line             TEXT,                        -- its lane, while it stands in the lane's line; see th_state_lane
  counted          INTEGER NOT NULL DEFAULT 0,  -- inflight, in a queue with limits
  CHECK ((state IN (0, 2)) = (available_at IS NOT NULL)),
  CHECK ((state = 2) = (holder IS NOT NULL)),
  CHECK ((state >= 3) = (kept_until IS NOT NULL)),
  CHECK (state <> 2 OR lease_token IS NOT NULL AND lease_expires_at = available_at),
  CHECK ((key_hold = 3) = (key_us IS NOT NULL))
) STRICT;
CREATE UNIQUE INDEX th_state_id ON th_state (id);
-- ORD-1: the order of Reserve, over the jobs without a lane that time can make available; no terminal job is among them
-- (SET-5). The state is there to be counted, and the lane so that the row need not be read.
CREATE INDEX th_state_position ON th_state (queue, priority DESC, available_at, seq, state, lane)
  WHERE available_at IS NOT NULL AND lane IS NULL;
-- LAN-1, LAN-2, LAN-3: the same over the jobs with a lane, in two parts. Those that were due when they were written or looked
-- at stand in the line of their lane, and one seek leads from a line to the next. Before them are the others, without a
-- line, by time: a Reserve that finds them due puts them into their lines. So no lane is looked at whose jobs are all
-- inflight or scheduled.
CREATE INDEX th_state_lane ON th_state (queue, priority DESC, line, available_at, seq, state, lane)
  WHERE available_at IS NOT NULL AND lane IS NOT NULL;
-- Those in line by time. A call with an earlier `now` than the one that put them there has to wait for them (RES-7).
CREATE INDEX th_state_line ON th_state (queue, available_at) WHERE line IS NOT NULL;
-- LIM-1, LIM-5: the leases that count.
CREATE INDEX th_state_lease ON th_state (queue, lane, lease_expires_at) WHERE counted = 1;
-- The order of pruning.
CREATE INDEX th_state_end ON th_state (state, kept_until, seq) WHERE kept_until IS NOT NULL AND flow IS NULL;
CREATE INDEX th_state_flow ON th_state (flow, state, seq) WHERE flow IS NOT NULL;
-- The members of a flow that were enqueued with a key, which are few.
CREATE INDEX th_state_flow_key ON th_state (flow, seq) WHERE flow IS NOT NULL AND keyed = 1;
-- The dead-lettered and cancelled jobs, which are few and often listed.
CREATE INDEX th_state_dead ON th_state (state, seq) WHERE state >= 4;

-- The rest of what was enqueued, written once. The payload is last, so that the other columns are read without it.
CREATE TABLE th_job (
  seq             INTEGER PRIMARY KEY,
  type            TEXT NOT NULL,
  created_at      INTEGER NOT NULL,
  timeout_us      INTEGER,
  max_attempts    INTEGER,
  waits_for       INTEGER NOT NULL,            -- how many outputs it reads
  idempotency_key TEXT,
  headers         TEXT,                        -- JSON
  payload         BLOB NOT NULL
) STRICT;

-- The last failures of a job, numbered from one.
CREATE TABLE th_error (
  seq       INTEGER NOT NULL,
  failure   INTEGER NOT NULL,
  attempts  INTEGER NOT NULL,
  failed_at INTEGER NOT NULL,
  error     TEXT NOT NULL,
  PRIMARY KEY (seq, failure)
) STRICT, WITHOUT ROWID;

-- KEY-2: keys that are held, by queue. A key that is held for a time stays when its job's record is removed (KEY-9).
CREATE TABLE th_key (
  queue      TEXT NOT NULL,
  key        TEXT NOT NULL,
  job        TEXT NOT NULL,                   -- the job that took it
  seq        INTEGER NOT NULL,                -- its number; 0 if its record was removed
  held_until INTEGER,                         -- the first instant at which it is free, if it is held for a time
  PRIMARY KEY (queue, key),
  CHECK (seq <> 0 OR held_until IS NOT NULL)
) STRICT, WITHOUT ROWID;
CREATE INDEX th_key_orphan ON th_key (held_until) WHERE seq = 0;

-- Which job reads the output of which parent, and whether it still waits for it.
CREATE TABLE th_edge (
  dependant    INTEGER NOT NULL,
  ord          INTEGER NOT NULL,
  parent       INTEGER NOT NULL,
  state        INTEGER NOT NULL,
  spent_state  INTEGER,
  parent_id    TEXT NOT NULL,
  spent_reason TEXT,
  PRIMARY KEY (dependant, ord)
) STRICT, WITHOUT ROWID;
CREATE INDEX th_edge_parent ON th_edge (parent, dependant, ord) WHERE state = 0;
-- The open edges of failure jobs, which are few.
CREATE INDEX th_edge_failure ON th_edge (parent, dependant, ord) WHERE state = 3;
-- The edges of imported jobs whose parents are not stored, or not yet, which are few.
CREATE INDEX th_edge_missing ON th_edge (parent_id) WHERE parent = 0;

CREATE TABLE th_flow (
  seq        INTEGER PRIMARY KEY,
  id         TEXT NOT NULL UNIQUE,
  name       TEXT,
  created_at INTEGER NOT NULL,
  tail       INTEGER NOT NULL,                -- the member whose output is the flow's
  live       INTEGER NOT NULL,                -- how many members are not terminal
  state      INTEGER,                         -- how it ended; NULL while a member is not terminal
  kept_until INTEGER,
  watched    INTEGER NOT NULL DEFAULT 0       -- whether it has had failure jobs
) STRICT;
CREATE INDEX th_flow_end ON th_flow (state, kept_until, seq) WHERE state IS NOT NULL;
CREATE INDEX th_flow_name ON th_flow (name, seq) WHERE name IS NOT NULL;

-- The number of members of a large terminal flow, by queue and state, so that removing it changes the counts at once.
CREATE TABLE th_flow_count (
  flow  INTEGER NOT NULL,
  queue TEXT NOT NULL,
  state INTEGER NOT NULL,
  jobs  INTEGER NOT NULL,
  PRIMARY KEY (flow, queue, state)
) STRICT, WITHOUT ROWID;

-- Large flows that were removed and whose members are deleted in steps. They have no row in th_flow any more, and a job
-- that names a flow without a row is not there for any caller.
CREATE TABLE th_removal (
  flow INTEGER PRIMARY KEY
) STRICT;

-- Queues that are paused, limited or on hold.
CREATE TABLE th_queue (
  name         TEXT PRIMARY KEY,
  paused_since INTEGER,
  tat          INTEGER,                         -- RAT-1: up to when its rate is charged
  held_until   INTEGER,                         -- RAT-4: until when nothing of it is granted
  owner        TEXT,                            -- the service that declared its limits; NULL if they were set
  limits       TEXT,                            -- JSON; rates are [jobs, microseconds, burst]
  CHECK (limits IS NOT NULL OR owner IS NULL AND tat IS NULL)
) STRICT, WITHOUT ROWID;
CREATE INDEX th_queue_owner ON th_queue (owner) WHERE owner IS NOT NULL;

-- Lanes whose rate was charged or that are on hold. A row whose end is over says nothing and is removed.
CREATE TABLE th_lane (
  queue      TEXT NOT NULL,
  lane       TEXT NOT NULL,
  tat        INTEGER,
  held_until INTEGER,
  ends_at    INTEGER NOT NULL,                  -- the later of the two
  PRIMARY KEY (queue, lane)
) STRICT, WITHOUT ROWID;
CREATE INDEX th_lane_end ON th_lane (ends_at);

-- SCH-1: schedules. A revision comes from th_meta.seq and is never used again.
CREATE TABLE th_schedule (
  name         TEXT NOT NULL UNIQUE,
  owner        TEXT,                            -- NULL if it was put on its own
  next_slot    INTEGER,
  paused_since INTEGER,
  revision     INTEGER NOT NULL,
  stored       INTEGER NOT NULL,                -- slots whose job was stored
  skipped      INTEGER NOT NULL,                -- slots in the place of whose job another stood
  missed       INTEGER NOT NULL,                -- slots that were left out
  error        TEXT,                            -- why the last firing stored no jobs
  firings      TEXT NOT NULL,                   -- the last ten: JSON, [slot, fired at, job, whether it was stored]
  definition   BLOB NOT NULL
) STRICT;
CREATE INDEX th_schedule_due ON th_schedule (next_slot, name) WHERE paused_since IS NULL AND next_slot IS NOT NULL;
CREATE INDEX th_schedule_owner ON th_schedule (owner, name) WHERE owner IS NOT NULL;

-- SCH-11, LIM-8: the version of its schedules and limits that a service has declared.
CREATE TABLE th_owner (
  name    TEXT PRIMARY KEY,
  version INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- WRK-1: the announcements of workers. No job depends on them.
CREATE TABLE th_worker (
  holder      TEXT NOT NULL,
  incarnation TEXT NOT NULL,                    -- 16 hexadecimal digits
  started_at  INTEGER NOT NULL,                 -- when it announced itself first
  seen_at     INTEGER NOT NULL,                 -- when it announced itself last
  expires_at  INTEGER NOT NULL,                 -- the first instant at which the announcement is over
  info        BLOB NOT NULL,
  PRIMARY KEY (holder, incarnation)
) STRICT, WITHOUT ROWID;

-- How many jobs of a queue are in each state. Jobs that wait are counted by their positions.
CREATE TABLE th_count (
  queue     TEXT PRIMARY KEY,
  blocked   INTEGER NOT NULL,
  inflight  INTEGER NOT NULL,
  done      INTEGER NOT NULL,
  dlq       INTEGER NOT NULL,
  cancelled INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Every job, for people: one row each, with the columns and words of the documentation.
CREATE VIEW th_jobs AS
SELECT s.id, j.type, s.queue, j.payload,
  strftime('%Y-%m-%dT%H:%M:%S', s.run_at / 1000000, 'unixepoch') || printf('.%06dZ', s.run_at % 1000000) AS run_at,
  coalesce(j.timeout_us, 0) * 1000 AS timeout_nanos,
  strftime('%Y-%m-%dT%H:%M:%S', j.created_at / 1000000, 'unixepoch') || printf('.%06dZ', j.created_at % 1000000) AS created_at,
  s.attempts, coalesce(s.attempt_limit, j.max_attempts, 0) AS max_attempts,
  coalesce(e.error, '') AS last_error,
  strftime('%Y-%m-%dT%H:%M:%S', e.failed_at / 1000000, 'unixepoch') || printf('.%06dZ', e.failed_at % 1000000) AS failed_at,
  CASE s.state WHEN 1 THEN 'blocked' WHEN 2 THEN 'inflight' WHEN 3 THEN 'done' WHEN 4 THEN 'dlq' WHEN 5 THEN 'cancelled'
    ELSE CASE WHEN s.available_at <= CAST(unixepoch('subsec') * 1000000 AS INTEGER) THEN 'ready' ELSE 'scheduled' END END AS status,
  CASE WHEN s.state = 2 THEN lower(hex(s.lease_token)) END AS lease_token,
  CASE WHEN s.state = 2 THEN
    strftime('%Y-%m-%dT%H:%M:%S', s.lease_expires_at / 1000000, 'unixepoch') || printf('.%06dZ', s.lease_expires_at % 1000000)
    END AS lease_expires_at,
  CASE WHEN s.state = 4 THEN s.reason END AS dlq_reason,
  CASE WHEN s.state = 4 THEN
    strftime('%Y-%m-%dT%H:%M:%S', s.finished_at / 1000000, 'unixepoch') || printf('.%06dZ', s.finished_at % 1000000)
    END AS dlq_failed_at,
  j.idempotency_key,
  -- Further columns.
  s.priority, s.deliveries, s.expirations, s.epoch, j.headers, s.holder, s.cancel_requested, s.progress, s.output,
  s.reason,
  strftime('%Y-%m-%dT%H:%M:%S', s.finished_at / 1000000, 'unixepoch') || printf('.%06dZ', s.finished_at % 1000000)
    AS finished_at,
  f.id AS flow, s.pending, s.seq, s.released,
  j.headers ->> '$.th-schedule' AS schedule, j.headers ->> '$.th-slot' AS slot, s.lane
FROM th_state s
JOIN th_job j ON j.seq = s.seq
LEFT JOIN th_error e ON e.seq = s.seq AND e.failure = s.failures
LEFT JOIN th_flow f ON f.seq = s.flow
WHERE s.flow IS NULL OR f.seq IS NOT NULL;
