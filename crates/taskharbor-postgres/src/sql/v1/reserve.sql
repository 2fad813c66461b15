-- Granting leases and extending them.

-- Leases jobs, queue by queue, best first, each priority in any order (RES-5). A row for each; then one without a job,
-- the only one if there is no job to grant (RES-2), which tells when to ask again and in which queues there is work because the end of a cancelled job unblocked others.
--
-- The line of each priority is read from th_hot_line by itself, so that jobs which are due later are never walked
-- through: not in this priority and not on the way to the next. Jobs under a lease stand in the line too and are
-- stepped over (RES-4); one whose lease is over is taken where it stands (LEA-2, LEA-3). That place lies between the one
-- it had when it was granted and the end of its lease, to which an extension may have moved it. Rows that another call
-- is granting are stepped over as well, so that no job is granted twice (RES-9).
--
-- A scan may begin behind a floor: while old snapshots keep dead rows from being removed they pile up at the front of
-- each line, and the driver passes the place up to which it has seen nothing else.
CREATE FUNCTION th_reserve_v1(
  p_queues text[], p_limits bigint[], p_holder text, p_now bigint, p_expires bigint, p_tokens uuid[], p_max_bytes bigint,
  p_floor_queues text[], p_floor_priorities bigint[], p_floor_ats bigint[], p_floor_seqs bigint[]
) RETURNS TABLE (
  id text, queue text, type text, payload bytea, headers text, priority bigint, run_at bigint, timeout_us bigint,
  created_at bigint, attempts bigint, max_attempts bigint, last_error text, failed_at bigint, deliveries bigint,
  expirations bigint, idempotency_key text, flow text, parents bigint, token uuid, line_at bigint, seq bigint,
  next_due bigint, wakes text[], walked_us bigint, kind text, on_failure text
)
LANGUAGE plpgsql SET search_path = {schema}, pg_temp SET plan_cache_mode = force_generic_plan SET jit = off
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
#variable_conflict use_column
DECLARE
  v_queue     text;
  v_left      bigint;
  v_priority  int;
  v_known     int[];
  v_all       boolean := true;
  v_floor_at  bigint;
  v_floor_seq bigint;
  v_rows      tid[];
  v_found     bigint;
  v_used      int := 0;             -- of the tokens
  v_large     boolean;
  v_marked    record;
  v_is_marked boolean;
  v_cancelled record;
  v_pass_by   bigint[] := '{}';
  v_bytes     bigint := 0;
  v_size      bigint;
  v_stop      boolean := false;
  v_next_due  bigint;
  v_wakes     text[] := '{}';
  v_start     timestamptz := clock_timestamp();
  v_walked    interval := '0';
  v_granted   bigint := 0;
  -- How many entries of the index this session has walked through before.
  v_entries   bigint := pg_stat_get_xact_tuples_returned('th_hot_line'::regclass);
