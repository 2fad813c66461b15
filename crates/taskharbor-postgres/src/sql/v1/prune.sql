-- Removing what has been over for long enough.

-- Calls that remove or requeue jobs wait for each other: all of them change rows of th_end that hold many jobs, and so
-- need no order among those. The lock ends with the transaction.
CREATE FUNCTION th_lock_ends() RETURNS void LANGUAGE sql AS $$
  SELECT pg_advisory_xact_lock(hashtextextended('taskharbor:th_end', 'th_end'::regclass::oid::bigint))
$$;

-- Removes jobs and whole flows, oldest first whatever way they ended and of equal age the first inserted, until as many
-- jobs are gone as the limit says. NULL keeps what ended in that way. Answers how many jobs went. PRU-1, PRU-4.
-- Then as many keys go that were held for a time which is over, and whose jobs are gone.
--
-- th_end_job and th_flow_end give the oldest, so the cost is that of what is removed.
CREATE FUNCTION th_prune_v1(p_done bigint, p_cancelled bigint, p_dlq bigint, p_limit bigint, p_now bigint) RETURNS bigint
LANGUAGE plpgsql SET search_path = {schema}, pg_temp SET plan_cache_mode = force_generic_plan SET jit = off
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
  v_until   bigint;
  v_rows    tid[];
  v_jobs    bigint[];
  v_flows   bigint[];
  v_flow    bigint;
  v_removed bigint := 0;
BEGIN
  PERFORM th_lock_ends();
  -- Up to which time there are as many jobs as may go; NULL if there are not. Every row has at least one.
  SELECT min(t.kept_until) INTO v_until FROM (
    SELECT e.kept_until, sum(e.jobs) OVER (ORDER BY e.kept_until) AS total FROM (
      (SELECT kept_until, cardinality(seqs) AS jobs FROM th_end WHERE flow IS NULL AND state = 'd' AND kept_until <= p_done
       ORDER BY state, kept_until LIMIT p_limit)
      UNION ALL
      (SELECT kept_until, cardinality(seqs) FROM th_end WHERE flow IS NULL AND state = 'c' AND kept_until <= p_cancelled
       ORDER BY state, kept_until LIMIT p_limit)
      UNION ALL
      (SELECT kept_until, cardinality(seqs) FROM th_end WHERE flow IS NULL AND state = 'q' AND kept_until <= p_dlq
       ORDER BY state, kept_until LIMIT p_limit)
    ) e
  ) t WHERE t.total >= p_limit;

  WITH ended AS (
    SELECT e.kept_until, s.seq, 1 AS jobs, e.row
    FROM (VALUES ('d'::"char", p_done), ('c', p_cancelled), ('q', p_dlq)) AS w (state, until)
    CROSS JOIN LATERAL (
      SELECT x.ctid AS row, x.kept_until, x.seqs FROM th_end x
      WHERE x.flow IS NULL AND x.state = w.state AND x.kept_until <= least(w.until, v_until) OFFSET 0
    ) e
    CROSS JOIN unnest(e.seqs) AS s (seq)
    WHERE w.until IS NOT NULL
  ), flows AS (
    SELECT f.kept_until, f.seq, (SELECT sum(cardinality(m.seqs)) FROM th_end m WHERE m.flow = f.seq)::int AS jobs, NULL::tid
    FROM (VALUES ('d'::"char", p_done), ('c', p_cancelled), ('q', p_dlq)) AS w (state, until)
    CROSS JOIN LATERAL (
      SELECT g.kept_until, g.seq FROM th_flow g WHERE g.state = w.state AND g.kept_until <= least(w.until, v_until)
      ORDER BY g.kept_until, g.seq LIMIT p_limit
    ) f WHERE w.until IS NOT NULL
  ), oldest AS (
    SELECT u.seq, u.row, sum(u.jobs) OVER (ORDER BY u.kept_until, u.seq) - u.jobs AS before
    FROM (SELECT * FROM ended UNION ALL SELECT * FROM flows) u
  )
  SELECT array_agg(o.row) FILTER (WHERE o.row IS NOT NULL), array_agg(o.seq) FILTER (WHERE o.row IS NOT NULL),
    array_agg(o.seq) FILTER (WHERE o.row IS NULL)
  INTO v_rows, v_jobs, v_flows FROM oldest o WHERE o.before < p_limit;

  IF v_jobs IS NOT NULL THEN
    -- The jobs of a row are of one age, so those that go are those up to the last that goes. Rows stay where they are
    -- while we have the lock.
    WITH goes AS (
      SELECT g.row, max(g.seq) AS last FROM unnest(v_rows, v_jobs) AS g (row, seq) GROUP BY g.row
    ), kept AS (
      SELECT g.row, ARRAY(SELECT s.seq FROM unnest(e.seqs) AS s (seq) WHERE s.seq > g.last ORDER BY 1) AS seqs
      FROM goes g JOIN th_end e ON e.ctid = g.row
    ), emptied AS (
      DELETE FROM th_end WHERE ctid = ANY (ARRAY(SELECT k.row FROM kept k WHERE k.seqs = '{}'))
    )
    UPDATE th_end e SET seqs = k.seqs FROM kept k WHERE e.ctid = k.row AND k.seqs <> '{}';
    v_removed := th_remove(v_jobs);
  END IF;
  IF v_flows IS NOT NULL THEN
    PERFORM FROM th_flow f WHERE f.seq = ANY (v_flows) ORDER BY f.seq FOR UPDATE;
    FOREACH v_flow IN ARRAY v_flows LOOP
      v_removed := v_removed + th_remove_flow(v_flow);
    END LOOP;
  END IF;
  -- th_key_left. KEY-10.
  DELETE FROM th_key WHERE ctid = ANY (ARRAY(
    SELECT k.ctid FROM th_key k WHERE k.seq IS NULL AND k.held_until <= p_now ORDER BY k.held_until LIMIT p_limit));
  RETURN v_removed;
END $$;
