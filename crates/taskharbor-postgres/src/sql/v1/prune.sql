-- Removing jobs that have been terminal for long enough.

-- Calls that remove or requeue jobs wait for each other: all of them change rows of th_finished that hold many jobs, and
-- so need no order among those. The lock ends with the transaction.
CREATE FUNCTION th_lock_finished() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_advisory_xact_lock(hashtextextended('taskharbor:th_finished', 'th_finished'::regclass::oid::bigint));
END $$;

-- Removes jobs and whole flows until the limit is reached: the oldest first, whatever their state, and of equal age
-- those that were inserted first. NULL keeps the jobs of that state. Returns how many jobs were removed. PRU-1, PRU-4.
-- Then removes up to as many keys whose time has passed and whose jobs are removed.
--
-- th_finished_age and th_flow_end give the oldest, so the cost is that of what is removed.
CREATE FUNCTION th_prune_v1(p_done bigint, p_cancelled bigint, p_dlq bigint, p_limit bigint, p_now bigint) RETURNS bigint
LANGUAGE plpgsql {settings} SET enable_hashjoin = off SET enable_mergejoin = off AS $$
#variable_conflict use_column
DECLARE
  v_until   bigint;
  v_jobs    bigint[];
  v_flows   bigint[];
  v_flow    bigint;
  v_removed bigint := 0;
BEGIN
  PERFORM th_lock_finished();
  v_until := th_prune_until(p_done, p_cancelled, p_dlq, p_limit);
  WITH limits (state, until) AS (
    SELECT * FROM (VALUES ('done'::th_terminal, p_done), ('cancelled', p_cancelled), ('dlq', p_dlq)) AS w (state, until)
    WHERE w.until IS NOT NULL
  ), ended AS (
    SELECT f.kept_until, (f.first & ~511::bigint) + o.off AS seq, 1 AS jobs, false AS is_flow
    FROM limits w CROSS JOIN LATERAL (
      SELECT x.first, x.kept_until, x.offsets FROM th_finished x
      WHERE x.flow IS NULL AND x.state = w.state AND x.kept_until <= least(w.until, v_until) OFFSET 0
    ) f CROSS JOIN unnest(f.offsets) AS o (off)
  ), flows AS (
    SELECT f.kept_until, f.seq, (SELECT sum(cardinality(m.offsets)) FROM th_finished m WHERE m.flow = f.seq)::int, true
    FROM limits w CROSS JOIN LATERAL (
      SELECT g.kept_until, g.seq FROM th_flow g WHERE g.state = w.state AND g.kept_until <= least(w.until, v_until)
      ORDER BY g.kept_until, g.seq LIMIT p_limit) f
  ), oldest AS (
    SELECT u.seq, u.is_flow, sum(u.jobs) OVER (ORDER BY u.kept_until, u.seq) - u.jobs AS before
    FROM (SELECT * FROM ended UNION ALL SELECT * FROM flows) u
  )
  SELECT coalesce(array_agg(o.seq) FILTER (WHERE NOT o.is_flow), '{}'), coalesce(array_agg(o.seq) FILTER (WHERE o.is_flow), '{}')
  INTO v_jobs, v_flows FROM oldest o WHERE o.before < p_limit;

  IF cardinality(v_jobs) > 0 THEN
    PERFORM th_unlist(v_jobs);
    v_removed := th_remove(v_jobs);
  END IF;
  -- A flow that an open transaction has locked is removed by a later call.
  v_flows := ARRAY(SELECT f.seq FROM th_flow f WHERE f.seq = ANY (v_flows) ORDER BY f.seq FOR UPDATE SKIP LOCKED);
  FOREACH v_flow IN ARRAY v_flows LOOP
    v_removed := v_removed + th_remove_flow(v_flow);
  END LOOP;
  -- th_key_left. KEY-10.
  DELETE FROM th_key WHERE ctid = ANY (ARRAY(
    SELECT k.ctid FROM th_key k WHERE k.seq IS NULL AND k.held_until <= p_now ORDER BY k.held_until LIMIT p_limit));
  IF EXISTS (SELECT FROM th_limit) THEN
    PERFORM th_prune_limits(p_now);
  END IF;
  PERFORM th_prune_workers(p_now);
  RETURN v_removed;
