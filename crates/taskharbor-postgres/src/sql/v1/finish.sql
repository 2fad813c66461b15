-- What every end of a job has in common. These run inside the functions that workers and people call, and translate the
-- rules of `graph.rs` in taskharbor-core into statements over many rows.

-- Ends jobs that have no holder or whose holder has no say: no token may repeat it. Answers those that it ended.
-- With `p_waiting`, those that are inflight are left alone.
CREATE FUNCTION th_finish(p_seqs bigint[], p_state "char", p_now bigint, p_waiting boolean, p_reason text)
RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
  v_done bigint[];
BEGIN
  WITH gone AS (
    DELETE FROM th_hot h WHERE h.seq = ANY (p_seqs) AND NOT (p_waiting AND h.lease_exp IS NOT NULL) RETURNING h.*
  ), ended AS (
    UPDATE th_job j SET
      state = p_state, finished_at = p_now, kept_until = p_now, reason = p_reason, priority = g.priority,
      run_at = g.run_at, started_at = g.started_at, deliveries = g.deliveries, attempts = g.attempts,
      expirations = g.expirations, failures = g.failures, epoch = g.epoch, attempt_limit = g.attempt_limit,
      progress = g.progress
    FROM gone g WHERE j.seq = ANY (ARRAY[g.seq])
    RETURNING j.seq, j.queue, j.flow
  ), noted AS (
    INSERT INTO th_end (queue, state, kept_until, flow, seqs)
    SELECT queue, p_state, p_now, flow, array_agg(seq ORDER BY seq) FROM ended GROUP BY queue, flow
  )
  SELECT array_agg(seq ORDER BY seq) INTO v_done FROM ended;
  IF p_state = 'c' AND v_done IS NOT NULL THEN
    PERFORM th_free_keys(v_done);
  END IF;
  RETURN coalesce(v_done, '{}');
END $$;

