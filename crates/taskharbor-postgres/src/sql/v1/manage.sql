-- What people do to jobs and flows.

-- The state of a job at a time, as people read it. NULL if there is no such job.
CREATE FUNCTION th_state(p_seq bigint, p_now bigint) RETURNS text LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN (
    SELECT CASE
        WHEN f.state IS NOT NULL THEN f.state::text
        WHEN l.lease_expires_at IS NOT NULL THEN 'inflight'
        WHEN l.waits_for IS NOT NULL THEN 'blocked'
        WHEN l.available_at <= p_now THEN 'ready'
        ELSE 'scheduled' END
    FROM th_job j LEFT JOIN th_live l ON l.seq = j.seq LEFT JOIN LATERAL th_finished_row(CASE WHEN l.seq IS NULL THEN j.seq END) f ON true
    WHERE j.seq = p_seq);
END $$;

-- A job that something is done to: whether it was live when all such jobs were locked, and its state then.
CREATE TYPE th_target AS (ord bigint, seq bigint, flow bigint, is_live boolean, was text);
-- The result: the state that the job is in, or was in if it was removed; or why nothing was done.
CREATE TYPE th_managed AS (ord bigint, state text, denied text, detail text);

-- Does one thing to each of many jobs or flows, in their order (SET-9). A row for each; then one without an item: the
-- queues in which there is work now.
--
-- Flows are locked before jobs, and both in their order, so calls cannot deadlock. An id means the job that has it now:
-- one that gets it later comes too late, since neither it nor its flow is locked. A transaction of an application that
-- stays open fails this call, and does not hold up all calls that wait for it.
CREATE FUNCTION th_manage_v1(
  p_action text, p_ids text[], p_now bigint, p_run_at bigint, p_reset boolean, p_detach boolean, p_priority bigint,
  p_notify text
) RETURNS TABLE (state text, denied text, detail text, wakes text[]) LANGUAGE plpgsql {settings} AS $$
#variable_conflict use_column
DECLARE
  v_targets th_target[];
  v_flows   bigint[];
  v_done    record;
BEGIN
  PERFORM th_limit_lock_wait(10000);
  IF p_action IN ('requeue', 'purge', 'purge_flow') THEN
    PERFORM th_lock_finished();
    -- Calls that hold this lock hold up all others that need it, so they wait for an open transaction for a moment only.
    PERFORM th_limit_lock_wait(250);
  END IF;
  IF p_action IN ('cancel_flow', 'purge_flow') THEN
    v_targets := ARRAY(
      SELECT ROW(i.ord, f.seq, f.seq, NULL, NULL)::th_target FROM unnest(p_ids) WITH ORDINALITY AS i (id, ord)
      LEFT JOIN LATERAL (SELECT x.seq FROM th_flow x WHERE x.id = i.id OFFSET 0) f ON true ORDER BY i.ord);
  ELSE
    v_targets := ARRAY(
      SELECT ROW(i.ord, j.seq, j.flow, NULL, NULL)::th_target FROM unnest(p_ids) WITH ORDINALITY AS i (id, ord)
      LEFT JOIN LATERAL (SELECT x.seq, x.flow FROM th_job x WHERE x.id = i.id OFFSET 0) j ON true ORDER BY i.ord);
  END IF;
  v_flows := ARRAY(SELECT DISTINCT t.flow FROM unnest(v_targets) AS t WHERE t.flow IS NOT NULL);
  PERFORM f.seq FROM th_flow f WHERE f.seq = ANY (v_flows) ORDER BY f.seq FOR UPDATE;
  IF p_action NOT IN ('cancel_flow', 'purge_flow') THEN
    v_targets := th_lock_targets(v_targets, p_now);
  END IF;
  CASE p_action
    WHEN 'requeue' THEN v_done := th_requeue_jobs(v_targets, p_now, p_run_at, p_reset, p_detach);
    WHEN 'cancel' THEN v_done := th_cancel_jobs(v_targets, p_now);
    WHEN 'run_now' THEN v_done := th_run_jobs_now(v_targets, p_now);
    WHEN 'set_priority' THEN v_done := th_set_priorities(v_targets, p_now, p_priority::smallint);
    WHEN 'purge' THEN v_done := th_purge_jobs(v_targets);
    WHEN 'cancel_flow' THEN v_done := th_cancel_flows(v_targets, p_now);
    WHEN 'purge_flow' THEN v_done := th_purge_flows(v_targets, p_now);
  END CASE;
  PERFORM th_retire(v_flows);
  PERFORM th_notify(p_notify, v_done.wakes);
  RETURN QUERY SELECT m.state, CASE WHEN m.state IS NULL THEN 'not_found' ELSE m.denied END, m.detail, NULL::text[]
  FROM unnest(p_ids) WITH ORDINALITY AS i (id, ord) LEFT JOIN unnest(v_done.answers::th_managed[]) AS m ON m.ord = i.ord
  ORDER BY i.ord;
  RETURN QUERY SELECT NULL::text, NULL::text, NULL::text, v_done.wakes;
