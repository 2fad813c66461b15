-- Recording what became of inflight jobs.

-- Whether a token may record this kind of outcome: the first reason against it, `already` if the token has recorded the
-- same before, or `applied`. REF-1, SET-6, SET-7, SET-8, EXP-6.
CREATE FUNCTION th_authorize(p_seq bigint, p_token uuid, p_kind text, p_now bigint) RETURNS text LANGUAGE sql STABLE AS $$
  SELECT coalesce((
    SELECT CASE
        WHEN j.state IS NOT NULL AND j.secret = p_token AND CASE p_kind
            WHEN 'a' THEN j.state = 'd' AND j.expanded_id IS NULL
            WHEN 'e' THEN j.state = 'c' OR j.expanded_id IS NOT NULL
            WHEN 'f' THEN j.state IN ('q', 'c')
            ELSE j.state = 'c' END THEN 'already'
        WHEN h.lease_exp IS NULL THEN 'not_inflight'
        WHEN h.secret <> p_token THEN 'mismatch'
        WHEN h.lease_exp <= p_now THEN 'expired'
        ELSE 'applied' END
    FROM th_job j LEFT JOIN th_hot h ON h.seq = j.seq WHERE j.seq = p_seq), 'not_found')
$$;

-- Settles jobs. Answers only what is not simply applied: which item, and why not. Then a row without an item: the
-- queues in which there is work now.
--
-- p_kinds: a: ack, e: expand, r: retry, f: fail, l: release. What an item does not say is NULL, and an array that would
-- hold nothing else is empty. Expansions come as lists of jobs with edges; e_owners says to which item each job belongs.
--
-- Jobs in no flow are settled all at once, in one statement for those that end and one for those that wait again. The
-- rest is done in order under the lock of its flow, acks that follow each other all at once (SET-9). Where another
-- transaction has the lock and the call may not wait for it, the item is answered `busy` and nothing happens to it
-- (REF-6): so a transaction that is kept open holds up its own flow alone.
--
-- p_patience says what to do about rows that other transactions have locked: 0: wait a moment, for jobs, or fail as a
-- whole; 1: pass by what is not free; 2: wait a second; 3: wait, as transactions do; 4: wait a moment, for flows too.
--
-- Calls cannot deadlock: a call that waits for several rows does so in their order, flows before jobs. The statements
-- below wait in the order of the jobs as well, but one of them after the other. So where more than the first may have to
-- wait, all rows are locked before it; and the rest, which comes last, waits for nothing that is not locked by then.
-- Of racing settlements of one job the first to lock its row is applied (SET-10, CAN-9).
CREATE FUNCTION th_settle_v1(
  p_patience bigint, p_now bigint, p_ids text[], p_tokens uuid[], p_kinds text[], p_outputs bytea[], p_attempts bigint[],
  p_errors text[], p_failed_ats bigint[], p_run_ats bigint[], p_reasons text[],
  e_items bigint[], e_tails bigint[], e_owners bigint[], e_ids text[], e_queues text[], e_types text[],
  e_payloads bytea[], e_priorities bigint[], e_run_ats bigint[], e_timeouts bigint[], e_max_attempts bigint[],
  e_headers text[], e_policies text[], e_kinds text[], e_edge_owners bigint[], e_children bigint[], e_parents bigint[],
  p_notify text
) RETURNS TABLE (ord bigint, verdict text, detail text, wakes text[])
LANGUAGE plpgsql SET search_path = {schema}, pg_temp SET plan_cache_mode = force_generic_plan SET jit = off
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
#variable_conflict use_column
DECLARE
  v_count  int := cardinality(p_ids);
  v_wait   boolean := p_patience >= 2;
  v_flows  bigint[] := '{}';        -- those that are locked
  v_free   bigint[];
  v_mixed  boolean := 'r' = ANY (p_kinds) OR 'l' = ANY (p_kinds);
  v_ended  bigint[];
  v_put    bigint[] := '{}';
  v_queues text[];
  v_wakes  text[] := '{}';
  v_rest   record;
