-- Lanes: which of them have jobs, and whose turn it is. Jobs without a lane are the lane ''. LAN-2.

-- The lane that had the last turn, and how many jobs of it; NULL before the first. A call that goes on where another has stopped
-- begins at that priority, behind that lane.
CREATE TYPE th_turn AS (lane text, used bigint, stopped_priority bigint, stopped_lane text);

-- The first job of a lane that may be granted, but for limits.
CREATE TYPE th_head AS (lane text, row tid, at bigint, seq bigint, is_large boolean, is_marked boolean);

-- A lane from which jobs are taken: how many a turn of it has, how many of the first turn were granted before, how many
-- may be granted, the position behind which to look for them, and the first of them if it is known.
CREATE TYPE th_open_lane AS (
  lane text, weight bigint, used bigint, room bigint, at bigint, seq bigint, head tid, is_large boolean, is_marked boolean
);

-- Puts jobs with a lane that are due into their lanes, those that were due first before the others. Answers whether there
-- may be more of them. LAN-4.
CREATE FUNCTION th_enter_lanes(p_queue text, p_now bigint) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  v_jobs bigint;
BEGIN
  UPDATE th_live SET is_in_lane = true WHERE ctid = ANY (ARRAY(
    SELECT l.ctid FROM th_live l
    WHERE l.queue = p_queue AND l.waits_for IS NULL AND l.lane IS NOT NULL AND l.is_in_lane IS NULL AND l.available_at <= p_now
    ORDER BY l.available_at, l.seq LIMIT 5000 FOR UPDATE SKIP LOCKED));
  GET DIAGNOSTICS v_jobs = ROW_COUNT;
  RETURN v_jobs = 5000;
END $$;

-- The highest priority of a queue below the given one, NULL for none.
CREATE FUNCTION th_next_priority(p_queue text, p_below int) RETURNS int LANGUAGE plpgsql AS $$
BEGIN
  RETURN greatest(
    (SELECT l.priority FROM th_live l WHERE l.queue = p_queue AND l.waits_for IS NULL AND l.lane IS NULL AND l.priority < p_below
     ORDER BY l.priority DESC, l.available_at, l.seq LIMIT 1),
    (SELECT l.priority FROM th_live l
     WHERE th_lane_key(l.queue, l.priority, l.lane) > th_lane_key(p_queue, p_below - 1, '')
       AND th_lane_key(l.queue, l.priority, l.lane) < p_queue || chr(2) AND l.waits_for IS NULL AND l.is_in_lane
     ORDER BY th_lane_key(l.queue, l.priority, l.lane), l.available_at, l.seq LIMIT 1));
END $$;

-- The lanes of a priority that have a job to grant, with the first of them, by name, from one on, this many at most. Each is looked
-- up behind the last. Jobs under a lease are passed on the way. p_priority_key is the key of a lane without a name, and p_end
-- that of the first lane which is not looked at.
CREATE FUNCTION th_lane_heads(
  p_queue text, p_priority int, p_priority_key text, p_from text, p_end text, p_limit bigint, p_now bigint, p_pass_by bigint[]
) RETURNS TABLE (lane text, "row" tid, at bigint, seq bigint, is_large boolean, is_marked boolean, nth int) LANGUAGE sql STABLE AS $$
  WITH RECURSIVE heads AS (
    (SELECT l.lane, l.ctid AS row, l.available_at, l.seq, l.is_large, l.cancel_requested, 1 AS nth FROM {schema}.th_live l
     WHERE {schema}.th_lane_key(l.queue, l.priority, l.lane) >= p_priority_key || p_from
       AND {schema}.th_lane_key(l.queue, l.priority, l.lane) < p_end AND l.waits_for IS NULL AND l.is_in_lane
       AND l.available_at <= p_now AND (l.lease_expires_at IS NULL OR l.lease_expires_at <= p_now) AND l.seq <> ALL (p_pass_by)
     ORDER BY {schema}.th_lane_key(l.queue, l.priority, l.lane), l.available_at, l.seq LIMIT 1)
    UNION ALL
    SELECT n.*, a.nth + 1 FROM heads a CROSS JOIN LATERAL (
      SELECT l.lane, l.ctid, l.available_at, l.seq, l.is_large, l.cancel_requested FROM {schema}.th_live l
      WHERE {schema}.th_lane_key(l.queue, l.priority, l.lane) > p_priority_key || a.lane
        AND {schema}.th_lane_key(l.queue, l.priority, l.lane) < p_end AND l.waits_for IS NULL AND l.is_in_lane
        AND l.available_at <= p_now AND (l.lease_expires_at IS NULL OR l.lease_expires_at <= p_now) AND l.seq <> ALL (p_pass_by)
      ORDER BY {schema}.th_lane_key(l.queue, l.priority, l.lane), l.available_at, l.seq LIMIT 1) n
    WHERE a.nth < p_limit
  )
  (SELECT '', l.ctid, l.available_at, l.seq, l.is_large, l.cancel_requested, 0 FROM {schema}.th_live l
   WHERE p_from = '' AND l.queue = p_queue AND l.waits_for IS NULL AND l.lane IS NULL AND l.priority = p_priority
     AND l.available_at <= p_now AND (l.lease_expires_at IS NULL OR l.lease_expires_at <= p_now) AND l.seq <> ALL (p_pass_by)
   ORDER BY l.available_at, l.seq LIMIT 1)
  UNION ALL
  SELECT * FROM heads
