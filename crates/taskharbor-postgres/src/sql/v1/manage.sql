-- What people do to jobs and flows.

-- The state of a job at a time, as people read it. NULL if there is no such job.
CREATE FUNCTION th_state(p_seq bigint, p_now bigint) RETURNS text LANGUAGE sql STABLE AS $$
  SELECT CASE
      WHEN j.state IS NOT NULL THEN CASE j.state WHEN 'd' THEN 'done' WHEN 'q' THEN 'dlq' ELSE 'cancelled' END
      WHEN h.lease_exp IS NOT NULL THEN 'inflight'
      WHEN h.pending IS NOT NULL THEN 'blocked'
      WHEN h.line_at <= p_now THEN 'ready'
      ELSE 'scheduled' END
  FROM th_job j LEFT JOIN th_hot h ON h.seq = j.seq WHERE j.seq = p_seq
$$;

-- Does one thing to each of many jobs, in their order (SET-9). Answers for each the state it is in, or was in if it is
-- gone; or why nothing was done. Then a row without an item: the queues in which there is work now.
CREATE FUNCTION th_manage_v1(
  p_action text, p_ids text[], p_now bigint, p_run_at bigint, p_reset boolean, p_detach boolean, p_priority bigint,
  p_notify text
) RETURNS TABLE (state text, denied text, detail text, wakes text[])
LANGUAGE plpgsql SET search_path = {schema}, pg_temp SET plan_cache_mode = force_generic_plan SET jit = off
SET enable_seqscan = off SET enable_bitmapscan = off AS $$
#variable_conflict use_column
DECLARE
  v_of_flows boolean := p_action IN ('cancel_flow', 'purge_flow');
  v_seqs     bigint[];
  v_flows    bigint[];
  v_live     bigint[];
  v_locked   boolean[];             -- which of the jobs were live when all of those were locked
  v_was      text[];
  v_seq      bigint;
  v_flow     bigint;
  v_answer   record;
  v_place    record;
  v_revived  bigint[] := '{}';      -- jobs that are no longer over, and where each was listed
  v_states   "char"[] := '{}';
  v_untils   bigint[] := '{}';
  v_in_flows bigint[] := '{}';
  v_wakes    text[] := '{}';
