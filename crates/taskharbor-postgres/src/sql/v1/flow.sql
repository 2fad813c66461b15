-- Storing flows and expansions.

-- A member of a flow, as it is given. NULL means the default.
CREATE TYPE th_new_job AS (
  id text, queue text, type text, payload bytea, priority smallint, run_at bigint, timeout_us bigint, max_attempts int,
  headers jsonb, on_failure th_policy, kind th_kind, lane text
);

-- Edges from a member to a run of consecutive parents, as positions among the members.
CREATE TYPE th_new_edge AS (child bigint, parent bigint, run bigint);

-- A key that a flow takes, and how long it is held.
CREATE TYPE th_key_claim AS (key text, hold th_key_hold, time_us bigint);

-- Members from the arrays of a call, in the same order.
CREATE FUNCTION th_new_jobs(
  p_ids text[], p_queues text[], p_types text[], p_payloads bytea[], p_priorities bigint[], p_run_ats bigint[],
  p_timeouts bigint[], p_max_attempts bigint[], p_headers text[], p_policies text[], p_lanes text[],
  p_kinds text[]
) RETURNS th_new_job[] LANGUAGE sql STABLE AS $$
  SELECT ARRAY(
    SELECT ROW(i.id, i.queue, i.type, i.payload, coalesce(i.priority, 0), i.run_at, i.timeout_us, i.max_attempts,
               i.headers::jsonb, i.policy::th_policy, i.kind::th_kind, i.lane)::th_new_job
    FROM unnest(p_ids, p_queues, p_types, p_payloads, p_priorities, p_run_ats, p_timeouts, p_max_attempts, p_headers,
                p_policies, p_lanes, p_kinds)
      AS i (id, queue, type, payload, priority, run_at, timeout_us, max_attempts, headers, policy, lane, kind))
$$;

-- Edges from the arrays of a call, in the same order.
CREATE FUNCTION th_new_edges(p_children bigint[], p_parents bigint[], p_runs bigint[])
RETURNS th_new_edge[] LANGUAGE sql STABLE AS $$
  SELECT ARRAY(
    SELECT ROW(e.child, e.parent, e.run)::th_new_edge FROM unnest(p_children, p_parents, p_runs) AS e (child, parent, run))
$$;

-- Which members are done as soon as they are stored: the given joins, which have no parents, and joins all of whose
-- parents are done. For each member, by position, the how many-th it is to be done.
CREATE FUNCTION th_done_at_once(
  p_joins bigint[], p_kinds th_kind[], p_edges bigint[], p_children bigint[], p_parents bigint[]
) RETURNS bigint[] LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_done     bigint[] := array_fill(NULL::bigint, ARRAY[cardinality(p_edges)]);
  v_left     bigint[] := p_edges;
  v_queue    bigint[] := p_joins;
  v_at       bigint := 1;
  v_children bigint[];              -- by their parents, one after another
  v_starts   bigint[];              -- where those of each parent start there
  v_child    bigint;
BEGIN
  v_children := ARRAY(SELECT e.child FROM unnest(p_children, p_parents) AS e (child, parent) ORDER BY e.parent, e.child);
  v_starts := ARRAY(
    SELECT 1 + sum(count(e.edge)) OVER (ORDER BY e.parent) - count(e.edge) FROM (
      SELECT n AS parent, NULL::bigint AS edge FROM generate_series(1::bigint, cardinality(p_edges) + 1) AS n
      UNION ALL
      SELECT parent, parent FROM unnest(p_parents) AS parent
    ) e GROUP BY e.parent ORDER BY e.parent);
  WHILE v_at <= cardinality(v_queue) LOOP
    v_done[v_queue[v_at]] := v_at;
    FOR n IN v_starts[v_queue[v_at]]..v_starts[v_queue[v_at] + 1] - 1 LOOP
      v_child := v_children[n];
      v_left[v_child] := v_left[v_child] - 1;
      IF v_left[v_child] = 0 AND th_is_join(p_kinds[v_child]) THEN
        v_queue := v_queue || v_child;
      END IF;
    END LOOP;
    v_at := v_at + 1;
  END LOOP;
  RETURN v_done;
END $$;

