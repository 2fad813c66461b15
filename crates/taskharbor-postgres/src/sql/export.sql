-- Jobs with all that is stored of them and of their flows: single jobs by their numbers, members by their flows. It is
-- one statement, so a unit is read as it is at one moment.
SELECT j.seq, j.id, j.queue, j.type, j.payload, j.headers::text, j.kind::text, j.key_hold::text, j.on_failure::text,
  j.timeout_us, j.max_attempts::bigint, j.created_at, j.idempotency_key, coalesce(h.priority, j.priority)::bigint,
  CASE WHEN h.seq IS NULL THEN j.run_at ELSE h.run_at END, j.state::text, j.finished_at, j.kept_until, j.secret, j.output,
  j.reason, j.expanded_id, j.flow, h.seq IS NOT NULL, h.pending IS NOT NULL, coalesce(h.due_at, h.line_at), h.lease_exp,
  h.secret, h.holder, coalesce(h.cancel, false), coalesce(h.started_at, j.started_at),
  coalesce(h.deliveries, j.deliveries)::bigint,
  CASE WHEN h.seq IS NULL THEN j.attempts ELSE h.attempts END::bigint,
  CASE WHEN h.seq IS NULL THEN j.expirations ELSE h.expirations END::bigint,
  CASE WHEN h.seq IS NULL THEN j.epoch ELSE h.epoch END::bigint,
  CASE WHEN h.seq IS NULL THEN j.attempt_limit ELSE h.attempt_limit END::bigint,
  CASE WHEN h.seq IS NULL THEN j.progress ELSE h.progress END,
  ARRAY(SELECT e.parent_id FROM {schema}.th_edge e WHERE e.child = j.seq ORDER BY e.ord),
  ARRAY(SELECT e.tie::text FROM {schema}.th_edge e WHERE e.child = j.seq ORDER BY e.ord),
  ARRAY(SELECT e.spent_state::text FROM {schema}.th_edge e WHERE e.child = j.seq ORDER BY e.ord),
  ARRAY(SELECT e.spent_reason FROM {schema}.th_edge e WHERE e.child = j.seq ORDER BY e.ord),
  ARRAY(SELECT x.attempts::bigint FROM {schema}.th_error x WHERE x.seq = j.seq ORDER BY x.failure),
  ARRAY(SELECT x.failed_at FROM {schema}.th_error x WHERE x.seq = j.seq ORDER BY x.failure),
  ARRAY(SELECT x.error FROM {schema}.th_error x WHERE x.seq = j.seq ORDER BY x.failure),
  EXISTS (SELECT FROM {schema}.th_key k WHERE k.queue = j.queue AND k.key = j.idempotency_key AND k.seq = j.seq),
  f.id, j.key_time_us, f.name, f.created_at, (SELECT t.id FROM {schema}.th_job t WHERE t.seq = f.tail)
FROM {schema}.th_job j
LEFT JOIN {schema}.th_hot h ON h.seq = j.seq
LEFT JOIN {schema}.th_flow f ON f.seq = j.flow
WHERE j.seq = ANY ($1) OR j.flow = ANY ($2)
ORDER BY j.seq
