-- Flows by their number, and what follows from their members.
-- $1: after this number; $2: at most so many; $3: id, $4: name, $5: state, or NULL for any; $6: now.
SELECT f.seq, f.id, f.name, f.created_at, t.id AS tail,
  CASE WHEN t.state = 'd' THEN 'done' WHEN t.state = 'q' THEN 'dlq' WHEN t.state = 'c' THEN 'cancelled'
       WHEN th.lease_exp IS NOT NULL THEN 'inflight' WHEN th.pending IS NOT NULL THEN 'blocked'
       WHEN th.line_at <= $6 THEN 'ready' ELSE 'scheduled' END AS tail_state,
  live.ready, live.scheduled, live.blocked, live.inflight, ended.done, ended.dlq, ended.cancelled,
  CASE WHEN f.state IS NOT NULL THEN (SELECT max(m.finished_at) FROM {schema}.th_job m WHERE m.flow = f.seq) END AS finished_at
FROM {schema}.th_flow f
JOIN {schema}.th_job t ON t.seq = f.tail LEFT JOIN {schema}.th_hot th ON th.seq = f.tail
CROSS JOIN LATERAL (
  SELECT count(*) FILTER (WHERE h.lease_exp IS NULL AND h.pending IS NULL AND h.line_at <= $6) AS ready,
    count(*) FILTER (WHERE h.lease_exp IS NULL AND h.pending IS NULL AND h.line_at > $6) AS scheduled,
    count(h.pending) AS blocked, count(h.lease_exp) AS inflight
  FROM {schema}.th_hot h WHERE h.flow = f.seq
) live
CROSS JOIN LATERAL (
  SELECT coalesce(sum(cardinality(e.seqs)) FILTER (WHERE e.state = 'd'), 0)::bigint AS done,
    coalesce(sum(cardinality(e.seqs)) FILTER (WHERE e.state = 'q'), 0)::bigint AS dlq,
    coalesce(sum(cardinality(e.seqs)) FILTER (WHERE e.state = 'c'), 0)::bigint AS cancelled
  FROM {schema}.th_end e WHERE e.flow = f.seq
) ended
WHERE f.seq > $1 AND ($3::text IS NULL OR f.id = $3) AND ($4::text IS NULL OR f.name = $4)
  AND CASE $5::text
    WHEN 'running' THEN live.ready + live.scheduled + live.inflight > 0
    WHEN 'held' THEN live.ready + live.scheduled + live.inflight = 0 AND live.blocked > 0
    WHEN 'done' THEN f.state = 'd'
    WHEN 'failed' THEN f.state = 'q'
    WHEN 'cancelled' THEN f.state = 'c'
    ELSE true END
ORDER BY f.seq LIMIT $2
