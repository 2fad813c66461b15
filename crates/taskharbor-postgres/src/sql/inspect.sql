-- One job (ADM-1): th_job_id finds it, the primary keys the rest.
SELECT r.id, r.queue, r.type, r.payload, r.headers::text, r.kind::text, r.key_hold::text, r.on_failure::text, r.timeout_us,
  r.created_at, r.idempotency_key, r.parents::bigint, r.expanded_id, f.id AS flow, r.ended_as::text, r.finished_at, r.reason,
  r.output, r.max_attempts::bigint, r.priority::bigint, r.run_at, r.started_at, r.deliveries::bigint, r.attempts::bigint,
  r.expirations::bigint, r.epoch::bigint, r.progress, r.due_at, r.lease_exp, r.holder, coalesce(r.cancel, false) AS cancel,
  r.pending IS NOT NULL AS blocked,
  ARRAY(SELECT e.parent_id FROM {schema}.th_edge e WHERE e.child = r.seq ORDER BY e.ord) AS parent_ids,
  (SELECT count(*) FROM {schema}.th_edge e WHERE e.child = r.seq AND e.tie IN ('o', 'f')) AS pending,
  ARRAY(SELECT x.attempts::bigint FROM {schema}.th_error x WHERE x.seq = r.seq ORDER BY x.failure) AS error_attempts,
  ARRAY(SELECT x.failed_at FROM {schema}.th_error x WHERE x.seq = r.seq ORDER BY x.failure) AS error_times,
  ARRAY(SELECT x.error FROM {schema}.th_error x WHERE x.seq = r.seq ORDER BY x.failure) AS error_texts, r.key_time_us, r.available_at
FROM {schema}.th_record r LEFT JOIN {schema}.th_flow f ON f.seq = r.flow
WHERE r.seq = (SELECT j.seq FROM {schema}.th_job j WHERE j.id = $1)