$$;

-- The same as an array, before another lane if one is named.
CREATE FUNCTION th_scan_lanes(p_queue text, p_priority int, p_from text, p_before text, p_limit bigint, p_now bigint, p_pass_by bigint[])
RETURNS th_head[] LANGUAGE plpgsql AS $$
DECLARE
  v_key text := th_lane_key(p_queue, p_priority, '');
  v_end text := coalesce(v_key || p_before, th_lane_key(p_queue, p_priority - 1, ''));
BEGIN
  RETURN ARRAY(
    SELECT ROW(h.lane, h.row, h.at, h.seq, h.is_large, h.is_marked)::th_head
    FROM th_lane_heads(p_queue, p_priority, v_key, p_from, v_end, p_limit, p_now, p_pass_by) h ORDER BY h.nth LIMIT p_limit);
END $$;

-- The next lanes in the order of turns: those from p_start on, then those before it. p_last is the last that was looked at.
-- No name has a character that sorts before a space, so nothing lies between a name and the name with chr(1) behind it.
CREATE FUNCTION th_next_lanes(
  p_queue text, p_priority int, p_start text, p_last text, p_limit bigint, p_now bigint, p_pass_by bigint[]
) RETURNS th_head[] LANGUAGE plpgsql AS $$
DECLARE
  v_lanes th_head[];
BEGIN
  IF p_last COLLATE "C" < p_start THEN
    RETURN th_scan_lanes(p_queue, p_priority, p_last || chr(1), p_start, p_limit, p_now, p_pass_by);
  END IF;
  v_lanes := th_scan_lanes(p_queue, p_priority, coalesce(p_last || chr(1), p_start), NULL, p_limit, p_now, p_pass_by);
  IF cardinality(v_lanes) < p_limit AND p_start <> '' THEN
    v_lanes := v_lanes || th_scan_lanes(p_queue, p_priority, '', p_start, p_limit - cardinality(v_lanes), p_now, p_pass_by);
  END IF;
  RETURN v_lanes;
END $$;

