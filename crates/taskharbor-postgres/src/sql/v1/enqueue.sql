-- Storing jobs.

-- Stores jobs that belong to no flow. Answers only those that were not stored: which of the given ones, and the id of
-- the job that stands in its place. ENQ-3, ENQ-4, KEY-1.
--
-- Nothing is looked at before the first attempt unless there are keys: an id that is stored already is the exception,
-- and ON CONFLICT would write another record to the log for every job. Jobs come in the order of their ids, and p_places
-- tells the place of each in the call (ORD-4), or is empty if that is the same; keys are inserted in their order. So
-- concurrent calls cannot deadlock. With p_repeats, ids or keys may occur more than once, and all have places.
CREATE FUNCTION th_enqueue_v1(
  p_now bigint, p_repeats boolean, p_places bigint[], p_ids text[], p_queues text[], p_types text[], p_payloads bytea[],
  p_priorities bigint[], p_run_ats bigint[], p_timeouts bigint[], p_max_attempts bigint[], p_headers text[],
  p_policies text[], p_keys text[], p_key_holds text[], p_key_times bigint[], p_notify text
) RETURNS TABLE (ord bigint, existing text)
LANGUAGE plpgsql SET search_path = {schema}, pg_temp SET plan_cache_mode = force_generic_plan SET jit = off
SET enable_seqscan = off SET enable_bitmapscan = off AS $$
#variable_conflict use_column
DECLARE
  v_keyed    boolean := cardinality(p_keys) > 0;
  v_look     boolean := v_keyed OR p_repeats;
  v_expired  boolean := false;      -- whether one of the keys was held for a time that is over
  v_existing text[];                -- the id of the job that stands in the place of each; NULL for all to be stored
  v_seqs     bigint[];              -- by place
  v_failures int := 0;
BEGIN
  IF cardinality(p_places) > 0 THEN
    v_seqs := ARRAY(SELECT nextval('th_seq') FROM generate_series(1, cardinality(p_places)));
  END IF;
  LOOP
    IF v_look THEN
      SELECT e.existing, e.has_expired INTO v_existing, v_expired
      FROM th_find_existing(p_now, p_repeats, p_places, p_ids, p_queues, p_keys) e;
    END IF;
    BEGIN
      IF v_expired THEN
        PERFORM th_drop_expired_keys(p_queues, p_keys, v_existing, p_now);
      END IF;
      WITH given AS (
        SELECT CASE WHEN v_seqs IS NULL THEN nextval('th_seq') ELSE v_seqs[p_places[i.ord]] END AS seq, i.*
        FROM unnest(p_ids, p_queues, p_types, p_payloads, p_priorities, p_run_ats, p_timeouts, p_max_attempts, p_headers,
                    p_policies, p_keys, p_key_holds, p_key_times) WITH ORDINALITY
          AS i (id, queue, type, payload, priority, run_at, timeout_us, max_attempts, headers, policy, key, key_hold,
                key_time, ord)
        WHERE v_existing[i.ord] IS NULL
      ), stored AS (
        INSERT INTO th_job (seq, created_at, priority, kind, key_hold, on_failure, id, queue, type, payload, timeout_us,
                            max_attempts, run_at, headers, idempotency_key, key_time_us)
        SELECT seq, p_now, coalesce(priority, 0), 'w', coalesce(key_hold, 'p')::"char", coalesce(policy, 'b')::"char", id,
               queue, type, payload, timeout_us, max_attempts, run_at, headers::jsonb, key, key_time
        FROM given
      ), keyed AS (
        INSERT INTO th_key (queue, key, seq, job, held_until)
        SELECT queue, key, seq, id, th_held_until(p_now, key_time) FROM given WHERE v_keyed AND key IS NOT NULL
        ORDER BY queue, key
      )
      INSERT INTO th_hot (seq, line_at, priority, queue, run_at, large)
      SELECT seq, greatest(run_at, p_now), coalesce(priority, 0), queue, run_at,
             CASE WHEN octet_length(payload) > 65536 THEN true END
      FROM given;
      EXIT;
    EXCEPTION WHEN unique_violation THEN
      -- Another transaction stored one of them or took a key meanwhile: look again. ENQ-7, KEY-6.
      v_failures := v_failures + 1;
      IF v_failures > 50 THEN
        RAISE serialization_failure USING MESSAGE = 'other transactions keep storing the same jobs: try again',
          HINT = 'at REPEATABLE READ and above, what others have stored since the transaction began cannot be seen';
      END IF;
    END;
    v_look := true;
  END LOOP;
  PERFORM th_notify(p_notify, p_queues);
  RETURN QUERY SELECT e.ord, e.id FROM unnest(v_existing) WITH ORDINALITY AS e (id, ord) WHERE e.id IS NOT NULL;
