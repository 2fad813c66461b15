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
    FROM gone g WHERE j.seq = g.seq
    RETURNING j.seq, j.queue, j.flow
  ), noted AS (
    INSERT INTO th_end (queue, state, kept_until, flow, seqs)
    SELECT queue, p_state, p_now, flow, array_agg(seq ORDER BY seq) FROM ended GROUP BY queue, flow
  )
  SELECT array_agg(seq ORDER BY seq) INTO v_done FROM ended;
  RETURN coalesce(v_done, '{}');
END $$;

-- Takes a job out of the list of those that are over.
CREATE FUNCTION th_unend(p_seq bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  j record;
BEGIN
  SELECT state, kept_until, flow INTO j FROM th_job WHERE seq = p_seq;
  IF j.flow IS NULL THEN
    UPDATE th_end SET seqs = array_remove(seqs, p_seq)
    WHERE state = j.state AND kept_until = j.kept_until AND flow IS NULL AND p_seq = ANY (seqs);
    DELETE FROM th_end WHERE state = j.state AND kept_until = j.kept_until AND flow IS NULL AND seqs = '{}';
  ELSE
    UPDATE th_end SET seqs = array_remove(seqs, p_seq)
    WHERE flow = j.flow AND kept_until = j.kept_until AND p_seq = ANY (seqs);
    DELETE FROM th_end WHERE flow = j.flow AND kept_until = j.kept_until AND seqs = '{}';
  END IF;
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
      FROM closed c WHERE h.seq = c.child
      RETURNING h.seq, h.queue, h.pending
    )
    SELECT array_agg(l.seq ORDER BY l.seq) FILTER (WHERE j.kind = 'j'),
           array_agg(DISTINCT l.queue) FILTER (WHERE j.kind = 'w')
    INTO v_joins, v_queues
    FROM let_go l JOIN th_job j ON j.seq = l.seq WHERE l.pending IS NULL;
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
  DELETE FROM th_key k USING (
    SELECT j.queue, j.idempotency_key AS key, j.seq FROM th_job j
    WHERE j.seq = ANY (p_done) AND j.idempotency_key IS NOT NULL AND j.key_hold = 'd'
    UNION
    SELECT b.queue, b.idempotency_key, b.seq
    FROM th_job j JOIN th_flow f ON f.seq = j.flow AND f.tail = j.seq JOIN th_job b ON b.id = f.id
    WHERE j.seq = ANY (p_done) AND b.idempotency_key IS NOT NULL AND b.key_hold = 'd'
  ) held WHERE k.queue = held.queue AND k.key = held.key AND k.seq = held.seq;
  WITH closed AS (
    UPDATE th_edge SET tie = 'c' WHERE parent = ANY (p_done) AND tie = 'o' RETURNING child
  )
  SELECT array_agg(child) INTO v_children FROM closed;
  RETURN coalesce(v_children, '{}');
END $$;

-- This member failed, and nobody waits for it any longer, whatever becomes of it.
CREATE FUNCTION th_release_dependants(p_seq bigint, p_now bigint) RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE
  v_children bigint[];
BEGIN
  WITH spent AS (
    UPDATE th_edge e SET tie = 's', spent_state = j.state, spent_reason = j.reason
    FROM th_job j WHERE j.seq = p_seq AND e.parent = p_seq AND e.tie = 'o'
    RETURNING e.child
  )
  SELECT array_agg(child) INTO v_children FROM spent;
  RETURN th_let_go(coalesce(v_children, '{}'), p_now);
END $$;

-- This member was dead-lettered or cancelled: its policy applies, and those of the members that are cancelled because
-- of it. All that is to be cancelled is cancelled before anybody is let go, so that no order matters.
CREATE FUNCTION th_spread_failure(p_seq bigint, p_now bigint) RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE
  v_failed   bigint[] := ARRAY[p_seq];
  v_next     int := 1;
  v_policy   "char";
  v_flow     bigint;
  v_doomed   bigint[];
  v_reason   text;
  v_wakes    text[] := '{}';
  v_seq      bigint;
BEGIN
  SELECT 'job ' || id || ' of the same flow failed' INTO v_reason FROM th_job WHERE seq = p_seq;
  WHILE v_next <= cardinality(v_failed) LOOP
    SELECT on_failure, flow INTO v_policy, v_flow FROM th_job WHERE seq = v_failed[v_next];
    IF v_policy = 'f' THEN
      v_doomed := ARRAY(SELECT seq FROM th_hot WHERE flow = v_flow ORDER BY seq);
    ELSIF v_policy = 'c' OR v_policy = 'h' AND v_next > 1 THEN
      v_doomed := ARRAY(SELECT DISTINCT child FROM th_edge WHERE parent = v_failed[v_next] AND tie = 'o' ORDER BY child);
    ELSE
      v_doomed := '{}';
    END IF;
    v_next := v_next + 1;
    IF cardinality(v_doomed) > 0 THEN
      v_failed := v_failed || th_finish(v_doomed, 'c', p_now, true, v_reason);
    END IF;
  END LOOP;
  FOREACH v_seq IN ARRAY v_failed LOOP
    IF (SELECT on_failure FROM th_job WHERE seq = v_seq) = 'r' THEN
      v_wakes := v_wakes || th_release_dependants(v_seq, p_now);
    END IF;
  END LOOP;
  RETURN v_wakes;
END $$;

-- Puts flows among those that are over if all their members are, and takes them out if one is not.
CREATE FUNCTION th_retire(p_flows bigint[]) RETURNS void LANGUAGE sql AS $$
  UPDATE th_flow f SET state = e.state, kept_until = e.kept_until
  FROM (
    SELECT w.flow,
      CASE WHEN live.seq IS NULL THEN t.state END AS state,
      CASE WHEN live.seq IS NULL THEN (SELECT max(m.kept_until) FROM th_end m WHERE m.flow = w.flow) END AS kept_until
    FROM unnest(p_flows) AS w (flow)
    JOIN th_flow g ON g.seq = w.flow JOIN th_job t ON t.seq = g.tail
    LEFT JOIN LATERAL (SELECT h.seq FROM th_hot h WHERE h.flow = w.flow LIMIT 1) live ON true
  ) e
  WHERE f.seq = e.flow AND (f.state, f.kept_until) IS DISTINCT FROM (e.state, e.kept_until);
$$;
