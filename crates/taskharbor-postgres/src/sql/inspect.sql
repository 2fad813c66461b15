-- One job (ADM-1): th_job_id finds it, the primary keys the rest.
SELECT r.id, r.queue, r.type, r.payload, r.headers::text AS headers, r.kind::text AS kind, r.key_hold::text AS key_hold,
  r.on_failure::text AS on_failure, r.timeout_us, r.created_at, r.idempotency_key, r.expanded_id, f.id AS flow,
  r.ended_as::text AS ended_as, r.finished_at, r.reason, r.output, r.max_attempts::bigint AS max_attempts,
  r.priority::bigint AS priority, r.run_at, r.started_at, r.deliveries::bigint AS deliveries, r.attempts::bigint AS attempts,
  r.expirations::bigint AS expirations, r.epoch::bigint AS epoch, r.progress, r.released, r.due_at, r.lease_expires_at, r.holder,
  coalesce(r.cancel_requested, false) AS cancel_requested, r.waits_for IS NOT NULL AS blocked,
  ARRAY(SELECT e.parent_id FROM {schema}.th_each_edge e WHERE e.child = r.seq ORDER BY e.ord) AS parent_ids,
  CASE WHEN r.parents > 0 THEN
    (SELECT count(*) FROM {schema}.th_each_edge e
     WHERE e.child = r.seq AND (e.status = 'waits_for_failure' OR e.status = 'waits_for_success'
       AND NOT EXISTS (SELECT FROM {schema}.th_finished_row_v1(e.parent) p WHERE p.state = 'done')))
    ELSE 0 END AS pending,
  ARRAY(SELECT x.attempts::bigint FROM {schema}.th_error x WHERE x.seq = r.seq ORDER BY x.failure) AS error_attempts,
  ARRAY(SELECT x.failed_at FROM {schema}.th_error x WHERE x.seq = r.seq ORDER BY x.failure) AS error_times,
  ARRAY(SELECT x.error FROM {schema}.th_error x WHERE x.seq = r.seq ORDER BY x.failure) AS error_texts,
  r.key_time_us, r.available_at, r.lane, u.limits, u.inflight, u.tat, u.held_until, u.lane_inflight, u.lane_tat,
  u.lane_held_until
FROM {schema}.th_record r LEFT JOIN {schema}.th_flow f ON f.seq = r.flow
LEFT JOIN LATERAL {schema}.th_usage_v1(r.queue, r.lane, $2) u ON true
WHERE r.seq = (SELECT j.seq FROM {schema}.th_job j WHERE j.id = $1)
