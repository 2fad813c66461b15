-- Looks for contradictions: returns a text for each, and nothing if there are none. ADM-10. In PL/pgSQL because that
-- keeps its plan, which must not compare every row of one table with every row of another.
CREATE FUNCTION th_check() RETURNS SETOF text LANGUAGE plpgsql STABLE SET search_path = {schema}, pg_temp SET jit = off
SET enable_nestloop = off AS $$
BEGIN
  RETURN QUERY SELECT * FROM th_check_jobs();
  RETURN QUERY SELECT * FROM th_check_edges();
  RETURN QUERY SELECT * FROM th_check_keys();
  RETURN QUERY SELECT * FROM th_check_flows();
  RETURN QUERY SELECT * FROM th_check_schedules();
  RETURN QUERY SELECT * FROM th_check_limits();
END $$;

-- Terminal jobs, a row for each.
CREATE VIEW th_finished_job AS
SELECT (f.first & ~511::bigint) + o.off AS seq, f.* FROM th_finished f CROSS JOIN unnest(f.offsets) AS o (off);

-- Every job is either live or terminal, and its rows agree.
CREATE FUNCTION th_check_jobs() RETURNS SETOF text LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN QUERY
  SELECT 'job ' || j.id || ' is ' || CASE WHEN l.seq IS NOT NULL THEN 'live and terminal' WHEN f.times > 1 THEN 'terminal ' || f.times || ' times'
    ELSE 'neither live nor terminal' END
  FROM th_job j LEFT JOIN th_live l ON l.seq = j.seq
  LEFT JOIN (SELECT x.seq, count(*) AS times FROM th_finished_job x GROUP BY x.seq) f ON f.seq = j.seq
  WHERE coalesce(f.times, 0) + CASE WHEN l.seq IS NULL THEN 0 ELSE 1 END <> 1
  UNION ALL
  SELECT 'there is a live row ' || l.seq || ' without a job' FROM th_live l LEFT JOIN th_job j ON j.seq = l.seq WHERE j.seq IS NULL
  UNION ALL
  SELECT 'number ' || f.seq || ' is terminal and has no job' FROM th_finished_job f LEFT JOIN th_job j ON j.seq = f.seq
  WHERE j.seq IS NULL
  UNION ALL
  SELECT 'job ' || j.id || ' and its live row differ in queue, lane or flow' FROM th_job j JOIN th_live l ON l.seq = j.seq
  WHERE (l.queue, l.lane, l.flow) IS DISTINCT FROM (j.queue, j.lane, j.flow)
  UNION ALL
  SELECT 'job ' || j.id || ' and its row among the terminal ones differ in queue or flow'
  FROM th_job j JOIN th_finished_job f ON f.seq = j.seq WHERE (f.queue, f.flow) IS DISTINCT FROM (j.queue, j.flow)
  UNION ALL
  SELECT 'row ' || f.first || ' of terminal jobs is out of order' FROM th_finished f
  WHERE f.offsets IS DISTINCT FROM ARRAY(SELECT DISTINCT o FROM unnest(f.offsets) AS o ORDER BY o)
  UNION ALL
  SELECT 'there is an outcome of job ' || coalesce(j.id, o.seq::text) || ', which is not terminal'
  FROM th_outcome o LEFT JOIN th_job j ON j.seq = o.seq LEFT JOIN th_finished_job f ON f.seq = o.seq WHERE f.has_outcomes IS NOT TRUE
  UNION ALL
  SELECT 'job ' || j.id || ' has a position behind the end of its lease' FROM th_job j JOIN th_live l ON l.seq = j.seq
  WHERE l.lease_expires_at < l.available_at
  UNION ALL
  SELECT 'failures are kept of job ' || e.seq || ', which is not stored' FROM th_error e LEFT JOIN th_job j ON j.seq = e.seq
  WHERE j.seq IS NULL GROUP BY e.seq
  UNION ALL
  SELECT 'job ' || j.id || ' has ' || coalesce(e.kept, 0) || ' failures of ' || coalesce(l.failures, o.failures, 0)
  FROM th_job j LEFT JOIN th_live l ON l.seq = j.seq LEFT JOIN th_outcome o ON o.seq = j.seq
  LEFT JOIN (SELECT seq, count(*) AS kept, max(failure) AS last FROM th_error GROUP BY seq) e ON e.seq = j.seq
  WHERE coalesce(e.kept, 0) <> least(10, coalesce(l.failures, o.failures, 0))
     OR coalesce(e.last, 0) <> coalesce(l.failures, o.failures, 0)
  UNION ALL
  SELECT 'there is a token of job ' || t.seq || ', which is not stored'
  FROM th_imported_token t LEFT JOIN th_job j ON j.seq = t.seq WHERE j.seq IS NULL;
