-- Views for people.

-- In two parts, since an interval is multiplied in floating point.
CREATE FUNCTION th_time(p_micros bigint) RETURNS timestamptz LANGUAGE sql STABLE AS $$
  SELECT timestamptz 'epoch' + p_micros / 1000000 * interval '1 second' + p_micros % 1000000 * interval '1 microsecond'
$$;

-- Every job with everything that is stored about it, for the driver. Times are in microseconds.
CREATE VIEW th_record AS
SELECT j.seq, j.id, j.queue, j.type, j.payload, j.headers, coalesce(j.kind, 'work') AS kind,
  coalesce(j.key_hold, 'until_pruned') AS key_hold, coalesce(j.on_failure, 'block') AS on_failure, j.timeout_us, j.created_at,
  j.idempotency_key, j.lane, j.key_time_us, j.parents, j.expanded_id, j.flow, f.state AS ended_as, f.finished_at, f.kept_until,
  f.lease_token AS settled_by, o.reason, o.output, j.max_attempts AS job_max_attempts,
  CASE WHEN l.seq IS NULL THEN o.attempt_limit ELSE l.attempt_limit END AS attempt_limit,
  coalesce(CASE WHEN l.seq IS NULL THEN o.attempt_limit ELSE l.attempt_limit END, j.max_attempts) AS max_attempts,
  coalesce(l.priority, o.priority, j.priority) AS priority,
  CASE WHEN l.seq IS NOT NULL THEN l.run_at WHEN o.seq IS NOT NULL THEN o.run_at ELSE j.run_at END AS run_at,
  coalesce(l.started_at, f.started_at) AS started_at,
  CASE WHEN l.seq IS NOT NULL THEN coalesce(l.deliveries, 0) WHEN o.seq IS NOT NULL THEN coalesce(o.deliveries, 0)
       WHEN f.started_at IS NULL THEN 0 ELSE 1 END AS deliveries,
  coalesce(l.attempts, o.attempts, 0) AS attempts, coalesce(l.expirations, o.expirations, 0) AS expirations,
  coalesce(l.failures, o.failures, 0) AS failures, coalesce(l.epoch, o.epoch, 0) AS epoch, coalesce(l.progress, o.progress) AS progress,
  CASE WHEN l.lease_expires_at IS NULL AND l.waits_for IS NULL THEN l.available_at END AS due_at,
  CASE WHEN l.seq IS NULL OR l.waits_for IS NOT NULL THEN j.created_at ELSE coalesce(l.moved_from, l.available_at) END AS available_at,
  coalesce(l.moved_from, l.available_at) AS position, l.seq IS NOT NULL AS is_live, l.waits_for, l.lease_expires_at, l.lease_token,
  l.holder, l.cancel_requested, l.lease_mark, l.released
FROM th_job j
LEFT JOIN th_live l ON l.seq = j.seq
LEFT JOIN LATERAL (
  SELECT x.* FROM th_finished x
  WHERE l.seq IS NULL AND x.first BETWEEN j.seq & ~511::bigint AND j.seq AND (j.seq & 511)::smallint = ANY (x.offsets)
  ORDER BY x.first DESC LIMIT 1
) f ON true
LEFT JOIN th_outcome o ON o.seq = j.seq;

-- The payload as JSON, if that is how it was encoded and if it can be read.
CREATE FUNCTION th_json(p_payload bytea, p_headers jsonb) RETURNS jsonb LANGUAGE plpgsql STABLE AS $$
BEGIN
  IF p_headers->>'th-codec' <> 'json' THEN
    RETURN NULL;
  END IF;
  RETURN convert_from(p_payload, 'UTF8')::jsonb;
EXCEPTION WHEN data_exception OR program_limit_exceeded THEN
  RETURN NULL;
END $$;

-- Every job, for people: one row each, with the columns and words of the documentation.
CREATE VIEW th_jobs AS
SELECT r.id, r.type, r.queue, r.payload, th_time(r.run_at) AS run_at,
  coalesce(r.timeout_us, 0) * 1000 AS timeout_nanos, th_time(r.created_at) AS created_at, r.attempts,
  coalesce(r.max_attempts, 0) AS max_attempts, coalesce(e.error, '') AS last_error, th_time(e.failed_at) AS failed_at,
  CASE
    WHEN r.ended_as IS NOT NULL THEN r.ended_as::text WHEN r.lease_expires_at IS NOT NULL THEN 'inflight'
    WHEN r.waits_for IS NOT NULL THEN 'blocked'
    WHEN r.due_at <= (extract(epoch FROM clock_timestamp()) * 1000000)::bigint THEN 'ready' ELSE 'scheduled' END AS status,
  r.lease_token::text AS lease_token, th_time(r.lease_expires_at) AS lease_expires_at,
  CASE WHEN r.ended_as = 'dlq' THEN r.reason END AS dlq_reason,
  CASE WHEN r.ended_as = 'dlq' THEN th_time(r.finished_at) END AS dlq_failed_at,
  r.idempotency_key,
  -- Further columns.
  th_json(r.payload, r.headers) AS payload_json, r.priority, th_time(r.due_at) AS due_at, r.deliveries, r.expirations, r.epoch, r.headers, r.holder,
  coalesce(r.cancel_requested, false) AS cancel_requested, r.progress, r.output, r.reason, th_time(r.started_at) AS started_at,
  th_time(r.finished_at) AS finished_at, f.id AS flow, r.waits_for AS pending, r.seq,
  r.headers->>'th-schedule' AS schedule, r.headers->>'th-slot' AS slot, r.released, r.lane
