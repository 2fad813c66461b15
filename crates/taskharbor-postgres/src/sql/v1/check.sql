-- Looking for contradictions: a row in words for each. Empty when all is well. ADM-10.
-- In PL/pgSQL because that keeps its plan, which must not compare every row of one table with every one of another.
CREATE FUNCTION th_check() RETURNS SETOF text LANGUAGE plpgsql STABLE SET search_path = {schema}, pg_temp SET jit = off
SET enable_nestloop = off AS $$
BEGIN
  RETURN QUERY
  -- Every job is in exactly one place.
  SELECT 'job ' || j.id || ' is neither live nor over' FROM th_job j LEFT JOIN th_hot h ON h.seq = j.seq
  WHERE j.state IS NULL AND h.seq IS NULL
  UNION ALL
  SELECT 'job ' || j.id || ' is live and over' FROM th_job j JOIN th_hot h ON h.seq = j.seq WHERE j.state IS NOT NULL
  UNION ALL
  SELECT 'there is a live row ' || h.seq || ' without a job' FROM th_hot h LEFT JOIN th_job j ON j.seq = h.seq
  WHERE j.seq IS NULL
  UNION ALL
  SELECT 'job ' || j.id || ' and its live row differ in queue or flow' FROM th_job j JOIN th_hot h ON h.seq = j.seq
  WHERE (h.queue, h.flow) IS DISTINCT FROM (j.queue, j.flow)
  UNION ALL
  SELECT 'job ' || j.id || ' stands in line behind the end of its lease' FROM th_job j JOIN th_hot h ON h.seq = j.seq
  WHERE h.lease_exp < h.line_at
  -- What is over is listed once, where it is looked for.
  UNION ALL
  SELECT 'job ' || coalesce(j.id, s.seq::text) || ' is listed as over ' || count(e.queue) || ' times'
  FROM (SELECT e.*, unnest(e.seqs) AS seq FROM th_end e) e
  FULL JOIN (SELECT seq FROM th_job WHERE state IS NOT NULL) s ON s.seq = e.seq
  LEFT JOIN th_job j ON j.seq = coalesce(s.seq, e.seq)
  GROUP BY s.seq, e.seq, j.id
  HAVING count(e.queue) <> 1 OR s.seq IS NULL
      OR bool_or((e.queue, e.state, e.kept_until, e.flow) IS DISTINCT FROM
                 (SELECT (x.queue, x.state, x.kept_until, x.flow) FROM th_job x WHERE x.seq = s.seq))
  UNION ALL
  SELECT 'an empty list of jobs that are over' FROM th_end WHERE cardinality(seqs) = 0
  -- A blocked job waits for as many parents as it has open edges.
  UNION ALL
  SELECT 'job ' || j.id || ' waits for ' || coalesce(h.pending, 0) || ' of ' || coalesce(o.edges, 0) || ' parents'
  FROM th_job j JOIN th_hot h ON h.seq = j.seq
  LEFT JOIN (SELECT child, count(*) AS edges FROM th_edge WHERE tie IN ('o', 'f') GROUP BY child) o ON o.child = j.seq
  WHERE coalesce(h.pending, 0) <> coalesce(o.edges, 0)
  UNION ALL
  SELECT 'job ' || j.id || ' has ' || coalesce(o.edges, 0) || ' edges and reads ' || coalesce(j.parents, 0)
  FROM th_job j LEFT JOIN (SELECT child, count(*) AS edges FROM th_edge GROUP BY child) o ON o.child = j.seq
  WHERE coalesce(j.parents, 0) <> coalesce(o.edges, 0)
  UNION ALL
  SELECT 'job ' || c.id || ' waits for ' || e.parent_id || ', which is done or in another flow'
  FROM th_edge e JOIN th_job c ON c.seq = e.child LEFT JOIN th_job p ON p.seq = e.parent
  WHERE e.tie IN ('o', 'f') AND (p.seq IS NULL OR p.state = 'd' OR p.flow IS DISTINCT FROM c.flow OR p.id <> e.parent_id)
  UNION ALL
  SELECT 'job ' || c.id || ' waits for success and failure' FROM th_edge e JOIN th_job c ON c.seq = e.child
  WHERE e.tie = 'f' AND c.kind <> 'x' OR e.tie = 'o' AND c.kind = 'x' OR e.tie = 'n' AND (c.kind <> 'x' OR c.flow IS NULL)
  UNION ALL
  SELECT 'job ' || c.id || ' waits, but is not needed since ' || e.parent_id || ' is done'
  FROM th_edge e JOIN th_job c ON c.seq = e.child WHERE e.tie = 'n' AND c.state IS NULL
  UNION ALL
  SELECT 'there is an edge of job ' || e.child || ', which is not stored' FROM th_edge e LEFT JOIN th_job j ON j.seq = e.child
  WHERE j.seq IS NULL
  -- Keys, failures and flows belong to jobs.
  UNION ALL
  SELECT 'key ' || k.key || ' of queue ' || k.queue || ' is held by no job that has it'
  FROM th_key k LEFT JOIN th_job j ON j.seq = k.seq
  WHERE k.seq IS NOT NULL AND (k.queue, k.key, k.job) IS DISTINCT FROM (j.queue, j.idempotency_key, j.id)
  UNION ALL
  SELECT 'key ' || k.key || ' of queue ' || k.queue || ' is held until another time than job ' || j.id || ' says'
  FROM th_key k JOIN th_job j ON j.seq = k.seq
  WHERE k.held_until IS DISTINCT FROM CASE WHEN j.key_hold = 'f' THEN th_held_until(j.created_at, j.key_time_us) END
  UNION ALL
  SELECT 'job ' || j.id || ' says for how long its key is held, but not that it is held for a time' FROM th_job j
  WHERE (j.key_hold = 'f') <> (j.key_time_us IS NOT NULL)
  UNION ALL
  SELECT 'job ' || j.id || CASE WHEN k.seq IS NULL THEN ' does not hold its key' ELSE ' still holds its key' END
  FROM th_job j LEFT JOIN th_key k ON k.seq = j.seq
  LEFT JOIN th_flow f ON f.seq = j.flow AND f.id = j.id LEFT JOIN th_job t ON t.seq = f.tail
  CROSS JOIN LATERAL (SELECT CASE WHEN f.seq IS NULL THEN j.state ELSE t.state END AS state) e
  WHERE j.idempotency_key IS NOT NULL AND j.key_hold <> 'f'
    AND (k.seq IS NULL) <> (e.state IS NOT NULL AND (j.key_hold = 't' OR j.key_hold = 'd' AND e.state = 'd'))
  UNION ALL
  SELECT 'failures are kept of job ' || e.seq || ', which is not stored' FROM th_error e LEFT JOIN th_job j ON j.seq = e.seq
  WHERE j.seq IS NULL GROUP BY e.seq
  UNION ALL
  SELECT 'job ' || j.id || ' has ' || coalesce(e.kept, 0) || ' failures of ' || coalesce(h.failures, j.failures, 0)
  FROM th_job j LEFT JOIN th_hot h ON h.seq = j.seq
  LEFT JOIN (SELECT seq, count(*) AS kept, max(failure) AS last FROM th_error GROUP BY seq) e ON e.seq = j.seq
  WHERE coalesce(e.kept, 0) <> least(10, coalesce(h.failures, j.failures, 0))
     OR coalesce(e.last, 0) <> coalesce(h.failures, j.failures, 0)
  UNION ALL
  SELECT 'job ' || j.id || ' is in a flow that is not stored' FROM th_job j LEFT JOIN th_flow f ON f.seq = j.flow
  WHERE j.flow IS NOT NULL AND f.seq IS NULL
  UNION ALL
  SELECT 'flow ' || f.id || ' has no tail of its own' FROM th_flow f LEFT JOIN th_job t ON t.seq = f.tail
  WHERE t.flow IS DISTINCT FROM f.seq
  UNION ALL
  SELECT 'flow ' || f.id || ' is retired as ' || coalesce(f.state::text, 'live')
  FROM th_flow f JOIN th_job t ON t.seq = f.tail
  CROSS JOIN LATERAL (
    SELECT bool_and(m.state IS NOT NULL) AS is_over, max(m.kept_until) AS until FROM th_job m WHERE m.flow = f.seq
  ) m
  WHERE (f.state, f.kept_until) IS DISTINCT FROM
        (CASE WHEN m.is_over THEN t.state END, CASE WHEN m.is_over THEN m.until END);
END $$;
