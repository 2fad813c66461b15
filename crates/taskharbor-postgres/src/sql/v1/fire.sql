-- Firing schedules: the jobs of slots are stored and the schedules move to their next slots, in one step. SCH-2.

-- A firing: the item of the call, the request, and the reason if it was refused.
CREATE TYPE th_fire AS (
  ord bigint, name text, next_slot bigint, missed bigint, error text, waits_for_key boolean, refused text, detail text
);

-- A slot of an item with the job that stands for it: stored by the firing, or an existing job with the same id or with
-- the key.
CREATE TYPE th_fired AS (item bigint, slot bigint, job text, is_stored boolean, is_key_held boolean);

-- Locks the schedules that have the given revisions, and refuses the firings of all others. It waits for no lock, so a
-- firing and a change of the same schedules cannot deadlock. SCH-3, SCH-5, SCH-6.
CREATE FUNCTION th_lock_schedules(p_items jsonb) RETURNS th_fire[] LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
  RETURN ARRAY(
    SELECT ROW(i.ord, i.name, i.next_slot, i.missed, i.error, i.waits_for_key,
      CASE WHEN l.name IS NULL THEN CASE WHEN s.name IS NULL THEN 'not_found' ELSE 'changed' END
           WHEN l.paused_since IS NOT NULL THEN 'paused' WHEN i.is_rejected THEN 'rejected' END, NULL)::th_fire
    FROM ROWS FROM (jsonb_to_recordset(p_items) AS (
      name text, revision bigint, next_slot bigint, missed bigint, error text, waits_for_key boolean, is_rejected boolean
    )) WITH ORDINALITY AS i (name, revision, next_slot, missed, error, waits_for_key, is_rejected, ord)
    LEFT JOIN LATERAL (
      SELECT x.name, x.paused_since FROM th_schedule x WHERE x.name = i.name AND x.revision = i.revision
      FOR UPDATE SKIP LOCKED) l ON true
    LEFT JOIN LATERAL (SELECT x.name FROM th_schedule x WHERE x.name = i.name OFFSET 0) s ON true
    ORDER BY i.ord);
END $$;

-- Moves the schedules of the firings that were not refused, and records the results of their slots. Returns for each
-- firing why it was refused, or the existing jobs for its slots, NULL for a slot whose own job was stored. SCH-14,
-- SCH-15.
CREATE FUNCTION th_record_firings(p_items th_fire[], p_fired th_fired[], p_now bigint)
RETURNS TABLE (ord bigint, refused text, detail text, existing text[]) LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
  RETURN QUERY
  WITH item AS (
    SELECT i.ord, i.name, i.next_slot, i.missed, i.error, coalesce(i.detail, f.holder) AS detail, f.stored, f.skipped,
      f.firings, f.existing,
      coalesce(i.refused, CASE WHEN i.waits_for_key AND f.holder IS NOT NULL THEN 'key_held' END) AS refused
    FROM unnest(p_items) AS i LEFT JOIN (
      SELECT f.item, count(*) FILTER (WHERE f.is_stored) AS stored, count(*) FILTER (WHERE NOT f.is_stored) AS skipped,
        min(f.job) FILTER (WHERE f.is_key_held) AS holder,
        array_agg(ROW(f.slot, p_now, f.job, f.is_stored)::th_firing ORDER BY f.ordinality) AS firings,
        array_agg(CASE WHEN NOT f.is_stored THEN f.job END ORDER BY f.ordinality) AS existing
      FROM unnest(p_fired) WITH ORDINALITY AS f GROUP BY f.item
    ) f ON f.item = i.ord
  ), recorded AS (
    UPDATE th_schedule s SET next_slot = i.next_slot, error = i.error, revision = nextval('th_revision'),
      stored = s.stored + least(coalesce(i.stored, 0), 9223372036854775807 - s.stored),
      skipped = s.skipped + least(coalesce(i.skipped, 0), 9223372036854775807 - s.skipped),
      missed = s.missed + least(i.missed, 9223372036854775807 - s.missed),
      firings = (s.firings || i.firings)[greatest(1, cardinality(s.firings || i.firings) - 9):]
    FROM item i WHERE s.name = ANY (ARRAY[i.name]) AND i.refused IS NULL
  )
  SELECT i.ord, i.refused, i.detail, i.existing FROM item i ORDER BY i.ord;