BEGIN
  FOR at IN 1..cardinality(p_queues) LOOP
    v_queue := p_queues[at];
    v_left := p_limits[at];
    v_priority := 32768;
    -- PAU-1
    CONTINUE WHEN EXISTS (SELECT FROM th_queue q WHERE q.name = v_queue);
    -- With floors, the priorities are known; if they give too little, all is looked at without floors after all.
    v_known := ARRAY(SELECT f.priority FROM unnest(p_floor_queues, p_floor_priorities) AS f (queue, priority)
                     WHERE f.queue = v_queue ORDER BY f.priority DESC);
    LOOP
      EXIT WHEN v_left = 0 OR v_stop;
      v_start := clock_timestamp();
      v_floor_at := -1;
      v_floor_seq := 0;
      IF cardinality(v_known) > 0 THEN
        SELECT f.priority, f.at, f.seq INTO v_priority, v_floor_at, v_floor_seq
        FROM unnest(p_floor_queues, p_floor_priorities, p_floor_ats, p_floor_seqs) AS f (queue, priority, at, seq)
        WHERE f.queue = v_queue AND f.priority = v_known[1];
        v_known := v_known[2:];
        v_all := false;
      ELSE
        IF NOT v_all THEN
          v_all := true;
          v_priority := 32768;
        END IF;
        SELECT h.priority INTO v_priority FROM th_hot h
        WHERE h.queue = v_queue AND h.pending IS NULL AND h.priority < v_priority
        ORDER BY h.priority DESC, h.line_at, h.seq LIMIT 1;
        EXIT WHEN NOT FOUND;
      END IF;

      -- ORD-1, RES-1
      SELECT array_agg(c.ctid), count(*), bool_or(c.large), coalesce(bool_or(c.cancel), false)
      INTO v_rows, v_found, v_large, v_is_marked
      FROM (
        SELECT h.ctid, h.large, h.cancel FROM th_hot h
        WHERE h.queue = v_queue AND h.pending IS NULL AND h.priority = v_priority AND h.line_at <= p_now
          AND (h.line_at, h.seq) > (v_floor_at, v_floor_seq) AND (h.lease_exp IS NULL OR h.lease_exp <= p_now)
          AND h.seq <> ALL (v_pass_by)
        ORDER BY h.line_at, h.seq LIMIT v_left FOR UPDATE SKIP LOCKED
      ) c;
      v_walked := v_walked + (clock_timestamp() - v_start);
      IF v_is_marked THEN
        -- Only what comes before the first job that is to be cancelled instead.
        SELECT h.seq, h.line_at, h.flow INTO v_marked FROM th_hot h
        WHERE h.ctid = ANY (v_rows) AND h.cancel ORDER BY h.line_at, h.seq LIMIT 1;
        SELECT array_agg(h.ctid), count(*) INTO v_rows, v_found FROM th_hot h
        WHERE h.ctid = ANY (v_rows) AND (h.line_at, h.seq) < (v_marked.line_at, v_marked.seq);
      END IF;

      -- As long as none is large, so many fit into any answer.
      IF v_found > 0 AND p_max_bytes > 0 AND (v_large OR v_bytes > 0 OR v_found > 2000) THEN
        -- No more than fits into one answer, but one job at least.
        SELECT array_agg(s.ctid), count(*), max(s.total), max(s.jobs) > count(*)
        INTO v_rows, v_found, v_size, v_stop FROM (
          SELECT t.ctid, t.total, t.jobs FROM (
            SELECT h.ctid, count(*) OVER () AS jobs, sum(octet_length(j.payload)) OVER (ORDER BY h.line_at, h.seq) AS total,
              row_number() OVER (ORDER BY h.line_at, h.seq) AS nth
            FROM th_hot h JOIN th_job j ON j.seq = ANY (ARRAY[h.seq]) WHERE h.ctid = ANY (v_rows)
          ) t WHERE v_bytes + t.total <= p_max_bytes OR v_bytes = 0 AND t.nth = 1
        ) s;
        v_bytes := v_bytes + coalesce(v_size, 0);
        IF coalesce(v_found, 0) = 0 THEN
          v_stop := true;
        END IF;
        v_is_marked := v_is_marked AND NOT v_stop;
      END IF;

      IF v_found > 0 THEN
        RETURN QUERY
        WITH granted AS (
          UPDATE th_hot h SET
            -- RES-3, JOB-6, LEA-9
            lease_exp = p_expires, started_at = p_now, secret = t.token,
            deliveries = coalesce(h.deliveries, 0) + 1, holder = p_holder, progress = NULL,
            -- LEA-4: taken back from a holder whose lease is over.
            expirations = CASE WHEN h.lease_exp IS NULL THEN h.expirations ELSE coalesce(h.expirations, 0) + 1 END,
            run_at = CASE WHEN h.lease_exp IS NULL THEN h.run_at END, due_at = NULL
          FROM unnest(v_rows, p_tokens[v_used + 1 : v_used + v_found::int]) AS t (row, token)
          WHERE h.ctid = t.row
          RETURNING h.seq, h.line_at, h.priority, h.run_at, h.attempts, h.deliveries, h.expirations, h.attempt_limit,
                    h.failures, h.flow, h.secret
        )
        SELECT j.id, j.queue, j.type, j.payload, j.headers::text, g.priority::bigint, g.run_at, j.timeout_us, j.created_at,
               g.attempts::bigint, coalesce(g.attempt_limit, j.max_attempts)::bigint,
               CASE WHEN g.failures > 0 THEN
                 (SELECT e.error FROM th_error e WHERE e.seq = g.seq AND e.failure = g.failures) END,
               CASE WHEN g.failures > 0 THEN
                 (SELECT e.failed_at FROM th_error e WHERE e.seq = g.seq AND e.failure = g.failures) END,
               g.deliveries::bigint, g.expirations::bigint, j.idempotency_key,
               CASE WHEN g.flow IS NOT NULL THEN (SELECT f.id FROM th_flow f WHERE f.seq = g.flow) END, j.parents::bigint,
               g.secret, g.line_at, g.seq, NULL::bigint, NULL::text[], NULL::bigint, j.kind::text, j.on_failure::text
        FROM granted g JOIN th_job j ON j.seq = ANY (ARRAY[g.seq]);
        v_used := v_used + v_found::int;
        v_left := v_left - v_found;
        v_granted := v_granted + v_found;
      END IF;

      IF v_is_marked THEN
        v_cancelled := th_cancel_marked(v_marked.seq, v_marked.flow, p_now);
        IF v_cancelled.is_free THEN
          v_wakes := v_wakes || v_cancelled.wakes;
        ELSE
          v_pass_by := v_pass_by || v_marked.seq;
        END IF;
        v_known := '{}';
        v_all := true;
        v_priority := 32768;
      END IF;
    END LOOP;

    IF v_stop THEN
      v_next_due := p_now + 1;
      EXIT;
    END IF;
    IF v_left > 0 THEN
      v_next_due := least(v_next_due, th_next_due(v_queue, p_now));
    END IF;
  END LOOP;
  -- A busy machine is slow as well, and many jobs take their time: it took long because of dead rows only if there were
  -- far more entries than jobs, each of which is walked through twice or three times.
  IF pg_stat_get_xact_tuples_returned('th_hot_line'::regclass) - v_entries < 3 * v_granted + 5000 THEN
    v_walked := '0';
  END IF;
  RETURN QUERY SELECT NULL::text, NULL::text, NULL::text, NULL::bytea, NULL::text, NULL::bigint, NULL::bigint, NULL::bigint,
    NULL::bigint, NULL::bigint, NULL::bigint, NULL::text, NULL::bigint, NULL::bigint, NULL::bigint, NULL::text, NULL::text,
    NULL::bigint, NULL::uuid, NULL::bigint, NULL::bigint, v_next_due, v_wakes,
    (extract(epoch FROM v_walked) * 1000000)::bigint, NULL::text, NULL::text;