END $$;

-- Locks the live jobs among the targets, in their order, and tells their states.
CREATE FUNCTION th_lock_targets(p_targets th_target[], p_now bigint) RETURNS th_target[] LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_live bigint[];
BEGIN
  v_live := ARRAY(
    SELECT l.seq FROM th_live l WHERE l.seq = ANY (ARRAY(SELECT t.seq FROM unnest(p_targets) AS t)) ORDER BY l.seq FOR UPDATE);
  RETURN ARRAY(
    -- A transaction that was waited for may have made the job a member of a flow.
    SELECT ROW(t.ord, t.seq, coalesce(t.flow, j.flow), l.seq IS NOT NULL, th_state(t.seq, p_now))::th_target
    FROM unnest(p_targets) AS t LEFT JOIN unnest(v_live) AS l (seq) ON l.seq = t.seq
    LEFT JOIN th_job j ON j.seq = ANY (ARRAY[t.seq]) ORDER BY t.ord);
END $$;

-- Cancels jobs, or requests it of their workers; a holder whose lease has ended has no say any more. Jobs in no flow are
-- cancelled all at once, and so are members that follow each other and whose ends cancel no other target. CAN-1, CAN-2, CAN-6.
CREATE FUNCTION th_cancel_jobs(p_targets th_target[], p_now bigint, OUT answers th_managed[], OUT wakes text[])
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_asked bigint[];
  v_left  th_target[];
  v_group record;
  v_seqs  bigint[];
BEGIN
  wakes := '{}';
  WITH asked AS (
    UPDATE th_live l SET cancel_requested = true FROM unnest(p_targets) AS t
    WHERE l.seq = ANY (ARRAY[t.seq]) AND t.is_live AND l.lease_expires_at > p_now RETURNING l.seq
  )
  SELECT coalesce(array_agg(a.seq), '{}') INTO v_asked FROM asked a;
  v_left := ARRAY(
    SELECT t FROM unnest(p_targets) AS t LEFT JOIN unnest(v_asked) AS a (seq) ON a.seq = t.seq
    WHERE t.is_live AND a.seq IS NULL ORDER BY t.ord);
  PERFORM th_finish_all(
    ARRAY(SELECT t.seq FROM unnest(v_left) AS t WHERE t.flow IS NULL), 'cancelled', NULL, p_now, false);
  answers := ARRAY(
    SELECT ROW(t.ord, CASE WHEN l.seq IS NULL THEN t.was ELSE 'cancelled' END,
               CASE WHEN NOT t.is_live THEN 'wrong_state' END, NULL)::th_managed
    FROM unnest(p_targets) AS t LEFT JOIN unnest(v_left) AS l ON l.seq = t.seq WHERE l.seq IS NULL OR t.flow IS NULL);
  FOR v_group IN SELECT g.targets, g.seqs FROM th_cancel_groups(v_left) g ORDER BY g.ord LOOP
    -- The end of one before it may have ended this one.
    v_seqs := ARRAY(SELECT l.seq FROM th_live l WHERE l.seq = ANY (v_group.seqs));
    answers := answers || ARRAY(
      SELECT ROW(t.ord, CASE WHEN s.seq IS NULL THEN th_state(t.seq, p_now) ELSE 'cancelled' END,
                 CASE WHEN s.seq IS NULL THEN 'wrong_state' END, NULL)::th_managed
      FROM unnest(v_group.targets::th_target[]) AS t LEFT JOIN unnest(v_seqs) AS s (seq) ON s.seq = t.seq);
    PERFORM th_finish_all(v_seqs, 'cancelled', NULL, p_now, false);
    wakes := wakes || th_propagate_failure(v_seqs, p_now);
  END LOOP;
END $$;

-- The members among targets in groups that can be cancelled at once, each in the place of its first target. A job that waits
-- for no failure and whose policy cancels no dependants ends nothing but failure jobs, this many of them are a group.
CREATE FUNCTION th_cancel_groups(p_targets th_target[]) RETURNS TABLE (ord bigint, targets th_target[], seqs bigint[])
LANGUAGE sql STABLE AS $$
  SELECT min(g.ord), array_agg(g.target), array_agg(g.seq)
  FROM (
    SELECT m.*, count(*) FILTER (WHERE NOT m.is_harmless) OVER (ORDER BY m.ord) AS others_before FROM (
      SELECT t AS target, t.ord, t.seq, coalesce(j.kind, 'work') = 'work' AND coalesce(j.on_failure, 'block') IN ('block', 'continue') AS is_harmless
      FROM unnest(p_targets) AS t JOIN th_job j ON j.seq = ANY (ARRAY[t.seq]) WHERE t.flow IS NOT NULL
    ) m
  ) g GROUP BY g.is_harmless, g.others_before
$$;