END $$;

-- The earliest time such that at least p_limit jobs without a flow were kept until then or less and may be removed;
-- NULL if there are fewer. Every row has at least one job, so p_limit rows of each state are enough.
CREATE FUNCTION th_prune_until(p_done bigint, p_cancelled bigint, p_dlq bigint, p_limit bigint) RETURNS bigint
LANGUAGE plpgsql AS $$
BEGIN
  RETURN (
    SELECT min(t.kept_until) FROM (
      SELECT e.kept_until, sum(e.jobs) OVER (ORDER BY e.kept_until) AS total FROM (
        (SELECT f.kept_until, cardinality(f.offsets) AS jobs FROM th_finished f
         WHERE f.flow IS NULL AND f.state = 'done' AND f.kept_until <= p_done ORDER BY f.state, f.kept_until, f.first LIMIT p_limit)
        UNION ALL
        (SELECT f.kept_until, cardinality(f.offsets) FROM th_finished f
         WHERE f.flow IS NULL AND f.state = 'cancelled' AND f.kept_until <= p_cancelled ORDER BY f.state, f.kept_until, f.first LIMIT p_limit)
        UNION ALL
        (SELECT f.kept_until, cardinality(f.offsets) FROM th_finished f
         WHERE f.flow IS NULL AND f.state = 'dlq' AND f.kept_until <= p_dlq ORDER BY f.state, f.kept_until, f.first LIMIT p_limit)
      ) e
    ) t WHERE t.total >= p_limit);
END $$;

-- Removes terminal jobs that are not listed any more, with all their rows. Their keys are freed, except keys that are
-- held for a time. KEY-3, KEY-9, PRU-3.
CREATE FUNCTION th_remove(p_seqs bigint[]) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
  v_removed bigint;
  v_tied    boolean;
  v_failed  boolean;
BEGIN
  WITH gone AS (
    DELETE FROM th_job j WHERE j.seq = ANY (p_seqs)
    RETURNING j.seq, j.queue, j.idempotency_key, j.parents IS NOT NULL AS tied
  ), keys AS (
    SELECT k.row, k.held_until FROM gone g CROSS JOIN LATERAL (
      SELECT x.ctid AS row, x.held_until FROM th_key x
      WHERE x.queue = g.queue AND x.key = g.idempotency_key AND x.seq = g.seq OFFSET 0) k
    WHERE g.idempotency_key IS NOT NULL
  ), freed AS (
    DELETE FROM th_key WHERE ctid = ANY (ARRAY(SELECT k.row FROM keys k WHERE k.held_until IS NULL))
  ), left_over AS (
    UPDATE th_key SET seq = NULL WHERE ctid = ANY (ARRAY(SELECT k.row FROM keys k WHERE k.held_until IS NOT NULL))
  )
  SELECT count(*), bool_or(g.tied) INTO v_removed, v_tied FROM gone g;
  WITH described AS (
    DELETE FROM th_outcome o WHERE o.seq = ANY (p_seqs) RETURNING o.failures IS NOT NULL AS failed
  )
  SELECT bool_or(d.failed) INTO v_failed FROM described d;
  IF v_failed THEN
    DELETE FROM th_error WHERE seq = ANY (p_seqs);
  END IF;
  IF v_tied THEN
    DELETE FROM th_edge WHERE child = ANY (p_seqs);
  END IF;
  DELETE FROM th_imported_token WHERE seq = ANY (p_seqs);
  RETURN v_removed;
END $$;

-- Removes a flow with all its members.
CREATE FUNCTION th_remove_flow(p_flow bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
  v_seqs bigint[] := ARRAY(SELECT m.seq FROM th_members(p_flow) m);
BEGIN
  DELETE FROM th_finished WHERE flow = p_flow;
  DELETE FROM th_flow WHERE seq = p_flow;
  RETURN th_remove(v_seqs);
END $$;
