-- Granting leases in queues with lanes, limits or a hold.

-- What a call to reserve says of itself.
CREATE TYPE th_call AS (holder text, now bigint, expires bigint, token bigint, max_bytes bigint);

-- Locks the limits of queues, in the order of their names. Only calls that reserve and that change limits wait here, each of
-- them one statement. LIM-2.
CREATE FUNCTION th_lock_gates(p_queues text[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF EXISTS (SELECT FROM th_limit) THEN
    PERFORM FROM th_limit m WHERE m.queue = ANY (p_queues) ORDER BY m.queue FOR UPDATE;
  END IF;
END $$;

-- Whose turn was last in a queue.
CREATE FUNCTION th_turn_of(
  p_queue bigint, p_queues bigint[], p_lanes text[], p_used bigint[], p_stopped_priorities bigint[], p_stopped_lanes text[]
) RETURNS th_turn LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  RETURN (
    SELECT ROW(t.lane, t.used, t.priority, t.last)::th_turn
    FROM unnest(p_queues, p_lanes, p_used, p_stopped_priorities, p_stopped_lanes) AS t (queue, lane, used, priority, last)
    WHERE t.queue = p_queue);
END $$;

-- Leases jobs of one queue, as th_reserve_v1 does: a row for each job; then one without a job, which tells when to ask again, in
-- which queues there is work, and whose turn was last.
CREATE FUNCTION th_reserve_by_turns(p_queue text, p_at bigint, p_limit bigint, p_call th_call, p_has_gate boolean, p_turn th_turn)
RETURNS SETOF th_reserved LANGUAGE plpgsql AS $$
DECLARE
  r          th_reserved;
  v_left     bigint := p_limit;
  v_priority int;
  v_gate     th_gate;
  v_turn     th_turn := p_turn;
  v_took     record;
  v_found    th_candidates;
  v_pass_by  bigint[] := '{}';
  v_end      record;
  v_ended    bigint := 0;           -- jobs that were ended because they were to be cancelled
  v_bytes    bigint := 0;           -- of the payloads granted so far
  v_granted  bigint := 0;
  v_due      bigint;
  v_is_early boolean;               -- whether there may be more to grant soon
  v_is_stopped boolean := false;
BEGIN
  r.wakes := '{}';
  IF p_has_gate THEN
    v_gate := th_open_gate(p_queue, p_limit, p_call.now);
    v_left := v_gate.room;
  END IF;
  v_is_early := th_enter_lanes(p_queue, p_call.now);
  v_priority := th_next_priority(p_queue, coalesce(v_turn.stopped_priority::int + 1, 32768));
  WHILE v_priority IS NOT NULL AND v_left > 0 AND NOT v_is_stopped LOOP
    v_took := th_take_turns(p_queue, v_priority, v_left, p_call.now, v_pass_by, v_gate, v_turn);
    v_gate := v_took.gate;
    v_turn := v_took.turn;
    v_found := v_took.chosen;
    v_is_stopped := v_took.is_stopped;
    v_found := th_cut_to_size(v_found, p_call.max_bytes, v_bytes);
    v_bytes := v_bytes + v_found.bytes;
    v_is_stopped := v_is_stopped OR v_found.is_full IS TRUE;
    IF v_found.jobs > 0 THEN
      IF p_has_gate THEN
        v_gate := th_charge_gate(v_gate, v_found.rows, p_call.now);
      END IF;
      RETURN QUERY SELECT g.*, NULL::bigint, NULL::text[], NULL::bigint[], NULL::bigint[], NULL::bigint[], NULL::boolean,
        NULL::bigint, NULL::bigint, NULL::text, NULL::bigint, NULL::bigint, NULL::text, NULL::bigint
      FROM th_grant_leases(v_found.rows, p_call.holder, p_call.now, p_call.expires, p_call.token) g;
      v_left := v_left - v_found.jobs;
      v_granted := v_granted + v_found.jobs;
    END IF;
    IF v_found.marked IS NOT NULL AND NOT v_is_stopped THEN
      v_end := th_cancel_marked(v_found.marked, p_call.now);
      r.wakes := r.wakes || v_end.wakes;
      v_ended := v_ended + v_end.jobs;
      EXIT WHEN v_ended >= 500;
      v_pass_by := v_pass_by || v_found.marked;
      v_gate.is_blocked := true;
      PERFORM th_enter_lanes(p_queue, p_call.now);
      -- The end of the job may have unblocked a more urgent one.
      v_priority := th_next_priority(p_queue, 32768);
    ELSE
      v_priority := th_next_priority(p_queue, v_priority);
    END IF;
  END LOOP;
  IF p_has_gate THEN
    v_due := th_close_gate(v_gate, NOT v_is_stopped AND p_turn.stopped_priority IS NULL, p_call.now);
  ELSIF v_left > 0 THEN
    v_due := th_next_due_of_any(p_queue, th_blocked_until(p_call.now), p_call.now + 1000000, p_call.now);
  END IF;
  -- RES-5
  r.next_due := least(v_due, CASE WHEN v_ended >= 500 THEN p_call.now + 1 END, CASE WHEN (v_is_early OR v_is_stopped) AND v_granted < p_limit THEN th_soon(v_granted, p_call.now) END);
  -- LAN-4: the next call goes on behind the last lane. If nothing was granted, that changes no turn.
  IF v_granted > 0 AND v_turn.stopped_lane IS NOT NULL THEN
    v_turn := ROW(v_turn.stopped_lane, 1000000, NULL, NULL)::th_turn;
  ELSIF v_left > 0 AND NOT v_is_stopped THEN
    v_turn := ROW(v_turn.lane, v_turn.used, NULL, NULL)::th_turn;
  END IF;
  SELECT p_at, v_turn.lane, v_turn.used, v_turn.stopped_priority, v_turn.stopped_lane, v_due
  INTO r.turn_queue, r.turn_lane, r.turn_used, r.stopped_priority, r.stopped_lane, r.round_due;
  RETURN NEXT r;
END $$;