-- The first state of members: how many parents each has and how many of those it waits for; and for members that are
-- terminal at once, their states and reasons. FLO-6, FAI-2.
CREATE FUNCTION th_plan_members(
  p_jobs th_new_job[], p_edges th_new_edge[], OUT edges bigint[], OUT waits bigint[], OUT states th_terminal[], OUT reasons text[]
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_count    record;
  v_joins    bigint[];              -- those without parents
  v_kinds    th_kind[];
  v_children bigint[];
  v_parents  bigint[];
  v_done     bigint[];
BEGIN
  edges := array_fill(0::bigint, ARRAY[cardinality(p_jobs)]);
  FOR v_count IN SELECT e.child, sum(e.run) AS edges FROM unnest(p_edges) AS e GROUP BY e.child LOOP
    edges[v_count.child] := v_count.edges;
  END LOOP;
  waits := edges;
  v_joins := ARRAY(
    SELECT j.ordinality FROM unnest(p_jobs) WITH ORDINALITY AS j
    WHERE th_is_join(j.kind) AND th_plan_members.edges[j.ordinality] = 0 ORDER BY j.ordinality);
  IF v_joins = '{}' THEN
    RETURN;
  END IF;
  v_kinds := ARRAY(SELECT j.kind FROM unnest(p_jobs) WITH ORDINALITY AS j ORDER BY j.ordinality);
  SELECT array_agg(e.child), array_agg(e.parent + n) INTO v_children, v_parents
  FROM unnest(p_edges) AS e CROSS JOIN LATERAL generate_series(0, e.run - 1) AS n;
  v_done := th_done_at_once(v_joins, v_kinds, edges, v_children, v_parents);
  SELECT array_agg(m.waits ORDER BY m.child), array_agg(m.state ORDER BY m.child),
    array_agg(CASE WHEN m.state = 'cancelled' THEN 'not needed: job ' || (p_jobs[m.parent]).id || ' succeeded' END
              ORDER BY m.child)
  INTO waits, states, reasons
  FROM (
    SELECT e.child, count(e.parent) FILTER (WHERE v_done[e.parent] IS NULL) AS waits,
      CASE WHEN v_done[e.child] IS NOT NULL THEN 'done'
           WHEN v_kinds[e.child] = 'failure_job' AND bool_or(v_done[e.parent] IS NOT NULL) THEN 'cancelled'
           END::th_terminal AS state,
      (array_agg(e.parent ORDER BY v_done[e.parent]) FILTER (WHERE v_done[e.parent] IS NOT NULL))[1] AS parent
    FROM (
      SELECT n AS child, NULL::bigint AS parent FROM generate_series(1::bigint, cardinality(p_jobs)) AS n
      UNION ALL
      SELECT child, parent FROM unnest(v_children, v_parents) AS l (child, parent)
    ) e GROUP BY e.child
  ) m;
END $$;

-- Stores the members of a flow or of an expansion with their edges. Returns the number of the tail, whether it is done,
-- whether all members are terminal, and the queues in which there is work now.
CREATE FUNCTION th_add_members(
  p_flow bigint, p_now bigint, p_jobs th_new_job[], p_tail bigint, p_edges th_new_edge[], p_claim th_key_claim,
  p_tail_is_special boolean,
  OUT tail bigint, OUT tail_is_done boolean, OUT all_are_over boolean, OUT wakes text[]
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_seqs bigint[] := ARRAY(SELECT nextval('th_seq') FROM generate_series(1, cardinality(p_jobs)));
  v      record := th_plan_members(p_jobs, p_edges);
BEGIN
  INSERT INTO th_job (seq, created_at, priority, id, queue, type, payload, headers, run_at, timeout_us, key_time_us, flow,
                      max_attempts, parents, kind, on_failure, key_hold, idempotency_key, lane)
  SELECT v_seqs[j.ordinality], p_now, j.priority, j.id, j.queue, j.type, j.payload, j.headers, j.run_at, j.timeout_us,
    CASE WHEN j.ordinality = p_tail THEN p_claim.time_us END, p_flow, j.max_attempts, nullif(v.edges[j.ordinality], 0), j.kind,
    j.on_failure, CASE WHEN j.ordinality = p_tail THEN p_claim.hold END, CASE WHEN j.ordinality = p_tail THEN p_claim.key END,
    j.lane
  FROM unnest(p_jobs) WITH ORDINALITY AS j ORDER BY j.id COLLATE "C";

  tail := v_seqs[p_tail];
  tail_is_done := v.states[p_tail] IS NOT DISTINCT FROM 'done';
  -- A key that is held until the tail ends is not held at all if it has ended. KEY-4, KEY-7.
  IF p_claim.key IS NOT NULL AND NOT (tail_is_done AND coalesce(p_claim.hold IN ('until_done', 'until_terminal'), false)) THEN
    INSERT INTO th_key (queue, key, seq, job, held_until)
    VALUES ((p_jobs[p_tail]).queue, p_claim.key, tail, (p_jobs[p_tail]).id, th_held_until(p_now, p_claim.time_us));
  END IF;

  -- The edges of a child come in the order in which it declared its parents. Numbers that other calls have drawn meanwhile
  -- and the ends of spans part runs; those of a failure job are always parted.
  INSERT INTO th_edge (child, parent, ord, run, status, parent_id)
  SELECT v_seqs[e.child], min(e.parent), min(e.ord), nullif(count(*), 1),
    CASE WHEN NOT e.is_of_failure_job THEN 'waits_for_success'
         WHEN v.states[min(e.at)] = 'done' THEN 'not_needed' ELSE 'waits_for_failure' END::th_edge_status,
    CASE WHEN count(*) = 1 THEN (p_jobs[min(e.at)]).id END
  FROM (
    SELECT g.ordinality, g.child, g.is_of_failure_job, g.parent + n AS at, v_seqs[g.parent + n] AS parent, g.ord + n AS ord
    FROM (
      SELECT g.*, 1 - g.run + sum(g.run) OVER (PARTITION BY g.child ORDER BY g.ordinality)::bigint AS ord,
        coalesce((p_jobs[g.child]).kind = 'failure_job', false) AS is_of_failure_job
      FROM unnest(p_edges) WITH ORDINALITY AS g
    ) g CROSS JOIN LATERAL generate_series(0, g.run - 1) AS n
  ) e
  GROUP BY e.ordinality, e.child, e.parent - e.ord, e.parent >> 9, e.is_of_failure_job, CASE WHEN e.is_of_failure_job THEN e.ord END;

  INSERT INTO th_live (seq, available_at, priority, queue, waits_for, flow, run_at, is_large, is_special, lane)
  SELECT v_seqs[j.ordinality], greatest(j.run_at, p_now), j.priority, j.queue, nullif(v.waits[j.ordinality], 0), p_flow, j.run_at,
    CASE WHEN octet_length(j.payload) > 65536 THEN true END,
    CASE WHEN j.ordinality = p_tail AND (p_tail_is_special OR p_claim.hold IN ('until_done', 'until_terminal')) THEN true END,
    j.lane
  FROM unnest(p_jobs) WITH ORDINALITY AS j WHERE v.states[j.ordinality] IS NULL ORDER BY j.ordinality;

  all_are_over := v.states IS NOT NULL AND array_position(v.states, NULL) IS NULL;
  IF v.states IS NOT NULL THEN
    PERFORM th_list_members(p_flow, p_now, p_jobs, v_seqs, v.states, v.reasons);
  END IF;
  wakes := ARRAY(
    SELECT DISTINCT j.queue FROM unnest(p_jobs) WITH ORDINALITY AS j
    WHERE v.waits[j.ordinality] = 0 AND coalesce(j.kind, 'work') = 'work');
END $$;

-- Lists members that are terminal as soon as they are stored.
CREATE FUNCTION th_list_members(
  p_flow bigint, p_now bigint, p_jobs th_new_job[], p_seqs bigint[], p_states th_terminal[], p_reasons text[]
) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO th_outcome (seq, run_at, priority, reason)
  SELECT p_seqs[j.ordinality], j.run_at, j.priority, p_reasons[j.ordinality]
  FROM unnest(p_jobs) WITH ORDINALITY AS j WHERE p_reasons[j.ordinality] IS NOT NULL;
  INSERT INTO th_finished (first, kept_until, finished_at, flow, state, has_outcomes, queue, offsets)
  SELECT min(m.seq), p_now, p_now, p_flow, m.state, bool_or(m.has_outcome), m.queue, array_agg((m.seq & 511)::smallint ORDER BY m.seq)
  FROM (
    SELECT p_seqs[j.ordinality] AS seq, j.queue, p_states[j.ordinality] AS state,
      CASE WHEN p_reasons[j.ordinality] IS NOT NULL THEN true END AS has_outcome
    FROM unnest(p_jobs) WITH ORDINALITY AS j WHERE p_states[j.ordinality] IS NOT NULL
  ) m GROUP BY m.seq >> 9, m.state, m.queue;
END $$;

-- Stores a flow whole or not at all. Returns one row: `inserted`; `existing` with the id of each job, or of the one
-- that holds the key; or `overlap` with the first job that is stored already. ENQ-2, FLO-4, FLO-5. A producer is
-- held to the same checks as in th_enqueue_v1.
CREATE FUNCTION th_enqueue_flow_v1(
  p_now bigint, p_name text, p_ids text[], p_queues text[], p_types text[], p_payloads bytea[], p_priorities bigint[],
  p_run_ats bigint[], p_timeouts bigint[], p_max_attempts bigint[], p_headers text[], p_policies text[], p_lanes text[],
  p_kinds text[], p_key text, p_key_hold text, p_key_time bigint, p_tail bigint, p_children bigint[], p_parents bigint[], p_runs bigint[],
  p_wait_ms bigint, p_notify text
) RETURNS TABLE (verdict text, id text, wakes text[]) LANGUAGE plpgsql SECURITY DEFINER {settings} AS $$
#variable_conflict use_column
DECLARE
  v_jobs     th_new_job[] := th_new_jobs(p_ids, p_queues, p_types, p_payloads, p_priorities, p_run_ats, p_timeouts,
                                         p_max_attempts, p_headers, p_policies, p_lanes, p_kinds);
  v_edges    th_new_edge[] := th_new_edges(p_children, p_parents, p_runs);
  v_stored   record;
  v_held     record;
  v_flow     bigint;
  v_added    record;
  v_failures int := 0;
  v_constraint text;
BEGIN
  IF th_is_producer() THEN
    p_now := th_now();
    PERFORM th_check_new_jobs(v_jobs);
    PERFORM th_check_new_keys(ARRAY[p_key], ARRAY[p_key_hold], ARRAY[p_key_time]);
    PERFORM th_check_new_flow(p_name, cardinality(v_jobs), p_tail, v_edges);
  END IF;
  PERFORM th_limit_lock_wait(p_wait_ms);
  LOOP
    -- Ids that are stored already are the exception: the first attempt tells.
    SELECT count(*) AS jobs, (array_agg(i.id ORDER BY i.ord))[1] AS first INTO v_stored
    FROM unnest(CASE WHEN p_key IS NOT NULL OR v_failures > 0 THEN p_ids END) WITH ORDINALITY AS i (id, ord)
    CROSS JOIN LATERAL (SELECT FROM th_job x WHERE x.id = i.id OFFSET 0) j;
    IF v_stored.jobs = cardinality(p_ids) THEN
      RETURN QUERY SELECT 'existing', NULL::text, '{}'::text[];
      RETURN;
    ELSIF v_stored.jobs > 0 THEN
      RETURN QUERY SELECT 'overlap', v_stored.first, '{}'::text[];
      RETURN;
    END IF;
    SELECT k.job, k.held_until <= p_now AS is_free INTO v_held FROM th_key k
    WHERE k.queue = p_queues[p_tail] AND k.key = p_key;
    IF v_held.job IS NOT NULL AND v_held.is_free IS NOT TRUE THEN
      RETURN QUERY SELECT 'existing', v_held.job, '{}'::text[];
      RETURN;
    END IF;
    BEGIN
      IF v_held.is_free THEN
        PERFORM th_drop_expired_keys(ARRAY[p_queues[p_tail]], ARRAY[p_key], ARRAY[NULL], p_now);
      END IF;
      v_flow := nextval('th_seq');
      v_added := th_add_members(v_flow, p_now, v_jobs, p_tail, v_edges,
                                ROW(p_key, p_key_hold, p_key_time)::th_key_claim, false);
      INSERT INTO th_flow (seq, id, name, created_at, tail, state, kept_until)
      VALUES (v_flow, p_ids[p_tail], p_name, p_now, v_added.tail, CASE WHEN v_added.all_are_over THEN 'done'::th_terminal END,
              CASE WHEN v_added.all_are_over THEN p_now END);
      PERFORM th_notify(p_notify, v_added.wakes);
      RETURN QUERY SELECT 'inserted', NULL::text, v_added.wakes;
      RETURN;
    EXCEPTION WHEN unique_violation THEN
      -- Another transaction stored one of them meanwhile: look again.
      GET STACKED DIAGNOSTICS v_constraint = CONSTRAINT_NAME;
      v_failures := th_count_conflict(v_failures, v_constraint);
    END;
  END LOOP;
END $$;