END $$;

-- A blocked job waits for as many parents as it has open edges.
CREATE FUNCTION th_check_edges() RETURNS SETOF text LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN QUERY
  WITH edge AS (
    SELECT e.*, c.id AS child_id, c.kind, c.flow, c.seq IS NULL AS is_lost, p.seq AS found, p.id AS found_id, p.flow AS parent_flow,
      e.status IN ('waits_for_success', 'waits_for_failure') AND f.state IS DISTINCT FROM 'done' AS is_open,
      e.status = 'waits_for_failure' AND f.state = 'done' AS is_late
    FROM th_each_edge e LEFT JOIN th_job c ON c.seq = e.child LEFT JOIN th_job p ON p.seq = e.parent
    LEFT JOIN th_finished_job f ON f.seq = e.parent
  )
  SELECT 'job ' || j.id || ' waits for ' || coalesce(l.waits_for, 0) || ' of ' || coalesce(o.edges, 0) || ' parents'
  FROM th_job j JOIN th_live l ON l.seq = j.seq
  LEFT JOIN (SELECT e.child, count(*) AS edges FROM edge e WHERE e.is_open GROUP BY e.child) o ON o.child = j.seq
  WHERE coalesce(l.waits_for, 0) <> coalesce(o.edges, 0)
  UNION ALL
  SELECT 'job ' || j.id || ' has ' || coalesce(o.edges, 0) || ' edges and reads ' || coalesce(j.parents, 0)
  FROM th_job j LEFT JOIN (SELECT child, sum(coalesce(run, 1)) AS edges FROM th_edge GROUP BY child) o ON o.child = j.seq
  WHERE coalesce(j.parents, 0) <> coalesce(o.edges, 0)
  UNION ALL
  SELECT 'job ' || e.child_id || ' waits for ' || e.parent_id || ', which is done or in another flow' FROM edge e
  WHERE e.is_late OR e.is_open AND (e.found IS NULL OR e.parent_flow IS DISTINCT FROM e.flow OR e.found_id <> e.parent_id)
  UNION ALL
  SELECT 'job ' || e.child_id || ' waits for success and failure' FROM edge e
  WHERE e.status = 'waits_for_failure' AND e.kind IS DISTINCT FROM 'failure_job' OR e.status = 'waits_for_success' AND e.kind = 'failure_job'
     OR e.status = 'not_needed' AND (e.kind IS DISTINCT FROM 'failure_job' OR e.flow IS NULL)
  UNION ALL
  SELECT 'job ' || e.child_id || ' waits, but is not needed since ' || e.parent_id || ' is done'
  FROM edge e JOIN th_live l ON l.seq = e.child WHERE e.status = 'not_needed'
  UNION ALL
  SELECT 'there is an edge of job ' || e.child || ', which is not stored' FROM edge e WHERE e.is_lost;
END $$;

-- Keys belong to jobs, and are held for as long as their jobs say.
CREATE FUNCTION th_check_keys() RETURNS SETOF text LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN QUERY
  SELECT 'key ' || k.key || ' of queue ' || k.queue || ' is held by no job that has it'
  FROM th_key k LEFT JOIN th_job j ON j.seq = k.seq
  WHERE k.seq IS NOT NULL AND (k.queue, k.key, k.job) IS DISTINCT FROM (j.queue, j.idempotency_key, j.id)
  UNION ALL
  SELECT 'key ' || k.key || ' of queue ' || k.queue || ' is held until another time than job ' || j.id || ' says'
  FROM th_key k JOIN th_job j ON j.seq = k.seq
  WHERE k.held_until IS DISTINCT FROM CASE WHEN j.key_hold = 'for_a_time' THEN th_held_until(j.created_at, j.key_time_us) END
  UNION ALL
  SELECT 'job ' || j.id || ' says for how long its key is held, but not that it is held for a time' FROM th_job j
  WHERE coalesce(j.key_hold = 'for_a_time', false) <> (j.key_time_us IS NOT NULL)
  UNION ALL
  SELECT 'job ' || j.id || CASE WHEN k.seq IS NULL THEN ' does not hold its key' ELSE ' still holds its key' END
  FROM th_job j LEFT JOIN th_key k ON k.seq = j.seq
  LEFT JOIN th_flow f ON f.seq = j.flow AND f.id = j.id LEFT JOIN th_finished_job e ON e.seq = coalesce(f.tail, j.seq)
  WHERE j.idempotency_key IS NOT NULL AND coalesce(j.key_hold, 'until_pruned') <> 'for_a_time'
    AND (k.seq IS NULL) <> coalesce(
      e.state IS NOT NULL AND (j.key_hold = 'until_terminal' OR j.key_hold = 'until_done' AND e.state = 'done'), false);
