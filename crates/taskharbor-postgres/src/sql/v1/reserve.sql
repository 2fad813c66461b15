-- Granting leases and extending them.

-- A priority of a queue, and the position behind which a scan of it begins.
CREATE TYPE th_start AS (priority int, at bigint, seq bigint);

-- Due jobs that were found and locked: their rows, and the first that is to be cancelled instead of granted, before which
-- all of them stand. It is full if more of them were found than fit into one answer.
CREATE TYPE th_candidates AS (rows tid[], jobs bigint, has_large boolean, marked bigint, bytes bigint, is_full boolean);

-- A granted job, as it is returned to the caller.
CREATE TYPE th_granted AS (
  id text, queue text, job_type text, payload bytea, headers text, priority bigint, run_at bigint, timeout_us bigint,
  created_at bigint, attempts bigint, max_attempts bigint, last_error text, failed_at bigint, deliveries bigint,
  expirations bigint, idempotency_key text, flow text, parents bigint, available_at bigint, seq bigint, kind text,
  on_failure text, released text, lane text
);

-- A job that was granted. A row without a job tells about the call.
CREATE TYPE th_reserved AS (
  id text, queue text, job_type text, payload bytea, headers text, priority bigint, run_at bigint, timeout_us bigint,
  created_at bigint, attempts bigint, max_attempts bigint, last_error text, failed_at bigint, deliveries bigint,
  expirations bigint, idempotency_key text, flow text, parents bigint, available_at bigint, seq bigint, kind text,
  on_failure text, released text, lane text, next_due bigint, wakes text[], seen_queues bigint[], seen_priorities bigint[],
  lease_ends bigint[], is_long boolean, walked_us bigint, turn_queue bigint, turn_lane text, turn_used bigint,
  stopped_priority bigint, stopped_lane text, round_due bigint
);

-- Leases jobs, queue by queue, best first, each priority in any order (RES-5). A row for each; then one without a job,
-- the only one if there is no job to grant (RES-2). That row tells when to ask again, in which queues there is work
-- because the end of a cancelled job unblocked others, and what the walk has shown: of which queues (by position) and
-- priorities nothing more is due, when the next lease ends there, whether there were many entries to pass, and for how
-- long it walked.
--
-- Jobs of one priority are read from th_live_position by themselves, so that jobs which are due later are never walked
-- through: not in this priority and not on the way to the next. Jobs under a lease stand there too and are stepped over
-- (RES-4); one whose lease has ended is taken where it stands (LEA-2, LEA-3). That position lies between the one it had
-- when it was granted and the end of its lease, to which an extension may have moved it. Rows that another call is
-- granting are stepped over as well, so that no job is granted twice (RES-9).
--
-- Dead rows pile up at the front of each priority until they are vacuumed. A scan may begin behind them: p_start_queues
-- are positions in p_queues, and the scan of such a priority begins behind (at, seq). Priorities that are not named are
-- looked for between those that are.
--
-- A queue with limits or a hold is locked first, all in the order of their names, so that racing calls together grant no more
-- than the limits allow (LIM-2). A queue whose jobs have lanes is granted by turns and has a row without a job of its own.
-- Whose turn it is the caller tells, for queues by their positions, and is told. If the call granted nothing of such a queue and
-- did not look at all its lanes, it also tells at which priority and lane it stopped, and when to ask again for the lanes that
-- it has looked at. The caller gives priority and lane to the next call, which goes on there.
--
-- Jobs that are to be cancelled are ended on the way (LEA-5), all of one scan together. A call that has ended 500 of them
-- asks its caller to come again at once (RES-5). Where the end of one unblocks others, one of these may be more urgent.
CREATE FUNCTION th_reserve_v1(
  p_queues text[], p_limits bigint[], p_holder text, p_now bigint, p_expires bigint, p_token bigint, p_max_bytes bigint,
  p_start_queues bigint[], p_start_priorities bigint[], p_start_ats bigint[], p_start_seqs bigint[], p_turn_queues bigint[],
  p_turn_lanes text[], p_turn_used bigint[], p_stopped_priorities bigint[], p_stopped_lanes text[]
) RETURNS SETOF th_reserved LANGUAGE plpgsql {settings} SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
  r           th_reserved;
  q           record;
  v_starts    th_start[];           -- of the queue at hand
  v_start     th_start;
  v_reached   th_start[];           -- the same, and how far jobs that are to be cancelled were ended
  v_scan      record;
  v_found     th_candidates;
  v_gate      th_gate;
  v_end       record;
  v_cancelled bigint := 0;          -- jobs that were ended because they were to be cancelled
  v_bytes     bigint := 0;          -- of the payloads granted so far
  v_granted   bigint := 0;
  v_begun     timestamptz;
  v_walked    interval := '0';
  v_walk      bigint := -th_walk_count();
