-- Reads jobs with everything that is stored about them and their flows: single jobs by their numbers, members by their
-- flows. It is one statement, so a unit is read as of one moment.
SELECT r.seq, r.id, r.queue, r.type, r.payload, r.headers::text AS headers, r.kind::text AS kind, r.key_hold::text AS key_hold,
  r.on_failure::text AS on_failure, r.lane, r.timeout_us, r.job_max_attempts::bigint AS max_attempts, r.created_at, r.idempotency_key,
  r.priority::bigint AS priority, r.run_at, r.ended_as::text AS ended_as, r.finished_at, r.kept_until, r.settled_by, r.output,
  r.reason, r.expanded_id, r.flow AS flow_seq, r.waits_for IS NOT NULL AS blocked, r.position, r.lease_expires_at, r.lease_token,
  t.lease_token AS imported_for, t.token AS imported_token, r.holder, coalesce(r.cancel_requested, false) AS cancel_requested,
  r.lease_mark::text AS lease_mark,
  r.started_at, r.deliveries::bigint AS deliveries, r.attempts::bigint AS attempts, r.expirations::bigint AS expirations,
  r.epoch::bigint AS epoch, r.attempt_limit::bigint AS attempt_limit, r.progress, r.released,
  -- Most jobs have neither parents nor failures, for which nothing is looked up.
  CASE WHEN r.parents > 0 THEN
    ARRAY(SELECT e.parent_id FROM {schema}.th_each_edge e WHERE e.child = r.seq ORDER BY e.ord) ELSE '{}' END AS parent_ids,
  CASE WHEN r.parents > 0 THEN ARRAY(
    SELECT CASE WHEN e.status = 'failed' THEN 'failed'
        WHEN e.status = 'waits_for_failure' OR e.status = 'waits_for_success'
          AND NOT EXISTS (SELECT FROM {schema}.th_finished_row_v1(e.parent) p WHERE p.state = 'done') THEN 'open'
        ELSE 'closed' END
    FROM {schema}.th_each_edge e WHERE e.child = r.seq ORDER BY e.ord) ELSE '{}' END AS edges,
  CASE WHEN r.parents > 0 THEN
    ARRAY(SELECT e.failed_state::text FROM {schema}.th_each_edge e WHERE e.child = r.seq ORDER BY e.ord) ELSE '{}' END AS failed_states,
  CASE WHEN r.parents > 0 THEN
    ARRAY(SELECT e.failed_reason FROM {schema}.th_each_edge e WHERE e.child = r.seq ORDER BY e.ord) ELSE '{}' END AS failed_reasons,
  CASE WHEN r.failures > 0 THEN
    ARRAY(SELECT x.attempts::bigint FROM {schema}.th_error x WHERE x.seq = r.seq ORDER BY x.failure) ELSE '{}' END AS error_attempts,
  CASE WHEN r.failures > 0 THEN
    ARRAY(SELECT x.failed_at FROM {schema}.th_error x WHERE x.seq = r.seq ORDER BY x.failure) ELSE '{}' END AS error_times,
  CASE WHEN r.failures > 0 THEN
    ARRAY(SELECT x.error FROM {schema}.th_error x WHERE x.seq = r.seq ORDER BY x.failure) ELSE '{}' END AS error_texts,
  r.idempotency_key IS NOT NULL AND
  EXISTS (SELECT FROM {schema}.th_key k WHERE k.queue = r.queue AND k.key = r.idempotency_key AND k.seq = r.seq) AS holds_key,
  f.id AS flow, r.key_time_us, f.name AS flow_name, f.created_at AS flow_created_at,
  (SELECT j.id FROM {schema}.th_job j WHERE j.seq = f.tail) AS tail
FROM {schema}.th_record r
LEFT JOIN {schema}.th_flow f ON f.seq = r.flow
LEFT JOIN {schema}.th_imported_token t ON t.seq = r.seq
WHERE r.seq = ANY ($1 || ARRAY(SELECT m.seq FROM unnest($2) AS f (seq) CROSS JOIN LATERAL {schema}.th_members_v1(f.seq) m))
ORDER BY r.seq
