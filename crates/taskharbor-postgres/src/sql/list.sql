-- A page of jobs by their number. Where a filter leaves few, they are found by what leaves few of them: live states in
-- th_hot, dead-lettered and cancelled ones in th_end, members of a flow by th_job_flow.
-- $1: after this number; $2: at most so many; $3 queue, $4 type, $5 flow, $6 state, or NULL for any; $7: now.
WITH chosen (seq) AS (
  SELECT j.seq FROM {schema}.th_job j
  WHERE $5::text IS NOT NULL AND j.flow = (SELECT f.seq FROM {schema}.th_flow f WHERE f.id = $5) AND j.seq > $1
  UNION ALL
  SELECT h.seq FROM {schema}.th_hot h
  WHERE $5 IS NULL AND $6::text IN ('ready', 'scheduled', 'blocked', 'inflight') AND h.seq > $1
    AND CASE $6 WHEN 'inflight' THEN h.lease_exp IS NOT NULL
                WHEN 'blocked' THEN h.pending IS NOT NULL
                WHEN 'ready' THEN h.lease_exp IS NULL AND h.pending IS NULL AND h.line_at <= $7
                ELSE h.lease_exp IS NULL AND h.pending IS NULL AND h.line_at > $7 END
  UNION ALL
  SELECT s.seq FROM {schema}.th_end e CROSS JOIN LATERAL unnest(e.seqs) AS s (seq)
  WHERE $5 IS NULL AND $6 IN ('dlq', 'cancelled') AND e.state = CASE $6 WHEN 'dlq' THEN 'q' ELSE 'c' END AND s.seq > $1
  UNION ALL
  SELECT j.seq FROM {schema}.th_job j
  WHERE $5 IS NULL AND ($6 IS NULL OR $6 = 'done') AND j.seq > $1
), named AS (
  SELECT r.*,
    CASE WHEN r.ended_as = 'd' THEN 'done' WHEN r.ended_as = 'q' THEN 'dlq' WHEN r.ended_as = 'c' THEN 'cancelled'
         WHEN r.lease_exp IS NOT NULL THEN 'inflight' WHEN r.pending IS NOT NULL THEN 'blocked'
         WHEN r.due_at <= $7 THEN 'ready' ELSE 'scheduled' END AS state
  FROM chosen c JOIN {schema}.th_record r ON r.seq = c.seq
)
SELECT r.seq, r.id, r.type, r.queue, r.state, r.priority::bigint, r.run_at, r.due_at, r.created_at, r.started_at,
  r.finished_at, r.attempts::bigint, r.max_attempts::bigint, r.deliveries::bigint, r.expirations::bigint, r.lease_exp,
  r.holder, e.error, r.reason, f.id AS flow, octet_length(r.payload)::bigint AS payload_bytes
FROM named r
LEFT JOIN {schema}.th_error e ON e.seq = r.seq AND e.failure = r.failures
LEFT JOIN {schema}.th_flow f ON f.seq = r.flow
WHERE ($3::text IS NULL OR r.queue = $3) AND ($4::text IS NULL OR r.type = $4) AND ($6 IS NULL OR r.state = $6)
ORDER BY r.seq LIMIT $2