BEGIN
  IF p_patience <> 3 THEN
    PERFORM set_config('lock_timeout', CASE p_patience WHEN 2 THEN '1s' ELSE '250ms' END, true);
  END IF;
  IF v_wait THEN
    v_flows := ARRAY(
      SELECT f.seq FROM th_flow f
      WHERE f.seq = ANY (ARRAY(
        SELECT j.flow FROM unnest(p_ids) AS i (id)
        CROSS JOIN LATERAL (SELECT x.flow FROM th_job x WHERE x.id = i.id OFFSET 0) j))
      ORDER BY f.seq FOR UPDATE);
  END IF;
  IF v_wait OR p_patience = 1 OR v_count > 1 AND v_mixed THEN
    -- One after another, in their order; with patience 1 those that are free.
    v_free := ARRAY(
      SELECT coalesce(waited.seq, free.seq) FROM (
        SELECT j.seq, i.token FROM unnest(p_ids, p_tokens) AS i (id, token)
        CROSS JOIN LATERAL (SELECT x.seq, x.flow FROM th_job x WHERE x.id = i.id OFFSET 0) j
        WHERE j.flow IS NULL OR j.flow = ANY (v_flows) ORDER BY j.seq OFFSET 0
      ) s
      LEFT JOIN LATERAL (
        SELECT y.seq FROM th_hot y
        WHERE p_patience <> 1 AND y.seq = s.seq AND (v_wait OR y.secret = s.token) FOR UPDATE) waited ON true
      LEFT JOIN LATERAL (
        SELECT y.seq FROM th_hot y
        WHERE p_patience = 1 AND y.seq = s.seq AND y.secret = s.token FOR UPDATE SKIP LOCKED) free ON true);
    IF p_patience <> 1 THEN
      v_free := NULL;
    END IF;
  END IF;

  -- Those that end: acknowledged (SET-1), dead-lettered (SET-3), or cancelled because that was asked for (CAN-4).
  WITH item AS (
    SELECT i.*, j.seq FROM unnest(p_ids, p_tokens, p_kinds, p_outputs, p_attempts, p_errors, p_failed_ats, p_reasons)
      WITH ORDINALITY AS i (id, token, kind, output, attempts, error, failed_at, reason, ord)
    CROSS JOIN LATERAL (SELECT x.seq, x.flow FROM th_job x WHERE x.id = i.id OFFSET 0) j
    WHERE j.flow IS NULL AND (v_free IS NULL OR j.seq = ANY (v_free)) ORDER BY j.seq
  ), gone AS (
    DELETE FROM th_hot h USING item i
    WHERE h.seq = ANY (ARRAY[i.seq]) AND h.secret = i.token AND h.lease_exp > p_now AND (i.kind IN ('a', 'f') OR h.cancel)
    RETURNING h.*, i.ord, i.kind, i.output, i.attempts AS failed_attempts, i.error, i.failed_at, i.reason,
      CASE WHEN i.kind = 'a' THEN 'd' WHEN h.cancel THEN 'c' ELSE 'q' END::"char" AS ends_as
  ), noted AS (
    INSERT INTO th_error (seq, failure, attempts, failed_at, error)
    SELECT g.seq, coalesce(g.failures, 0) + 1, g.failed_attempts, g.failed_at, g.error FROM gone g WHERE g.kind IN ('r', 'f')
  ), ended AS (
    UPDATE th_job j SET
      state = g.ends_as, finished_at = p_now, kept_until = g.lease_exp, secret = g.secret, started_at = g.started_at,
      deliveries = g.deliveries, priority = g.priority, run_at = g.run_at, expirations = g.expirations, epoch = g.epoch,
      attempt_limit = g.attempt_limit, progress = g.progress,
      attempts = CASE WHEN g.kind IN ('r', 'f') THEN nullif(g.failed_attempts, 0) ELSE g.attempts END,
      failures = CASE WHEN g.kind IN ('r', 'f') THEN coalesce(g.failures, 0) + 1 ELSE g.failures END,
      output = CASE WHEN g.kind = 'a' THEN g.output END,
      reason = CASE WHEN g.ends_as = 'q' THEN g.reason END
    FROM gone g WHERE j.seq = ANY (ARRAY[g.seq])
    RETURNING g.ord, j.seq, j.queue, j.state, j.kept_until, j.failures,
      CASE WHEN j.key_hold = 't' OR j.key_hold = 'd' AND j.state = 'd' THEN j.idempotency_key END AS free_key
  ), listed AS (
    INSERT INTO th_end (queue, state, kept_until, seqs)
    SELECT e.queue, e.state, e.kept_until, array_agg(e.seq) FROM ended e GROUP BY 1, 2, 3
  ), freed AS (
    DELETE FROM th_key WHERE ctid = ANY (ARRAY(
      SELECT k.row FROM ended e CROSS JOIN LATERAL (
        SELECT x.ctid AS row FROM th_key x WHERE x.queue = e.queue AND x.key = e.free_key AND x.seq = e.seq OFFSET 0) k
      WHERE e.free_key IS NOT NULL))
  ), forgotten AS (
    DELETE FROM th_error x USING ended e WHERE e.failures > 10 AND x.seq = ANY (ARRAY[e.seq]) AND x.failure <= e.failures - 10
  )
  SELECT coalesce(array_agg(e.ord), '{}') INTO v_ended FROM ended e;

  IF cardinality(v_ended) < v_count AND v_mixed THEN
    -- Those that wait again: retried (SET-2, LEA-6), or released (SET-4).
    WITH item AS (
      SELECT i.*, j.seq FROM unnest(p_ids, p_tokens, p_kinds, p_attempts, p_errors, p_failed_ats, p_run_ats)
        WITH ORDINALITY AS i (id, token, kind, attempts, error, failed_at, run_at, ord)
      CROSS JOIN LATERAL (SELECT x.seq, x.flow FROM th_job x WHERE x.id = i.id OFFSET 0) j
      WHERE j.flow IS NULL AND i.kind IN ('r', 'l') AND (v_free IS NULL OR j.seq = ANY (v_free)) ORDER BY j.seq
    ), put AS (
      UPDATE th_hot h SET
        lease_exp = NULL, secret = NULL, holder = NULL, due_at = NULL,
        line_at = CASE WHEN i.kind = 'l' AND i.run_at IS NULL THEN coalesce(h.due_at, h.line_at)
                       ELSE greatest(i.run_at, p_now) END,
        run_at = CASE WHEN i.kind = 'l' AND i.run_at IS NULL THEN h.run_at ELSE i.run_at END,
        attempts = CASE WHEN i.kind = 'r' THEN nullif(i.attempts, 0) ELSE h.attempts END,
        failures = CASE WHEN i.kind = 'r' THEN coalesce(h.failures, 0) + 1 ELSE h.failures END,
        expirations = CASE WHEN i.kind = 'r' THEN NULL ELSE h.expirations END
      FROM item i
      WHERE h.seq = ANY (ARRAY[i.seq]) AND h.secret = i.token AND h.lease_exp > p_now AND h.cancel IS NULL
      RETURNING i.ord, h.seq, h.queue, h.failures, i.kind, i.attempts, i.failed_at, i.error
    ), noted AS (
      INSERT INTO th_error (seq, failure, attempts, failed_at, error)
      SELECT p.seq, p.failures, p.attempts, p.failed_at, p.error FROM put p WHERE p.kind = 'r'
    ), forgotten AS (
      DELETE FROM th_error x USING put p
      WHERE p.kind = 'r' AND p.failures > 10 AND x.seq = ANY (ARRAY[p.seq]) AND x.failure <= p.failures - 10
    )
    SELECT coalesce(array_agg(p.ord), '{}'), array_agg(DISTINCT p.queue) INTO v_put, v_queues FROM put p;
    v_wakes := v_wakes || coalesce(v_queues, '{}');
  END IF;

  IF cardinality(v_ended) + cardinality(v_put) < v_count THEN
    FOR v_rest IN
      SELECT * FROM th_settle_rest(
        p_patience, p_now, p_ids, p_tokens, p_kinds, p_outputs, p_attempts, p_errors, p_failed_ats, p_run_ats, p_reasons,
        e_items, e_tails, e_owners, e_ids, e_queues, e_types, e_payloads, e_priorities, e_run_ats, e_timeouts,
        e_max_attempts, e_headers, e_policies, e_kinds, e_edge_owners, e_children, e_parents,
        ARRAY(SELECT bool_or(s.is_settled) FROM (
                SELECT n AS ord, false AS is_settled FROM generate_series(1::bigint, v_count) AS n
                UNION ALL
                SELECT n, true FROM unnest(v_ended || v_put) AS n
              ) s GROUP BY s.ord ORDER BY s.ord))
    LOOP
      IF NOT v_rest.wakes <@ v_wakes THEN
        v_wakes := v_wakes || v_rest.wakes;
      END IF;
      IF v_rest.verdict <> 'applied' THEN
        RETURN QUERY SELECT v_rest.ord, v_rest.verdict, v_rest.detail, NULL::text[];
      END IF;
    END LOOP;
  END IF;
  PERFORM th_notify(p_notify, v_wakes);
  RETURN QUERY SELECT NULL::bigint, NULL::text, NULL::text, v_wakes;
