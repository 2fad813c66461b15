-- Replacing inflight jobs by sub-workflows.

-- Makes each job done and puts its expansion in its place. Answers as th_settle_v1; `overlap` with the first job of an
-- expansion that is stored already, and then nothing has happened to that item. The jobs of an expansion and its edges,
-- which are positions among them, belong to the item that the owners say; its tail is a position as well.
CREATE FUNCTION th_expand_v1(
  p_wait_ms bigint, p_wait_for_jobs boolean, p_wait_for_flows boolean, p_now bigint, p_ids text[], p_tokens bigint[],
  p_imported uuid[], p_tails bigint[], p_owners bigint[], p_job_ids text[], p_queues text[], p_types text[],
  p_payloads bytea[], p_priorities bigint[], p_run_ats bigint[], p_timeouts bigint[], p_max_attempts bigint[],
  p_headers text[], p_policies text[], p_lanes text[], p_kinds text[], p_edge_owners bigint[], p_children bigint[], p_parents bigint[],
  p_runs bigint[], p_notify text
) RETURNS TABLE (ord bigint, verdict text, detail text, wakes text[]) LANGUAGE plpgsql {settings} AS $$
#variable_conflict use_column
DECLARE
  v_tokens bigint[] := th_native_tokens(p_ids, p_tokens, p_imported);
  v_jobs   th_new_job[] := th_new_jobs(p_job_ids, p_queues, p_types, p_payloads, p_priorities, p_run_ats, p_timeouts,
                                       p_max_attempts, p_headers, p_policies, p_lanes, p_kinds);
  v_edges  th_new_edge[] := th_new_edges(p_children, p_parents, p_runs);
  v_items  th_item[];
  v_busy   bigint[];
  v_job    bigint;                  -- where the jobs and edges of an item begin, and those of the next
  v_edge   bigint;
  v_next_job  bigint := 1;
  v_next_edge bigint := 1;
  v_done   record;
  v_wakes  text[] := '{}';
  v_flows  bigint[] := '{}';
  i        th_item;
BEGIN
  PERFORM th_limit_lock_wait(p_wait_ms);
  SELECT array_agg(ROW(g.ord, j.seq, j.flow, g.token, 'expand', NULL, NULL, NULL, NULL, NULL, NULL)::th_item ORDER BY g.ord)
  INTO v_items FROM unnest(p_ids, v_tokens) WITH ORDINALITY AS g (id, token, ord)
  LEFT JOIN LATERAL (SELECT x.seq, x.flow FROM th_job x WHERE x.id = g.id OFFSET 0) j ON true;
  PERFORM th_lock_items(v_items, p_wait_for_jobs, p_wait_for_flows);
  v_busy := th_lock_flows(th_flows_of(v_items), p_wait_ms IS NULL);
  FOREACH i IN ARRAY v_items LOOP
    ord := i.ord;
    detail := NULL;
    v_job := v_next_job;
    v_edge := v_next_edge;
    WHILE p_owners[v_next_job] = i.ord LOOP
      v_next_job := v_next_job + 1;
    END LOOP;
    WHILE p_edge_owners[v_next_edge] = i.ord LOOP
      v_next_edge := v_next_edge + 1;
    END LOOP;
    verdict := th_try_item(i, v_busy, p_wait_ms IS NULL, p_now);
    IF verdict = 'applied' THEN
      v_done := th_expand_job(
        i.seq, p_now, ARRAY(SELECT v_jobs[n] FROM generate_series(v_job, v_next_job - 1) AS n ORDER BY n), p_tails[i.ord],
        ARRAY(SELECT v_edges[n] FROM generate_series(v_edge, v_next_edge - 1) AS n ORDER BY n));
      detail := v_done.overlap;
      v_wakes := v_wakes || v_done.wakes;
      v_flows := v_flows || v_done.flow;
      IF detail IS NOT NULL THEN
        verdict := 'overlap';
      END IF;
    END IF;
    IF verdict <> 'applied' THEN
      RETURN NEXT;
    END IF;
  END LOOP;
  PERFORM th_retire(ARRAY(SELECT DISTINCT f FROM unnest(v_flows) AS f WHERE f IS NOT NULL));
  v_wakes := v_wakes || th_starved_queues(ARRAY(SELECT t.seq FROM unnest(v_items) AS t), p_wait_ms IS NULL);
  PERFORM th_notify(p_notify, v_wakes);
  RETURN QUERY SELECT NULL::bigint, NULL::text, NULL::text, v_wakes;
END $$;

