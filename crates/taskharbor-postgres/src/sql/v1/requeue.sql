-- Requeueing terminal jobs.

-- Requeues jobs. Jobs in no flow and without a key are requeued all at once. REQ-1 to REQ-8.
CREATE FUNCTION th_requeue_jobs(
  p_targets th_target[], p_now bigint, p_run_at bigint, p_reset boolean, p_detach boolean,
  OUT answers th_managed[], OUT wakes text[]
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_plain bigint[];
  t       th_target;
  v_done  record;
BEGIN
  v_plain := ARRAY(
    SELECT t.seq FROM unnest(p_targets) AS t JOIN th_job j ON j.seq = ANY (ARRAY[t.seq])
    WHERE t.flow IS NULL AND t.was IN ('dlq', 'cancelled') AND j.key_hold IS NULL);
  wakes := th_revive(v_plain, p_now, p_run_at, p_reset);
  answers := ARRAY(
    SELECT ROW(t.ord, th_state(t.seq, p_now), NULL, NULL)::th_managed
    FROM unnest(p_targets) AS t JOIN unnest(v_plain) AS p (seq) ON p.seq = t.seq);
  FOR t IN
    SELECT t.* FROM unnest(p_targets) AS t LEFT JOIN unnest(v_plain) AS p (seq) ON p.seq = t.seq WHERE p.seq IS NULL ORDER BY t.ord
  LOOP
    v_done := th_requeue_one(t.seq, p_now, p_run_at, p_reset, p_detach);
    answers := answers || ROW(t.ord, v_done.state, v_done.denied, v_done.detail)::th_managed;
    wakes := wakes || v_done.wakes;
  END LOOP;
END $$;

-- Requeues a job that may be a member of a flow or hold a key.
CREATE FUNCTION th_requeue_one(
  p_seq bigint, p_now bigint, p_run_at bigint, p_reset boolean, p_detach boolean,
  OUT state text, OUT denied text, OUT detail text, OUT wakes text[]
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_is_over boolean;
  v_is_join boolean;
BEGIN
  wakes := '{}';
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
    wakes := th_fail_edges(ARRAY[p_seq], true, p_now);
    PERFORM th_split_runs(ARRAY(SELECT e.parent FROM th_edge e WHERE e.child = p_seq AND e.run IS NOT NULL));
    UPDATE th_edge SET status = 'satisfied'
    WHERE child = p_seq AND status IN ('waits_for_success', 'waits_for_failure', 'not_needed');
    UPDATE th_job SET flow = NULL WHERE seq = p_seq;
  END IF;
  wakes := wakes || th_revive(ARRAY[p_seq], p_now, p_run_at, p_reset);
  SELECT th_is_join(j.kind) INTO v_is_join FROM th_job j JOIN th_live l ON l.seq = j.seq WHERE j.seq = p_seq AND l.waits_for IS NULL;
  IF v_is_join THEN
    PERFORM th_finish_all(ARRAY[p_seq], 'done', NULL, p_now, false);
    wakes := wakes || th_unblock_dependants(ARRAY[p_seq], p_now);
  END IF;
  state := th_state(p_seq, p_now);
END $$;

-- Makes terminal jobs live again. The tokens of the epoch that ended become invalid (REQ-8). Returns the queues in
-- which there is work now.
CREATE FUNCTION th_revive(p_seqs bigint[], p_now bigint, p_run_at bigint, p_reset boolean) RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE
  v_queues text[];
BEGIN
  WITH revived AS (
    INSERT INTO th_live (seq, available_at, priority, queue, waits_for, flow, run_at, started_at, deliveries, attempts, failures,
                         epoch, attempt_limit, progress, is_large, is_special, lane)
    SELECT j.seq, greatest(p_run_at, p_now), coalesce(o.priority, j.priority), j.queue,
      CASE WHEN j.parents > 0 THEN th_open_edges(j.seq) END, j.flow, p_run_at, f.started_at,
      coalesce(o.deliveries, CASE WHEN f.started_at IS NOT NULL THEN 1 END), CASE WHEN NOT p_reset THEN o.attempts END, o.failures,
      coalesce(o.epoch, 0) + 1,
      -- REQ-2
      CASE WHEN p_reset THEN NULL
           WHEN f.state = 'dlq' THEN least(coalesce(o.attempts, 0)::bigint + 1, 2147483647)::int
           ELSE o.attempt_limit END,
      o.progress, CASE WHEN octet_length(j.payload) > 65536 THEN true END, true, j.lane
    FROM unnest(p_seqs) AS s (seq) JOIN th_job j ON j.seq = ANY (ARRAY[s.seq])
    CROSS JOIN LATERAL th_finished_row(s.seq) f LEFT JOIN th_outcome o ON o.seq = ANY (ARRAY[s.seq])
    RETURNING queue, waits_for
  )
  SELECT array_agg(DISTINCT r.queue) FILTER (WHERE r.waits_for IS NULL) INTO v_queues FROM revived r;
  DELETE FROM th_outcome WHERE seq = ANY (p_seqs);
  DELETE FROM th_imported_token WHERE seq = ANY (p_seqs);
  PERFORM th_unlist(p_seqs);
  RETURN coalesce(v_queues, '{}');
END $$;

-- For how many parents a job waits; NULL for none. REQ-3.
CREATE FUNCTION th_open_edges(p_seq bigint) RETURNS int LANGUAGE plpgsql AS $$
BEGIN
  RETURN (
    SELECT nullif(count(*), 0) FROM th_each_edge e
    WHERE e.child = p_seq AND (e.status = 'waits_for_failure' OR e.status = 'waits_for_success'
      AND NOT EXISTS (SELECT FROM th_finished_row(e.parent) f WHERE f.state = 'done')));
END $$;

-- Whether it is too late for a job in its flow: it is a failure job that was not needed, FAI-7, or the flow's tail is done
-- or cancelled and the job is not a failure job that was unblocked, FAI-8: one whose edges are all failed.
CREATE FUNCTION th_is_flow_over_for(p_seq bigint) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  RETURN coalesce((
    SELECT f.tail <> j.seq AND CASE
        WHEN j.kind = 'failure_job' AND EXISTS (SELECT FROM th_edge e WHERE e.child = j.seq AND e.status = 'not_needed') THEN true
        WHEN j.kind = 'failure_job' AND NOT EXISTS (SELECT FROM th_edge e WHERE e.child = j.seq AND e.status = 'waits_for_failure')
          THEN false
        ELSE EXISTS (SELECT FROM th_finished_row(f.tail) t WHERE t.state IN ('done', 'cancelled')) END
    FROM th_job j JOIN th_flow f ON f.seq = j.flow WHERE j.seq = p_seq), false);
END $$;

-- Takes the key that a job stands for again, if that is held until the job is terminal: its own, or as the tail of its
-- flow that of the job under whose id the flow began. Returns the job that holds it now, or NULL. KEY-8.
CREATE FUNCTION th_take_key(p_seq bigint, p_now bigint) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  b record;
  k record;
BEGIN
  SELECT o.seq, o.id, o.queue, o.idempotency_key AS key INTO b
  FROM th_job j LEFT JOIN th_flow f ON f.seq = ANY (ARRAY[j.flow]) AND f.tail = j.seq
  JOIN th_job o ON o.id = ANY (ARRAY[coalesce(f.id, j.id)])
  WHERE j.seq = p_seq AND o.key_hold = 'until_terminal' AND o.idempotency_key IS NOT NULL;
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