BEGIN
  PERFORM th_lock_gates(p_queues);
  FOR q IN SELECT b.*, p_limits[b.at] AS left, NULL::bigint AS due FROM th_busy_queues(p_queues, p_start_queues) b LOOP
    IF q.has_lanes THEN
      RETURN QUERY SELECT t.* FROM th_reserve_by_turns(
        q.name, q.at, q.left, ROW(p_holder, p_now, p_expires, p_token, p_max_bytes)::th_call, q.has_gate,
        th_turn_of(q.at, p_turn_queues, p_turn_lanes, p_turn_used, p_stopped_priorities, p_stopped_lanes)) t;
      CONTINUE;
    END IF;
    q.due := r.next_due;
    v_gate := CASE WHEN q.has_gate THEN th_open_gate(q.name, q.left, p_now) END;
    q.left := coalesce(v_gate.room, q.left);
    v_starts := th_starts_of(q.at, p_start_queues, p_start_priorities, p_start_ats, p_start_seqs);
    v_reached := v_starts;
    v_start := th_next_start(q.name, 32768, v_starts);
    WHILE v_start.priority IS NOT NULL AND q.left > 0 LOOP
      v_begun := clock_timestamp();
      v_scan := th_find_due(q.name, v_start, q.left, CASE WHEN v_cancelled > 0 THEN greatest(q.left, 500) ELSE q.left END, p_now);
      v_walked := v_walked + (clock_timestamp() - v_begun);
      v_found := th_cut_to_size(v_scan.found, p_max_bytes, v_bytes);
      IF v_found.jobs > 0 THEN
        v_bytes := v_bytes + v_found.bytes;
        v_gate := CASE WHEN q.has_gate THEN th_charge_gate(v_gate, v_found.rows, p_now) END;
        v_walk := v_walk + th_walk_count();
        RETURN QUERY SELECT g.*, NULL::bigint, NULL::text[], NULL::bigint[], NULL::bigint[], NULL::bigint[], NULL::boolean,
          NULL::bigint, NULL::bigint, NULL::text, NULL::bigint, NULL::bigint, NULL::text, NULL::bigint
        FROM th_grant_leases(v_found.rows, p_holder, p_now, p_expires, p_token) g;
        v_walk := v_walk - th_walk_count();
        q.left := q.left - v_found.jobs;
        v_granted := v_granted + v_found.jobs;
      END IF;
      EXIT WHEN v_found.is_full;
      IF v_scan.marked IS NOT NULL THEN
        v_end := th_cancel_run(q.name, v_scan.marked, p_now);
        r.wakes := r.wakes || v_end.wakes;
        v_cancelled := v_cancelled + v_end.jobs;
        EXIT WHEN v_cancelled >= 500;
        v_reached := th_put_start(v_reached, CASE WHEN v_end.has_unblocked THEN v_start ELSE v_scan.last END);
        v_start := th_next_start(q.name, CASE WHEN v_end.has_unblocked THEN 32768 ELSE v_start.priority + 1 END, v_reached);
        CONTINUE;
      END IF;
      IF q.left > 0 AND NOT q.has_gate THEN
        v_begun := clock_timestamp();
        r := th_see_end(r, q.name, q.at, th_start_at(v_starts, v_start.priority), p_now);
        v_walked := v_walked + (clock_timestamp() - v_begun);
      END IF;
      v_start := CASE WHEN q.left > 0 THEN th_next_start(q.name, v_start.priority, v_reached) END;
    END LOOP;
    v_gate.is_blocked := q.left > 0;
    r.next_due := least(q.due, CASE WHEN q.has_gate THEN th_close_gate(v_gate, true, p_now) WHEN q.left > 0 THEN r.next_due END,
                        CASE WHEN v_found.is_full OR v_cancelled >= 500 THEN p_now + 1 END);
    EXIT WHEN v_found.is_full OR v_cancelled >= 500;
  END LOOP;
  -- A look into the index takes a few pages. Each job is walked through two or three times; all the rest was dead or leased.
  r.is_long := v_walk + th_walk_count() > 1000 + 400 * coalesce(cardinality(r.seen_queues), 0) + 5 * v_granted;
  r.walked_us := (extract(epoch FROM v_walked) * 1000000)::bigint;
  RETURN NEXT r;
