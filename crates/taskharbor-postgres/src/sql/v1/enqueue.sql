-- Storing jobs.

-- Stores jobs without a flow. Returns only the jobs that were not stored, each with the id of the existing job. ENQ-3,
-- ENQ-4, KEY-1.
--
-- Unless there are keys, nothing is read before the first attempt: an id that is stored already is the exception, and
-- ON CONFLICT would write another record to the log for every job. Jobs come in the order of their ids, and p_places
-- tells the place of each in the call (ORD-4), or is empty if that is the same; keys are inserted in their order. So
-- concurrent calls cannot deadlock. With p_repeats, ids or keys may occur more than once, and all have places. It waits
-- at most p_wait_ms, if that is given, for a transaction that has stored one of them and has not ended.
--
-- It runs with the rights of the owner: a producer can store jobs and do nothing else. What a producer gives is checked, and
-- its time is the server's: with a time of its own it could take keys that others hold for a time.
CREATE FUNCTION th_enqueue_v1(
  p_now bigint, p_repeats boolean, p_places bigint[], p_ids text[], p_queues text[], p_types text[], p_payloads bytea[],
  p_priorities bigint[], p_run_ats bigint[], p_timeouts bigint[], p_max_attempts bigint[], p_headers text[],
  p_policies text[], p_lanes text[], p_keys text[], p_key_holds text[], p_key_times bigint[], p_wait_ms bigint, p_notify text
) RETURNS TABLE (ord bigint, existing text) LANGUAGE plpgsql SECURITY DEFINER {settings} AS $$
#variable_conflict use_column
DECLARE
  v_keyed    boolean := cardinality(p_keys) > 0;
  v_look     boolean := v_keyed OR p_repeats;
  v_expired  boolean := false;      -- whether one of the keys was held for a time that has passed
  v_existing text[];                -- the id of the job that stands in the place of each; NULL for all to be stored
  v_seqs     bigint[];              -- by place
  v_failures int := 0;
  v_constraint text;
BEGIN
  IF th_is_producer() THEN
    p_now := th_now();
    PERFORM th_check_new_jobs(th_new_jobs(p_ids, p_queues, p_types, p_payloads, p_priorities, p_run_ats, p_timeouts, p_max_attempts,
                                      p_headers, p_policies, p_lanes, '{}'));
    PERFORM th_check_new_keys(p_keys, p_key_holds, p_key_times);
  END IF;
  PERFORM th_limit_lock_wait(p_wait_ms);
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
                    p_policies, p_lanes, p_keys, p_key_holds, p_key_times) WITH ORDINALITY
          AS i (id, queue, type, payload, priority, run_at, timeout_us, max_attempts, headers, policy, lane, key, key_hold,
                key_time, ord)
        WHERE v_existing[i.ord] IS NULL
      ), stored AS (
        INSERT INTO th_job (seq, created_at, priority, id, queue, type, payload, headers, run_at, timeout_us, key_time_us,
                            max_attempts, on_failure, key_hold, idempotency_key, lane)
        SELECT seq, p_now, coalesce(priority, 0), id, queue, type, payload, headers::jsonb, run_at, timeout_us, key_time,
               max_attempts, policy::th_policy, key_hold::th_key_hold, key, lane
        FROM given
      ), keyed AS (
        INSERT INTO th_key (queue, key, seq, job, held_until)
        SELECT queue, key, seq, id, th_held_until(p_now, key_time) FROM given WHERE v_keyed AND key IS NOT NULL
        ORDER BY queue, key
      )
      INSERT INTO th_live (seq, available_at, priority, queue, run_at, is_large, is_special, is_in_lane, lane)
      SELECT seq, greatest(run_at, p_now), coalesce(priority, 0), queue, run_at,
             CASE WHEN octet_length(payload) > 65536 THEN true END,
             CASE WHEN key_hold IN ('until_done', 'until_terminal') THEN true END,
             CASE WHEN lane IS NOT NULL AND (run_at IS NULL OR run_at <= p_now) THEN true END, lane
      FROM given;
      EXIT;
    EXCEPTION WHEN unique_violation THEN
      -- Another transaction stored one of them or took a key meanwhile: look again. ENQ-7, KEY-6.
      GET STACKED DIAGNOSTICS v_constraint = CONSTRAINT_NAME;
      v_failures := th_count_conflict(v_failures, v_constraint);
    END;
    v_look := true;
  END LOOP;
  PERFORM th_notify(p_notify, p_queues);
  RETURN QUERY SELECT e.ord, e.id FROM unnest(v_existing) WITH ORDINALITY AS e (id, ord) WHERE e.id IS NOT NULL;
END $$;

-- Limits the time to wait for rows that other transactions have locked; NULL keeps the setting of the transaction.
CREATE FUNCTION th_limit_lock_wait(p_wait_ms bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF p_wait_ms IS NOT NULL THEN
    PERFORM set_config('lock_timeout', p_wait_ms::text, true);
  END IF;
END $$;

-- Counts the conflicts of a call that stores jobs, and gives up after many. A number that is taken is no conflict of jobs:
-- the sequence is behind the table, as after a switch to a replica.
CREATE FUNCTION th_count_conflict(p_before int, p_constraint text) RETURNS int LANGUAGE plpgsql AS $$
BEGIN
  IF p_constraint IN ('th_job_pkey', 'th_live_pkey') THEN
    RAISE unique_violation USING MESSAGE = 'the sequence th_seq is behind the table th_job', CONSTRAINT = p_constraint,
      SCHEMA = '{name}', HINT = 'as the owner of the schema, run SELECT setval(''{name}.th_seq'', (SELECT max(seq) FROM {name}.th_job))';
  END IF;
  IF p_before >= 50 THEN
    RAISE serialization_failure USING MESSAGE = 'other transactions keep storing the same jobs: try again',
      HINT = 'at REPEATABLE READ and above, what others have stored since the transaction began cannot be seen';
  END IF;
  RETURN p_before + 1;
END $$;

-- Finds the existing job for each given one: it has the same id, or holds the key. An id counts before a key. Also
-- returns whether a key was found whose time has passed. KEY-1, KEY-9, KEY-10.
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
    -- The places decide which came first.
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

-- Removes keys that jobs which are stored now take, and whose time has passed. KEY-10.
CREATE FUNCTION th_drop_expired_keys(p_queues text[], p_keys text[], p_existing text[], p_now bigint) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  DELETE FROM th_key WHERE ctid = ANY (ARRAY(
    SELECT k.row FROM unnest(p_queues, p_keys, p_existing) AS i (queue, key, existing)
    CROSS JOIN LATERAL (
      SELECT x.ctid AS row FROM th_key x WHERE x.queue = i.queue AND x.key = i.key AND x.held_until <= p_now OFFSET 0) k
    WHERE i.existing IS NULL ORDER BY i.queue, i.key));
END $$;

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

-- Sends wake-ups to listeners: there may be work (WAK-1). With NULL as the channel it sends none. In one transaction,
-- once for each queue. The payload is a message of src/wake/message.rs: from no driver, numbered by transaction, of an
-- unknown number of jobs, in front.
CREATE FUNCTION th_notify(p_channel text, p_queues text[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF p_channel IS NOT NULL THEN
    PERFORM pg_notify(p_channel, E'a1\t0\t' || txid_current() || E'\t0\tf\t0\t' || q.queue)
    FROM (SELECT DISTINCT queue FROM unnest(p_queues) AS queue) q;
  END IF;
END $$;