END $$;

-- Cancels a job whose lease is over and whose cancellation was asked for (LEA-5). A call that has locked jobs must not
-- wait: where the flow or a member of it is not free, nothing happens and the next call comes to this job. Only calls
-- that grant or extend leases lock members without their flow.
CREATE FUNCTION th_cancel_marked(p_seq bigint, p_flow bigint, p_now bigint, OUT is_free boolean, OUT wakes text[])
LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
  wakes := '{}';
  is_free := true;
  IF p_flow IS NOT NULL THEN
    PERFORM FROM th_flow f WHERE f.seq = p_flow FOR UPDATE SKIP LOCKED;
    is_free := FOUND AND (SELECT count(*) FROM th_hot h WHERE h.flow = p_flow) = (
      SELECT count(*) FROM (SELECT FROM th_hot h WHERE h.flow = p_flow FOR UPDATE SKIP LOCKED) m);
  END IF;
  IF is_free THEN
    UPDATE th_hot h SET expirations = coalesce(h.expirations, 0) + 1, run_at = NULL WHERE h.seq = p_seq;
    PERFORM th_finish(ARRAY[p_seq], 'c', p_now, false, NULL);
    IF p_flow IS NOT NULL THEN
      wakes := th_propagate_failure(p_seq, p_now);
      PERFORM th_retire(ARRAY[p_flow]);
    END IF;
  END IF;
END $$;