END $$;

-- Adds a priority of which nothing more is due, seen from a start: when the next lease ends there, and when the priority may
-- have more.
CREATE FUNCTION th_see_end(p_before th_reserved, p_name text, p_queue bigint, p_start th_start, p_now bigint) RETURNS th_reserved
LANGUAGE plpgsql AS $$
DECLARE
  r     th_reserved := p_before;
  v_due record := th_next_due(p_name, p_start.priority, p_start.at, p_start.seq, p_now);
BEGIN
  r.next_due := least(r.next_due, v_due.due);
  r.seen_queues := r.seen_queues || p_queue;
  r.seen_priorities := r.seen_priorities || p_start.priority::bigint;
  r.lease_ends := r.lease_ends || v_due.lease_end;
  RETURN r;
END $$;

-- The starts of a queue.
CREATE FUNCTION th_starts_of(p_queue bigint, p_queues bigint[], p_priorities bigint[], p_ats bigint[], p_seqs bigint[])
RETURNS th_start[] LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  RETURN ARRAY(
    SELECT ROW(s.priority, s.at, s.seq)::th_start
    FROM unnest(p_queues, p_priorities, p_ats, p_seqs) AS s (queue, priority, at, seq) WHERE s.queue = p_queue);
END $$;

-- How much of th_live_position this transaction has walked through: entries, and 20 for each page, since the entries of a
-- page that are known to be dead are passed without being counted.
CREATE FUNCTION th_walk_count() RETURNS bigint LANGUAGE sql VOLATILE AS $$
  SELECT pg_stat_get_xact_tuples_returned('{schema}.th_live_position'::regclass)
    + 20 * pg_stat_get_xact_blocks_fetched('{schema}.th_live_position'::regclass)
$$;

-- The queues that are not paused (PAU-1), with their positions, whether their jobs have lanes, and whether they have limits or
-- a hold. Of many, only those in which a job is not blocked, and those that have starts: the front of these is not looked at.
-- Jobs are looked for one by one: of EXISTS, the planner may make a list of all queues that have some. An index in which
-- there never was an entry is a single page, so a store that has no lanes does not look for them.
CREATE FUNCTION th_busy_queues(p_queues text[], p_start_queues bigint[])
RETURNS TABLE (at bigint, name text, has_lanes boolean, has_gate boolean) LANGUAGE sql STABLE AS $$
  SELECT q.at, q.name, q.has_lanes, (SELECT true FROM th_limit m WHERE m.queue = q.name LIMIT 1) IS TRUE
  FROM (
    SELECT x.at, x.name, s.has_lanes AND (
      (SELECT true FROM th_live l
       WHERE th_lane_key(l.queue, l.priority, l.lane) > x.name || chr(1) AND th_lane_key(l.queue, l.priority, l.lane) < x.name || chr(2)
         AND l.waits_for IS NULL AND l.is_in_lane LIMIT 1) IS TRUE
        OR (SELECT true FROM th_live l
            WHERE l.queue = x.name AND l.waits_for IS NULL AND l.lane IS NOT NULL AND l.is_in_lane IS NULL LIMIT 1) IS TRUE) AS has_lanes
    FROM unnest(p_queues) WITH ORDINALITY AS x (name, at)
    CROSS JOIN (
      SELECT pg_relation_size('{schema}.th_live_lane'::regclass) > current_setting('block_size')::int
        OR pg_relation_size('{schema}.th_live_before_lane'::regclass) > current_setting('block_size')::int AS has_lanes
    ) s OFFSET 0
  ) q
  WHERE (cardinality(p_queues) < 8 OR q.has_lanes OR q.at = ANY (p_start_queues)
         OR (SELECT true FROM th_live l WHERE l.queue = q.name AND l.waits_for IS NULL AND l.lane IS NULL LIMIT 1))
    AND NOT EXISTS (SELECT FROM th_queue p WHERE p.name = q.name)
$$;

-- The highest priority of a queue below the given one, and where to begin in it. A priority for which there is no start is
-- looked for above the next for which there is one.
CREATE FUNCTION th_next_start(p_queue text, p_below int, p_starts th_start[]) RETURNS th_start LANGUAGE plpgsql AS $$
DECLARE
  v_known th_start;
  v_other int;
