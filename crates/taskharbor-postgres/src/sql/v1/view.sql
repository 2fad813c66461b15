-- What people see.

-- In two parts, since an interval is multiplied in floating point.
CREATE FUNCTION th_time(p_micros bigint) RETURNS timestamptz LANGUAGE sql IMMUTABLE AS $$
  SELECT timestamptz 'epoch' + p_micros / 1000000 * interval '1 second' + p_micros % 1000000 * interval '1 microsecond'
$$;

-- Every job with what there is to know of it, times in microseconds. What the driver reads.
CREATE VIEW th_record AS
SELECT j.seq, j.id, j.queue, j.type, j.payload, j.headers, j.kind, j.key_hold, j.on_failure, j.timeout_us, j.created_at,
  j.idempotency_key, j.key_time_us, j.parents, j.expanded_id, j.flow, j.state AS ended_as, j.finished_at, j.kept_until, j.reason, j.output,
  coalesce(h.attempt_limit, j.attempt_limit, j.max_attempts) AS max_attempts,
  CASE WHEN h.seq IS NULL THEN j.priority ELSE h.priority END AS priority,
  CASE WHEN h.seq IS NULL THEN j.run_at ELSE h.run_at END AS run_at,
  CASE WHEN h.seq IS NULL THEN j.started_at ELSE h.started_at END AS started_at,
  coalesce(CASE WHEN h.seq IS NULL THEN j.deliveries ELSE h.deliveries END, 0) AS deliveries,
  coalesce(CASE WHEN h.seq IS NULL THEN j.attempts ELSE h.attempts END, 0) AS attempts,
  coalesce(CASE WHEN h.seq IS NULL THEN j.expirations ELSE h.expirations END, 0) AS expirations,
  coalesce(CASE WHEN h.seq IS NULL THEN j.failures ELSE h.failures END, 0) AS failures,
  coalesce(CASE WHEN h.seq IS NULL THEN j.epoch ELSE h.epoch END, 0) AS epoch,
  CASE WHEN h.seq IS NULL THEN j.progress ELSE h.progress END AS progress,
  CASE WHEN h.lease_exp IS NULL AND h.pending IS NULL THEN h.line_at END AS due_at,
  CASE WHEN h.seq IS NULL OR h.pending IS NOT NULL THEN j.created_at ELSE coalesce(h.due_at, h.line_at) END AS available_at,
  h.pending, h.lease_exp, h.secret AS token, h.holder, h.cancel
FROM th_job j LEFT JOIN th_hot h ON h.seq = j.seq;

-- Every job, for people: one row each, with the columns and words of the documentation.
CREATE VIEW th_jobs AS
SELECT r.id, r.type, r.queue, r.payload, th_time(r.run_at) AS run_at, coalesce(r.timeout_us, 0) * 1000 AS timeout_nanos,
  th_time(r.created_at) AS created_at, r.attempts, coalesce(r.max_attempts, 0) AS max_attempts,
  coalesce(e.error, '') AS last_error, th_time(e.failed_at) AS failed_at,
  CASE
    WHEN r.ended_as = 'd' THEN 'done' WHEN r.ended_as = 'q' THEN 'dlq' WHEN r.ended_as = 'c' THEN 'cancelled'
    WHEN r.lease_exp IS NOT NULL THEN 'inflight' WHEN r.pending IS NOT NULL THEN 'blocked'
    WHEN th_time(r.due_at) <= clock_timestamp() THEN 'ready' ELSE 'scheduled' END AS status,
  r.token::text AS lease_token, th_time(r.lease_exp) AS lease_expires_at,
  CASE WHEN r.ended_as = 'q' THEN r.reason END AS dlq_reason,
  CASE WHEN r.ended_as = 'q' THEN th_time(r.finished_at) END AS dlq_failed_at,
  r.idempotency_key,
  -- Beyond the first documentation.
  r.priority, th_time(r.due_at) AS due_at, r.deliveries, r.expirations, r.epoch, r.headers, r.holder,
  coalesce(r.cancel, false) AS cancel_requested, r.progress, r.output, r.reason, th_time(r.started_at) AS started_at,
  th_time(r.finished_at) AS finished_at, f.id AS flow, r.pending, r.seq
FROM th_record r
LEFT JOIN th_error e ON e.seq = r.seq AND e.failure = r.failures
LEFT JOIN th_flow f ON f.seq = r.flow;