BEGIN
  -- A transaction of an application that stays open fails this call, and does not hold up all calls that wait for it.
  PERFORM set_config('lock_timeout', '10s', true);
  -- Flows before jobs, and both in their order, so calls cannot deadlock. An id means the job that has it now: one that
  -- gets it later comes too late, since neither it nor its flow is locked.
  IF p_action IN ('requeue', 'purge', 'purge_flow') THEN
    PERFORM th_lock_ends();
  END IF;
  IF v_of_flows THEN
    SELECT array_agg(f.seq ORDER BY i.ord), array_agg(f.seq) FILTER (WHERE f.seq IS NOT NULL) INTO v_seqs, v_flows
    FROM unnest(p_ids) WITH ORDINALITY AS i (id, ord)
    LEFT JOIN LATERAL (SELECT x.seq FROM th_flow x WHERE x.id = i.id OFFSET 0) f ON true;
  ELSE
    SELECT array_agg(j.seq ORDER BY i.ord), array_agg(DISTINCT j.flow) FILTER (WHERE j.flow IS NOT NULL)
    INTO v_seqs, v_flows FROM unnest(p_ids) WITH ORDINALITY AS i (id, ord)
    LEFT JOIN LATERAL (SELECT x.seq, x.flow FROM th_job x WHERE x.id = i.id OFFSET 0) j ON true;
  END IF;
  v_flows := coalesce(v_flows, '{}');
  PERFORM f.seq FROM th_flow f WHERE f.seq = ANY (v_flows) ORDER BY f.seq FOR UPDATE;
  IF NOT v_of_flows THEN
    v_live := ARRAY(SELECT h.seq FROM th_hot h WHERE h.seq = ANY (v_seqs) ORDER BY h.seq FOR UPDATE);
    v_locked := ARRAY(
      SELECT l.seq IS NOT NULL FROM unnest(v_seqs) WITH ORDINALITY AS s (seq, ord)
      LEFT JOIN unnest(v_live) AS l (seq) ON l.seq = s.seq ORDER BY s.ord);
    v_was := ARRAY(SELECT th_state(s.seq, p_now) FROM unnest(v_seqs) WITH ORDINALITY AS s (seq, ord) ORDER BY s.ord);
  END IF;

  FOR at IN 1..cardinality(p_ids) LOOP
    v_seq := v_seqs[at];
    IF v_of_flows THEN
      PERFORM FROM th_flow f WHERE f.seq = v_seq;
    ELSE
      SELECT j.flow INTO v_flow FROM th_job j WHERE j.seq = v_seq;
    END IF;
    IF NOT FOUND THEN
      RETURN QUERY SELECT NULL::text, 'not_found', NULL::text, NULL::text[];
      CONTINUE;
    END IF;
    IF p_action IN ('requeue', 'purge') THEN
      SELECT j.state, j.kept_until, j.flow INTO v_place FROM th_job j WHERE j.seq = v_seq;
    ELSIF p_action IN ('cancel', 'run_now', 'set_priority') AND NOT v_locked[at]
       AND coalesce(v_flow <> ALL (v_flows), true) THEN
      -- It was over when the others were locked. Requeued since, it is not waited for.
      PERFORM FROM th_hot h WHERE h.seq = v_seq FOR UPDATE SKIP LOCKED;
      IF NOT FOUND AND EXISTS (SELECT FROM th_hot h WHERE h.seq = v_seq) THEN
        RETURN QUERY SELECT v_was[at], 'wrong_state', NULL::text, NULL::text[];
        CONTINUE;
      END IF;
    END IF;
    CASE p_action
      WHEN 'requeue' THEN v_answer := th_requeue(v_seq, p_now, p_run_at, p_reset, p_detach);
      WHEN 'cancel' THEN v_answer := th_cancel(v_seq, p_now);
      WHEN 'run_now' THEN v_answer := th_run_now(v_seq, p_now);
      WHEN 'set_priority' THEN v_answer := th_set_priority(v_seq, p_now, p_priority::smallint);
      WHEN 'purge' THEN v_answer := th_purge(v_seq, p_now);
      WHEN 'cancel_flow' THEN v_answer := th_cancel_flow(v_seq, p_now);
      WHEN 'purge_flow' THEN v_answer := th_purge_flow(v_seq, p_now);
    END CASE;
    IF p_action IN ('requeue', 'purge') AND v_answer.denied IS NULL THEN
      v_revived := v_revived || v_seq;
      v_states := v_states || v_place.state;
      v_untils := v_untils || v_place.kept_until;
      v_in_flows := v_in_flows || v_place.flow;
    END IF;
    IF NOT v_answer.wakes <@ v_wakes THEN
      v_wakes := v_wakes || v_answer.wakes;
    END IF;
    -- What is over may be removed at any moment, and then has no state.
    RETURN QUERY SELECT v_answer.state, CASE WHEN v_answer.state IS NULL THEN 'not_found' ELSE v_answer.denied END,
      v_answer.detail, NULL::text[];
  END LOOP;
  PERFORM th_unend(v_revived, v_states, v_untils, v_in_flows);
  PERFORM th_retire(v_flows);
  PERFORM th_notify(p_notify, v_wakes);
  RETURN QUERY SELECT NULL::text, NULL::text, NULL::text, v_wakes;
END $$;