END $$;

-- The job that stands in the place of each given one: it has the same id, or holds the key. An id is looked at before a
-- key. And whether a key was found that was held for a time which is over. KEY-1, KEY-9, KEY-10.
CREATE FUNCTION th_find_existing(
  p_now bigint, p_repeats boolean, p_places bigint[], p_ids text[], p_queues text[], p_keys text[],
  OUT existing text[], OUT has_expired boolean
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
  SELECT array_agg(coalesce(j.id, CASE WHEN k.held_until <= p_now THEN NULL ELSE k.job END) ORDER BY i.ord),
    coalesce(bool_or(k.held_until <= p_now), false)
  INTO existing, has_expired
  FROM unnest(p_ids, p_queues, p_keys) WITH ORDINALITY AS i (id, queue, key, ord)
  LEFT JOIN LATERAL (SELECT x.id FROM th_job x WHERE x.id = i.id OFFSET 0) j ON true
  LEFT JOIN LATERAL (
    SELECT x.job, x.held_until FROM th_key x WHERE x.queue = i.queue AND x.key = i.key OFFSET 0) k ON true;
  IF p_repeats THEN
    -- Which came first is a matter of places.
    SELECT th_repeated(array_agg(g.existing ORDER BY g.place), array_agg(g.id ORDER BY g.place),
                       array_agg(g.queue ORDER BY g.place), array_agg(g.key ORDER BY g.place))
    INTO existing
    FROM unnest(th_find_existing.existing, p_ids, p_queues, p_keys, p_places) AS g (existing, id, queue, key, place);
    existing := ARRAY(
      SELECT th_find_existing.existing[g.place] FROM unnest(p_places) WITH ORDINALITY AS g (place, ord) ORDER BY g.ord);
  END IF;
END $$;

-- When a key that is taken now and held for this long is free. No time is later than the end of the year 9999.
CREATE FUNCTION th_held_until(p_now bigint, p_time bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
  SELECT CASE WHEN p_time IS NOT NULL THEN least(p_now + p_time, 253402300799999999) END
$$;

-- Removes keys that jobs which are stored now take, and whose time is over. KEY-10. The only function that runs with the
-- rights of the owner: a producer adds rows and deletes none, and this is all that it can do to a key.
CREATE FUNCTION th_drop_expired_keys(p_queues text[], p_keys text[], p_existing text[], p_now bigint) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = {schema}, pg_temp SET enable_seqscan = off AS $$
  DELETE FROM th_key WHERE ctid = ANY (ARRAY(
    SELECT k.row FROM unnest(p_queues, p_keys, p_existing) AS i (queue, key, existing)
    CROSS JOIN LATERAL (
      SELECT x.ctid AS row FROM th_key x WHERE x.queue = i.queue AND x.key = i.key AND x.held_until <= p_now OFFSET 0) k
    WHERE i.existing IS NULL ORDER BY i.queue, i.key))
$$;

-- What stands in the place of each job when some of them have an id or a key in common, given what does by what is
-- stored: as if they were stored one after another. An id is looked at before a key, and one that was not stored
-- because of its key leaves its id to the next. ENQ-5.
CREATE FUNCTION th_repeated(p_existing text[], p_ids text[], p_queues text[], p_keys text[])
RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE
  v_existing text[] := p_existing;
  v_ids      bigint[];              -- numbers that are the same where the ids are
  v_keys     bigint[];
  v_stored   boolean[];             -- by the number of the id
  v_holders  text[];                -- by the number of the key
  v_id       bigint;
  v_key      bigint;
BEGIN
  SELECT array_agg(n.id ORDER BY n.ord), array_agg(n.key ORDER BY n.ord) INTO v_ids, v_keys FROM (
    SELECT i.ord, dense_rank() OVER (ORDER BY i.id) AS id,
      CASE WHEN i.key IS NOT NULL THEN dense_rank() OVER (ORDER BY i.queue, i.key) END AS key
    FROM unnest(p_ids, p_queues, p_keys) WITH ORDINALITY AS i (id, queue, key, ord)
  ) n;
  v_stored := array_fill(false, ARRAY[cardinality(p_ids)]);
  v_holders := array_fill(NULL::text, ARRAY[cardinality(p_ids)]);
  FOR at IN 1..cardinality(p_ids) LOOP
    v_id := v_ids[at];
    v_key := v_keys[at];
    IF v_stored[v_id] THEN
      v_existing[at] := p_ids[at];
    ELSIF v_existing[at] IS NULL THEN
      IF v_holders[v_key] IS NOT NULL THEN
        v_existing[at] := v_holders[v_key];
      ELSE
        v_stored[v_id] := true;
        IF v_key IS NOT NULL THEN
          v_holders[v_key] := p_ids[at];
        END IF;
      END IF;
    END IF;
  END LOOP;
  RETURN v_existing;
END $$;

-- Tells listeners that there may be work (WAK-1); NULL for not at all. In one transaction, once for each queue.
CREATE FUNCTION th_notify(p_channel text, p_queues text[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF p_channel IS NOT NULL THEN
    PERFORM pg_notify(p_channel, queue) FROM (SELECT DISTINCT queue FROM unnest(p_queues) AS queue) q;
  END IF;
END $$;

-- Which members are done as soon as they are stored: joins without parents, and those all of whose parents are such
-- joins. For each member, by position, the how many-th it is to be done; NULL if no member is.
CREATE FUNCTION th_done_at_once(p_kinds text[], p_edges bigint[], p_children bigint[], p_parents bigint[])
RETURNS bigint[] LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_done     bigint[] := array_fill(NULL::bigint, ARRAY[cardinality(p_edges)]);
  v_left     bigint[] := p_edges;
  v_queue    bigint[];
  v_at       bigint := 1;
  v_children bigint[];              -- by their parents, one after another
  v_starts   bigint[];              -- where those of each parent start there
  v_child    bigint;
BEGIN
  v_queue := ARRAY(SELECT l.ord FROM unnest(p_edges, p_kinds) WITH ORDINALITY AS l (edges, kind, ord)
                   WHERE l.edges = 0 AND l.kind NOT IN ('w', 'x') ORDER BY l.ord);
  IF cardinality(v_queue) = 0 THEN
    RETURN NULL;
  END IF;
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
      IF v_left[v_child] = 0 AND p_kinds[v_child] NOT IN ('w', 'x') THEN
        v_queue := v_queue || v_child;
      END IF;
    END LOOP;
    v_at := v_at + 1;
  END LOOP;
  RETURN v_done;
END $$;

-- How members begin, given their kinds and edges as positions among them: how many parents each has and how many of
-- those it waits for; and for those that are over at once their states and the reasons. FLO-6, FAI-2.
CREATE FUNCTION th_plan_members(
  p_kinds text[], p_children bigint[], p_parents bigint[], p_ids text[],
  OUT edges bigint[], OUT waits bigint[], OUT states "char"[], OUT reasons text[]
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_done bigint[];
BEGIN
  edges := ARRAY(
    SELECT count(e.edge) FROM (
      SELECT n AS child, NULL::bigint AS edge FROM generate_series(1, cardinality(p_kinds)) AS n
      UNION ALL
      SELECT child, child FROM unnest(p_children) AS child
    ) e GROUP BY e.child ORDER BY e.child);
  v_done := th_done_at_once(p_kinds, edges, p_children, p_parents);
  waits := edges;
  IF v_done IS NULL THEN
    RETURN;
  END IF;
  SELECT array_agg(m.waits ORDER BY m.child), array_agg(m.state ORDER BY m.child),
    array_agg(CASE WHEN m.state = 'c' THEN 'not needed: job ' || p_ids[m.parent] || ' succeeded' END ORDER BY m.child)
  INTO waits, states, reasons
  FROM (
    SELECT e.child, count(e.parent) FILTER (WHERE v_done[e.parent] IS NULL) AS waits,
      CASE WHEN v_done[e.child] IS NOT NULL THEN 'd'
           WHEN p_kinds[e.child] = 'x' AND bool_or(v_done[e.parent] IS NOT NULL) THEN 'c' END::"char" AS state,
      (array_agg(e.parent ORDER BY v_done[e.parent]) FILTER (WHERE v_done[e.parent] IS NOT NULL))[1] AS parent
    FROM (
      SELECT n AS child, NULL::bigint AS parent FROM generate_series(1::bigint, cardinality(p_kinds)) AS n
      UNION ALL
      SELECT child, parent FROM unnest(p_children, p_parents) AS l (child, parent)
    ) e GROUP BY e.child
  ) m;
END $$;

-- Stores the members of a flow or of an expansion with their edges. They are a part of the list of jobs that is given,
-- which may hold other expansions as well, and so are their edges: positions among the members. Members that are over at
-- once are stored as such, so that a role that may only add rows can store every flow. Answers the number of the tail,
-- whether it is done and whether all are over, and the queues in which there is work now.
CREATE FUNCTION th_add_members(
  p_flow bigint, p_now bigint, p_first bigint, p_last bigint, p_ids text[], p_queues text[], p_types text[],
  p_payloads bytea[], p_priorities bigint[], p_run_ats bigint[], p_timeouts bigint[], p_max_attempts bigint[],
  p_headers text[], p_policies text[], p_kinds text[], p_key text, p_key_hold text, p_key_time bigint, p_tail bigint,
  p_tail_policy text, p_first_edge bigint, p_last_edge bigint, p_children bigint[], p_parents bigint[],
  OUT tail bigint, OUT tail_is_done boolean, OUT all_are_over boolean, OUT wakes text[]
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_seqs     bigint[] := ARRAY(SELECT nextval('th_seq') FROM generate_series(p_first, p_last));
  v_kinds    text[] := ARRAY(SELECT coalesce(p_kinds[n], 'w') FROM generate_series(p_first, p_last) AS n ORDER BY n);
  v_children bigint[] := ARRAY(SELECT p_children[n] FROM generate_series(p_first_edge, p_last_edge) AS n ORDER BY n);
  v_parents  bigint[] := ARRAY(SELECT p_parents[n] FROM generate_series(p_first_edge, p_last_edge) AS n ORDER BY n);
  v_edges    bigint[];
  v_waits    bigint[];
  v_states   "char"[];              -- NULL if no member is over
  v_reasons  text[];
BEGIN
  SELECT m.edges, m.waits, m.states, m.reasons INTO v_edges, v_waits, v_states, v_reasons
  FROM th_plan_members(v_kinds, v_children, v_parents, p_ids[p_first:p_last]) m;
  INSERT INTO th_job (seq, created_at, priority, kind, key_hold, on_failure, id, queue, type, payload, timeout_us,
                      max_attempts, run_at, headers, idempotency_key, key_time_us, parents, flow, state, finished_at,
                      kept_until, reason)
  SELECT v_seqs[i.ord], p_now, coalesce(p_priorities[i.at], 0), v_kinds[i.ord]::"char",
         CASE WHEN i.ord = p_tail THEN coalesce(p_key_hold, 'p') ELSE 'p' END::"char",
         CASE WHEN i.ord = p_tail THEN coalesce(p_tail_policy, p_policies[i.at], 'b')
              ELSE coalesce(p_policies[i.at], 'b') END::"char",
         p_ids[i.at], p_queues[i.at], p_types[i.at], p_payloads[i.at], p_timeouts[i.at], p_max_attempts[i.at],
         p_run_ats[i.at], p_headers[i.at]::jsonb, CASE WHEN i.ord = p_tail THEN p_key END,
         CASE WHEN i.ord = p_tail THEN p_key_time END, nullif(v_edges[i.ord], 0), p_flow, v_states[i.ord],
         CASE WHEN v_states[i.ord] IS NOT NULL THEN p_now END, CASE WHEN v_states[i.ord] IS NOT NULL THEN p_now END,
         v_reasons[i.ord]
  FROM generate_series(p_first, p_last) WITH ORDINALITY AS i (at, ord)
  ORDER BY p_ids[i.at];

  tail := v_seqs[p_tail];
  tail_is_done := v_states[p_tail] IS NOT DISTINCT FROM 'd';
  -- A key that is held until the tail ends is not held at all if it has ended. KEY-4, KEY-7.
  IF p_key IS NOT NULL AND NOT (tail_is_done AND coalesce(p_key_hold, 'p') IN ('d', 't')) THEN
    INSERT INTO th_key (queue, key, seq, job, held_until)
    VALUES (p_queues[p_first + p_tail - 1], p_key, tail, p_ids[p_first + p_tail - 1], th_held_until(p_now, p_key_time));
  END IF;

  -- The edges of a child come in the order in which it declared its parents.
  INSERT INTO th_edge (child, ord, parent, parent_id, tie)
  SELECT v_seqs[e.child], row_number() OVER (PARTITION BY e.child ORDER BY e.ord), v_seqs[e.parent],
         p_ids[p_first + e.parent - 1],
         CASE WHEN v_states[e.parent] IS DISTINCT FROM 'd' THEN CASE v_kinds[e.child] WHEN 'x' THEN 'f' ELSE 'o' END
              ELSE CASE v_kinds[e.child] WHEN 'x' THEN 'n' ELSE 'c' END END::"char"
  FROM unnest(v_children, v_parents) WITH ORDINALITY AS e (child, parent, ord);

  INSERT INTO th_hot (seq, line_at, priority, queue, pending, flow, run_at, large)
  SELECT v_seqs[i.ord], greatest(p_run_ats[i.at], p_now), coalesce(p_priorities[i.at], 0), p_queues[i.at],
         nullif(v_waits[i.ord], 0), p_flow, p_run_ats[i.at], CASE WHEN octet_length(p_payloads[i.at]) > 65536 THEN true END
  FROM generate_series(p_first, p_last) WITH ORDINALITY AS i (at, ord) WHERE v_states[i.ord] IS NULL ORDER BY i.ord;

  all_are_over := v_states IS NOT NULL AND array_position(v_states, NULL) IS NULL;
  IF v_states IS NOT NULL THEN
    INSERT INTO th_end (queue, state, kept_until, flow, seqs)
    SELECT p_queues[i.at], v_states[i.ord], p_now, p_flow, array_agg(v_seqs[i.ord] ORDER BY i.ord)
    FROM generate_series(p_first, p_last) WITH ORDINALITY AS i (at, ord) WHERE v_states[i.ord] IS NOT NULL GROUP BY 1, 2;
  END IF;
  wakes := ARRAY(
    SELECT DISTINCT p_queues[i.at] FROM generate_series(p_first, p_last) WITH ORDINALITY AS i (at, ord)
    WHERE v_waits[i.ord] = 0 AND v_kinds[i.ord] = 'w');
END $$;

-- Stores a flow whole or not at all. Answers one row: `inserted`; `existing` with the id of each job, or of the one
-- that holds the key; or `overlap` with the first job that is stored already. ENQ-2, FLO-4, FLO-5.
CREATE FUNCTION th_enqueue_flow_v1(
  p_now bigint, p_name text, p_ids text[], p_queues text[], p_types text[], p_payloads bytea[], p_priorities bigint[],
  p_run_ats bigint[], p_timeouts bigint[], p_max_attempts bigint[], p_headers text[], p_policies text[], p_kinds text[],
  p_key text, p_key_hold text, p_key_time bigint, p_tail bigint, p_children bigint[], p_parents bigint[], p_notify text
) RETURNS TABLE (verdict text, id text, wakes text[])
LANGUAGE plpgsql SET search_path = {schema}, pg_temp SET plan_cache_mode = force_generic_plan SET jit = off
SET enable_seqscan = off SET enable_bitmapscan = off AS $$
#variable_conflict use_column
DECLARE
  v_stored  bigint;
  v_first   text;
  v_flow    bigint;
  v_expired boolean;
  v_added   record;
BEGIN
  FOR attempt IN 1..50 LOOP
    SELECT count(*), (array_agg(i.id ORDER BY i.ord))[1] INTO v_stored, v_first
    FROM unnest(p_ids) WITH ORDINALITY AS i (id, ord)
    CROSS JOIN LATERAL (SELECT FROM th_job x WHERE x.id = i.id OFFSET 0) j;
    IF v_stored = cardinality(p_ids) THEN
      RETURN QUERY SELECT 'existing', NULL::text, '{}'::text[];
      RETURN;
    ELSIF v_stored > 0 THEN
      RETURN QUERY SELECT 'overlap', v_first, '{}'::text[];
      RETURN;
    END IF;
    IF p_key IS NOT NULL THEN
      SELECT k.job, k.held_until <= p_now INTO v_first, v_expired FROM th_key k
      WHERE k.queue = p_queues[p_tail] AND k.key = p_key;
      IF FOUND AND v_expired IS NOT TRUE THEN
        RETURN QUERY SELECT 'existing', v_first, '{}'::text[];
        RETURN;
      END IF;
    END IF;
    BEGIN
      IF v_expired THEN
        PERFORM th_drop_expired_keys(ARRAY[p_queues[p_tail]], ARRAY[p_key], ARRAY[NULL], p_now);
      END IF;
      v_flow := nextval('th_seq');
      v_added := th_add_members(
        v_flow, p_now, 1, cardinality(p_ids), p_ids, p_queues, p_types, p_payloads, p_priorities, p_run_ats, p_timeouts,
        p_max_attempts, p_headers, p_policies, p_kinds, p_key, p_key_hold, p_key_time, p_tail, NULL, 1,
        cardinality(p_children), p_children, p_parents);
      INSERT INTO th_flow (seq, id, name, created_at, tail, state, kept_until)
      VALUES (v_flow, p_ids[p_tail], p_name, p_now, v_added.tail, CASE WHEN v_added.all_are_over THEN 'd'::"char" END,
              CASE WHEN v_added.all_are_over THEN p_now END);
      PERFORM th_notify(p_notify, v_added.wakes);
      RETURN QUERY SELECT 'inserted', NULL::text, v_added.wakes;
      RETURN;
    EXCEPTION WHEN unique_violation THEN
      NULL; -- Another transaction stored one of them meanwhile: look again.
    END;
  END LOOP;
  RAISE serialization_failure USING MESSAGE = 'other transactions keep storing the same jobs: try again',
    HINT = 'at REPEATABLE READ and above, what others have stored since the transaction began cannot be seen';
END $$;
