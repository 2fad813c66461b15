-- Live jobs are counted in th_hot, those that are over in th_end, which has a row for each call that ended some. ADM-4.
-- Counts are exact, which a cap allows (ADM-14): jobs that are inflight or blocked are in no index of their own, so to tell
-- that there are few of them every live row is read, and counting the others on the way costs nothing.
WITH counted AS (
  SELECT h.queue,
    count(*) FILTER (WHERE h.lease_exp IS NULL AND h.pending IS NULL AND h.line_at <= $1) AS ready,
    count(*) FILTER (WHERE h.lease_exp IS NULL AND h.pending IS NULL AND h.line_at > $1) AS scheduled,
    count(*) FILTER (WHERE h.pending IS NOT NULL) AS blocked, count(*) FILTER (WHERE h.lease_exp IS NOT NULL) AS inflight, 0::bigint AS done, 0::bigint AS dlq, 0::bigint AS cancelled,
    min(h.line_at) FILTER (WHERE h.lease_exp IS NULL AND h.pending IS NULL AND h.line_at <= $1) AS oldest,
    NULL::bigint AS paused
  FROM {schema}.th_hot h GROUP BY h.queue
  UNION ALL
  SELECT e.queue, 0, 0, 0, 0, coalesce(sum(pg_catalog.cardinality(e.seqs)) FILTER (WHERE e.state = 'd'), 0),
    coalesce(sum(pg_catalog.cardinality(e.seqs)) FILTER (WHERE e.state = 'q'), 0),
    coalesce(sum(pg_catalog.cardinality(e.seqs)) FILTER (WHERE e.state = 'c'), 0), NULL, NULL
  FROM {schema}.th_end e GROUP BY e.queue
  UNION ALL
  SELECT q.name, 0, 0, 0, 0, 0, 0, 0, NULL, q.paused_since FROM {schema}.th_queue q
)
SELECT queue, sum(ready)::bigint, sum(scheduled)::bigint, sum(blocked)::bigint, sum(inflight)::bigint, sum(done)::bigint,
  sum(dlq)::bigint, sum(cancelled)::bigint, min(oldest), min(paused)
FROM counted GROUP BY queue ORDER BY queue
