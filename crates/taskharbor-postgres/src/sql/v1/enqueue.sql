-- Storing jobs.

-- Stores jobs that belong to no flow. Answers only those that were not stored: which of the given ones, and the id of
-- the job that stands in its place.
--
-- Nothing is looked at before the first attempt unless there are keys: an id that is stored already is the exception,
-- and ON CONFLICT would write another record to the log for every job. Jobs are inserted in the order of their ids and
-- keys in theirs, so that calls which meet wait for each other and not in a circle. With p_repeats, ids or keys may
-- occur more than once: then the first of each is stored, and those after it are looked at again.
CREATE FUNCTION th_enqueue_v1(
  p_now bigint, p_repeats boolean, p_ids text[], p_queues text[], p_types text[], p_payloads bytea[],
  p_priorities bigint[], p_run_ats bigint[], p_timeouts bigint[], p_max_attempts bigint[], p_headers text[],
  p_policies text[], p_keys text[], p_key_holds text[], p_notify text
) RETURNS TABLE (ord bigint, existing text)
LANGUAGE plpgsql SET search_path = {schema}, pg_temp SET plan_cache_mode = force_generic_plan SET jit = off
SET enable_seqscan = off AS $$
#variable_conflict use_column
DECLARE
  v_keyed    boolean := cardinality(p_keys) > 0;
  v_look     boolean := v_keyed OR p_repeats;
  v_open     boolean[];             -- which are neither stored nor found yet; NULL for all
  v_now      boolean[];             -- which of those come now; NULL for all
  v_ords     bigint[] := '{}';
  v_existing text[] := '{}';
  v_seqs     bigint[];
  v_found    record;
  v_failures int := 0;
BEGIN
  IF p_repeats THEN
    -- They are stored in several steps and numbered in one.
    v_seqs := ARRAY(SELECT nextval('th_seq') FROM generate_series(1, cardinality(p_ids)));
  END IF;
  LOOP
    IF v_look THEN
      -- An item is looked at when nothing is left to be decided of its id and key.
      SELECT array_agg(n.is_open AND n.id IS NULL ORDER BY n.ord) AS open,
        array_agg(n.comes AND n.id IS NULL ORDER BY n.ord) AS now,
        array_agg(n.ord) FILTER (WHERE n.comes AND n.id IS NOT NULL) AS ords,
        array_agg(n.id) FILTER (WHERE n.comes AND n.id IS NOT NULL) AS ids
      INTO v_found FROM (
        SELECT t.ord, t.is_open, t.comes, coalesce(j.id, holder.id) AS id
        FROM (
          SELECT i.*, i.is_open AND (NOT p_repeats OR
              1 = row_number() OVER (PARTITION BY i.is_open, i.id ORDER BY i.ord)
              AND (i.key IS NULL OR 1 = row_number() OVER (PARTITION BY i.is_open, i.queue, i.key ORDER BY i.ord))) AS comes
          FROM (
            SELECT g.*, v_open IS NULL OR v_open[g.ord] AS is_open
            FROM unnest(p_ids, p_queues, p_keys) WITH ORDINALITY AS g (id, queue, key, ord)
          ) i
        ) t
        LEFT JOIN th_job j ON t.comes AND j.id = t.id
        LEFT JOIN th_key k ON t.comes AND k.queue = t.queue AND k.key = t.key
        LEFT JOIN th_job holder ON holder.seq = k.seq
      ) n;
      v_open := v_found.open;
      v_now := v_found.now;
      v_ords := v_ords || v_found.ords;
      v_existing := v_existing || v_found.ids;
    END IF;
    BEGIN
      WITH given AS (
        SELECT CASE WHEN p_repeats THEN v_seqs[i.ord] ELSE nextval('th_seq') END AS seq, i.*
        FROM unnest(p_ids, p_queues, p_types, p_payloads, p_priorities, p_run_ats, p_timeouts, p_max_attempts, p_headers,
                    p_policies, p_keys, p_key_holds) WITH ORDINALITY
          AS i (id, queue, type, payload, priority, run_at, timeout_us, max_attempts, headers, policy, key, key_hold, ord)
        WHERE v_now IS NULL OR v_now[i.ord]
      ), stored AS (
        INSERT INTO th_job (seq, created_at, priority, kind, key_hold, on_failure, id, queue, type, payload, timeout_us,
                            max_attempts, run_at, headers, idempotency_key)
        SELECT seq, p_now, coalesce(priority, 0), 'w', coalesce(key_hold, 'p')::"char", coalesce(policy, 'h')::"char", id,
               queue, type, payload, timeout_us, max_attempts, run_at, headers::jsonb, key
        FROM given ORDER BY id
        RETURNING seq, priority, queue, run_at, idempotency_key
      ), keyed AS (
        INSERT INTO th_key (queue, key, seq)
        SELECT queue, idempotency_key, seq FROM stored
        WHERE v_keyed AND idempotency_key IS NOT NULL ORDER BY queue, idempotency_key
      )
      INSERT INTO th_hot (seq, line_at, priority, queue, run_at)
      SELECT seq, greatest(run_at, p_now), priority, queue, run_at FROM stored;
      EXIT WHEN NOT p_repeats;
      v_open := ARRAY(SELECT o.is_open AND NOT v_now[o.ord] FROM unnest(v_open) WITH ORDINALITY AS o (is_open, ord) ORDER BY o.ord);
      EXIT WHEN NOT true = ANY (v_open);
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
  RETURN QUERY SELECT * FROM unnest(v_ords, v_existing);