-- When a queue of which all that is due was granted may have more: its next job falls due, or its next lease ends.
-- Jobs that are due stand under a lease, or were passed by. RES-7.
CREATE FUNCTION th_next_due(p_queue text, p_now bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
  v_priority int := 32768;
  v_due      bigint;
BEGIN
  LOOP
    SELECT h.priority INTO v_priority FROM th_hot h
    WHERE h.queue = p_queue AND h.pending IS NULL AND h.priority < v_priority
    ORDER BY h.priority DESC, h.line_at, h.seq LIMIT 1;
    EXIT WHEN NOT FOUND;
    v_due := least(
      v_due,
      (SELECT h.line_at FROM th_hot h
       WHERE h.queue = p_queue AND h.pending IS NULL AND h.priority = v_priority AND h.line_at > p_now
       ORDER BY h.line_at, h.seq LIMIT 1),
      (SELECT min(greatest(h.lease_exp, p_now + 1)) FROM th_hot h
       WHERE h.queue = p_queue AND h.pending IS NULL AND h.priority = v_priority AND h.line_at <= p_now));
  END LOOP;
  RETURN v_due;
END $$;

-- Locks live rows as soon as they are free, if that is soon: an open transaction may have one of them for ever. It looks
-- again and again instead of waiting for a lock, since a call that waits while it has locked other rows could deadlock.
CREATE FUNCTION th_lock_soon(p_seqs bigint[]) RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
  v_locked bigint[];
BEGIN
  FOR attempt IN 1..10 LOOP
    v_locked := ARRAY(SELECT seq FROM th_hot WHERE seq = ANY (p_seqs) FOR UPDATE SKIP LOCKED);
    EXIT WHEN cardinality(v_locked) = (SELECT count(*) FROM th_hot WHERE seq = ANY (p_seqs));
    PERFORM pg_sleep(0.005);
  END LOOP;
  RETURN v_locked;
END $$;

-- Extends leases. A transaction that is changing a job at this moment is waited for, but not for long: a job that an
-- open transaction has locked is left as it is, so that it does not hold up the leases of others.
CREATE FUNCTION th_extend_v1(p_ids text[], p_tokens uuid[], p_progress text[], p_now bigint, p_expires bigint)
RETURNS TABLE (verdict text, lease_exp bigint, cancel boolean)
LANGUAGE plpgsql SET search_path = {schema}, pg_temp SET plan_cache_mode = force_generic_plan SET jit = off
SET enable_seqscan = off SET enable_bitmapscan = off AS $$
#variable_conflict use_column
DECLARE
  v_free     bigint[];
  v_progress text[];
  v_taken    record;
  v_locked   bigint[];
BEGIN
  SELECT array_agg(h.seq), array_agg(i.progress) INTO v_free, v_progress
  FROM unnest(p_ids, p_tokens, p_progress) AS i (id, token, progress)
  CROSS JOIN LATERAL (SELECT x.seq FROM th_job x WHERE x.id = i.id OFFSET 0) j
  CROSS JOIN LATERAL (
    SELECT y.seq FROM th_hot y WHERE y.seq = j.seq AND y.secret = i.token AND y.lease_exp > p_now
    FOR UPDATE SKIP LOCKED) h;
  IF v_free IS NULL OR cardinality(v_free) < cardinality(p_ids) THEN
    SELECT array_agg(h.seq ORDER BY h.seq) AS seqs, array_agg(i.token ORDER BY h.seq) AS tokens,
      array_agg(i.progress ORDER BY h.seq) AS progress INTO v_taken
    FROM unnest(p_ids, p_tokens, p_progress) AS i (id, token, progress)
    CROSS JOIN LATERAL (SELECT x.seq FROM th_job x WHERE x.id = i.id OFFSET 0) j
    CROSS JOIN LATERAL (
      SELECT y.seq FROM th_hot y WHERE y.seq = j.seq AND y.secret = i.token AND y.lease_exp > p_now OFFSET 0) h
    WHERE h.seq NOT IN (SELECT unnest(v_free));
    IF v_taken.seqs IS NOT NULL THEN
      v_locked := th_lock_soon(v_taken.seqs);
      -- The transaction that had them may have ended the lease, or have granted another.
      SELECT v_free || array_agg(t.seq), v_progress || array_agg(t.progress) INTO v_free, v_progress
      FROM unnest(v_taken.seqs, v_taken.tokens, v_taken.progress) AS t (seq, token, progress)
      JOIN unnest(v_locked) AS l (seq) ON l.seq = t.seq
      JOIN th_hot h ON h.seq = ANY (ARRAY[t.seq]) AND h.secret = t.token AND h.lease_exp > p_now;
    END IF;
  END IF;
  -- Where the line index has passed the job it is moved ahead, so that long jobs do not gather at the front. That costs
  -- an index entry in each time that a lease lasts, and not with each heartbeat.
  UPDATE th_hot h SET
    -- LEA-7, LEA-8: the token stays.
    lease_exp = greatest(h.lease_exp, p_expires),
    progress = coalesce(i.progress, h.progress),
    due_at = CASE WHEN h.line_at <= p_now THEN coalesce(h.due_at, h.line_at) ELSE h.due_at END,
    line_at = CASE WHEN h.line_at <= p_now THEN greatest(h.lease_exp, p_expires) ELSE h.line_at END
  FROM unnest(v_free, v_progress) AS i (seq, progress)
  WHERE h.seq = ANY (ARRAY[i.seq]) AND h.lease_exp > p_now;

  RETURN QUERY
  SELECT CASE
      WHEN j.seq IS NULL THEN 'not_found'
      WHEN h.lease_exp IS NULL THEN 'not_inflight'
      WHEN h.secret <> i.token THEN 'mismatch'
      WHEN h.lease_exp <= p_now THEN 'expired'
      ELSE 'applied' END,
    h.lease_exp, coalesce(h.cancel, false)
  FROM unnest(p_ids, p_tokens) WITH ORDINALITY AS i (id, token, ord)
  LEFT JOIN th_job j ON j.id = ANY (ARRAY[i.id]) LEFT JOIN th_hot h ON h.seq = ANY (ARRAY[j.seq])
  ORDER BY i.ord;
END $$;