END $$;

-- Fires schedules all of whose slots have a single job, which is in no flow. Says of each job in which item it is and for
-- which slot. The jobs are stored in the order of their ids, so concurrent calls cannot deadlock.
CREATE FUNCTION th_fire_v1(
  p_now bigint, p_items text, p_of_items bigint[], p_slots bigint[], p_ids text[], p_queues text[], p_types text[],
  p_payloads bytea[], p_priorities bigint[], p_run_ats bigint[], p_timeouts bigint[], p_max_attempts bigint[],
  p_headers text[], p_policies text[], p_lanes text[], p_keys text[], p_key_holds text[], p_key_times bigint[],
  p_wait_ms bigint, p_notify text
) RETURNS TABLE (ord bigint, refused text, detail text, existing text[]) LANGUAGE plpgsql {settings} AS $$
#variable_conflict use_column
DECLARE
  v_items    th_fire[] := th_lock_schedules(p_items::jsonb);
  j          record;
  v_ords     bigint[];              -- the jobs that were not stored, and those that stand in their places
  v_existing text[];
BEGIN
  SELECT array_agg(g.item) AS items, array_agg(g.slot) AS slots, array_agg(g.place) AS places, array_agg(g.id) AS ids,
    array_agg(g.queue) AS queues, array_agg(g.type) AS types, array_agg(g.payload) AS payloads,
    array_agg(g.priority) AS priorities, array_agg(g.run_at) AS run_ats, array_agg(g.timeout_us) AS timeouts,
    array_agg(g.max_attempts) AS max_attempts, array_agg(g.headers) AS headers, array_agg(g.policy) AS policies,
    array_agg(g.lane) AS lanes,
    CASE WHEN count(g.key) > 0 THEN array_agg(g.key) ELSE '{}' END AS keys, array_agg(g.key_hold) AS key_holds,
    array_agg(g.key_time) AS key_times,
    count(g.key) <> count(DISTINCT (g.queue, g.key)) FILTER (WHERE g.key IS NOT NULL) AS repeats
  INTO j
  FROM (
    SELECT g.*, row_number() OVER (ORDER BY g.ord) AS place
    FROM unnest(p_of_items, p_slots, p_ids, p_queues, p_types, p_payloads, p_priorities, p_run_ats, p_timeouts,
                p_max_attempts, p_headers, p_policies, p_lanes, p_keys, p_key_holds, p_key_times) WITH ORDINALITY
      AS g (item, slot, id, queue, type, payload, priority, run_at, timeout_us, max_attempts, headers, policy, lane, key,
            key_hold, key_time, ord)
    JOIN unnest(v_items) AS i ON i.ord = g.item AND i.refused IS NULL
    ORDER BY g.id COLLATE "C"
  ) g;
  IF j.ids IS NOT NULL THEN
    SELECT array_agg(e.ord), array_agg(e.existing) INTO v_ords, v_existing
    FROM th_enqueue_v1(p_now, j.repeats, j.places, j.ids, j.queues, j.types, j.payloads, j.priorities, j.run_ats, j.timeouts,
                       j.max_attempts, j.headers, j.policies, j.lanes, j.keys, j.key_holds, j.key_times, p_wait_ms, p_notify) e;
  END IF;
  RETURN QUERY SELECT r.* FROM th_record_firings(
    v_items,
    ARRAY(SELECT ROW(g.item, g.slot, coalesce(e.id, g.id), e.id IS NULL, e.id <> g.id)::th_fired
          FROM unnest(j.items, j.slots, j.places, j.ids) WITH ORDINALITY AS g (item, slot, place, id, ord)
          LEFT JOIN unnest(v_ords, v_existing) AS e (ord, id) ON e.ord = g.ord ORDER BY g.place),
    p_now) r;