-- How many jobs a turn of a lane has.
CREATE FUNCTION th_weight(p_limits jsonb, p_lane text) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
  SELECT coalesce((p_limits #>> ARRAY['lanes', p_lane, 'weight'])::bigint, 1)
$$;

-- The lanes from which jobs may be taken, of these: with a gate, those whose limits leave room. LIM-3, RAT-4.
CREATE FUNCTION th_open_lanes(p_gate th_gate, p_heads th_head[], p_turn th_turn, p_left bigint, p_now bigint) RETURNS th_open_lane[]
LANGUAGE plpgsql AS $$
DECLARE
  v_has_uses boolean := EXISTS (SELECT FROM th_lane s WHERE s.queue = p_gate.queue);
  v_own      jsonb := coalesce(p_gate.limits->'lanes', '{}');
  v_per_lane bigint := (p_gate.limits->>'per_lane')::bigint;
  v_rate     jsonb := p_gate.limits->'lane_rate';
BEGIN
  IF p_gate.limits IS NULL AND NOT v_has_uses THEN
    RETURN ARRAY(
      SELECT ROW(h.lane, 1, 0, p_left, h.at, h.seq - 1, h.row, h.is_large, h.is_marked)::th_open_lane
      FROM unnest(p_heads) WITH ORDINALITY AS h ORDER BY h.ordinality);
  END IF;
  RETURN ARRAY(
    SELECT ROW(o.lane, o.weight, CASE WHEN o.lane = p_turn.lane AND p_turn.used < o.weight THEN p_turn.used ELSE 0 END, o.room,
               o.at, o.seq - 1, o.row, o.is_large, o.is_marked)::th_open_lane
    FROM (
      SELECT h.*, coalesce((v_own->h.lane->>'weight')::bigint, 1) AS weight, CASE WHEN h.lane = '' THEN p_left ELSE least(
        p_left,
        coalesce((v_own->h.lane->>'inflight')::bigint, v_per_lane) - coalesce((p_gate.held->>h.lane)::bigint, 0),
        CASE WHEN s.held_until > p_now THEN 0 END,
        CASE WHEN v_own->h.lane ? 'rate' OR v_rate IS NOT NULL
             THEN th_rate_room(coalesce(v_own->h.lane->'rate', v_rate), s.tat, p_now) END) END AS room
      FROM unnest(p_heads) WITH ORDINALITY AS h
      LEFT JOIN LATERAL (
        SELECT y.tat, y.held_until FROM th_lane y WHERE v_has_uses AND y.queue = p_gate.queue AND y.lane = h.lane OFFSET 0) s ON true
    ) o WHERE o.room > 0 ORDER BY o.ordinality);
END $$;

-- The first jobs of lanes of a queue without limits, which are locked: their rows, lanes and positions. They are not complete if
-- one of them is to be cancelled, or if another call has one of them.
CREATE TYPE th_firsts AS (rows tid[], lanes text[], ats bigint[], seqs bigint[], has_large boolean, is_complete boolean);

-- Finds and locks the first job of each lane of a priority, by name, from one on and before another, this many at most.
CREATE FUNCTION th_lock_firsts(p_queue text, p_priority int, p_from text, p_before text, p_limit bigint, p_now bigint, p_pass_by bigint[])
RETURNS th_firsts LANGUAGE plpgsql AS $$
DECLARE
  v_key   text := th_lane_key(p_queue, p_priority, '');
  v_end   text := coalesce(v_key || p_before, th_lane_key(p_queue, p_priority - 1, ''));
  v_found th_firsts;
BEGIN
  WITH heads AS MATERIALIZED (
    SELECT * FROM th_lane_heads(p_queue, p_priority, v_key, p_from, v_end, p_limit, p_now, p_pass_by) h LIMIT p_limit
  )
  SELECT array_agg(l.ctid), array_agg(h.lane), array_agg(h.at), array_agg(h.seq), coalesce(bool_or(h.is_large), false),
    count(*) = (SELECT count(*) FROM heads) AND coalesce(bool_and(l.cancel_requested IS NULL), true)
  INTO v_found
  FROM heads h CROSS JOIN LATERAL (
    SELECT x.ctid, x.cancel_requested FROM th_live x
    WHERE x.ctid = h.row AND (x.lease_expires_at IS NULL OR x.lease_expires_at <= p_now) AND x.available_at <= p_now
    FOR UPDATE SKIP LOCKED) l;
  RETURN v_found;
END $$;

-- As th_lock_firsts, in the order of turns: the lanes from p_start on, then those before it.
CREATE FUNCTION th_take_firsts(p_queue text, p_priority int, p_start text, p_limit bigint, p_now bigint, p_pass_by bigint[])
RETURNS th_firsts LANGUAGE plpgsql AS $$
DECLARE
  v_found th_firsts := th_lock_firsts(p_queue, p_priority, p_start, NULL, p_limit, p_now, p_pass_by);
  v_count bigint := coalesce(cardinality(v_found.rows), 0);
  v_rest  th_firsts;
BEGIN
  IF v_found.is_complete AND v_count < p_limit AND p_start <> '' THEN
    v_rest := th_lock_firsts(p_queue, p_priority, '', p_start, p_limit - v_count, p_now, p_pass_by);
    v_found := ROW(v_found.rows || v_rest.rows, v_found.lanes || v_rest.lanes, v_found.ats || v_rest.ats,
                   v_found.seqs || v_rest.seqs, v_found.has_large OR v_rest.has_large, v_rest.is_complete)::th_firsts;
  END IF;
  RETURN v_found;
END $$;

-- Locks the first jobs of some lanes, one of each. Answers as th_take_from does, but nothing if that is not one turn of each,
-- if one of them is to be cancelled, or if another call has one of them.
CREATE FUNCTION th_take_heads(
  p_lanes th_open_lane[], p_left bigint, p_now bigint,
  OUT chosen th_candidates, OUT lanes th_open_lane[], OUT turn th_turn, OUT is_cut boolean
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_lanes th_open_lane[] := p_lanes[1:p_left];
  v_last  th_open_lane := v_lanes[cardinality(v_lanes)];
BEGIN
  IF v_last IS NULL OR EXISTS (SELECT FROM unnest(v_lanes) AS o WHERE least(o.room, o.weight - o.used) > 1 OR o.is_marked) THEN
    RETURN;
  END IF;
  SELECT array_agg(x.row), count(*), coalesce(bool_or(x.is_large), false) INTO chosen.rows, chosen.jobs, chosen.has_large FROM (
    SELECT l.ctid AS row, l.is_large FROM th_live l
    WHERE l.ctid = ANY (ARRAY(SELECT o.head FROM unnest(v_lanes) AS o)) AND l.cancel_requested IS NULL
      AND (l.lease_expires_at IS NULL OR l.lease_expires_at <= p_now) AND l.available_at <= p_now FOR UPDATE SKIP LOCKED
  ) x;
  IF chosen.jobs < cardinality(v_lanes) THEN
    chosen := NULL;
    RETURN;
  END IF;
  lanes := ARRAY(SELECT ROW(o.lane, o.weight, 0, o.room - 1, o.at, o.seq + 1, NULL, NULL, NULL)::th_open_lane
                 FROM unnest(v_lanes) WITH ORDINALITY AS o WHERE o.room > 1 ORDER BY o.ordinality);
  turn := ROW(v_last.lane, v_last.used + 1, NULL, NULL)::th_turn;
  is_cut := EXISTS (SELECT FROM unnest(v_lanes) AS o WHERE o.room = 1 AND p_left > 1);
END $$;

-- Finds and locks due jobs of some lanes, this many turns of each. With one turn of each they come in the order of turns, and
-- end before the first that is to be cancelled. Answers also the lanes that may have more, whose turn was last, and whether
-- a limit of a lane was reached. RES-1, LAN-3.
CREATE FUNCTION th_take_from(
  p_queue text, p_priority int, p_lanes th_open_lane[], p_turns bigint, p_left bigint, p_now bigint, p_pass_by bigint[],
  OUT chosen th_candidates, OUT lanes th_open_lane[], OUT turn th_turn, OUT is_cut boolean
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_taken record;
BEGIN
  WITH taken AS MATERIALIZED (
    SELECT t.*, row_number() OVER () AS nth FROM (
      SELECT o.lane, o.ord, o.weight, o.used, o.room, o.quota, j.* FROM (
        SELECT x.lane, x.ord, x.weight, x.used, x.room, x.at, x.seq, least(x.room, x.weight * p_turns - x.used) AS quota
        FROM unnest(p_lanes) WITH ORDINALITY AS x (lane, weight, used, room, at, seq, head, is_large, is_marked, ord)
      ) o CROSS JOIN LATERAL (
        SELECT * FROM (
          SELECT l.ctid AS row, l.available_at, l.seq, l.is_large, l.cancel_requested FROM th_live l
          WHERE o.lane <> '' AND th_lane_key(l.queue, l.priority, l.lane) = th_lane_key(p_queue, p_priority, o.lane)
            AND l.waits_for IS NULL AND l.is_in_lane AND l.available_at <= p_now AND (l.available_at, l.seq) > (o.at, o.seq)
            AND (l.lease_expires_at IS NULL OR l.lease_expires_at <= p_now) AND l.seq <> ALL (p_pass_by)
          ORDER BY l.available_at, l.seq LIMIT o.quota FOR UPDATE SKIP LOCKED) a
        UNION ALL
        SELECT * FROM (
          SELECT l.ctid AS row, l.available_at, l.seq, l.is_large, l.cancel_requested FROM th_live l
          WHERE o.lane = '' AND l.queue = p_queue AND l.waits_for IS NULL AND l.lane IS NULL AND l.priority = p_priority
            AND l.available_at <= p_now AND (l.available_at, l.seq) > (o.at, o.seq)
            AND (l.lease_expires_at IS NULL OR l.lease_expires_at <= p_now) AND l.seq <> ALL (p_pass_by)
          ORDER BY l.available_at, l.seq LIMIT o.quota FOR UPDATE SKIP LOCKED) b
      ) j
      LIMIT p_left
    ) t
  ), kept AS (
    SELECT t.* FROM taken t
    WHERE t.nth < coalesce((SELECT min(m.nth) FROM taken m WHERE m.cancel_requested), 9223372036854775807)
  ), of_lane AS (
    SELECT k.ord, k.lane, k.weight, k.used, k.room, k.quota, count(*) AS jobs,
      (array_agg(k.available_at ORDER BY k.nth DESC))[1] AS at, (array_agg(k.seq ORDER BY k.nth DESC))[1] AS seq
    FROM kept k GROUP BY k.ord, k.lane, k.weight, k.used, k.room, k.quota
  )
  SELECT
    (SELECT ROW(array_agg(k.row ORDER BY k.nth), count(*), bool_or(k.is_large),
                (SELECT t.seq FROM taken t WHERE t.cancel_requested ORDER BY t.nth LIMIT 1), NULL, NULL)::th_candidates FROM kept k) AS chosen,
    (SELECT array_agg(ROW(o.lane, o.weight, 0, o.room - o.jobs, o.at, o.seq, NULL, NULL, NULL)::th_open_lane ORDER BY o.ord)
     FROM of_lane o WHERE o.jobs = o.quota AND o.jobs < o.room) AS lanes,
    (SELECT ROW(o.lane, (o.jobs - 1 + o.used) % o.weight + 1, NULL, NULL)::th_turn FROM of_lane o
     ORDER BY (o.jobs - 1 + o.used) / o.weight DESC, o.ord DESC LIMIT 1) AS turn,
    (SELECT coalesce(bool_or(o.jobs = o.room AND o.room < p_left), false) FROM of_lane o) AS is_cut
  INTO v_taken;
  chosen := v_taken.chosen;
  lanes := v_taken.lanes;
  turn := v_taken.turn;
  is_cut := v_taken.is_cut;
END $$;

-- Whether the number of inflight jobs of one of these lanes keeps a job back.
CREATE FUNCTION th_has_full_lane(p_gate th_gate, p_heads th_head[]) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  RETURN EXISTS (
    SELECT FROM unnest(p_heads) AS h
    WHERE h.lane <> '' AND th_lane_inflight(p_gate.limits, h.lane) <= coalesce((p_gate.held->>h.lane)::bigint, 0));
END $$;

-- Finds and locks due jobs of one priority by the turns of its lanes: first one turn of each, lane by lane as far as it
-- takes, then further turns of those that have more. LAN-2, LAN-4. Answers whose turn was last, and with the gate what was
-- seen of the lanes. It stops after 1,000 lanes, and then says so and names the last of them.
CREATE FUNCTION th_take_turns(
  p_queue text, p_priority int, p_left bigint, p_now bigint, p_pass_by bigint[],
  INOUT gate th_gate, INOUT turn th_turn, OUT chosen th_candidates, OUT is_stopped boolean
) LANGUAGE plpgsql AS $$
DECLARE
  v_start  text := coalesce(turn.lane || CASE WHEN turn.used < th_weight(gate.limits, turn.lane) THEN '' ELSE chr(1) END, '');
  v_size   bigint := greatest(least(p_left, 1000), 32);
  v_new    th_head[];               -- the lanes that are looked at for the first time
  v_last   text := CASE WHEN turn.stopped_priority = p_priority THEN turn.stopped_lane END;
  v_seen   bigint := 0;
  v_is_new boolean;
  v_is_all boolean := false;        -- whether all lanes were looked at
  v_from   th_open_lane[];
  v_more   th_open_lane[] := '{}';  -- the lanes that may have more
  v_turns  bigint;
  v_left   bigint := p_left;
  v_firsts th_firsts;
  v_taken  record;
BEGIN
  turn := ROW(turn.lane, turn.used, NULL, NULL)::th_turn;
  chosen := ROW('{}', 0, false, NULL, NULL, NULL)::th_candidates;
  IF gate.queue IS NULL AND p_left <= v_size THEN
    v_firsts := th_take_firsts(p_queue, p_priority, v_start, p_left, p_now, p_pass_by);
    IF v_firsts.is_complete THEN
      v_is_all := true;
      v_seen := coalesce(cardinality(v_firsts.rows), 0);
      chosen := ROW(v_firsts.rows, v_seen, v_firsts.has_large, NULL, NULL, NULL)::th_candidates;
      v_left := p_left - v_seen;
      turn := CASE WHEN v_seen > 0 THEN ROW(v_firsts.lanes[v_seen], 1, NULL, NULL)::th_turn ELSE turn END;
      is_stopped := false;
      IF v_left = 0 OR v_seen = 0 THEN
        RETURN;
      END IF;
      v_more := ARRAY(SELECT ROW(f.lane, 1, 0, v_left, f.at, f.seq, NULL, NULL, NULL)::th_open_lane
                      FROM unnest(v_firsts.lanes, v_firsts.ats, v_firsts.seqs) WITH ORDINALITY AS f (lane, at, seq, ord) ORDER BY f.ord);
    END IF;
  END IF;
  LOOP
    v_is_new := NOT v_is_all;
    v_from := v_more;
    IF v_is_new THEN
      v_new := th_next_lanes(p_queue, p_priority, v_start, v_last, v_size, p_now, p_pass_by);
      v_is_all := cardinality(v_new) < v_size;
      v_seen := v_seen + cardinality(v_new);
      v_last := (v_new[cardinality(v_new)]).lane;
      v_size := 1000 - v_seen;
      v_from := th_open_lanes(gate, v_new, turn, v_left, p_now);
      gate.lanes := gate.lanes || ARRAY(SELECT h.lane FROM unnest(v_new) AS h);
      IF th_counts_lanes(gate.limits) AND NOT gate.is_starved THEN
        gate.is_starved := th_has_full_lane(gate, v_new);
      END IF;
    END IF;
    -- Every lane has one turn before one has two.
    v_turns := 1;
    IF v_from <> '{}' AND v_is_all AND (NOT v_is_new OR cardinality(v_new) = v_seen) THEN
      v_turns := greatest(1, v_left / (SELECT sum(o.weight) FROM unnest(v_from) AS o)::bigint);
    END IF;
    v_taken := th_take_heads(CASE WHEN v_is_new AND v_turns = 1 THEN v_from ELSE '{}' END, v_left, p_now);
    IF (v_taken.chosen).jobs IS NULL THEN
      v_taken := th_take_from(p_queue, p_priority, v_from, v_turns, v_left, p_now, p_pass_by);
    END IF;
    IF (v_taken.chosen).marked IS NOT NULL AND v_turns > 1 THEN
      v_taken := th_take_from(p_queue, p_priority, v_from, 1, v_left, p_now, p_pass_by);
    END IF;
    chosen := ROW(chosen.rows || (v_taken.chosen).rows, chosen.jobs + (v_taken.chosen).jobs,
                  chosen.has_large OR coalesce((v_taken.chosen).has_large, false), (v_taken.chosen).marked, NULL, NULL)::th_candidates;
    v_left := v_left - (v_taken.chosen).jobs;
    turn := coalesce(v_taken.turn, turn);
    gate.is_starved := gate.is_starved OR v_taken.is_cut AND th_counts_lanes(gate.limits);
    gate.is_blocked := gate.is_blocked OR v_is_new AND v_from <> '{}' AND (v_taken.chosen).jobs = 0;
    is_stopped := NOT v_is_all AND v_size <= 0 AND v_left > 0;
    EXIT WHEN v_left <= 0 OR chosen.marked IS NOT NULL OR is_stopped;
    v_more := CASE WHEN v_is_new THEN v_more ELSE '{}' END || v_taken.lanes;
    EXIT WHEN v_is_all AND v_more = '{}';
  END LOOP;
  IF is_stopped THEN
    turn := ROW(turn.lane, turn.used, p_priority, v_last)::th_turn;
  END IF;
END $$;

-- The lanes of a queue that have ready or inflight jobs or are on hold, by name, behind the given one, with what the driver
-- needs to tell what holds them back. LAN-6.
CREATE FUNCTION th_lanes_v1(p_queue text, p_after text, p_limit bigint, p_now bigint)
RETURNS TABLE (lane text, ready bigint, inflight bigint, lane_inflight bigint, lane_tat bigint, lane_held_until bigint)
LANGUAGE plpgsql STABLE {settings} AS $$
#variable_conflict use_column
BEGIN
  RETURN QUERY
  SELECT x.lane, sum(x.ready)::bigint, sum(x.inflight)::bigint, sum(x.valid)::bigint, max(s.tat), max(s.held_until)
  FROM (
    SELECT coalesce(j.lane, '') AS lane, count(*) FILTER (WHERE j.lease_expires_at IS NULL AND j.available_at <= p_now) AS ready,
      count(j.lease_expires_at) AS inflight, count(*) FILTER (WHERE j.lease_expires_at > p_now) AS valid
    FROM (
      SELECT l.lane, l.available_at, l.lease_expires_at FROM th_live l
      WHERE l.queue = p_queue AND l.waits_for IS NULL AND l.lane IS NULL
      UNION ALL
      SELECT l.lane, l.available_at, l.lease_expires_at FROM th_live l
      WHERE th_lane_key(l.queue, l.priority, l.lane) > p_queue || chr(1) AND th_lane_key(l.queue, l.priority, l.lane) < p_queue || chr(2)
        AND l.waits_for IS NULL AND l.is_in_lane
      UNION ALL
      SELECT l.lane, l.available_at, l.lease_expires_at FROM th_live l
      WHERE l.queue = p_queue AND l.waits_for IS NULL AND l.lane IS NOT NULL AND l.is_in_lane IS NULL
    ) j GROUP BY 1
    UNION ALL
    SELECT h.lane, 0, 0, 0 FROM th_lane h WHERE h.queue = p_queue AND h.held_until > p_now
    UNION ALL
    SELECT '', 0, 0, 0 FROM th_limit m WHERE m.queue = p_queue AND m.held_until > p_now
  ) x LEFT JOIN th_lane s ON s.queue = p_queue AND s.lane = x.lane
  WHERE p_after IS NULL OR x.lane > p_after COLLATE "C"
  GROUP BY x.lane
  HAVING sum(x.ready) + sum(x.inflight) > 0 OR max(s.held_until) > p_now
    OR x.lane = '' AND EXISTS (SELECT FROM th_limit m WHERE m.queue = p_queue AND m.held_until > p_now)
  ORDER BY x.lane COLLATE "C" LIMIT p_limit;
END $$;