END $$;

-- The items that could not be settled all at once: members of flows, expansions, and what is refused. A row for each, and
-- one more that belongs to none.
CREATE FUNCTION th_settle_rest(
  p_patience bigint, p_now bigint, p_ids text[], p_tokens uuid[], p_kinds text[], p_outputs bytea[], p_attempts bigint[],
  p_errors text[], p_failed_ats bigint[], p_run_ats bigint[], p_reasons text[],
  e_items bigint[], e_tails bigint[], e_owners bigint[], e_ids text[], e_queues text[], e_types text[],
  e_payloads bytea[], e_priorities bigint[], e_run_ats bigint[], e_timeouts bigint[], e_max_attempts bigint[],
  e_headers text[], e_policies text[], e_kinds text[], e_edge_owners bigint[], e_children bigint[], e_parents bigint[],
  p_settled boolean[]
) RETURNS TABLE (ord bigint, verdict text, detail text, wakes text[]) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_flows  bigint[];
  v_locked bigint[];
  v_busy   bigint[] := '{}';
  v_firsts bigint[];                -- where the jobs and the edges of each expansion begin and end
  v_lasts  bigint[];
  v_edges  bigint[];
  v_ends   bigint[];
  v_expansion bigint := 1;
  v_acked  bigint[] := '{}';        -- done in this order; the edges to them are still to be closed
  v_of     bigint[];                -- the flow of each item that is not settled
  v_seqs   bigint[];                -- and its number
  v_until  bigint := 0;             -- acks up to here are dealt with
  v_set    record;
  v_done   bigint[] := '{}';
  v_cancel boolean;
  i        record;
  v_answer record;
