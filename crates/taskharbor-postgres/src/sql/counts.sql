-- Live jobs are counted in th_live, terminal ones in th_finished, which has a row for each call that ended some. ADM-4.
-- Counts are exact, which a cap allows (ADM-14): jobs that are inflight or blocked are in no index of their own, so to tell
-- that there are few of them every live row is read, and counting the others on the way costs nothing.
WITH counted AS (
  SELECT l.queue,
    count(*) FILTER (WHERE l.lease_expires_at IS NULL AND l.waits_for IS NULL AND l.available_at <= $1) AS ready,
    count(*) FILTER (WHERE l.lease_expires_at IS NULL AND l.waits_for IS NULL AND l.available_at > $1) AS scheduled,
    count(*) FILTER (WHERE l.waits_for IS NOT NULL) AS blocked,
    count(*) FILTER (WHERE l.lease_expires_at IS NOT NULL) AS inflight, 0::bigint AS done, 0::bigint AS dlq, 0::bigint AS cancelled,
    min(l.available_at) FILTER (WHERE l.lease_expires_at IS NULL AND l.waits_for IS NULL AND l.available_at <= $1) AS oldest,
    NULL::bigint AS paused
  FROM {schema}.th_live l GROUP BY l.queue
  UNION ALL
  SELECT f.queue, 0, 0, 0, 0, coalesce(sum(pg_catalog.cardinality(f.offsets)) FILTER (WHERE f.state = 'done'), 0),
    coalesce(sum(pg_catalog.cardinality(f.offsets)) FILTER (WHERE f.state = 'dlq'), 0),
    coalesce(sum(pg_catalog.cardinality(f.offsets)) FILTER (WHERE f.state = 'cancelled'), 0), NULL, NULL
  FROM {schema}.th_finished f GROUP BY f.queue
  UNION ALL
  SELECT q.name, 0, 0, 0, 0, 0, 0, 0, NULL, q.paused_since FROM {schema}.th_queue q
)
SELECT queue, sum(ready)::bigint AS ready, sum(scheduled)::bigint AS scheduled, sum(blocked)::bigint AS blocked,
  sum(inflight)::bigint AS inflight, sum(done)::bigint AS done, sum(dlq)::bigint AS dlq, sum(cancelled)::bigint AS cancelled,
  min(oldest) AS oldest, min(paused) AS paused
FROM counted GROUP BY queue ORDER BY queue