-- Frees the keys that are held until these jobs, which have ended, end in that way: a job's own, and if it is the tail
-- of its flow, that of the job under whose id the flow began. KEY-4, KEY-7.
CREATE FUNCTION th_free_keys(p_seqs bigint[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  DELETE FROM th_key WHERE ctid = ANY (ARRAY(
    SELECT k.row FROM (
      SELECT j.queue, j.idempotency_key AS key, j.seq, j.key_hold, j.state FROM th_job j
      WHERE j.seq = ANY (p_seqs) AND j.idempotency_key IS NOT NULL
      UNION
      SELECT b.queue, b.idempotency_key, b.seq, b.key_hold, j.state
      FROM th_job j JOIN th_flow f ON f.seq = ANY (ARRAY[j.flow]) AND f.tail = j.seq JOIN th_job b ON b.id = ANY (ARRAY[f.id])
      WHERE j.seq = ANY (p_seqs) AND b.idempotency_key IS NOT NULL
    ) held CROSS JOIN LATERAL (
      SELECT x.ctid AS row FROM th_key x WHERE x.queue = held.queue AND x.key = held.key AND x.seq = held.seq OFFSET 0) k
    WHERE held.key_hold = 't' OR held.key_hold = 'd' AND held.state = 'd'));
END $$;

-- Takes jobs out of the list of those that are over, given how and until when each was listed. A row of the list holds
-- many jobs, so those of one row are taken out of it together.
CREATE FUNCTION th_unend(p_seqs bigint[], p_states "char"[], p_untils bigint[], p_flows bigint[])
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  g record;
BEGIN
  FOR g IN
    SELECT i.state, i.kept_until, i.flow, array_agg(i.seq) AS seqs
    FROM unnest(p_seqs, p_states, p_untils, p_flows) AS i (seq, state, kept_until, flow) GROUP BY 1, 2, 3
  LOOP
    -- th_end_job finds those of no flow, th_end_flow the others.
    WITH listed AS (
      SELECT e.ctid AS row, e.seqs FROM th_end e
      WHERE g.flow IS NULL AND e.flow IS NULL AND e.state = g.state AND e.kept_until = g.kept_until
      UNION ALL
      SELECT e.ctid, e.seqs FROM th_end e WHERE e.flow = g.flow AND e.kept_until = g.kept_until AND e.state = g.state
    ), met AS (
      SELECT (array_agg(u.row) FILTER (WHERE u.row IS NOT NULL))[1] AS row, u.seq, bool_or(u.row IS NULL) AS goes
      FROM (SELECT l.row, unnest(l.seqs) AS seq FROM listed l UNION ALL SELECT NULL, unnest(g.seqs)) u GROUP BY u.seq
    ), kept AS (
      SELECT m.row, coalesce(array_agg(m.seq ORDER BY m.seq) FILTER (WHERE NOT m.goes), '{}') AS seqs
      FROM met m WHERE m.row IS NOT NULL GROUP BY m.row HAVING bool_or(m.goes)
    ), emptied AS (
      DELETE FROM th_end WHERE ctid = ANY (ARRAY(SELECT k.row FROM kept k WHERE k.seqs = '{}'))
    )
    UPDATE th_end e SET seqs = k.seqs FROM kept k WHERE e.ctid = k.row AND k.seqs <> '{}';
  END LOOP;
END $$;

-- Records a failure and removes the eleventh last. Answers how many there have been. JOB-7.
CREATE FUNCTION th_record_error(p_seq bigint, p_before int, p_attempts int, p_failed_at bigint, p_error text)
RETURNS int LANGUAGE plpgsql AS $$
DECLARE
  v_failures int := coalesce(p_before, 0) + 1;
BEGIN
  INSERT INTO th_error (seq, failure, attempts, failed_at, error)
  VALUES (p_seq, v_failures, p_attempts, p_failed_at, p_error);
  IF v_failures > 10 THEN
    DELETE FROM th_error WHERE seq = p_seq AND failure <= v_failures - 10;
  END IF;
  RETURN v_failures;
END $$;

-- Unblocks dependants whose edges are closed or spent already, so many of each as are given. A dependant that waits for
-- no parent any more is put in line, a join among them is done, and so on from those.
-- Answers the queues in which there is work now.
CREATE FUNCTION th_unblock(p_children bigint[], p_now bigint) RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE
  v_children bigint[] := p_children;
  v_joins    bigint[];
  v_queues   text[];
  v_wakes    text[] := '{}';
BEGIN
  WHILE cardinality(v_children) > 0 LOOP
    WITH closed AS (
      SELECT child, count(*)::int AS edges FROM unnest(v_children) AS child GROUP BY child ORDER BY child
    ), unblocked AS (
      -- FLO-1, FAI-1; an edge is closed once, so FLO-2 and FLO-8.
      UPDATE th_hot h SET
        pending = nullif(h.pending - c.edges, 0),
        line_at = CASE WHEN h.pending = c.edges THEN greatest(h.run_at, p_now) ELSE h.line_at END
      FROM closed c WHERE h.seq = ANY (ARRAY[c.child])
      RETURNING h.seq, h.queue, h.pending
    )
    SELECT array_agg(l.seq ORDER BY l.seq) FILTER (WHERE j.kind NOT IN ('w', 'x')),
           array_agg(DISTINCT l.queue) FILTER (WHERE j.kind IN ('w', 'x'))
    INTO v_joins, v_queues
    FROM unblocked l JOIN th_job j ON j.seq = ANY (ARRAY[l.seq]) WHERE l.pending IS NULL;
    v_wakes := v_wakes || coalesce(v_queues, '{}');
    EXIT WHEN v_joins IS NULL;
    -- FLO-6
    v_joins := th_finish(v_joins, 'd', p_now, false, NULL);
    v_children := th_close_edges(v_joins, p_now);
  END LOOP;
  RETURN v_wakes;
END $$;

-- These members are done, in this order: frees the keys that are held until then, closes the edges that lead to them and
-- cancels the failure jobs that waited for their failure. Answers the other dependants, each as often as it had an edge.
CREATE FUNCTION th_close_edges(p_done bigint[], p_now bigint) RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
  v_children bigint[];
  v_needless bigint[];
  v_parents  bigint[];
BEGIN
  PERFORM th_free_keys(p_done);
  WITH closed AS (
    UPDATE th_edge SET tie = CASE tie WHEN 'f' THEN 'n' ELSE 'c' END::"char"
    WHERE parent = ANY (p_done) AND tie IN ('o', 'f') RETURNING child, parent, tie
  )
  SELECT array_agg(child) FILTER (WHERE tie = 'c'), array_agg(child) FILTER (WHERE tie = 'n'),
         array_agg(parent) FILTER (WHERE tie = 'n')
  INTO v_children, v_needless, v_parents FROM closed;
  IF v_needless IS NOT NULL THEN
    PERFORM th_cancel_needless(v_needless, v_parents, p_done, p_now);
  END IF;
  RETURN coalesce(v_children, '{}');
END $$;

-- Cancels failure jobs that are blocked, each because of the parent of it that was done first. FAI-2.
CREATE FUNCTION th_cancel_needless(p_jobs bigint[], p_parents bigint[], p_done bigint[], p_now bigint)
RETURNS void LANGUAGE sql AS $$
  SELECT th_finish(n.jobs, 'c', p_now, true, 'not needed: job ' || j.id || ' succeeded')
  FROM (
    SELECT f.parent, array_agg(f.job ORDER BY f.job) AS jobs FROM (
      SELECT DISTINCT ON (e.job) e.job, e.parent FROM unnest(p_jobs, p_parents) AS e (job, parent)
      JOIN unnest(p_done) WITH ORDINALITY AS d (seq, ord) ON d.seq = e.parent ORDER BY e.job, d.ord
    ) f GROUP BY f.parent
  ) n JOIN th_job j ON j.seq = n.parent
$$;

-- These members failed: their failure jobs wait for them no longer, nor do the other dependants of a member whose policy
-- is to continue, or with `p_all` those of any. Each reads the failure, whatever becomes of the member. FAI-1, POL-4.
CREATE FUNCTION th_spend_edges(p_seqs bigint[], p_all boolean, p_now bigint) RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE
  v_children bigint[];
BEGIN
  WITH spent AS (
    UPDATE th_edge e SET tie = 's', spent_state = j.state, spent_reason = j.reason
    FROM th_job j WHERE e.parent = ANY (p_seqs) AND j.seq = ANY (ARRAY[e.parent])
      AND (e.tie = 'f' OR e.tie = 'o' AND (p_all OR j.on_failure = 'n'))
    RETURNING e.child
  )
  SELECT array_agg(child) INTO v_children FROM spent;
  IF v_children IS NULL THEN
    RETURN '{}';
  END IF;
  RETURN th_unblock(v_children, p_now);
END $$;

-- This member was dead-lettered or cancelled: its policy applies, and those of the members that are cancelled because
-- of it, all of one step at once. All that is to be cancelled is cancelled before anything is unblocked, so that no order
-- matters. POL-6.
CREATE FUNCTION th_propagate_failure(p_seq bigint, p_now bigint) RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE
  v_failed    bigint[] := ARRAY[p_seq];
  v_all       bigint[] := '{}';
  v_is_first  boolean := true;
  v_is_fast   boolean := false;
  v_step      record;
  v_to_cancel bigint[];
  -- POL-5
  v_reason    text := (SELECT 'job ' || id || ' of the same flow failed' FROM th_job WHERE seq = p_seq);
BEGIN
  WHILE cardinality(v_failed) > 0 LOOP
    v_all := v_all || v_failed;
    -- POL-1: what fails first and blocks passes nothing on.
    SELECT array_agg(j.seq) FILTER (WHERE j.on_failure = 'c' OR j.on_failure = 'b' AND NOT v_is_first) AS passing,
      min(j.flow) FILTER (WHERE j.on_failure = 'f') AS fast
    INTO v_step FROM th_job j WHERE j.seq = ANY (v_failed);
    v_to_cancel := '{}';
    IF v_step.fast IS NOT NULL AND NOT v_is_fast THEN
      -- POL-3, FAI-3. Once is enough: no other member is in line or blocked after that.
      v_is_fast := true;
      v_to_cancel := ARRAY(
        SELECT h.seq FROM th_hot h WHERE h.flow = v_step.fast AND h.lease_exp IS NULL
          AND (SELECT j.kind FROM th_job j WHERE j.seq = h.seq) <> 'x' ORDER BY h.seq);
    ELSIF v_step.passing IS NOT NULL AND NOT v_is_fast THEN
      -- POL-2: over the edges that wait for success alone.
      v_to_cancel := ARRAY(
        SELECT DISTINCT child FROM th_edge WHERE parent = ANY (v_step.passing) AND tie = 'o' ORDER BY child);
    END IF;
    v_is_first := false;
    v_failed := '{}';
    IF cardinality(v_to_cancel) > 0 THEN
      v_failed := th_finish(v_to_cancel, 'c', p_now, true, v_reason);
    END IF;
  END LOOP;
  RETURN th_spend_edges(v_all, false, p_now);
END $$;

-- Puts flows among those that are over if all their members are, and takes them out if one is not. FLO-7.
CREATE FUNCTION th_retire(p_flows bigint[]) RETURNS void LANGUAGE sql AS $$
  UPDATE th_flow f SET state = e.state, kept_until = e.kept_until
  FROM (
    SELECT w.flow,
      CASE WHEN live.seq IS NULL THEN t.state END AS state,
      CASE WHEN live.seq IS NULL THEN (SELECT max(m.kept_until) FROM th_end m WHERE m.flow = w.flow) END AS kept_until
    FROM unnest(p_flows) AS w (flow)
    JOIN th_flow g ON g.seq = ANY (ARRAY[w.flow]) JOIN th_job t ON t.seq = ANY (ARRAY[g.tail])
    LEFT JOIN LATERAL (SELECT h.seq FROM th_hot h WHERE h.flow = w.flow LIMIT 1) live ON true
  ) e
  WHERE f.seq = ANY (ARRAY[e.flow]) AND (f.state, f.kept_until) IS DISTINCT FROM (e.state, e.kept_until);
$$;