BEGIN
  IF cardinality(p_starts) > 0 THEN
    SELECT s.* INTO v_known FROM unnest(p_starts) AS s WHERE s.priority < p_below ORDER BY s.priority DESC LIMIT 1;
  END IF;
  SELECT l.priority INTO v_other FROM th_live l
  WHERE l.queue = p_queue AND l.waits_for IS NULL AND l.lane IS NULL AND l.priority < p_below AND l.priority > coalesce(v_known.priority, -32769)
  ORDER BY l.priority DESC, l.available_at, l.seq LIMIT 1;
  IF FOUND THEN
    RETURN ROW(v_other, -1, 0)::th_start;
  END IF;
  RETURN v_known;
END $$;

-- The starts of a queue with another one in the place of that of its priority.
CREATE FUNCTION th_put_start(p_starts th_start[], p_start th_start) RETURNS th_start[] LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  RETURN ARRAY(SELECT s FROM unnest(p_starts) AS s WHERE s.priority <> p_start.priority) || p_start;
END $$;

-- Where a scan of a priority begins.
CREATE FUNCTION th_start_at(p_starts th_start[], p_priority int) RETURNS th_start LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  RETURN coalesce((SELECT s FROM unnest(p_starts) AS s WHERE s.priority = p_priority), ROW(p_priority, -1, 0)::th_start);
END $$;

-- Finds and locks due jobs of one priority. ORD-1, RES-1. Some may be marked: they are to be cancelled instead (LEA-5). The
-- end of a marked job in no flow changes nothing for the others, so it is only sorted out. The end of a member may unblock
-- a job that comes next, so nothing is taken behind members that are marked. It looks at p_width jobs to find the p_limit
-- to grant. Answers those, the marked ones in their order, and the last position of both.
CREATE FUNCTION th_find_due(
  p_queue text, p_start th_start, p_limit bigint, p_width bigint, p_now bigint, OUT found th_candidates, OUT marked bigint[],
  OUT last th_start
) LANGUAGE plpgsql AS $$
DECLARE
  v_is_marked boolean;
  v_sorted    record;
BEGIN
  SELECT array_agg(c.ctid), count(*), bool_or(c.is_large), bool_or(c.cancel_requested)
  INTO found.rows, found.jobs, found.has_large, v_is_marked
  FROM (
    SELECT l.ctid, l.is_large, l.cancel_requested FROM th_live l
    WHERE l.queue = p_queue AND l.waits_for IS NULL AND l.lane IS NULL AND l.priority = p_start.priority AND l.available_at <= p_now
      AND (l.available_at, l.seq) > (p_start.at, p_start.seq) AND (l.lease_expires_at IS NULL OR l.lease_expires_at <= p_now)
    ORDER BY l.available_at, l.seq LIMIT p_width FOR UPDATE SKIP LOCKED
  ) c;
  IF v_is_marked OR p_width > p_limit THEN
    SELECT array_agg(c.ctid) FILTER (WHERE NOT c.is_marked) AS rows, count(*) FILTER (WHERE NOT c.is_marked) AS jobs,
      array_agg(c.seq ORDER BY c.available_at, c.seq) FILTER (WHERE c.is_marked) AS marked,
      (array_agg(ROW(p_start.priority, c.available_at, c.seq)::th_start ORDER BY c.available_at DESC, c.seq DESC))[1] AS last
    INTO v_sorted
    FROM (
      SELECT m.*, bool_or(NOT m.is_marked AND m.members > 0 OR m.others >= p_limit AND (m.is_marked OR m.others > p_limit))
                    OVER (ORDER BY m.available_at, m.seq) AS is_behind
      FROM (
        SELECT l.ctid, l.available_at, l.seq, l.cancel_requested IS TRUE AS is_marked,
          count(*) FILTER (WHERE l.cancel_requested AND l.flow IS NOT NULL) OVER w AS members,
          count(*) FILTER (WHERE l.cancel_requested IS NULL) OVER w AS others
        FROM th_live l WHERE l.ctid = ANY (found.rows) WINDOW w AS (ORDER BY l.available_at, l.seq)
      ) m
    ) c WHERE NOT c.is_behind;
    found.rows := v_sorted.rows;
    found.jobs := v_sorted.jobs;
    marked := v_sorted.marked;
    last := v_sorted.last;
  END IF;
END $$;