-- Gives a job another life. It is still listed among those that are over. REQ-1 to REQ-8.
CREATE FUNCTION th_requeue(
  p_seq bigint, p_now bigint, p_run_at bigint, p_reset boolean, p_detach boolean,
  OUT state text, OUT denied text, OUT detail text, OUT wakes text[]
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  j         th_job;
  v_is_over boolean;
  v_pending int;
BEGIN
  wakes := '{}';
  SELECT x.* INTO j FROM th_job x WHERE x.seq = p_seq FOR UPDATE;
  state := th_state(p_seq, p_now);
  IF state NOT IN ('dlq', 'cancelled') THEN
    denied := 'wrong_state';
    RETURN;
  END IF;
  v_is_over := th_is_flow_over_for(p_seq);
  -- REQ-4, FAI-7
  IF v_is_over AND NOT p_detach THEN
    denied := 'flow_over';
    RETURN;
  END IF;
  -- KEY-8
  detail := th_take_key(p_seq, p_now);
  IF detail IS NOT NULL THEN
    denied := 'key_held';
    RETURN;
  END IF;
  IF v_is_over THEN
    -- REQ-5, REQ-6; while the flow is not over and for the tail, nothing is detached: REQ-7.
    wakes := th_spend_edges(ARRAY[p_seq], true, p_now);
    UPDATE th_edge SET tie = 'c' WHERE child = p_seq AND tie IN ('o', 'f', 'n');
    UPDATE th_job SET flow = NULL WHERE seq = p_seq;
    j.flow := NULL;
  END IF;
  -- REQ-3
  SELECT nullif(count(*), 0) INTO v_pending FROM th_edge WHERE child = p_seq AND tie IN ('o', 'f');
  -- REQ-8: with the token that ended it, every token of this life is gone.
  UPDATE th_job SET
    state = NULL, finished_at = NULL, kept_until = NULL, secret = NULL, started_at = NULL, deliveries = NULL,
    attempts = NULL, expirations = NULL, failures = NULL, epoch = NULL, attempt_limit = NULL, progress = NULL,
    reason = NULL, output = NULL
  WHERE seq = p_seq;
  INSERT INTO th_hot (seq, line_at, priority, queue, pending, flow, run_at, started_at, deliveries, attempts, failures,
                      epoch, attempt_limit, progress, large)
  VALUES (p_seq, greatest(p_run_at, p_now), j.priority, j.queue, v_pending, j.flow, p_run_at, j.started_at, j.deliveries,
          CASE WHEN p_reset THEN NULL ELSE j.attempts END, j.failures, coalesce(j.epoch, 0) + 1,
          -- REQ-2
          CASE WHEN p_reset THEN NULL
               WHEN j.state = 'q' THEN least(coalesce(j.attempts, 0)::bigint + 1, 2147483647)::int
               ELSE j.attempt_limit END,
          j.progress, CASE WHEN octet_length(j.payload) > 65536 THEN true END);
  IF v_pending IS NULL AND j.kind NOT IN ('w', 'x') THEN
    PERFORM th_finish(ARRAY[p_seq], 'd', p_now, false, NULL);
    wakes := wakes || th_unblock(th_close_edges(ARRAY[p_seq], p_now), p_now);
  ELSIF v_pending IS NULL THEN
    wakes := wakes || j.queue;
  END IF;
  state := th_state(p_seq, p_now);
END $$;

-- Whether it is too late for a job in its flow: it is a failure job that was not needed, FAI-7, or the flow's tail is done
-- or cancelled and the job is not a failure job that was unblocked, FAI-8: one whose edges are all spent.
CREATE FUNCTION th_is_flow_over_for(p_seq bigint) RETURNS boolean LANGUAGE sql STABLE AS $$
  SELECT coalesce((
    SELECT f.tail <> j.seq AND CASE
        WHEN j.kind = 'x' AND EXISTS (SELECT FROM th_edge e WHERE e.child = j.seq AND e.tie = 'n') THEN true
        WHEN j.kind = 'x' AND NOT EXISTS (SELECT FROM th_edge e WHERE e.child = j.seq AND e.tie = 'f') THEN false
        ELSE coalesce(t.state IN ('d', 'c'), false) END
    FROM th_job j JOIN th_flow f ON f.seq = ANY (ARRAY[j.flow]) JOIN th_job t ON t.seq = ANY (ARRAY[f.tail])
    WHERE j.seq = p_seq), false)
$$;

-- Takes the key that a job stands for again, if that is held until the job is terminal: its own, or as the tail of its
-- flow that of the job under whose id the flow began. Answers the job that holds it by now, or NULL. KEY-8.
CREATE FUNCTION th_take_key(p_seq bigint, p_now bigint) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  b record;
  k record;
BEGIN
  SELECT o.seq, o.id, o.queue, o.idempotency_key AS key INTO b
  FROM th_job j LEFT JOIN th_flow f ON f.seq = ANY (ARRAY[j.flow]) AND f.tail = j.seq
  JOIN th_job o ON o.id = ANY (ARRAY[coalesce(f.id, j.id)])
  WHERE j.seq = p_seq AND o.key_hold = 't' AND o.idempotency_key IS NOT NULL;
  IF NOT FOUND THEN
    RETURN NULL;
  END IF;
  LOOP
    SELECT x.ctid AS row, x.seq, x.job, x.held_until <= p_now AS is_expired INTO k
    FROM th_key x WHERE x.queue = b.queue AND x.key = b.key;
    IF NOT FOUND THEN
      INSERT INTO th_key (queue, key, seq, job) VALUES (b.queue, b.key, b.seq, b.id) ON CONFLICT DO NOTHING;
      EXIT WHEN FOUND;
    ELSIF k.is_expired THEN
      DELETE FROM th_key WHERE ctid = k.row;
    ELSIF k.seq = b.seq THEN
      EXIT;
    ELSE
      RETURN k.job;
    END IF;
  END LOOP;
  RETURN NULL;
END $$;

-- Cancels a job, or asks its worker to; a holder whose lease is over has no say any more. CAN-1, CAN-2, CAN-6.
CREATE FUNCTION th_cancel(p_seq bigint, p_now bigint, OUT state text, OUT denied text, OUT detail text, OUT wakes text[])
LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
  wakes := '{}';
  state := th_state(p_seq, p_now);
  IF state IN ('done', 'dlq', 'cancelled') THEN
    denied := 'wrong_state';
    RETURN;
  END IF;
  UPDATE th_hot h SET cancel = true WHERE h.seq = p_seq AND h.lease_exp > p_now;
  IF NOT FOUND THEN
    PERFORM th_finish(ARRAY[p_seq], 'c', p_now, false, NULL);
    wakes := th_propagate_failure(p_seq, p_now);
  END IF;
  state := th_state(p_seq, p_now);
END $$;

-- ADM-5
CREATE FUNCTION th_run_now(p_seq bigint, p_now bigint, OUT state text, OUT denied text, OUT detail text, OUT wakes text[])
LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
  wakes := '{}';
  UPDATE th_hot h SET run_at = NULL, line_at = least(h.line_at, p_now) WHERE h.seq = p_seq AND h.lease_exp IS NULL;
  IF FOUND THEN
    wakes := ARRAY(SELECT h.queue FROM th_hot h WHERE h.seq = p_seq);
  ELSE
    denied := 'wrong_state';
  END IF;
  state := th_state(p_seq, p_now);
END $$;

-- ADM-6
CREATE FUNCTION th_set_priority(
  p_seq bigint, p_now bigint, p_priority smallint, OUT state text, OUT denied text, OUT detail text, OUT wakes text[]
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
  wakes := '{}';
  UPDATE th_hot h SET priority = p_priority WHERE h.seq = p_seq;
  IF NOT FOUND THEN
    denied := 'wrong_state';
  END IF;
  state := th_state(p_seq, p_now);
END $$;

-- Removes a job that is over, but not from the list of those that are. ADM-7.
CREATE FUNCTION th_purge(p_seq bigint, p_now bigint, OUT state text, OUT denied text, OUT detail text, OUT wakes text[])
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_flow bigint;
BEGIN
  wakes := '{}';
  SELECT j.flow INTO v_flow FROM th_job j WHERE j.seq = p_seq FOR UPDATE;
  state := th_state(p_seq, p_now);
  IF state NOT IN ('done', 'dlq', 'cancelled') THEN
    denied := 'wrong_state';
  ELSIF v_flow IS NOT NULL THEN
    denied := 'in_flow';
    SELECT f.id INTO detail FROM th_flow f WHERE f.seq = v_flow;
  ELSE
    PERFORM th_remove(ARRAY[p_seq]);
  END IF;
END $$;

-- Removes jobs that are over, and all that is known of them but their place in th_end. Their keys are free, but for those
-- that are held for a time. KEY-3, KEY-9, PRU-3.
CREATE FUNCTION th_remove(p_seqs bigint[]) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
  v_removed bigint;
  v_failed  boolean;
  v_tied    boolean;
BEGIN
  WITH gone AS (
    DELETE FROM th_job j WHERE j.seq = ANY (p_seqs) AND j.state IS NOT NULL
    RETURNING j.seq, j.failures IS NOT NULL AS failed, j.idempotency_key IS NOT NULL AND j.key_hold <> 'f' AS keyed, j.parents IS NOT NULL AS tied,
              j.queue, j.idempotency_key, j.key_hold = 'f' AS is_timed
  ), freed AS (
    DELETE FROM th_key WHERE ctid = ANY (ARRAY(
      SELECT k.row FROM gone g CROSS JOIN LATERAL (
        SELECT x.ctid AS row FROM th_key x
        WHERE x.queue = g.queue AND x.key = g.idempotency_key AND x.seq = g.seq AND x.held_until IS NULL OFFSET 0) k
      WHERE g.keyed))
  ), left_over AS (
    UPDATE th_key SET seq = NULL WHERE ctid = ANY (ARRAY(
      SELECT k.row FROM gone g CROSS JOIN LATERAL (
        SELECT x.ctid AS row FROM th_key x
        WHERE x.queue = g.queue AND x.key = g.idempotency_key AND x.seq = g.seq OFFSET 0) k
      WHERE g.is_timed))
  )
  SELECT count(*), bool_or(failed), bool_or(tied) INTO v_removed, v_failed, v_tied FROM gone;
  IF v_failed THEN
    DELETE FROM th_error WHERE seq = ANY (p_seqs);
  END IF;
  IF v_tied THEN
    DELETE FROM th_edge WHERE child = ANY (p_seqs);
  END IF;
  RETURN v_removed;
END $$;

-- CAN-7, CAN-8, FAI-6: no policy applies, so nothing travels along edges.
CREATE FUNCTION th_cancel_flow(p_flow bigint, p_now bigint, OUT state text, OUT denied text, OUT detail text, OUT wakes text[])
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_tail bigint := (SELECT f.tail FROM th_flow f WHERE f.seq = p_flow);
BEGIN
  wakes := '{}';
  IF NOT EXISTS (SELECT FROM th_hot h WHERE h.flow = p_flow) THEN
    denied := 'wrong_state';
  ELSE
    -- A call that reserves one of them at this moment is waited for, and then the job is inflight.
    PERFORM FROM th_hot h WHERE h.flow = p_flow ORDER BY h.seq FOR UPDATE;
    UPDATE th_hot h SET cancel = true WHERE h.flow = p_flow AND h.lease_exp > p_now;
    PERFORM th_finish(
      ARRAY(SELECT h.seq FROM th_hot h WHERE h.flow = p_flow AND (h.lease_exp IS NULL OR h.lease_exp <= p_now)),
      'c', p_now, false, NULL);
  END IF;
  state := th_state(v_tail, p_now);
END $$;

-- ADM-8
CREATE FUNCTION th_purge_flow(p_flow bigint, p_now bigint, OUT state text, OUT denied text, OUT detail text, OUT wakes text[])
LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
  wakes := '{}';
  state := th_state((SELECT f.tail FROM th_flow f WHERE f.seq = p_flow), p_now);
  IF EXISTS (SELECT FROM th_hot h WHERE h.flow = p_flow) THEN
    denied := 'wrong_state';
  ELSE
    PERFORM th_remove_flow(p_flow);
  END IF;
END $$;

CREATE FUNCTION th_remove_flow(p_flow bigint) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
  DELETE FROM th_end WHERE flow = p_flow;
  DELETE FROM th_flow WHERE seq = p_flow;
  RETURN th_remove(ARRAY(SELECT seq FROM th_job WHERE flow = p_flow));
END $$;

-- Changes settings, in the order given (PAU-4). Calls change them one after another; Reserve reads them meanwhile.
CREATE FUNCTION th_configure_v1(p_changes text[], p_names text[], p_now bigint, p_notify text) RETURNS void
LANGUAGE plpgsql SET search_path = {schema}, pg_temp AS $$
BEGIN
  LOCK TABLE th_queue IN SHARE ROW EXCLUSIVE MODE;
  FOR at IN 1..cardinality(p_changes) LOOP
    CASE p_changes[at]
      WHEN 'pause' THEN
        -- PAU-2: the first time is kept.
        INSERT INTO th_queue (name, paused_since) VALUES (p_names[at], p_now) ON CONFLICT DO NOTHING;
      WHEN 'resume' THEN
        DELETE FROM th_queue WHERE name = p_names[at];
        PERFORM th_notify(p_notify, ARRAY[p_names[at]]);
    END CASE;
  END LOOP;
END $$;
