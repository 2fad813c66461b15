-- Storing jobs.

-- Stores jobs that belong to no flow. Answers only those that were not stored: which of the given ones, and the id of
-- the job that stands in its place.
--
-- Nothing is looked at before the first attempt unless there are keys: an id that is stored already is the exception,
-- and ON CONFLICT would write another record to the log for every job. Jobs come in the order of their ids, and p_places
-- tells the place of each in the call, or is empty if that is the same; keys are inserted in their order. So calls which
-- meet wait for each other and not in a circle. With p_repeats, ids or keys may occur more than once, and all have places.
CREATE FUNCTION th_enqueue_v1(
  p_now bigint, p_repeats boolean, p_places bigint[], p_ids text[], p_queues text[], p_types text[], p_payloads bytea[],
  p_priorities bigint[], p_run_ats bigint[], p_timeouts bigint[], p_max_attempts bigint[], p_headers text[],
  p_policies text[], p_keys text[], p_key_holds text[], p_notify text
) RETURNS TABLE (ord bigint, existing text)
LANGUAGE plpgsql SET search_path = {schema}, pg_temp SET plan_cache_mode = force_generic_plan SET jit = off
SET enable_seqscan = off SET enable_bitmapscan = off AS $$
#variable_conflict use_column
DECLARE
  v_keyed    boolean := cardinality(p_keys) > 0;
  v_look     boolean := v_keyed OR p_repeats;
  v_existing text[];                -- the id of the job that stands in the place of each; NULL for all to be stored
  v_seqs     bigint[];              -- by place
  v_failures int := 0;
BEGIN
  IF cardinality(p_places) > 0 THEN
    v_seqs := ARRAY(SELECT nextval('th_seq') FROM generate_series(1, cardinality(p_places)));
  END IF;
  LOOP
    IF v_look THEN
      v_existing := ARRAY(
        SELECT coalesce(
          (SELECT j.id FROM th_job j WHERE j.id = i.id),
          (SELECT j.id FROM th_job j WHERE j.seq = (SELECT k.seq FROM th_key k WHERE k.queue = i.queue AND k.key = i.key)))
        FROM unnest(p_ids, p_queues, p_keys) WITH ORDINALITY AS i (id, queue, key, ord) ORDER BY i.ord);
      IF p_repeats THEN
        -- Which came first is a matter of places.
        SELECT th_repeated(array_agg(g.existing ORDER BY g.place), array_agg(g.id ORDER BY g.place),
                           array_agg(g.queue ORDER BY g.place), array_agg(g.key ORDER BY g.place))
        INTO v_existing FROM unnest(v_existing, p_ids, p_queues, p_keys, p_places) AS g (existing, id, queue, key, place);
        v_existing := ARRAY(SELECT v_existing[g.place] FROM unnest(p_places) WITH ORDINALITY AS g (place, ord) ORDER BY g.ord);
      END IF;
    END IF;
    BEGIN
      WITH given AS (
        SELECT CASE WHEN v_seqs IS NULL THEN nextval('th_seq') ELSE v_seqs[p_places[i.ord]] END AS seq, i.*
        FROM unnest(p_ids, p_queues, p_types, p_payloads, p_priorities, p_run_ats, p_timeouts, p_max_attempts, p_headers,
                    p_policies, p_keys, p_key_holds) WITH ORDINALITY
          AS i (id, queue, type, payload, priority, run_at, timeout_us, max_attempts, headers, policy, key, key_hold, ord)
        WHERE v_existing[i.ord] IS NULL
      ), stored AS (
        INSERT INTO th_job (seq, created_at, priority, kind, key_hold, on_failure, id, queue, type, payload, timeout_us,
                            max_attempts, run_at, headers, idempotency_key)
        SELECT seq, p_now, coalesce(priority, 0), 'w', coalesce(key_hold, 'p')::"char", coalesce(policy, 'h')::"char", id,
               queue, type, payload, timeout_us, max_attempts, run_at, headers::jsonb, key
        FROM given
      ), keyed AS (
        INSERT INTO th_key (queue, key, seq)
        SELECT queue, key, seq FROM given WHERE v_keyed AND key IS NOT NULL ORDER BY queue, key
      )
      INSERT INTO th_hot (seq, line_at, priority, queue, run_at, large)
      SELECT seq, greatest(run_at, p_now), coalesce(priority, 0), queue, run_at,
             CASE WHEN octet_length(payload) > 65536 THEN true END
      FROM given;
      EXIT;
    EXCEPTION WHEN unique_violation THEN
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

