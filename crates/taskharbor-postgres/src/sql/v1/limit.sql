-- Limits: how much of them is used, and what is granted under them. th_limit has the limits as an object: `inflight`,
-- `per_lane`, `rate`, `lane_rate`, and in `lanes` by name `inflight`, `rate` and `weight`. A rate has `jobs`, `per_us` and
-- `burst`. What is missing is not limited.

-- The time from one job of a rate to the next, rounded up. RAT-1.
CREATE FUNCTION th_rate_interval(p_rate jsonb) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
  SELECT ((p_rate->>'per_us')::bigint + (p_rate->>'jobs')::bigint - 1) / (p_rate->>'jobs')::bigint
$$;

-- How many jobs a rate allows at once, NULL for any number. RAT-1.
CREATE FUNCTION th_rate_room(p_rate jsonb, p_tat bigint, p_now bigint) RETURNS bigint LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
  v_interval bigint := th_rate_interval(p_rate);
BEGIN
  RETURN greatest(0, (p_rate->>'burst')::bigint - (greatest(coalesce(p_tat, 0) - p_now, 0) + v_interval - 1) / v_interval);
END $$;

-- The first instant at which a rate allows a job. RAT-3.
CREATE FUNCTION th_rate_next(p_rate jsonb, p_tat bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
  SELECT p_tat - ((p_rate->>'burst')::bigint - 1) * th_rate_interval(p_rate)
$$;

-- Up to when a rate is charged after this many jobs more. RAT-1, RAT-2.
CREATE FUNCTION th_rate_charge(p_rate jsonb, p_tat bigint, p_now bigint, p_jobs bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
  SELECT least(greatest(p_tat, p_now) + p_jobs * th_rate_interval(p_rate), 253402300799999999)
$$;

-- The rate of a lane.
CREATE FUNCTION th_lane_rate(p_limits jsonb, p_lane text) RETURNS jsonb LANGUAGE sql IMMUTABLE AS $$
  SELECT coalesce(p_limits #> ARRAY['lanes', p_lane, 'rate'], p_limits->'lane_rate')
$$;

-- How many jobs of a lane may be inflight, NULL for any number. LIM-3.
CREATE FUNCTION th_lane_inflight(p_limits jsonb, p_lane text) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
  SELECT coalesce(p_limits #>> ARRAY['lanes', p_lane, 'inflight'], p_limits->>'per_lane')::bigint
$$;

-- Whether limits of lanes count inflight jobs.
CREATE FUNCTION th_counts_lanes(p_limits jsonb) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
  SELECT coalesce(p_limits ? 'per_lane' OR p_limits @? '$.lanes.*.inflight', false)
$$;
-- Whether any limits count inflight jobs.
CREATE FUNCTION th_counts_inflight(p_limits jsonb) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
  SELECT coalesce(p_limits ? 'inflight', false) OR th_counts_lanes(p_limits)
$$;

-- The limits of a queue while a reserve has locked its row: what is charged to it, since when it has been starved, how many
-- jobs are wanted, were granted and may still be, how many leases are valid in each lane, the lanes that were looked at,
-- whether the number of inflight jobs has held one back, when the first of the counted leases ends, and whether a job that
-- the limits allow was not granted because another transaction has locked it.
CREATE TYPE th_gate AS (
  queue text, limits jsonb, tat bigint, held_until bigint, starved_since bigint, wanted bigint, granted bigint, room bigint,
  held jsonb, lanes text[], is_starved boolean, lease_end bigint, is_blocked boolean
);

-- The leases that count in a queue, each with its lane. A lease that has ended may be valid at an earlier time.
CREATE FUNCTION th_counted_leases(p_queue text) RETURNS TABLE (seq bigint, lane text, lease_expires_at bigint)
LANGUAGE sql STABLE AS $$
  SELECT l.seq, l.lane, l.lease_expires_at FROM {schema}.th_live l
  WHERE l.lease_expires_at IS NOT NULL AND l.seq = ANY (ARRAY(
    SELECT s.seq FROM {schema}.th_grant_note n CROSS JOIN unnest(n.seqs) AS s (seq) WHERE n.queue = p_queue))
$$;

-- Notes that these jobs of a queue were granted.
CREATE FUNCTION th_note_grants(p_queue text, p_seqs bigint[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF cardinality(p_seqs) > 0 THEN
    INSERT INTO th_grant_note (queue, note, jobs, seqs) VALUES (p_queue, nextval('th_seq'), cardinality(p_seqs), p_seqs);
  END IF;
END $$;

-- What may be granted of this many jobs of a queue whose row is locked. LIM-1, RAT-1, RAT-4.
CREATE FUNCTION th_open_gate(p_queue text, p_limit bigint, p_now bigint) RETURNS th_gate LANGUAGE plpgsql AS $$
DECLARE
  g       th_gate;
  v_limit bigint;
  v_noted bigint;
  v_seqs  bigint[];
  v_lanes text[];                   -- of the leases that are valid
  v_valid bigint;
BEGIN
  SELECT m.queue, m.limits, m.tat, m.held_until, m.starved_since, p_limit, 0, p_limit, '{}', '{}', false, NULL, false
  INTO g FROM th_limit m WHERE m.queue = p_queue;
  IF g.held_until > p_now THEN
    g.room := 0;
  ELSIF g.limits ? 'rate' THEN
    g.room := least(g.room, th_rate_room(g.limits->'rate', g.tat, p_now));
  END IF;
  IF NOT th_counts_inflight(g.limits) THEN
    RETURN g;
  END IF;
  v_limit := (g.limits->>'inflight')::bigint;
  v_noted := (SELECT coalesce(sum(n.jobs), 0) FROM th_grant_note n WHERE n.queue = p_queue);
  -- Every lease that counts is noted. While all notes together leave room, no lease has to be looked at.
  IF v_noted > 0 AND (th_counts_lanes(g.limits) OR v_noted + g.room > v_limit) THEN
    SELECT coalesce(array_agg(c.seq), '{}'), array_agg(c.lane) FILTER (WHERE c.lease_expires_at > p_now AND c.lane IS NOT NULL),
      count(*) FILTER (WHERE c.lease_expires_at > p_now), min(c.lease_expires_at) FILTER (WHERE c.lease_expires_at > p_now)
    INTO v_seqs, v_lanes, v_valid, g.lease_end FROM th_counted_leases(p_queue) c;
    g.held := (SELECT coalesce(jsonb_object_agg(h.lane, h.leases), '{}')
               FROM (SELECT x.lane, count(*) AS leases FROM unnest(v_lanes) AS x (lane) GROUP BY x.lane) h);
    IF v_noted > 2 * cardinality(v_seqs) + 200 THEN
      DELETE FROM th_grant_note WHERE queue = p_queue;
      PERFORM th_note_grants(p_queue, v_seqs);
    END IF;
    v_noted := v_valid;
  END IF;
  IF v_limit - v_noted < g.room THEN
    g.room := greatest(0, v_limit - v_noted);
    g.is_starved := true;
  END IF;
  RETURN g;
END $$;

-- Charges the limits of a queue with jobs that are about to be granted. RAT-2.
CREATE FUNCTION th_charge_gate(p_gate th_gate, p_rows tid[], p_now bigint) RETURNS th_gate LANGUAGE plpgsql AS $$
DECLARE
  g       th_gate := p_gate;
  v_seqs  bigint[];
  v_lanes text[];
BEGIN
  SELECT array_agg(l.seq), array_agg(l.lane) FILTER (WHERE l.lane IS NOT NULL) INTO v_seqs, v_lanes
  FROM th_live l WHERE l.ctid = ANY (p_rows);
  g.room := g.room - cardinality(v_seqs);
  g.granted := g.granted + cardinality(v_seqs);
  IF th_counts_inflight(g.limits) THEN
    PERFORM th_note_grants(g.queue, v_seqs);
  END IF;
  IF g.limits ? 'rate' THEN
    g.tat := th_rate_charge(g.limits->'rate', g.tat, p_now, cardinality(v_seqs));
    UPDATE th_limit SET tat = g.tat WHERE queue = g.queue;
  END IF;
  IF v_lanes IS NULL THEN
    RETURN g;
  END IF;
  IF th_counts_lanes(g.limits) THEN
    g.held := g.held || (
      SELECT jsonb_object_agg(x.lane, coalesce((g.held->>x.lane)::bigint, 0) + x.jobs)
      FROM (SELECT y.lane, count(*) AS jobs FROM unnest(v_lanes) AS y (lane) GROUP BY y.lane) x);
  END IF;
  IF NOT (g.limits ? 'lane_rate' OR g.limits @? '$.lanes.*.rate') THEN
    RETURN g;
  END IF;
  INSERT INTO th_lane AS s (queue, lane, tat)
  SELECT g.queue, x.lane, th_rate_charge(th_lane_rate(g.limits, x.lane), NULL, p_now, x.jobs)
  FROM (SELECT y.lane, count(*) AS jobs FROM unnest(v_lanes) AS y (lane) GROUP BY y.lane) x
  WHERE th_lane_rate(g.limits, x.lane) IS NOT NULL
  ON CONFLICT (queue, lane) DO UPDATE
  SET tat = excluded.tat + greatest(coalesce(s.tat, 0) - p_now, 0);
  RETURN g;
END $$;

-- Whether a due job waits in a queue.
CREATE FUNCTION th_has_waiting(p_queue text, p_now bigint) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  RETURN EXISTS (
      SELECT FROM th_live l WHERE l.queue = p_queue AND l.waits_for IS NULL AND l.lane IS NULL AND l.available_at <= p_now
        AND (l.lease_expires_at IS NULL OR l.lease_expires_at <= p_now))
    OR EXISTS (
      SELECT FROM th_live l
      WHERE th_lane_key(l.queue, l.priority, l.lane) > p_queue || chr(1) AND th_lane_key(l.queue, l.priority, l.lane) < p_queue || chr(2)
        AND l.waits_for IS NULL AND l.is_in_lane AND l.available_at <= p_now
        AND (l.lease_expires_at IS NULL OR l.lease_expires_at <= p_now));
END $$;

-- Ends a reserve. If it gave less than it was asked for: notes whether the queue is starved, so that settlements wake it, and
-- answers when to ask again. A queue that is starved from now on is asked again at once, and soon for some milliseconds more: a
-- settlement that did not see so yet wakes no caller. A call that did not look at all lanes starves the queue, but does not end
-- that. RES-7, RAT-3, WAK-3.
CREATE FUNCTION th_close_gate(p_gate th_gate, p_saw_all boolean, p_now bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
  v_is_met      boolean := p_gate.granted >= p_gate.wanted;
  v_was_starved boolean := p_gate.starved_since IS NOT NULL;
  v_is_starved  boolean := v_was_starved;
  v_due         bigint;
BEGIN
  IF NOT v_is_met AND (p_gate.is_starved OR p_saw_all) THEN
    v_is_starved := p_gate.is_starved AND th_has_waiting(p_gate.queue, p_now);
  END IF;
  IF v_is_starved <> v_was_starved THEN
    UPDATE th_limit SET starved_since = CASE WHEN v_is_starved THEN p_now END WHERE queue = p_gate.queue;
    IF v_is_starved THEN
      RETURN p_now + 1;
    END IF;
  END IF;
  IF v_is_met THEN
    RETURN NULL;
  END IF;
  v_due := th_gate_next_due(p_gate, p_now);
  IF v_is_starved AND abs(p_now - p_gate.starved_since) < 50000 THEN
    v_due := least(v_due, th_soon(p_gate.granted, p_now));
  END IF;
  RETURN v_due;
END $$;

-- When a queue may have more to grant that gave less than was demanded. RES-7, RES-10, RAT-3. Until its own rate or hold lets
-- a job go, nothing else matters. The end of a lease that has ended is no such instant: what holds the job back is.
CREATE FUNCTION th_gate_next_due(p_gate th_gate, p_now bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
  v_closed bigint := greatest(CASE WHEN p_gate.held_until > p_now THEN p_gate.held_until END, th_queue_rate_opens(p_gate, p_now));
  v_next   bigint;                  -- when a limit of a lane may let a job go
  v_due    bigint;
BEGIN
  IF v_closed IS NOT NULL AND th_has_waiting(p_gate.queue, p_now) THEN
    RETURN v_closed;
  END IF;
  v_next := least(th_lanes_open(p_gate, p_now), p_gate.lease_end);
  v_due := th_next_due_of_any(
    p_gate.queue, CASE WHEN p_gate.is_blocked THEN th_blocked_until(p_now) END,
    p_now + CASE WHEN v_closed IS NULL AND v_next IS NULL THEN 1000000 ELSE 5000000 END, p_now);
  RETURN least(v_due, CASE WHEN v_due IS NOT NULL OR th_has_waiting(p_gate.queue, p_now) THEN v_next END);
END $$;

-- When to ask again if there may be more: at once, but a caller that found nothing in many lanes makes a pause. LAN-4.
CREATE FUNCTION th_soon(p_granted bigint, p_now bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
  SELECT p_now + CASE WHEN p_granted > 0 THEN 1 ELSE 20000 END
$$;

-- When to ask again for a job that may be granted and is not: another transaction has locked it, and may end without a
-- wake-up. RES-10.
CREATE FUNCTION th_blocked_until(p_now bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
  SELECT p_now + 100000
$$;

-- When the rate of a queue lets the next job go, NULL if it does so now.
CREATE FUNCTION th_queue_rate_opens(p_gate th_gate, p_now bigint) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
  RETURN CASE WHEN p_gate.limits ? 'rate' THEN nullif(greatest(th_rate_next(p_gate.limits->'rate', p_gate.tat), p_now), p_now) END;
END $$;

-- When the first of the holds and rates of the lanes that were looked at lets a job go.
CREATE FUNCTION th_lanes_open(p_gate th_gate, p_now bigint) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
  RETURN (
    SELECT min(l.opens) FROM (
      SELECT greatest(CASE WHEN s.held_until > p_now THEN s.held_until END,
                      th_rate_next(th_lane_rate(p_gate.limits, s.lane), s.tat)) AS opens
      FROM th_lane s WHERE s.queue = p_gate.queue AND s.lane = ANY (p_gate.lanes)
    ) l WHERE l.opens > p_now);
END $$;

-- When a queue with lanes or limits may have more to grant, as far as its jobs tell: the next one falls due, or the next
-- lease ends. For a job that may be granted now, p_blocked is answered. Of many jobs only some are looked at; p_unseen is
-- then the latest answer. RES-7.
CREATE FUNCTION th_next_due_of_any(p_queue text, p_blocked bigint, p_unseen bigint, p_now bigint) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
  RETURN (
    SELECT least(min(CASE WHEN j.lease_expires_at > p_now THEN j.lease_expires_at WHEN j.available_at > p_now THEN j.available_at
                          ELSE p_blocked END),
                 CASE WHEN count(*) >= 1000 THEN p_unseen END)
    FROM (
      (SELECT l.available_at, l.lease_expires_at FROM th_live l
       WHERE l.queue = p_queue AND l.waits_for IS NULL AND l.lane IS NULL LIMIT 1000)
      UNION ALL
      (SELECT l.available_at, l.lease_expires_at FROM th_live l
       WHERE th_lane_key(l.queue, l.priority, l.lane) > p_queue || chr(1) AND th_lane_key(l.queue, l.priority, l.lane) < p_queue || chr(2)
         AND l.waits_for IS NULL AND l.is_in_lane LIMIT 1000)
      UNION ALL
      (SELECT l.available_at, l.lease_expires_at FROM th_live l
       WHERE l.queue = p_queue AND l.waits_for IS NULL AND l.lane IS NOT NULL AND l.is_in_lane IS NULL
       ORDER BY l.available_at LIMIT 1)
    ) j);
END $$;

-- Which of these queues are starved: a settlement has freed a place in them. WAK-3.
CREATE FUNCTION th_starved_of(p_queues text[]) RETURNS text[] LANGUAGE plpgsql AS $$
BEGIN
  RETURN CASE WHEN p_queues = '{}' THEN '{}' ELSE ARRAY(
    SELECT m.queue FROM th_limit m WHERE m.queue = ANY (p_queues) AND m.starved_since IS NOT NULL) END;
END $$;

-- Which of the queues of these jobs are starved. The transaction of an application may commit long after a queue became
-- starved, without having seen that: then those that may be starved by then.
CREATE FUNCTION th_starved_queues(p_seqs bigint[], p_in_transaction boolean) RETURNS text[] LANGUAGE plpgsql AS $$
BEGIN
  IF p_in_transaction THEN
    RETURN ARRAY(
      SELECT m.queue FROM th_limit m
      WHERE th_counts_inflight(m.limits) AND m.queue IN (
        SELECT j.queue FROM unnest(p_seqs) AS s (seq) JOIN th_job j ON j.seq = ANY (ARRAY[s.seq])));
  END IF;
  IF NOT EXISTS (SELECT FROM th_limit m WHERE m.starved_since IS NOT NULL) THEN
    RETURN '{}';
  END IF;
  RETURN th_starved_of(ARRAY(SELECT DISTINCT j.queue FROM unnest(p_seqs) AS s (seq) JOIN th_job j ON j.seq = ANY (ARRAY[s.seq])));
END $$;

-- How much of its limits a queue and one of its lanes use: a row, or none. What the driver reads to tell what holds a job
-- back. LIM-4.
CREATE FUNCTION th_usage(p_queue text, p_lane text, p_now bigint) RETURNS TABLE (
  limits text, inflight bigint, tat bigint, held_until bigint, lane_inflight bigint, lane_tat bigint, lane_held_until bigint
) LANGUAGE plpgsql STABLE ROWS 1 {settings} AS $$
#variable_conflict use_column
BEGIN
  RETURN QUERY
  SELECT m.limits::text, coalesce(c.valid, 0), m.tat, m.held_until, coalesce(c.of_lane, 0), s.tat, s.held_until
  FROM th_limit m LEFT JOIN th_lane s ON s.queue = p_queue AND s.lane = p_lane
  LEFT JOIN LATERAL (
    SELECT count(*) AS valid, count(*) FILTER (WHERE x.lane = p_lane) AS of_lane
    FROM th_counted_leases(m.queue) x WHERE x.lease_expires_at > p_now) c ON true
  WHERE m.queue = p_queue;
END $$;

-- Sets the limits of a queue and their owner; NULL removes them, and what is charged to their rates. Leases that exist count
-- (LIM-6). Workers that wait are woken, since more may be allowed now (WAK-3).
CREATE FUNCTION th_set_limits(p_queue text, p_owner text, p_limits jsonb, p_notify text) RETURNS text LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
  IF p_limits IS NULL THEN
    UPDATE th_limit SET owner = NULL, limits = NULL, tat = NULL, starved_since = NULL WHERE queue = p_queue;
    DELETE FROM th_lane WHERE queue = p_queue AND held_until IS NULL;
    UPDATE th_lane SET tat = NULL WHERE queue = p_queue AND tat IS NOT NULL;
    PERFORM th_drop_idle_limit(p_queue);
  ELSE
    INSERT INTO th_limit AS m (queue, owner, limits) VALUES (p_queue, p_owner, p_limits)
    ON CONFLICT (queue) DO UPDATE SET owner = excluded.owner, limits = excluded.limits, starved_since = NULL;
  END IF;
  DELETE FROM th_grant_note WHERE queue = p_queue;
  IF th_counts_inflight(p_limits) THEN
    PERFORM th_note_grants(p_queue, ARRAY(SELECT l.seq FROM th_live l WHERE l.queue = p_queue AND l.lease_expires_at IS NOT NULL));
  END IF;
  PERFORM th_notify(p_notify, ARRAY[p_queue]);
  RETURN NULL;
END $$;

-- Forgets a queue that has neither limits nor a hold.
CREATE FUNCTION th_drop_idle_limit(p_queue text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  DELETE FROM th_limit m WHERE m.queue = p_queue AND m.limits IS NULL AND m.held_until IS NULL
    AND NOT EXISTS (SELECT FROM th_lane s WHERE s.queue = p_queue);
END $$;

-- Sets, declares or imports limits: an object of limits by queue, or those of one queue. Answers why it did not, if so; then
-- nothing has changed. Else the queues whose limits are others now, as `woken`. LIM-8.
CREATE FUNCTION th_configure_limits(p_change text, p_name text, p_owner text, p_version bigint, p_limits jsonb, p_notify text)
RETURNS TABLE (denied text, name text, detail text) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_version bigint := (SELECT o.version FROM th_schedule_owner o WHERE o.owner = p_owner);
  v_stored  record;
BEGIN
  IF p_change = 'declare_limits' THEN
    -- SCH-11
    IF p_version < v_version THEN
      RETURN QUERY SELECT 'newer_version', NULL::text, v_version::text;
      RETURN;
    END IF;
    RETURN QUERY SELECT 'limits_owned', m.queue, m.owner FROM jsonb_object_keys(p_limits) WITH ORDINALITY AS k (queue, ord)
    JOIN th_limit m ON m.queue = k.queue AND m.limits IS NOT NULL AND m.owner IS DISTINCT FROM p_owner ORDER BY k.ord LIMIT 1;
    IF FOUND THEN
      RETURN;
    END IF;
    RETURN QUERY SELECT 'woken', c.queue, th_set_limits(c.queue, CASE WHEN c.limits IS NOT NULL THEN p_owner END, c.limits, p_notify) FROM (
      SELECT m.queue, NULL::jsonb AS limits FROM th_limit m WHERE m.owner = p_owner AND NOT p_limits ? m.queue
      UNION ALL
      SELECT k.queue, k.limits FROM jsonb_each(p_limits) AS k (queue, limits)
    ) c;
    PERFORM th_set_owner_version(p_owner, p_version);
    RETURN;
  END IF;
  SELECT m.owner, m.limits INTO v_stored FROM th_limit m WHERE m.queue = p_name AND m.limits IS NOT NULL;
  IF p_change = 'set_limits' AND v_stored.owner IS NOT NULL THEN
    RETURN QUERY SELECT 'limits_owned', p_name, v_stored.owner;
  ELSIF p_change = 'import_limits' AND v_stored.limits IS NOT NULL THEN
    RETURN QUERY SELECT 'limits_exist', p_name, NULL::text
    WHERE (v_stored.owner, v_stored.limits) IS DISTINCT FROM (p_owner, p_limits);
  ELSE
    RETURN QUERY SELECT 'woken', p_name, th_set_limits(p_name, p_owner, nullif(p_limits, 'null'), p_notify);
  END IF;
END $$;

-- Holds a queue, or a lane of it, until a time; NULL ends the hold. A hold that lasts longer stays. RAT-4.
CREATE FUNCTION th_hold(p_queue text, p_lane text, p_until bigint, p_notify text) RETURNS void LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
  IF p_until IS NULL THEN
    UPDATE th_limit SET held_until = NULL WHERE queue = p_queue AND p_lane IS NULL;
    UPDATE th_lane SET held_until = NULL WHERE queue = p_queue AND lane = p_lane;
    DELETE FROM th_lane WHERE queue = p_queue AND lane = p_lane AND tat IS NULL;
    PERFORM th_drop_idle_limit(p_queue);
    PERFORM th_notify(p_notify, ARRAY[p_queue]);
    RETURN;
  END IF;
  INSERT INTO th_limit AS m (queue, held_until) VALUES (p_queue, CASE WHEN p_lane IS NULL THEN p_until END)
  ON CONFLICT (queue) DO UPDATE SET held_until = greatest(m.held_until, excluded.held_until)
  WHERE excluded.held_until IS NOT NULL;
  IF p_lane IS NOT NULL THEN
    INSERT INTO th_lane AS s (queue, lane, held_until) VALUES (p_queue, p_lane, p_until)
    ON CONFLICT (queue, lane) DO UPDATE SET held_until = greatest(s.held_until, excluded.held_until);
  END IF;
END $$;

-- Forgets the charge and the hold of queues and lanes of which both ended an hour ago or earlier, and queues of which nothing
-- else is known. RAT-5. The condition on the queue, which is true of all, lets their primary keys be read.
CREATE FUNCTION th_prune_limits(p_now bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  v_before bigint := p_now - 3600000000;
BEGIN
  PERFORM m.queue FROM th_limit m ORDER BY m.queue FOR UPDATE;
  UPDATE th_limit SET tat = NULL, held_until = NULL WHERE queue > '' AND greatest(tat, held_until) <= v_before;
  DELETE FROM th_lane WHERE queue > '' AND greatest(tat, held_until) <= v_before;
  PERFORM th_drop_idle_limit(m.queue) FROM th_limit m WHERE m.queue > '' AND m.limits IS NULL AND m.held_until IS NULL;
END $$;