BEGIN
  SELECT array_agg(j.seq ORDER BY g.ord), array_agg(j.flow ORDER BY g.ord) INTO v_seqs, v_of
  FROM unnest(p_ids, p_settled) WITH ORDINALITY AS g (id, is_settled, ord)
  LEFT JOIN LATERAL (SELECT x.seq, x.flow FROM th_job x WHERE x.id = g.id AND NOT g.is_settled OFFSET 0) j ON true;
  v_flows := ARRAY(SELECT DISTINCT f FROM unnest(v_of) AS f WHERE f IS NOT NULL ORDER BY f);
  -- A call that waits has locked these flows already. A flow that a job has joined since is skipped: the transaction
  -- that has it may be waiting for rows locked here.
  IF cardinality(v_flows) > 0 AND p_patience = 3 THEN
    PERFORM f.seq FROM th_flow f WHERE f.seq = ANY (v_flows) ORDER BY f.seq FOR UPDATE;
  ELSIF cardinality(v_flows) > 0 THEN
    v_locked := ARRAY(SELECT f.seq FROM th_flow f WHERE f.seq = ANY (v_flows) ORDER BY f.seq FOR UPDATE SKIP LOCKED);
    v_busy := ARRAY(SELECT unnest(v_flows) EXCEPT SELECT unnest(v_locked));
  END IF;
  IF cardinality(e_items) > 0 THEN
    SELECT array_agg(g.first ORDER BY g.item), array_agg(g.last ORDER BY g.item) INTO v_firsts, v_lasts
    FROM (SELECT item, min(n) AS first, max(n) AS last FROM unnest(e_owners) WITH ORDINALITY AS g (item, n) GROUP BY item) g;
    SELECT array_agg(g.first ORDER BY g.item), array_agg(g.last ORDER BY g.item) INTO v_edges, v_ends
    FROM (
      SELECT item, min(n) AS first, max(n) AS last FROM (
        SELECT item, n FROM unnest(e_edge_owners) WITH ORDINALITY AS e (item, n)
        UNION ALL
        SELECT item, NULL FROM unnest(e_items) AS item
      ) e GROUP BY item
    ) g;
  END IF;

  -- Most calls have nothing but acks, and are over with these.
  v_until := th_ack_run(0, p_kinds, p_settled);
  v_set := th_ack_members(p_now, v_busy, 1, v_until, p_tokens, p_outputs, p_settled, v_seqs, v_of);
  p_settled := v_set.settled;
  v_acked := v_set.acked;
  v_done := v_set.flows;

  FOR i IN
    SELECT g.*
    FROM unnest(
        p_tokens, p_kinds, p_outputs, p_attempts, p_errors, p_failed_ats, p_run_ats, p_reasons, p_settled, v_seqs, v_of)
      WITH ORDINALITY AS g (token, kind, output, attempts, error, failed_at, run_at, reason, is_settled, seq, flow, ord)
    WHERE NOT g.is_settled ORDER BY g.ord
  LOOP
    ord := i.ord;
    detail := NULL;
    wakes := '{}';
    IF i.kind = 'a' AND i.ord > v_until THEN
      v_until := th_ack_run(i.ord, p_kinds, p_settled);
      v_set := th_ack_members(p_now, v_busy, i.ord, v_until, p_tokens, p_outputs, p_settled, v_seqs, v_of);
      p_settled := v_set.settled;
      v_acked := v_acked || v_set.acked;
      v_done := v_done || v_set.flows;
    END IF;
    CONTINUE WHEN p_settled[i.ord];
    -- A job that has joined a flow since was ended by the transaction that put it there.
    IF i.flow = ANY (v_busy) THEN
      verdict := 'busy';
    ELSE
      -- The jobs settled so far are locked, so rows that another transaction has are not waited for.
      SELECT h.cancel INTO v_cancel FROM th_hot h WHERE h.seq = i.seq FOR UPDATE SKIP LOCKED;
      IF NOT FOUND AND EXISTS (SELECT FROM th_hot h WHERE h.seq = i.seq) AND p_patience <> 3 THEN
        verdict := 'busy';
      ELSE
        verdict := th_authorize(i.seq, i.token, i.kind, p_now);
      END IF;
    END IF;
    IF verdict = 'applied' THEN
      -- Acks next to each other unblock their dependants together: a join of many parents would otherwise be written
      -- once for each. A settlement that may cancel other jobs has to find all that came before it.
      IF cardinality(v_acked) > 0 AND (i.kind IN ('f', 'e') OR v_cancel AND i.kind <> 'a') THEN
        wakes := th_unblock(th_close_edges(v_acked, p_now), p_now);
        v_acked := '{}';
      END IF;
      IF i.kind = 'e' THEN
        WHILE e_items[v_expansion] < i.ord LOOP
          v_expansion := v_expansion + 1;
        END LOOP;
        FOR attempt IN 1..20 LOOP
          BEGIN
            v_answer := th_settle_expansion(
              i.seq, p_now, e_tails[v_expansion], v_firsts[v_expansion], v_lasts[v_expansion], v_edges[v_expansion], v_ends[v_expansion],
              e_ids, e_queues, e_types, e_payloads, e_priorities, e_run_ats, e_timeouts, e_max_attempts, e_headers,
              e_policies, e_kinds, e_children, e_parents);
            EXIT;
          EXCEPTION WHEN unique_violation THEN
            -- Another transaction stored a job of the expansion meanwhile: look again.
            IF attempt = 20 THEN
              RAISE serialization_failure USING MESSAGE = 'other transactions keep storing the jobs of an expansion: try again';
            END IF;
          END;
        END LOOP;
        IF v_answer.overlap IS NOT NULL THEN
          verdict := 'overlap';
          detail := v_answer.overlap;
        END IF;
      ELSE
        v_answer := th_settle_member(i.seq, NULL, i.kind, p_now, i.output, i.attempts::int, i.error, i.failed_at, i.run_at, i.reason);
        IF i.kind = 'a' THEN
          v_acked := v_acked || i.seq;
        END IF;
      END IF;
      IF verdict = 'applied' THEN
        wakes := wakes || v_answer.wakes;
        v_done := v_done || v_answer.flow;
      END IF;
    END IF;
    RETURN NEXT;
  END LOOP;
  IF cardinality(v_acked) > 0 THEN
    ord := NULL;
    verdict := 'applied';
    detail := NULL;
    wakes := th_unblock(th_close_edges(v_acked, p_now), p_now);
    RETURN NEXT;
  END IF;
  PERFORM th_retire(ARRAY(SELECT DISTINCT f FROM unnest(v_done) AS f WHERE f IS NOT NULL));