-- ADM-5
CREATE FUNCTION th_run_jobs_now(p_targets th_target[], p_now bigint, OUT answers th_managed[], OUT wakes text[])
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_done bigint[];
BEGIN
  WITH moved AS (
    UPDATE th_live l SET run_at = NULL, available_at = least(l.available_at, p_now), is_special = true
    FROM unnest(p_targets) AS t WHERE l.seq = ANY (ARRAY[t.seq]) AND t.is_live AND l.lease_expires_at IS NULL
    RETURNING l.seq, l.queue
  )
  SELECT coalesce(array_agg(m.seq), '{}'), coalesce(array_agg(DISTINCT m.queue), '{}') INTO v_done, wakes FROM moved m;
  answers := ARRAY(
    SELECT ROW(t.ord, th_state(t.seq, p_now), CASE WHEN d.seq IS NULL THEN 'wrong_state' END, NULL)::th_managed
    FROM unnest(p_targets) AS t LEFT JOIN unnest(v_done) AS d (seq) ON d.seq = t.seq);
END $$;

-- ADM-6
CREATE FUNCTION th_set_priorities(
  p_targets th_target[], p_now bigint, p_priority smallint, OUT answers th_managed[], OUT wakes text[]
) LANGUAGE plpgsql AS $$
BEGIN
  -- The job may stand before others of its new priority, so drivers begin at the front again.
  WITH moved AS (
    UPDATE th_live l SET priority = p_priority, is_special = true
    FROM unnest(p_targets) AS t WHERE l.seq = ANY (ARRAY[t.seq]) AND t.is_live
    RETURNING l.queue, l.lease_expires_at, l.waits_for
  )
  SELECT coalesce(array_agg(DISTINCT m.queue) FILTER (WHERE m.lease_expires_at IS NULL AND m.waits_for IS NULL), '{}')
  INTO wakes FROM moved m;
  answers := ARRAY(
    SELECT ROW(t.ord, t.was, CASE WHEN NOT t.is_live THEN 'wrong_state' END, NULL)::th_managed FROM unnest(p_targets) AS t);
END $$;

-- Removes terminal jobs. ADM-7.
CREATE FUNCTION th_purge_jobs(p_targets th_target[], OUT answers th_managed[], OUT wakes text[]) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_seqs bigint[];
BEGIN
  wakes := '{}';
  answers := ARRAY(
    SELECT ROW(t.ord, t.was, CASE WHEN t.is_live THEN 'wrong_state' WHEN t.flow IS NOT NULL THEN 'in_flow' END, f.id)::th_managed
    FROM unnest(p_targets) AS t LEFT JOIN th_flow f ON f.seq = ANY (ARRAY[t.flow]) AND NOT t.is_live);
  v_seqs := ARRAY(SELECT t.seq FROM unnest(p_targets) AS t WHERE NOT t.is_live AND t.flow IS NULL AND t.was IS NOT NULL);
  PERFORM th_unlist(v_seqs);
  PERFORM th_remove(v_seqs);
END $$;

-- CAN-7, CAN-8, FAI-6: no policy applies, so nothing travels along edges.
CREATE FUNCTION th_cancel_flows(p_targets th_target[], p_now bigint, OUT answers th_managed[], OUT wakes text[])
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  t        th_target;
  v_denied text;
BEGIN
  wakes := '{}';
  answers := '{}';
  FOREACH t IN ARRAY p_targets LOOP
    -- A call that reserves a member at this moment is waited for, and then the job is inflight.
    PERFORM FROM th_live l WHERE l.flow = t.seq ORDER BY l.seq FOR UPDATE;
    v_denied := CASE WHEN NOT FOUND THEN 'wrong_state' END;
    UPDATE th_live l SET cancel_requested = true WHERE l.flow = t.seq AND l.lease_expires_at > p_now;
    PERFORM th_finish_all(
      ARRAY(SELECT l.seq FROM th_live l WHERE l.flow = t.seq AND (l.lease_expires_at IS NULL OR l.lease_expires_at <= p_now)),
      'cancelled', NULL, p_now, false);
    answers := answers
      || ROW(t.ord, th_state((SELECT f.tail FROM th_flow f WHERE f.seq = t.seq), p_now), v_denied, NULL)::th_managed;
  END LOOP;
END $$;

-- ADM-8
CREATE FUNCTION th_purge_flows(p_targets th_target[], p_now bigint, OUT answers th_managed[], OUT wakes text[])
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  t        th_target;
  v_state  text;
  v_denied text;
BEGIN
  wakes := '{}';
  answers := '{}';
  FOREACH t IN ARRAY p_targets LOOP
    v_state := th_state((SELECT f.tail FROM th_flow f WHERE f.seq = t.seq), p_now);
    v_denied := CASE WHEN EXISTS (SELECT FROM th_live l WHERE l.flow = t.seq) THEN 'wrong_state' END;
    IF v_state IS NOT NULL AND v_denied IS NULL THEN
      PERFORM th_remove_flow(t.seq);
    END IF;
    answers := answers || ROW(t.ord, v_state, v_denied, NULL)::th_managed;
  END LOOP;
END $$;
