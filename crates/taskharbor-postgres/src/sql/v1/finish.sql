-- What every end of a job has in common. These run inside the functions that workers and people call.

-- Ends jobs that nobody holds or whose holder has no say: no token may repeat it. Answers those that it ended.
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
  RETURN coalesce(v_done, '{}');
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

-- Notes a failure and forgets the eleventh last. Answers how many there have been.
CREATE FUNCTION th_note(p_seq bigint, p_before int, p_attempts int, p_failed_at bigint, p_error text)
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

-- Whoever waited for these members no longer does: their links are closed already, so many of each as are given.
-- Those that wait for nobody any more are put in line, joins among them are done, and so on from those.
-- Answers the queues in which there is work now.
CREATE FUNCTION th_let_go(p_children bigint[], p_now bigint) RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE
  v_children bigint[] := p_children;
  v_joins    bigint[];
  v_queues   text[];
  v_wakes    text[] := '{}';
BEGIN
  WHILE cardinality(v_children) > 0 LOOP
    WITH closed AS (
      SELECT child, count(*)::int AS links FROM unnest(v_children) AS child GROUP BY child ORDER BY child
    ), let_go AS (
      UPDATE th_hot h SET
        pending = nullif(h.pending - c.links, 0),
        line_at = CASE WHEN h.pending = c.links THEN greatest(h.run_at, p_now) ELSE h.line_at END
      FROM closed c WHERE h.seq = ANY (ARRAY[c.child])
      RETURNING h.seq, h.queue, h.pending
    )
    SELECT array_agg(l.seq ORDER BY l.seq) FILTER (WHERE j.kind = 'j'),
           array_agg(DISTINCT l.queue) FILTER (WHERE j.kind = 'w')
    INTO v_joins, v_queues
    FROM let_go l JOIN th_job j ON j.seq = ANY (ARRAY[l.seq]) WHERE l.pending IS NULL;
    v_wakes := v_wakes || coalesce(v_queues, '{}');
    EXIT WHEN v_joins IS NULL;
    v_joins := th_finish(v_joins, 'd', p_now, false, NULL);
    v_children := th_close(v_joins);
  END LOOP;
  RETURN v_wakes;
END $$;

-- These members are done: gives up the keys held until then, and closes their links. Answers whose, each as often as
-- it had one.
CREATE FUNCTION th_close(p_done bigint[]) RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
  v_children bigint[];
BEGIN
  -- Its own key; and if it is the tail, that of the job as which the flow began.
  DELETE FROM th_key WHERE ctid = ANY (ARRAY(
    SELECT k.row FROM (
      SELECT j.queue, j.idempotency_key AS key, j.seq FROM th_job j
      WHERE j.seq = ANY (p_done) AND j.idempotency_key IS NOT NULL AND j.key_hold = 'd'
      UNION
      SELECT b.queue, b.idempotency_key, b.seq
      FROM th_job j JOIN th_flow f ON f.seq = ANY (ARRAY[j.flow]) AND f.tail = j.seq JOIN th_job b ON b.id = ANY (ARRAY[f.id])
      WHERE j.seq = ANY (p_done) AND b.idempotency_key IS NOT NULL AND b.key_hold = 'd'
    ) held CROSS JOIN LATERAL (
      SELECT x.ctid AS row FROM th_key x WHERE x.queue = held.queue AND x.key = held.key AND x.seq = held.seq OFFSET 0) k));
  WITH closed AS (
    UPDATE th_edge SET tie = 'c' WHERE parent = ANY (p_done) AND tie = 'o' RETURNING child
  )
  SELECT array_agg(child) INTO v_children FROM closed;
  RETURN coalesce(v_children, '{}');
END $$;

-- These members failed, and nobody waits for them any longer, whatever becomes of them.
CREATE FUNCTION th_release_dependants(p_seqs bigint[], p_now bigint) RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE
  v_children bigint[];
BEGIN
  WITH spent AS (
    UPDATE th_edge e SET tie = 's', spent_state = j.state, spent_reason = j.reason
    FROM th_job j WHERE e.parent = ANY (p_seqs) AND e.tie = 'o' AND j.seq = ANY (ARRAY[e.parent])
    RETURNING e.child
  )
  SELECT array_agg(child) INTO v_children FROM spent;
  RETURN th_let_go(coalesce(v_children, '{}'), p_now);
END $$;

-- This member was dead-lettered or cancelled: its policy applies, and those of the members that are cancelled because
-- of it, all of one step at once. All that is to be cancelled is cancelled before anybody is let go, so that no order
-- matters.
CREATE FUNCTION th_spread_failure(p_seq bigint, p_now bigint) RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE
  v_failed   bigint[] := ARRAY[p_seq];
  v_is_first boolean := true;
  v_is_fast  boolean := false;
  v_step     record;
  v_doomed   bigint[];
  v_releases bigint[] := '{}';
  v_reason   text;
BEGIN
  SELECT 'job ' || id || ' of the same flow failed' INTO v_reason FROM th_job WHERE seq = p_seq;
  WHILE cardinality(v_failed) > 0 LOOP
    SELECT array_agg(j.seq) FILTER (WHERE j.on_failure = 'r') AS releases,
      array_agg(j.seq) FILTER (WHERE j.on_failure = 'c' OR j.on_failure = 'h' AND NOT v_is_first) AS passing,
      min(j.flow) FILTER (WHERE j.on_failure = 'f') AS fast
    INTO v_step FROM th_job j WHERE j.seq = ANY (v_failed);
    IF v_step.releases IS NOT NULL THEN
      v_releases := v_releases || v_step.releases;
    END IF;
    IF v_step.fast IS NOT NULL AND NOT v_is_fast THEN
      -- Once is enough: nobody is in line or waits there after that.
      v_is_fast := true;
      v_doomed := ARRAY(SELECT seq FROM th_hot WHERE flow = v_step.fast AND lease_exp IS NULL ORDER BY seq);
    ELSIF v_step.passing IS NOT NULL AND NOT v_is_fast THEN
      v_doomed := ARRAY(SELECT DISTINCT child FROM th_edge WHERE parent = ANY (v_step.passing) AND tie = 'o' ORDER BY child);
    ELSE
      v_doomed := '{}';
    END IF;
    v_is_first := false;
    v_failed := '{}';
    IF cardinality(v_doomed) > 0 THEN
      v_failed := th_finish(v_doomed, 'c', p_now, true, v_reason);
    END IF;
  END LOOP;
  IF v_releases = '{}' THEN
    RETURN '{}';
  END IF;
  RETURN th_release_dependants(v_releases, p_now);
END $$;

-- Puts flows among those that are over if all their members are, and takes them out if one is not.
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