END $$;

-- Flows have the state and the tail that their members say.
CREATE FUNCTION th_check_flows() RETURNS SETOF text LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN QUERY
  SELECT 'job ' || j.id || ' is in a flow that is not stored' FROM th_job j LEFT JOIN th_flow f ON f.seq = j.flow
  WHERE j.flow IS NOT NULL AND f.seq IS NULL
  UNION ALL
  SELECT 'flow ' || f.id || ' has no tail of its own' FROM th_flow f LEFT JOIN th_job t ON t.seq = f.tail
  WHERE t.flow IS DISTINCT FROM f.seq
  UNION ALL
  SELECT 'flow ' || f.id || ' is stored as ' || coalesce(f.state::text, 'live')
  FROM th_flow f LEFT JOIN th_finished_job t ON t.seq = f.tail
  LEFT JOIN (SELECT l.flow FROM th_live l WHERE l.flow IS NOT NULL GROUP BY l.flow) l ON l.flow = f.seq
  LEFT JOIN (SELECT m.flow, max(m.kept_until) AS until FROM th_finished m WHERE m.flow IS NOT NULL GROUP BY m.flow) m ON m.flow = f.seq
  WHERE (f.state, f.kept_until) IS DISTINCT FROM
        (CASE WHEN l.flow IS NULL THEN t.state END, CASE WHEN l.flow IS NULL THEN m.until END);
END $$;

-- No revision is used twice. SCH-1.
CREATE FUNCTION th_check_schedules() RETURNS SETOF text LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN QUERY
  SELECT 'schedule ' || s.name || ' has revision ' || s.revision || ', which the sequence th_revision has not given yet'
  FROM th_schedule s WHERE s.revision > coalesce(pg_sequence_last_value('th_revision'), 0)
  UNION ALL
  SELECT 'schedules ' || min(s.name) || ' and ' || max(s.name) || ' have the same revision ' || s.revision
  FROM th_schedule s GROUP BY s.revision HAVING count(*) > 1
  UNION ALL
  SELECT 'schedule ' || s.name || ' has counts below zero' FROM th_schedule s WHERE least(s.stored, s.skipped, s.missed) < 0;
END $$;

-- Every lease that counts under a limit is noted. LIM-1.
CREATE FUNCTION th_check_limits() RETURNS SETOF text LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN QUERY
  SELECT 'the lease of job ' || j.id || ' does not count under the limits of queue ' || l.queue
  FROM th_live l JOIN th_limit m ON m.queue = l.queue JOIN th_job j ON j.seq = l.seq
  LEFT JOIN (SELECT DISTINCT n.queue, s.seq FROM th_grant_note n CROSS JOIN unnest(n.seqs) AS s (seq)) n
    ON n.queue = l.queue AND n.seq = l.seq
  WHERE l.lease_expires_at IS NOT NULL AND th_counts_inflight(m.limits) AND n.seq IS NULL
  UNION ALL
  SELECT 'grants of queue ' || n.queue || ' are noted, which has no limit that counts them'
  FROM th_grant_note n LEFT JOIN th_limit m ON m.queue = n.queue WHERE NOT th_counts_inflight(m.limits) GROUP BY n.queue
  UNION ALL
  SELECT 'lane ' || s.lane || ' of queue ' || s.queue || ' is charged or held, and its queue has no row'
  FROM th_lane s LEFT JOIN th_limit m ON m.queue = s.queue WHERE m.queue IS NULL;
END $$;