FROM th_record r
LEFT JOIN th_error e ON e.seq = r.seq AND e.failure = r.failures
LEFT JOIN th_flow f ON f.seq = r.flow;

-- Per queue: how many jobs are in each state, since when the oldest ready one is due, and since when the queue has been
-- paused. Live jobs are counted in th_live, terminal ones by the rows of th_finished.
CREATE VIEW th_stats AS
SELECT s.queue, sum(s.ready)::bigint AS ready, sum(s.scheduled)::bigint AS scheduled, sum(s.blocked)::bigint AS blocked,
  sum(s.inflight)::bigint AS inflight, sum(s.done)::bigint AS done, sum(s.dlq)::bigint AS dlq, sum(s.cancelled)::bigint AS cancelled,
  th_time(min(s.oldest)) AS oldest_ready, th_time(min(s.paused)) AS paused_since
FROM (
  SELECT l.queue,
    count(*) FILTER (WHERE l.lease_expires_at IS NULL AND l.waits_for IS NULL AND l.available_at <= n.now) AS ready,
    count(*) FILTER (WHERE l.lease_expires_at IS NULL AND l.waits_for IS NULL AND l.available_at > n.now) AS scheduled,
    count(l.waits_for) AS blocked, count(l.lease_expires_at) AS inflight, 0::bigint AS done, 0::bigint AS dlq, 0::bigint AS cancelled,
    min(l.available_at) FILTER (WHERE l.lease_expires_at IS NULL AND l.waits_for IS NULL AND l.available_at <= n.now) AS oldest,
    NULL::bigint AS paused
  FROM th_live l CROSS JOIN (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS now) n GROUP BY l.queue
  UNION ALL
  SELECT f.queue, 0, 0, 0, 0, coalesce(sum(cardinality(f.offsets)) FILTER (WHERE f.state = 'done'), 0),
    coalesce(sum(cardinality(f.offsets)) FILTER (WHERE f.state = 'dlq'), 0),
    coalesce(sum(cardinality(f.offsets)) FILTER (WHERE f.state = 'cancelled'), 0), NULL, NULL
  FROM th_finished f GROUP BY f.queue
  UNION ALL
  SELECT q.name, 0, 0, 0, 0, 0, 0, 0, NULL, q.paused_since FROM th_queue q
) s GROUP BY s.queue;

-- Every schedule, for people.
CREATE VIEW th_schedules AS
SELECT s.name, s.owner,
  CASE WHEN s.paused_since IS NOT NULL THEN 'paused' WHEN s.next_slot IS NULL THEN 'ended'
       WHEN s.next_slot <= (extract(epoch FROM clock_timestamp()) * 1000000)::bigint THEN 'due' ELSE 'waiting' END AS status,
  th_time(s.next_slot) AS next_slot, th_time(s.paused_since) AS paused_since, s.stored, s.skipped, s.missed, s.error,
  (SELECT jsonb_agg(jsonb_build_object('slot', th_time(f.slot), 'fired_at', th_time(f.fired_at), 'job', f.job,
                                       'stored', f.is_stored) ORDER BY f.ordinality)
   FROM unnest(s.firings) WITH ORDINALITY AS f) AS firings,
  th_json(s.definition, NULL) AS definition_json, s.definition, s.revision
FROM th_schedule s;

-- Every worker that has announced itself, for people.
CREATE VIEW th_workers AS
SELECT w.holder, w.incarnation,
  CASE WHEN w.expires_at > (extract(epoch FROM clock_timestamp()) * 1000000)::bigint THEN 'valid' ELSE 'overdue' END AS status,
  th_time(w.started_at) AS started_at, th_time(w.seen_at) AS seen_at, th_time(w.expires_at) AS expires_at,
  th_json(w.info, NULL) AS info
FROM th_worker w;