-- Keeps as many of the candidates as have payloads of at most this many bytes, together with those granted before; one at
-- least if there are none. They are measured only if they could be too many.
CREATE FUNCTION th_cut_to_size(p_found th_candidates, p_max_bytes bigint, p_before bigint) RETURNS th_candidates LANGUAGE plpgsql AS $$
DECLARE
  v_found th_candidates := p_found;
BEGIN
  v_found.bytes := 0;
  IF p_max_bytes = 0 OR v_found.jobs = 0 OR NOT (v_found.has_large IS TRUE OR p_before > 0 OR v_found.jobs > 2000) THEN
    RETURN v_found;
  END IF;
  SELECT array_agg(t.ctid), count(*), coalesce(max(t.total), 0) INTO v_found.rows, v_found.jobs, v_found.bytes FROM (
    SELECT l.ctid, sum(octet_length(j.payload)) OVER (ORDER BY l.available_at, l.seq) AS total,
      row_number() OVER (ORDER BY l.available_at, l.seq) AS nth
    FROM th_live l JOIN th_job j ON j.seq = ANY (ARRAY[l.seq]) WHERE l.ctid = ANY (p_found.rows)
  ) t WHERE t.total <= p_max_bytes - p_before OR p_before = 0 AND t.nth = 1;
  v_found.is_full := v_found.jobs < p_found.jobs;
  IF v_found.is_full THEN
    v_found.marked := NULL;
  END IF;
  RETURN v_found;
END $$;

-- How many expirations a job has after a lease ran out. Without a mark, the answer to Reserve may have been lost. LEA-12.
CREATE FUNCTION th_expirations(p_before int, p_mark th_lease_mark) RETURNS int LANGUAGE sql IMMUTABLE AS $$
  SELECT CASE p_mark WHEN 'started' THEN coalesce(p_before, 0) + 1 WHEN 'leaving' THEN NULL ELSE greatest(p_before, 1) END
$$;

-- Grants leases on rows that are locked. RES-3, JOB-6, LEA-9.
CREATE FUNCTION th_grant_leases(p_rows tid[], p_holder text, p_now bigint, p_expires bigint, p_token bigint)
RETURNS SETOF th_granted LANGUAGE plpgsql AS $$
DECLARE
  v_first record;                   -- the flow of the first job, which many others may be in
BEGIN
  SELECT l.flow, f.id INTO v_first FROM th_live l JOIN th_flow f ON f.seq = ANY (ARRAY[l.flow])
  WHERE cardinality(p_rows) > 8 AND l.ctid = p_rows[1];
  RETURN QUERY
  UPDATE th_live l SET
    lease_expires_at = p_expires, started_at = p_now, lease_token = p_token,
    deliveries = coalesce(l.deliveries, 0) + 1, holder = p_holder, progress = NULL,
    -- LEA-4, LEA-12: taken back from a holder whose lease has ended.
    expirations = CASE WHEN l.lease_expires_at IS NULL THEN l.expirations ELSE th_expirations(l.expirations, l.lease_mark) END,
    run_at = CASE WHEN l.lease_expires_at IS NULL THEN l.run_at END, moved_from = NULL, lease_mark = NULL,
    -- SET-13
    released = CASE WHEN l.lease_expires_at IS NULL THEN l.released END
  FROM th_job j WHERE l.ctid = ANY (p_rows) AND j.seq = ANY (ARRAY[l.seq])
  RETURNING j.id, j.queue, j.type, j.payload, j.headers::text, l.priority::bigint, l.run_at, j.timeout_us, j.created_at,
    l.attempts::bigint, coalesce(l.attempt_limit, j.max_attempts)::bigint,
    CASE WHEN l.failures > 0 THEN
      (SELECT e.error FROM th_error e WHERE e.seq = l.seq AND e.failure = l.failures) END,
    CASE WHEN l.failures > 0 THEN
      (SELECT e.failed_at FROM th_error e WHERE e.seq = l.seq AND e.failure = l.failures) END,
    l.deliveries::bigint, l.expirations::bigint, j.idempotency_key,
    CASE WHEN l.flow = v_first.flow THEN v_first.id WHEN l.flow IS NOT NULL THEN (SELECT f.id FROM th_flow f WHERE f.seq = l.flow) END, j.parents::bigint,
    l.available_at, l.seq, j.kind::text, j.on_failure::text, l.released, l.lane;
END $$;