-- What stands in the place of each job when some of them have an id or a key in common, given what does by what is
-- stored: as if they were stored one after another. An id is looked at before a key, and one that was not stored
-- because of its key leaves its id to the next.
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

-- Tells listeners that there may be work; NULL for not at all. In one transaction, once for each queue.
CREATE FUNCTION th_notify(p_channel text, p_queues text[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF p_channel IS NOT NULL THEN
    PERFORM pg_notify(p_channel, queue) FROM (SELECT DISTINCT queue FROM unnest(p_queues) AS queue) q;
  END IF;
END $$;

-- Which members are done as soon as they are stored: joins without parents, and those all of whose parents are such
-- joins. By position; NULL if there is none.
CREATE FUNCTION th_done_at_once(p_kinds text[], p_links bigint[], p_children bigint[], p_parents bigint[])
RETURNS boolean[] LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_done     boolean[] := array_fill(false, ARRAY[cardinality(p_links)]);
  v_left     bigint[] := p_links;
  v_queue    bigint[];
  v_at       bigint := 1;
  v_children bigint[];              -- by their parents, one after another
  v_starts   bigint[];              -- where those of each parent start there
  v_child    bigint;
BEGIN
  v_queue := ARRAY(SELECT l.ord FROM unnest(p_links, p_kinds) WITH ORDINALITY AS l (links, kind, ord)
                   WHERE l.links = 0 AND l.kind = 'j' ORDER BY l.ord);
  IF cardinality(v_queue) = 0 THEN
    RETURN NULL;
  END IF;
  v_children := ARRAY(SELECT e.child FROM unnest(p_children, p_parents) AS e (child, parent) ORDER BY e.parent);
  v_starts := ARRAY(
    SELECT 1 + sum(count(e.link)) OVER (ORDER BY e.parent) - count(e.link) FROM (
      SELECT n AS parent, NULL::bigint AS link FROM generate_series(1::bigint, cardinality(p_links) + 1) AS n
      UNION ALL
      SELECT parent, parent FROM unnest(p_parents) AS parent
    ) e GROUP BY e.parent ORDER BY e.parent);
  WHILE v_at <= cardinality(v_queue) LOOP
    v_done[v_queue[v_at]] := true;
    FOR n IN v_starts[v_queue[v_at]]..v_starts[v_queue[v_at] + 1] - 1 LOOP
      v_child := v_children[n];
      v_left[v_child] := v_left[v_child] - 1;
      IF v_left[v_child] = 0 AND p_kinds[v_child] = 'j' THEN
        v_queue := v_queue || v_child;
      END IF;
    END LOOP;
    v_at := v_at + 1;
  END LOOP;
  RETURN v_done;
END $$;

-- Stores the members of a flow or of a growth and ties them. They are a part of the list of jobs that is given, which
-- may hold other growths as well, and so are their edges: positions among the members. Members that are done at once
-- are stored as such, so that whoever may only add rows can store every flow. Answers the number of the tail, whether
-- it and whether all are done, and the queues in which there is work now.
CREATE FUNCTION th_add_members(
  p_flow bigint, p_now bigint, p_first bigint, p_last bigint, p_ids text[], p_queues text[], p_types text[],
  p_payloads bytea[], p_priorities bigint[], p_run_ats bigint[], p_timeouts bigint[], p_max_attempts bigint[],
  p_headers text[], p_policies text[], p_kinds text[], p_key text, p_key_hold text, p_tail bigint, p_tail_policy text,
  p_first_edge bigint, p_last_edge bigint, p_children bigint[], p_parents bigint[],
  OUT tail bigint, OUT tail_is_done boolean, OUT all_are_done boolean, OUT wakes text[]
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_seqs     bigint[] := ARRAY(SELECT nextval('th_seq') FROM generate_series(p_first, p_last));
  v_kinds    text[] := ARRAY(SELECT coalesce(p_kinds[n], 'w') FROM generate_series(p_first, p_last) AS n ORDER BY n);
  v_children bigint[] := ARRAY(SELECT p_children[n] FROM generate_series(p_first_edge, p_last_edge) AS n ORDER BY n);
  v_parents  bigint[] := ARRAY(SELECT p_parents[n] FROM generate_series(p_first_edge, p_last_edge) AS n ORDER BY n);
  v_links    bigint[];              -- how many parents each has, and how many of those it waits for
  v_waits    bigint[];
  v_done     boolean[];
BEGIN
  v_links := ARRAY(
    SELECT count(e.link) FROM (
      SELECT n AS child, NULL::bigint AS link FROM generate_series(1, cardinality(v_seqs)) AS n
      UNION ALL
      SELECT child, child FROM unnest(v_children) AS child
    ) e GROUP BY e.child ORDER BY e.child);
  v_done := th_done_at_once(v_kinds, v_links, v_children, v_parents);
  v_waits := v_links;
  IF v_done IS NOT NULL THEN
    v_waits := ARRAY(
      SELECT count(e.link) FROM (
        SELECT n AS child, NULL::bigint AS link FROM generate_series(1, cardinality(v_seqs)) AS n
        UNION ALL
        SELECT child, child FROM unnest(v_children, v_parents) AS l (child, parent) WHERE NOT v_done[l.parent]
      ) e GROUP BY e.child ORDER BY e.child);
  END IF;

  INSERT INTO th_job (seq, created_at, priority, kind, key_hold, on_failure, id, queue, type, payload, timeout_us,
                      max_attempts, run_at, headers, idempotency_key, parents, flow, state, finished_at, kept_until)
  SELECT v_seqs[i.ord], p_now, coalesce(p_priorities[i.at], 0), v_kinds[i.ord]::"char",
         CASE WHEN i.ord = p_tail THEN coalesce(p_key_hold, 'p') ELSE 'p' END::"char",
         CASE WHEN i.ord = p_tail THEN coalesce(p_tail_policy, p_policies[i.at], 'h')
              ELSE coalesce(p_policies[i.at], 'h') END::"char",
         p_ids[i.at], p_queues[i.at], p_types[i.at], p_payloads[i.at], p_timeouts[i.at], p_max_attempts[i.at],
         p_run_ats[i.at], p_headers[i.at]::jsonb, CASE WHEN i.ord = p_tail THEN p_key END, nullif(v_links[i.ord], 0),
         p_flow, CASE WHEN v_done[i.ord] THEN 'd'::"char" END, CASE WHEN v_done[i.ord] THEN p_now END,
         CASE WHEN v_done[i.ord] THEN p_now END
  FROM generate_series(p_first, p_last) WITH ORDINALITY AS i (at, ord)
  ORDER BY p_ids[i.at];

  tail := v_seqs[p_tail];
  tail_is_done := coalesce(v_done[p_tail], false);
  -- A key that is held until the tail is done is not held at all if it is.
  IF p_key IS NOT NULL AND NOT (tail_is_done AND coalesce(p_key_hold, 'p') = 'd') THEN
    INSERT INTO th_key (queue, key, seq) VALUES (p_queues[p_first + p_tail - 1], p_key, tail);
  END IF;

  -- The edges of a child come in the order in which it declared its parents.
  INSERT INTO th_edge (child, ord, parent, parent_id, tie)
  SELECT v_seqs[e.child], row_number() OVER (PARTITION BY e.child ORDER BY e.ord), v_seqs[e.parent],
         p_ids[p_first + e.parent - 1], CASE WHEN v_done[e.parent] THEN 'c' ELSE 'o' END::"char"
  FROM unnest(v_children, v_parents) WITH ORDINALITY AS e (child, parent, ord);

  INSERT INTO th_hot (seq, line_at, priority, queue, pending, flow, run_at, large)
  SELECT v_seqs[i.ord], greatest(p_run_ats[i.at], p_now), coalesce(p_priorities[i.at], 0), p_queues[i.at],
         nullif(v_waits[i.ord], 0), p_flow, p_run_ats[i.at], CASE WHEN octet_length(p_payloads[i.at]) > 65536 THEN true END
  FROM generate_series(p_first, p_last) WITH ORDINALITY AS i (at, ord) WHERE v_done[i.ord] IS NOT TRUE ORDER BY i.ord;

  all_are_done := v_done IS NOT NULL AND true = ALL (v_done);
  IF v_done IS NOT NULL THEN
    INSERT INTO th_end (queue, state, kept_until, flow, seqs)
    SELECT p_queues[i.at], 'd', p_now, p_flow, array_agg(v_seqs[i.ord] ORDER BY i.ord)
    FROM generate_series(p_first, p_last) WITH ORDINALITY AS i (at, ord) WHERE v_done[i.ord] GROUP BY 1;
  END IF;
  wakes := ARRAY(
    SELECT DISTINCT p_queues[i.at] FROM generate_series(p_first, p_last) WITH ORDINALITY AS i (at, ord)
    WHERE v_waits[i.ord] = 0 AND v_kinds[i.ord] = 'w');
END $$;

-- Stores a flow whole or not at all. Answers one row: `inserted`; `existing` with the id of each job, or of the one
-- that holds the key; or `overlap` with the first job that is stored already.
CREATE FUNCTION th_enqueue_flow_v1(
  p_now bigint, p_name text, p_ids text[], p_queues text[], p_types text[], p_payloads bytea[], p_priorities bigint[],
  p_run_ats bigint[], p_timeouts bigint[], p_max_attempts bigint[], p_headers text[], p_policies text[], p_kinds text[],
  p_key text, p_key_hold text, p_tail bigint, p_children bigint[], p_parents bigint[], p_notify text
) RETURNS TABLE (verdict text, id text, wakes text[])
LANGUAGE plpgsql SET search_path = {schema}, pg_temp SET plan_cache_mode = force_generic_plan SET jit = off
SET enable_seqscan = off SET enable_bitmapscan = off AS $$
#variable_conflict use_column
DECLARE
  v_stored bigint;
  v_first  text;
  v_flow   bigint;
  v_added  record;
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
      SELECT j.id INTO v_first FROM th_key k JOIN th_job j ON j.seq = ANY (ARRAY[k.seq])
      WHERE k.queue = p_queues[p_tail] AND k.key = p_key;
      IF FOUND THEN
        RETURN QUERY SELECT 'existing', v_first, '{}'::text[];
        RETURN;
      END IF;
    END IF;
    BEGIN
      v_flow := nextval('th_seq');
      v_added := th_add_members(
        v_flow, p_now, 1, cardinality(p_ids), p_ids, p_queues, p_types, p_payloads, p_priorities, p_run_ats, p_timeouts,
        p_max_attempts, p_headers, p_policies, p_kinds, p_key, p_key_hold, p_tail, NULL, 1, cardinality(p_children),
        p_children, p_parents);
      INSERT INTO th_flow (seq, id, name, created_at, tail, state, kept_until)
      VALUES (v_flow, p_ids[p_tail], p_name, p_now, v_added.tail, CASE WHEN v_added.all_are_done THEN 'd'::"char" END,
              CASE WHEN v_added.all_are_done THEN p_now END);
      PERFORM th_notify(p_notify, v_added.wakes);
      RETURN QUERY SELECT 'inserted', NULL::text, v_added.wakes;
      RETURN;
    EXCEPTION WHEN unique_violation THEN
      NULL; -- Somebody stored one of them meanwhile: look again.
    END;
  END LOOP;
  RAISE serialization_failure USING MESSAGE = 'other transactions keep storing the same jobs: try again',
    HINT = 'at REPEATABLE READ and above, what others have stored since the transaction began cannot be seen';
END $$;