-- Expands one job that its token may settle, whose row and flow are locked. Returns the first job of the expansion that is
-- stored already, and then nothing has happened. EXP-1, EXP-3.
CREATE FUNCTION th_expand_job(
  p_seq bigint, p_now bigint, p_jobs th_new_job[], p_tail bigint, p_edges th_new_edge[],
  OUT overlap text, OUT wakes text[], OUT flow bigint
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_failures int := 0;
  v_constraint text;
  v_cancel   boolean;
BEGIN
  wakes := '{}';
  SELECT l.flow, l.cancel_requested INTO flow, v_cancel FROM th_live l WHERE l.seq = p_seq;
  IF v_cancel THEN
    -- CAN-5
    PERFORM th_finish(ARRAY[ROW(p_seq, 'cancelled', true, NULL, NULL, NULL, NULL)::th_job_end], p_now, false, false);
    wakes := th_propagate_failure(ARRAY[p_seq], p_now);
    RETURN;
  END IF;
  LOOP
    SELECT j.id INTO overlap FROM unnest(p_jobs) WITH ORDINALITY AS j
    CROSS JOIN LATERAL (SELECT FROM th_job x WHERE x.id = j.id OFFSET 0) x ORDER BY j.ordinality LIMIT 1;
    EXIT WHEN FOUND;
    BEGIN
      SELECT r.wakes, r.flow INTO wakes, flow FROM th_replace(p_seq, flow, p_now, p_jobs, p_tail, p_edges) r;
      EXIT;
    EXCEPTION WHEN unique_violation THEN
      -- Another transaction stored a job of the expansion meanwhile: look again.
      GET STACKED DIAGNOSTICS v_constraint = CONSTRAINT_NAME;
      v_failures := th_count_conflict(v_failures, v_constraint);
    END;
  END LOOP;
END $$;

-- Puts an expansion in the place of a job.
CREATE FUNCTION th_replace(
  p_seq bigint, p_flow bigint, p_now bigint, p_jobs th_new_job[], p_tail bigint, p_edges th_new_edge[],
  OUT wakes text[], OUT flow bigint
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_job      th_job;
  v_jobs     th_new_job[] := p_jobs;
  v_tail     th_new_job := p_jobs[p_tail];
  v_is_tail  boolean;
  v_keeps    boolean;
  v_added    record;
BEGIN
  flow := p_flow;
  IF flow IS NULL THEN
    -- The job becomes a flow of its own.
    INSERT INTO th_flow (seq, id, created_at, tail) SELECT nextval('th_seq'), j.id, p_now, j.seq FROM th_job j WHERE j.seq = p_seq
    RETURNING seq INTO flow;
    UPDATE th_job SET flow = th_replace.flow WHERE seq = p_seq;
    UPDATE th_live SET flow = th_replace.flow WHERE seq = p_seq;
  END IF;
  SELECT j.* INTO v_job FROM th_job j WHERE j.seq = p_seq;
  SELECT f.tail = p_seq, b.key_hold IN ('until_done', 'until_terminal') INTO v_is_tail, v_keeps
  FROM th_flow f LEFT JOIN th_job b ON b.id = f.id WHERE f.seq = th_replace.flow;
  PERFORM th_finish(ARRAY[ROW(p_seq, 'done', true, NULL, NULL, NULL, NULL)::th_job_end], p_now, false, true);
  -- The dependants go by the policy of the job that expanded, and wait for the tail from now on. EXP-2, FAI-5.
  v_tail.on_failure := v_job.on_failure;
  v_jobs[p_tail] := v_tail;
  v_added := th_add_members(flow, p_now, v_jobs, p_tail, p_edges, NULL, v_is_tail AND v_keeps);
  PERFORM th_split_runs(ARRAY[p_seq]);
  UPDATE th_edge SET parent = v_added.tail, parent_id = v_tail.id
  WHERE parent = p_seq AND run IS NULL AND status IN ('waits_for_success', 'waits_for_failure');
  UPDATE th_job SET expanded_into = v_added.tail, expanded_id = v_tail.id WHERE seq = p_seq;
  -- EXP-5
  UPDATE th_flow SET tail = v_added.tail WHERE seq = th_replace.flow AND tail = p_seq;
  wakes := v_added.wakes;
  IF v_added.tail_is_done THEN
    -- EXP-4
    PERFORM th_free_keys(ARRAY[v_added.tail], '{done}');
    wakes := wakes || th_unblock_dependants(ARRAY[v_added.tail], p_now);
  END IF;
END $$;