END $$;

-- Where the acks that follow each other after this item end: before the next that is something else.
CREATE FUNCTION th_ack_run(p_after bigint, p_kinds text[], p_settled boolean[]) RETURNS bigint LANGUAGE sql STABLE AS $$
  SELECT coalesce(min(o.n) - 1, cardinality(p_kinds)) FROM unnest(p_kinds, p_settled) WITH ORDINALITY AS o (kind, is_settled, n)
  WHERE o.n > p_after AND o.kind <> 'a' AND NOT o.is_settled
$$;

-- Acknowledges those members among the given items that are free and whose tokens may, all at once; the edges that lead
-- to them are still to be closed. Answers what is settled after that, their numbers in the order of the items, and their
-- flows, which are locked.
CREATE FUNCTION th_ack_members(
  p_now bigint, p_busy bigint[], p_from bigint, p_until bigint, p_tokens uuid[], p_outputs bytea[], p_settled boolean[],
  p_seqs bigint[], p_flows bigint[], OUT settled boolean[], OUT acked bigint[], OUT flows bigint[]
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_ords bigint[];
BEGIN
  settled := p_settled;
  WITH item AS (
    SELECT i.ord, i.token, i.output, i.seq
    FROM unnest(p_tokens, p_outputs, p_settled, p_seqs, p_flows)
      WITH ORDINALITY AS i (token, output, is_settled, seq, flow, ord)
    WHERE i.ord BETWEEN p_from AND p_until AND NOT i.is_settled AND i.flow IS NOT NULL AND i.flow <> ALL (p_busy)
    ORDER BY i.seq
  ), free AS (
    -- Rows that another transaction has are not waited for.
    SELECT h.seq, i.ord, i.output FROM item i CROSS JOIN LATERAL (
      SELECT x.seq FROM th_hot x WHERE x.seq = i.seq AND x.secret = i.token AND x.lease_exp > p_now
      FOR UPDATE SKIP LOCKED) h
  ), gone AS (
    DELETE FROM th_hot h USING free f WHERE h.seq = ANY (ARRAY[f.seq]) RETURNING h.*, f.ord, f.output
  ), ended AS (
    UPDATE th_job j SET
      state = 'd', finished_at = p_now, kept_until = g.lease_exp, secret = g.secret, started_at = g.started_at,
      deliveries = g.deliveries, priority = g.priority, run_at = g.run_at, expirations = g.expirations, epoch = g.epoch,
      attempt_limit = g.attempt_limit, progress = g.progress, failures = g.failures, attempts = g.attempts,
      output = g.output
    FROM gone g WHERE j.seq = ANY (ARRAY[g.seq])
    RETURNING g.ord, j.seq, j.queue, j.flow, j.kept_until
  ), listed AS (
    INSERT INTO th_end (queue, state, kept_until, flow, seqs)
    SELECT e.queue, 'd', e.kept_until, e.flow, array_agg(e.seq ORDER BY e.seq) FROM ended e GROUP BY 1, 3, 4
  )
  SELECT coalesce(array_agg(e.ord), '{}'), coalesce(array_agg(e.seq ORDER BY e.ord), '{}'),
    coalesce(array_agg(DISTINCT e.flow), '{}')
  INTO v_ords, acked, flows FROM ended e;
  FOR n IN 1..cardinality(v_ords) LOOP
    settled[v_ords[n]] := true;
  END LOOP;
END $$;

-- Settles one job that its token may settle, whose row and flow are locked: the flow that is given, or the one it is in.
-- After an ack, the edges that lead to it are still to be closed.
CREATE FUNCTION th_settle_member(
  p_seq bigint, p_flow bigint, p_kind text, p_now bigint, p_output bytea, p_attempts int, p_error text, p_failed_at bigint,
  p_run_at bigint, p_reason text, OUT wakes text[], OUT flow bigint
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  h          th_hot;
  v_kind     text := p_kind;
  v_state    "char";
  v_failures int;
BEGIN
  wakes := '{}';
  SELECT x.* INTO h FROM th_hot x WHERE x.seq = p_seq;
  flow := coalesce(p_flow, h.flow);
  v_failures := h.failures;
  IF h.cancel AND p_kind <> 'a' THEN
    v_kind := 'x'; -- Abandoned: CAN-3, CAN-4.
  END IF;
  IF p_kind IN ('r', 'f') THEN
    v_failures := th_record_error(p_seq, h.failures, p_attempts, p_failed_at, p_error);
  END IF;

  IF v_kind IN ('r', 'l') THEN
    UPDATE th_hot x SET
      lease_exp = NULL, secret = NULL, holder = NULL, due_at = NULL,
      line_at = CASE WHEN v_kind = 'l' AND p_run_at IS NULL THEN coalesce(x.due_at, x.line_at)
                     ELSE greatest(p_run_at, p_now) END,
      run_at = CASE WHEN v_kind = 'l' AND p_run_at IS NULL THEN x.run_at ELSE p_run_at END,
      attempts = CASE WHEN v_kind = 'r' THEN nullif(p_attempts, 0) ELSE x.attempts END,
      failures = v_failures,
      expirations = CASE WHEN v_kind = 'r' THEN NULL ELSE x.expirations END
    WHERE x.seq = p_seq;
    wakes := ARRAY[h.queue];
    RETURN;
  END IF;

  v_state := CASE v_kind WHEN 'a' THEN 'd' WHEN 'e' THEN 'd' WHEN 'f' THEN 'q' ELSE 'c' END;
  DELETE FROM th_hot x WHERE x.seq = p_seq;
  UPDATE th_job j SET
    state = v_state, finished_at = p_now, kept_until = h.lease_exp, secret = h.secret, started_at = h.started_at,
    deliveries = h.deliveries, priority = h.priority, run_at = h.run_at, expirations = h.expirations, epoch = h.epoch,
    attempt_limit = h.attempt_limit, progress = h.progress, failures = v_failures,
    attempts = CASE WHEN p_kind IN ('r', 'f') THEN nullif(p_attempts, 0) ELSE h.attempts END,
    output = CASE WHEN v_kind = 'a' THEN p_output END, reason = CASE WHEN v_kind = 'f' THEN p_reason END
  WHERE j.seq = p_seq;
  INSERT INTO th_end (queue, state, kept_until, flow, seqs)
  VALUES (h.queue, v_state, h.lease_exp, th_settle_member.flow, ARRAY[p_seq]);

  IF v_kind IN ('f', 'x') THEN
    PERFORM th_free_keys(ARRAY[p_seq]);
    wakes := th_propagate_failure(p_seq, p_now);
  END IF;
END $$;

-- Makes a job done, stores its expansion, and puts the expansion's tail in its place. Answers the first job of the
-- expansion that is stored already, and then nothing has happened. EXP-1, EXP-3.
CREATE FUNCTION th_settle_expansion(
  p_seq bigint, p_now bigint, p_tail bigint, p_first bigint, p_last bigint, p_first_edge bigint, p_last_edge bigint,
  e_ids text[], e_queues text[], e_types text[], e_payloads bytea[], e_priorities bigint[], e_run_ats bigint[],
  e_timeouts bigint[], e_max_attempts bigint[], e_headers text[], e_policies text[], e_kinds text[], e_children bigint[],
  e_parents bigint[], OUT overlap text, OUT wakes text[], OUT flow bigint
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_cancel boolean;
  v_policy text := (SELECT on_failure::text FROM th_job WHERE seq = p_seq);
  v_id     text := e_ids[p_first + p_tail - 1];
  v_added  record;
BEGIN
  SELECT h.flow, h.cancel INTO flow, v_cancel FROM th_hot h WHERE h.seq = p_seq;
  IF v_cancel THEN
    -- CAN-5
    SELECT m.wakes INTO wakes FROM th_settle_member(p_seq, NULL, 'e', p_now, NULL, NULL, NULL, NULL, NULL, NULL) m;
    RETURN;
  END IF;
  SELECT e_ids[n] INTO overlap FROM generate_series(p_first, p_last) AS n
  CROSS JOIN LATERAL (SELECT FROM th_job x WHERE x.id = e_ids[n] OFFSET 0) j ORDER BY n LIMIT 1;
  IF FOUND THEN
    RETURN;
  END IF;
  IF flow IS NULL THEN
    -- The job becomes a flow of its own.
    INSERT INTO th_flow (seq, id, created_at, tail) SELECT nextval('th_seq'), j.id, p_now, j.seq FROM th_job j WHERE j.seq = p_seq
    RETURNING seq INTO flow;
    UPDATE th_job SET flow = th_settle_expansion.flow WHERE seq = p_seq;
  END IF;
  PERFORM th_settle_member(p_seq, flow, 'e', p_now, NULL, NULL, NULL, NULL, NULL, NULL);
  -- The dependants go by the policy of the job that expanded, and wait for the tail from now on. EXP-2, FAI-5.
  v_added := th_add_members(
    flow, p_now, p_first, p_last, e_ids, e_queues, e_types, e_payloads, e_priorities, e_run_ats, e_timeouts,
    e_max_attempts, e_headers, e_policies, e_kinds, NULL, NULL, NULL, p_tail, v_policy, p_first_edge, p_last_edge, e_children,
    e_parents);
  UPDATE th_edge SET parent = v_added.tail, parent_id = v_id WHERE parent = p_seq AND tie IN ('o', 'f');
  UPDATE th_job SET expanded_into = v_added.tail, expanded_id = v_id WHERE seq = p_seq;
  -- EXP-5
  UPDATE th_flow SET tail = v_added.tail WHERE seq = th_settle_expansion.flow AND tail = p_seq;
  wakes := v_added.wakes;
  IF v_added.tail_is_done THEN
    -- EXP-4
    wakes := wakes || th_unblock(th_close_edges(ARRAY[v_added.tail], p_now), p_now);
  END IF;
END $$;