-- Locks flows with all their live members, those that are free. A call that has locked jobs must not wait: it leaves the
-- members of the others to the next call. Only calls that grant, extend or evict leases lock members without their flow.
CREATE FUNCTION th_lock_free_flows(p_flows bigint[]) RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
  v_flows bigint[];
BEGIN
  IF p_flows = '{}' THEN
    RETURN p_flows;
  END IF;
  v_flows := ARRAY(SELECT f.seq FROM th_flow f WHERE f.seq = ANY (p_flows) ORDER BY f.seq FOR UPDATE SKIP LOCKED);
  RETURN ARRAY(
    SELECT a.flow FROM (
      SELECT l.flow, count(*) AS members FROM th_live l WHERE l.flow = ANY (v_flows) GROUP BY l.flow
    ) a JOIN (
      SELECT m.flow, count(*) AS members
      FROM (SELECT l.flow FROM th_live l WHERE l.flow = ANY (v_flows) FOR UPDATE SKIP LOCKED) m GROUP BY m.flow
    ) b ON b.flow = a.flow AND b.members = a.members ORDER BY a.flow);
END $$;

-- Cancels jobs that are locked, whose leases have ended and whose cancellation was requested (LEA-5): first those in no flow;
-- then the members, in the order given, up to 500. It stops where one has unblocked a job of the queue. Members of
-- flows that are not free are left as they are. Answers the queues in which there is work now, and how many jobs it ended.
CREATE FUNCTION th_cancel_run(
  p_queue text, p_seqs bigint[], p_now bigint, OUT wakes text[], OUT jobs bigint, OUT has_unblocked boolean
) LANGUAGE plpgsql AS $$
DECLARE
  v_flows bigint[] := th_lock_free_flows(ARRAY(
    SELECT DISTINCT l.flow FROM th_live l WHERE l.seq = ANY (p_seqs) AND l.flow IS NOT NULL));
  v_plain bigint[] := ARRAY(SELECT l.seq FROM th_live l WHERE l.seq = ANY (p_seqs) AND l.flow IS NULL);
  v_seq   bigint;
  v_wakes text[];
BEGIN
  wakes := '{}';
  jobs := cardinality(v_plain);
  has_unblocked := false;
  PERFORM th_cancel_expired(v_plain, p_now);
  FOR v_seq IN
    SELECT s.seq FROM unnest(p_seqs) WITH ORDINALITY AS s (seq, ord)
    JOIN th_live l ON l.seq = ANY (ARRAY[s.seq]) AND l.flow = ANY (v_flows) ORDER BY s.ord LIMIT 500
  LOOP
    PERFORM th_cancel_expired(ARRAY[v_seq], p_now);
    v_wakes := th_propagate_failure(ARRAY[v_seq], p_now);
    wakes := wakes || v_wakes;
    jobs := jobs + 1;
    has_unblocked := p_queue = ANY (v_wakes);
    EXIT WHEN has_unblocked;
  END LOOP;
  PERFORM th_retire(v_flows);
END $$;