END $$;

-- Tells listeners that there may be work; NULL for not at all. In one transaction, once for each queue.
CREATE FUNCTION th_notify(p_channel text, p_queues text[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF p_channel IS NOT NULL THEN
    PERFORM pg_notify(p_channel, queue) FROM (SELECT DISTINCT queue FROM unnest(p_queues) AS queue) q;
  END IF;
END $$;

-- Stores the members of a flow or of a growth and ties them. Edges are positions in the list of jobs. Answers the
-- numbers of the jobs, and the queues in which there is work now.
CREATE FUNCTION th_add_members(
  p_flow bigint, p_now bigint, p_ids text[], p_queues text[], p_types text[], p_payloads bytea[], p_priorities bigint[],
  p_run_ats bigint[], p_timeouts bigint[], p_max_attempts bigint[], p_headers text[], p_policies text[], p_kinds text[],
  p_key text, p_key_hold text, p_tail bigint, p_children bigint[], p_parents bigint[],
  OUT seqs bigint[], OUT wakes text[]
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_seqs  bigint[] := ARRAY(SELECT nextval('th_seq') FROM generate_series(1, cardinality(p_ids)));
  v_joins bigint[];
BEGIN
  INSERT INTO th_job (seq, created_at, priority, kind, key_hold, on_failure, id, queue, type, payload, timeout_us,
                      max_attempts, run_at, headers, idempotency_key, parents, flow)
  SELECT v_seqs[i.ord], p_now, coalesce(i.priority, 0), coalesce(i.kind, 'w')::"char",
         CASE WHEN i.ord = p_tail THEN coalesce(p_key_hold, 'p') ELSE 'p' END::"char", coalesce(i.policy, 'h')::"char",
         i.id, i.queue, i.type, i.payload, i.timeout_us, i.max_attempts, i.run_at, i.headers::jsonb,
         CASE WHEN i.ord = p_tail THEN p_key END, e.parents, p_flow
  FROM unnest(p_ids, p_queues, p_types, p_payloads, p_priorities, p_run_ats, p_timeouts, p_max_attempts, p_headers,
              p_policies, p_kinds) WITH ORDINALITY
    AS i (id, queue, type, payload, priority, run_at, timeout_us, max_attempts, headers, policy, kind, ord)
  LEFT JOIN (SELECT child, count(*) AS parents FROM unnest(p_children) AS child GROUP BY child) e ON e.child = i.ord
  ORDER BY i.id;

  IF p_key IS NOT NULL THEN
    INSERT INTO th_key (queue, key, seq) VALUES (p_queues[p_tail], p_key, v_seqs[p_tail]);
  END IF;

  -- The edges of a child come in the order in which it declared its parents.
  INSERT INTO th_edge (child, ord, parent, parent_id)
  SELECT v_seqs[e.child], row_number() OVER (PARTITION BY e.child ORDER BY e.ord), v_seqs[e.parent], p_ids[e.parent]
  FROM unnest(p_children, p_parents) WITH ORDINALITY AS e (child, parent, ord);

  INSERT INTO th_hot (seq, line_at, priority, queue, pending, flow, run_at)
  SELECT j.seq, greatest(j.run_at, p_now), j.priority, j.queue, j.parents, p_flow, j.run_at
  FROM th_job j WHERE j.seq = ANY (v_seqs);

  wakes := ARRAY(SELECT DISTINCT queue FROM th_job WHERE seq = ANY (v_seqs) AND parents IS NULL AND kind = 'w');
  v_joins := ARRAY(SELECT seq FROM th_job WHERE seq = ANY (v_seqs) AND parents IS NULL AND kind = 'j');
  IF cardinality(v_joins) > 0 THEN
    v_joins := th_finish(v_joins, 'd', p_now, false, NULL);
  END IF;
  seqs := v_seqs;
  -- Nobody is let go yet: a growth first has to put its tail in the grower's place.
END $$;

-- Members that were done as soon as they were stored let go of those that wait for them.
CREATE FUNCTION th_start_members(p_seqs bigint[], p_now bigint) RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE
  v_joins bigint[] := ARRAY(SELECT seq FROM th_job WHERE seq = ANY (p_seqs) AND state = 'd' ORDER BY seq);
BEGIN
  IF cardinality(v_joins) = 0 THEN
    RETURN '{}';
  END IF;
  RETURN th_let_go(th_close(v_joins), p_now);
END $$;

-- Stores a flow whole or not at all. Answers one row: `inserted`; `existing` with the id of each job, or of the one
-- that holds the key; or `overlap` with the first job that is stored already.
CREATE FUNCTION th_enqueue_flow_v1(
  p_now bigint, p_name text, p_ids text[], p_queues text[], p_types text[], p_payloads bytea[], p_priorities bigint[],
  p_run_ats bigint[], p_timeouts bigint[], p_max_attempts bigint[], p_headers text[], p_policies text[], p_kinds text[],
  p_key text, p_key_hold text, p_tail bigint, p_children bigint[], p_parents bigint[], p_notify text
) RETURNS TABLE (verdict text, id text, wakes text[])
LANGUAGE plpgsql SET search_path = {schema}, pg_temp SET jit = off SET enable_seqscan = off AS $$
#variable_conflict use_column
DECLARE
  v_stored bigint;
  v_first  text;
  v_flow   bigint;
  v_added  record;
  v_wakes  text[];
BEGIN
  FOR attempt IN 1..50 LOOP
    SELECT count(*), (array_agg(i.id ORDER BY i.ord))[1] INTO v_stored, v_first
    FROM unnest(p_ids) WITH ORDINALITY AS i (id, ord) JOIN th_job j ON j.id = i.id;
    IF v_stored = cardinality(p_ids) THEN
      RETURN QUERY SELECT 'existing', NULL::text, '{}'::text[];
      RETURN;
    ELSIF v_stored > 0 THEN
      RETURN QUERY SELECT 'overlap', v_first, '{}'::text[];
      RETURN;
    END IF;
    IF p_key IS NOT NULL THEN
      SELECT j.id INTO v_first FROM th_key k JOIN th_job j ON j.seq = k.seq
      WHERE k.queue = p_queues[p_tail] AND k.key = p_key;
      IF FOUND THEN
        RETURN QUERY SELECT 'existing', v_first, '{}'::text[];
        RETURN;
      END IF;
    END IF;
    BEGIN
      v_flow := nextval('th_seq');
      v_added := th_add_members(v_flow, p_now, p_ids, p_queues, p_types, p_payloads, p_priorities, p_run_ats, p_timeouts,
                                p_max_attempts, p_headers, p_policies, p_kinds, p_key, p_key_hold, p_tail, p_children,
                                p_parents);
      INSERT INTO th_flow (seq, id, name, created_at, tail)
      VALUES (v_flow, p_ids[p_tail], p_name, p_now, v_added.seqs[p_tail]);
      v_wakes := v_added.wakes || th_start_members(v_added.seqs, p_now);
      PERFORM th_retire(ARRAY[v_flow]);
      PERFORM th_notify(p_notify, v_wakes);
      RETURN QUERY SELECT 'inserted', NULL::text, v_wakes;
      RETURN;
    EXCEPTION WHEN unique_violation THEN
      NULL; -- Somebody stored one of them meanwhile: look again.
    END;
  END LOOP;
  RAISE serialization_failure USING MESSAGE = 'other transactions keep storing the same jobs: try again',
    HINT = 'at REPEATABLE READ and above, what others have stored since the transaction began cannot be seen';
END $$;