END $$;

-- Fires one schedule, slot by slot: each has a flow or a single job. Says of each slot which of the jobs are its own, and
-- of a flow its tail and edges as th_enqueue_flow_v1 takes them. At last a row without an item: the queues in which flows
-- have work now. If one of the flows cannot be stored, nothing is. SCH-4.
CREATE FUNCTION th_fire_flows_v1(
  p_now bigint, p_items text, p_slots text, p_ids text[], p_queues text[], p_types text[], p_payloads bytea[],
  p_priorities bigint[], p_run_ats bigint[], p_timeouts bigint[], p_max_attempts bigint[], p_headers text[],
  p_policies text[], p_lanes text[], p_kinds text[], p_keys text[], p_key_holds text[], p_key_times bigint[],
  p_wait_ms bigint, p_notify text
) RETURNS TABLE (ord bigint, refused text, detail text, existing text[], wakes text[]) LANGUAGE plpgsql {settings} AS $$
#variable_conflict use_column
DECLARE
  v_item  th_fire := (th_lock_schedules(p_items::jsonb))[1];
  v_fired th_fired[] := '{}';
  v_wakes text[] := '{}';
  s       record;
  v       record;
BEGIN
  IF v_item.refused IS NULL THEN
    BEGIN
      FOR s IN SELECT x.*, x.first + x.tail - 1 AS own FROM jsonb_to_recordset(p_slots::jsonb) AS x (
        slot bigint, first int, last int, tail int, is_flow boolean, name text, children bigint[], parents bigint[],
        runs bigint[]
      ) LOOP
        IF s.is_flow THEN
          SELECT f.verdict, f.id, f.wakes INTO v FROM th_enqueue_flow_v1(
            p_now, s.name, p_ids[s.first:s.last], p_queues[s.first:s.last], p_types[s.first:s.last],
            p_payloads[s.first:s.last], p_priorities[s.first:s.last], p_run_ats[s.first:s.last], p_timeouts[s.first:s.last],
            p_max_attempts[s.first:s.last], p_headers[s.first:s.last], p_policies[s.first:s.last], p_lanes[s.first:s.last],
            p_kinds[s.first:s.last],
            p_keys[s.own], p_key_holds[s.own], p_key_times[s.own], s.tail, s.children, s.parents,
            s.runs, p_wait_ms, p_notify) f;
        ELSE
          SELECT 'existing' AS verdict, e.existing AS id, NULL::text[] AS wakes INTO v FROM th_enqueue_v1(
            p_now, false, '{}', p_ids[s.own:s.own], p_queues[s.own:s.own], p_types[s.own:s.own], p_payloads[s.own:s.own],
            p_priorities[s.own:s.own], p_run_ats[s.own:s.own], p_timeouts[s.own:s.own], p_max_attempts[s.own:s.own],
            p_headers[s.own:s.own], p_policies[s.own:s.own], p_lanes[s.own:s.own], p_keys[s.own:s.own], p_key_holds[s.own:s.own],
            p_key_times[s.own:s.own], p_wait_ms, p_notify) e;
        END IF;
        IF v.verdict = 'overlap' THEN
          RAISE SQLSTATE 'TH001' USING MESSAGE = v.id;
        END IF;
        v_wakes := v_wakes || v.wakes;
        v_fired := v_fired || ROW(v_item.ord, s.slot, coalesce(v.id, p_ids[s.own]), v.verdict IS DISTINCT FROM 'existing',
                                  v.verdict = 'existing' AND v.id <> p_ids[s.own])::th_fired;
      END LOOP;
    EXCEPTION WHEN SQLSTATE 'TH001' THEN
      v_item.refused := 'overlap';
      v_item.detail := SQLERRM;
      v_fired := '{}';
      v_wakes := '{}';
    END;
  END IF;
  RETURN QUERY SELECT r.*, NULL::text[] FROM th_record_firings(ARRAY[v_item], v_fired, p_now) r;
  RETURN QUERY SELECT NULL::bigint, NULL::text, NULL::text, NULL::text[], v_wakes;
END $$;