-- Ends jobs whose leases have ended as cancelled. LEA-4, LEA-12.
CREATE FUNCTION th_cancel_expired(p_seqs bigint[], p_now bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF p_seqs <> '{}' THEN
    UPDATE th_live l SET expirations = th_expirations(l.expirations, l.lease_mark), run_at = NULL, is_special = true
    WHERE l.seq = ANY (p_seqs);
    PERFORM th_finish_all(p_seqs, 'cancelled', NULL, p_now, false);
  END IF;
END $$;

-- The jobs that stand behind one in its lane, one after another, as long as they are to be cancelled and in no flow: the lane
-- keeps its turn, so reserve comes to all of them.
CREATE FUNCTION th_marked_behind(p_seq bigint, p_now bigint) RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
  m th_live;
BEGIN
  SELECT l.* INTO m FROM th_live l WHERE l.seq = p_seq AND l.flow IS NULL AND l.lane IS NOT NULL;
  RETURN ARRAY(
    SELECT c.seq FROM (
      SELECT x.seq, bool_and(x.is_marked) OVER (ORDER BY x.available_at, x.seq) AS is_next FROM (
        SELECT l.seq, l.available_at, l.cancel_requested IS TRUE AND l.flow IS NULL AS is_marked FROM th_live l
        WHERE th_lane_key(l.queue, l.priority, l.lane) = th_lane_key(m.queue, m.priority, m.lane) AND l.waits_for IS NULL
          AND l.is_in_lane AND l.available_at <= p_now AND (l.available_at, l.seq) > (m.available_at, m.seq)
          AND (l.lease_expires_at IS NULL OR l.lease_expires_at <= p_now)
        ORDER BY l.available_at, l.seq LIMIT 500 FOR UPDATE SKIP LOCKED
      ) x
    ) c WHERE c.is_next);
END $$;

-- As th_cancel_run, of a job that a turn has come to, and of those behind it.
CREATE FUNCTION th_cancel_marked(p_seq bigint, p_now bigint, OUT wakes text[], OUT jobs bigint) LANGUAGE plpgsql AS $$
DECLARE
  v_end record := th_cancel_run(NULL, p_seq || th_marked_behind(p_seq, p_now), p_now);
BEGIN
  wakes := v_end.wakes;
  jobs := v_end.jobs;
END $$;

-- When a priority of which all that is due was granted may have more: its next job falls due, or its next lease ends.
-- A job that is due has a lease, or was passed by because another transaction has locked it. RES-7, RES-10. A start behind such
-- a job is of no use: its lease ends at once.
CREATE FUNCTION th_next_due(
  p_queue text, p_priority int, p_at bigint, p_seq bigint, p_now bigint, OUT due bigint, OUT lease_end bigint
) LANGUAGE plpgsql AS $$
BEGIN
  SELECT min(greatest(l.lease_expires_at, p_now + 1)),
    min(CASE WHEN l.lease_expires_at > p_now THEN l.lease_expires_at ELSE th_blocked_until(p_now) END)
  INTO lease_end, due FROM th_live l
  WHERE l.queue = p_queue AND l.waits_for IS NULL AND l.lane IS NULL AND l.priority = p_priority AND l.available_at <= p_now
    AND (l.available_at, l.seq) > (p_at, p_seq);
  due := least(due, (SELECT l.available_at FROM th_live l
    WHERE l.queue = p_queue AND l.waits_for IS NULL AND l.lane IS NULL AND l.priority = p_priority AND l.available_at > p_now
    ORDER BY l.available_at, l.seq LIMIT 1));
END $$;

-- Locks live rows as soon as they are free, if that is soon: an open transaction may have one of them for ever. It looks
-- again and again instead of waiting for a lock, since a call that waits while it has locked other rows could deadlock.
CREATE FUNCTION th_lock_soon(p_seqs bigint[]) RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
  v_locked bigint[];
BEGIN
  FOR attempt IN 1..10 LOOP
    v_locked := ARRAY(SELECT seq FROM th_live WHERE seq = ANY (p_seqs) FOR UPDATE SKIP LOCKED);
    EXIT WHEN cardinality(v_locked) = (SELECT count(*) FROM th_live WHERE seq = ANY (p_seqs));
    PERFORM pg_sleep(0.005);
  END LOOP;
  RETURN v_locked;
END $$;


-- Extends leases. A transaction that is changing a job at this moment is waited for, but not for long: a job that an
-- open transaction has locked is left as it is, so that it does not hold up the leases of others.
CREATE FUNCTION th_extend_v1(
  p_ids text[], p_tokens bigint[], p_imported uuid[], p_progress text[], p_marks text[], p_now bigint,
  p_expires bigint
) RETURNS TABLE (verdict text, lease_expires_at bigint, cancel_requested boolean)
LANGUAGE plpgsql {settings} AS $$
#variable_conflict use_column
DECLARE
  v_tokens   bigint[] := th_native_tokens(p_ids, p_tokens, p_imported);
  v_free     bigint[];
  v_progress text[];
  v_marks    text[];
  v_taken    record;
  v_locked   bigint[];
BEGIN
  SELECT array_agg(l.seq), array_agg(i.progress), array_agg(i.mark) INTO v_free, v_progress, v_marks
  FROM unnest(p_ids, v_tokens, p_progress, p_marks) AS i (id, token, progress, mark)
  CROSS JOIN LATERAL (SELECT x.seq FROM th_job x WHERE x.id = i.id OFFSET 0) j
  CROSS JOIN LATERAL (
    SELECT y.seq FROM th_live y WHERE y.seq = j.seq AND y.lease_token = i.token AND y.lease_expires_at > p_now
    FOR UPDATE SKIP LOCKED) l;
  IF v_free IS NULL OR cardinality(v_free) < cardinality(p_ids) THEN
    SELECT array_agg(l.seq ORDER BY l.seq) AS seqs, array_agg(i.token ORDER BY l.seq) AS tokens,
      array_agg(i.progress ORDER BY l.seq) AS progress, array_agg(i.mark ORDER BY l.seq) AS marks INTO v_taken
    FROM unnest(p_ids, v_tokens, p_progress, p_marks) AS i (id, token, progress, mark)
    CROSS JOIN LATERAL (SELECT x.seq FROM th_job x WHERE x.id = i.id OFFSET 0) j
    CROSS JOIN LATERAL (
      SELECT y.seq FROM th_live y WHERE y.seq = j.seq AND y.lease_token = i.token AND y.lease_expires_at > p_now OFFSET 0) l
    WHERE l.seq NOT IN (SELECT unnest(v_free));
    IF v_taken.seqs IS NOT NULL THEN
      v_locked := th_lock_soon(v_taken.seqs);
      -- The transaction that had them may have ended the lease, or have granted another.
      SELECT v_free || array_agg(t.seq), v_progress || array_agg(t.progress), v_marks || array_agg(t.mark)
      INTO v_free, v_progress, v_marks
      FROM unnest(v_taken.seqs, v_taken.tokens, v_taken.progress, v_taken.marks) AS t (seq, token, progress, mark)
      JOIN unnest(v_locked) AS k (seq) ON k.seq = t.seq
      JOIN th_live l ON l.seq = ANY (ARRAY[t.seq]) AND l.lease_token = t.token AND l.lease_expires_at > p_now;
    END IF;
  END IF;
  PERFORM th_extend_leases(v_free, v_progress, v_marks, p_now, p_expires);
  RETURN QUERY
  SELECT CASE
      WHEN j.seq IS NULL THEN 'not_found'
      WHEN l.lease_expires_at IS NULL THEN 'not_inflight'
      WHEN l.lease_token <> i.token THEN 'mismatch'
      WHEN l.lease_expires_at <= p_now THEN 'expired'
      ELSE 'applied' END,
    l.lease_expires_at, coalesce(l.cancel_requested, false)
  FROM unnest(p_ids, v_tokens) WITH ORDINALITY AS i (id, token, ord)
  LEFT JOIN th_job j ON j.id = ANY (ARRAY[i.id]) LEFT JOIN th_live l ON l.seq = ANY (ARRAY[j.seq])
  ORDER BY i.ord;
END $$;

-- Extends leases on rows that are locked. Where the order of Reserve has passed the job it is moved ahead, so that long
-- jobs do not gather at the front. That costs an index entry in each time that a lease lasts, and not with each heartbeat.
CREATE FUNCTION th_extend_leases(p_seqs bigint[], p_progress text[], p_marks text[], p_now bigint, p_expires bigint)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  UPDATE th_live l SET
    -- LEA-7, LEA-8: the token stays.
    lease_expires_at = greatest(l.lease_expires_at, p_expires),
    progress = coalesce(i.progress, l.progress),
    -- LEA-11
    lease_mark = coalesce(i.mark::th_lease_mark, l.lease_mark),
    moved_from = CASE WHEN l.available_at <= p_now THEN coalesce(l.moved_from, l.available_at) ELSE l.moved_from END,
    available_at = CASE WHEN l.available_at <= p_now THEN greatest(l.lease_expires_at, p_expires) ELSE l.available_at END
  FROM unnest(p_seqs, p_progress, p_marks) AS i (seq, progress, mark)
  WHERE l.seq = ANY (ARRAY[i.seq]) AND l.lease_expires_at > p_now;
END $$;

-- The tokens as this store would have issued them. Another store may have issued the token of an imported job. MOV-7.
CREATE FUNCTION th_native_tokens(p_ids text[], p_tokens bigint[], p_imported uuid[]) RETURNS bigint[] LANGUAGE plpgsql AS $$
BEGIN
  IF NOT EXISTS (SELECT FROM th_imported_token) THEN
    RETURN p_tokens;
  END IF;
  RETURN ARRAY(
    SELECT coalesce(t.lease_token, i.token) FROM unnest(p_ids, p_tokens, p_imported) WITH ORDINALITY AS i (id, token, imported, ord)
    LEFT JOIN th_job j ON j.id = ANY (ARRAY[i.id])
    LEFT JOIN th_imported_token t ON t.seq = ANY (ARRAY[j.seq]) AND t.token = i.imported
    ORDER BY i.ord);
END $$;
