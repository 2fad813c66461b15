-- Recording the outcomes of inflight jobs.

-- A settlement of one job. The number and the flow are those of the job with the id. The reason of a release is the
-- note that is stored with the job.
CREATE TYPE th_item AS (
  ord bigint, seq bigint, flow bigint, token bigint, kind th_transition, output bytea, attempts int, error text,
  failed_at bigint, run_at bigint, reason text
);

-- Acknowledges jobs by the numbers and tokens of their leases. Returns the numbers of the jobs that it did not
-- acknowledge, for which the caller then calls th_settle_v1, and the queues in which there is work now. SET-1.
--
-- The flow of the first job is locked beforehand, since most calls are about jobs of one flow, or of none. Other flows
-- are locked while jobs are, and therefore not waited for.
CREATE FUNCTION th_ack_v1(
  p_now bigint, p_seqs bigint[], p_tokens bigint[], p_outputs bytea[], OUT remaining bigint[], OUT wakes text[]
) LANGUAGE plpgsql {settings} SET enable_hashjoin = off SET enable_mergejoin = off SET lock_timeout = '250ms' AS $$
DECLARE
  v_flows   bigint[] := ARRAY(SELECT l.flow FROM th_live l WHERE l.seq = p_seqs[1] AND l.flow IS NOT NULL);
  v_acked   record;
  v_members bigint[] := '{}';
  v_changed bigint[] := '{}';
  v_queues  text[] := '{}';         -- of the jobs, as long as a queue is starved
BEGIN
  remaining := p_seqs;
  wakes := '{}';
  FOR pass IN 1..2 LOOP
    v_flows := ARRAY(SELECT unnest(v_flows) EXCEPT SELECT unnest(th_lock_flows(v_flows, false)));
    v_acked := th_ack_free(p_now, p_seqs, p_tokens, p_outputs, v_flows);
    v_members := v_members || v_acked.members;
    v_changed := v_changed || v_flows;
    v_queues := v_queues || v_acked.queues;
    IF cardinality(v_acked.done) = cardinality(remaining) THEN
      remaining := '{}';
      EXIT;
    END IF;
    remaining := ARRAY(SELECT unnest(remaining) EXCEPT SELECT unnest(v_acked.done));
    v_flows := ARRAY(SELECT DISTINCT l.flow FROM th_live l WHERE l.seq = ANY (remaining) AND l.flow IS NOT NULL ORDER BY 1);
    EXIT WHEN v_flows = '{}';
  END LOOP;
  IF v_members <> '{}' THEN
    wakes := th_unblock_dependants(v_members, p_now);
    PERFORM th_retire(v_changed);
  END IF;
  wakes := wakes || th_starved_of(v_queues);
END $$;

-- Acknowledges jobs in no flow or in one of these, which are locked. Rows are waited for in the order of their numbers.
-- Returns the jobs, the members among them in the order given, and their queues if a queue is starved.
CREATE FUNCTION th_ack_free(
  p_now bigint, p_seqs bigint[], p_tokens bigint[], p_outputs bytea[], p_flows bigint[], OUT done bigint[], OUT members bigint[],
  OUT queues text[]
) LANGUAGE plpgsql AS $$
DECLARE
  v_is_starved boolean := EXISTS (SELECT FROM th_limit m WHERE m.starved_since IS NOT NULL);
BEGIN
  WITH gone AS (
    DELETE FROM th_live l USING (
      SELECT * FROM unnest(p_seqs, p_tokens, p_outputs) WITH ORDINALITY AS i (seq, token, output, ord) ORDER BY i.seq OFFSET 0
    ) i
    WHERE l.seq = ANY (ARRAY[i.seq]) AND l.lease_token = i.token AND l.lease_expires_at > p_now AND l.is_special IS NULL
      AND (l.flow IS NULL OR l.flow = ANY (p_flows))
    RETURNING l.seq, l.queue, l.flow, l.lease_expires_at, l.started_at, l.lease_token, l.run_at, l.priority, l.deliveries,
      l.attempts, l.expirations, l.failures, l.epoch, l.attempt_limit, l.progress, i.output, i.ord,
      nullif(l.deliveries > 1 OR l.progress IS NOT NULL OR l.failures IS NOT NULL OR i.output IS NOT NULL, false) AS has_outcome
  ), described AS (
    INSERT INTO th_outcome (seq, run_at, priority, deliveries, attempts, expirations, failures, epoch, attempt_limit,
                            progress, output)
    SELECT g.seq, g.run_at, g.priority, g.deliveries, g.attempts, g.expirations, g.failures, g.epoch, g.attempt_limit,
      g.progress, g.output
    FROM gone g WHERE g.has_outcome
  ), listed AS (
    INSERT INTO th_finished (first, kept_until, finished_at, started_at, lease_token, flow, state, has_outcomes, queue, offsets)
    SELECT min(g.seq), g.lease_expires_at, p_now, g.started_at, g.lease_token, g.flow, 'done', bool_or(g.has_outcome), g.queue,
      array_agg((g.seq & 511)::smallint ORDER BY g.seq)
    FROM gone g GROUP BY g.seq >> 9, g.lease_expires_at, g.started_at, g.lease_token, g.flow, g.queue
  )
  SELECT coalesce(array_agg(g.seq), '{}'), coalesce(array_agg(g.seq ORDER BY g.ord) FILTER (WHERE g.flow IS NOT NULL), '{}'),
    ARRAY(SELECT DISTINCT q.queue FROM gone q WHERE v_is_starved)
  INTO done, members, queues FROM gone g;
END $$;

-- Whether a token may record this kind of outcome: the first reason against it, `already` if the token has recorded the
-- same before, or `applied`. REF-1, SET-6, SET-7, SET-8, EXP-6.
CREATE FUNCTION th_authorize(p_seq bigint, p_token bigint, p_kind th_transition, p_now bigint) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
  RETURN coalesce((
    SELECT CASE
        WHEN f.lease_token = p_token AND CASE p_kind
            WHEN 'ack' THEN f.state = 'done' AND j.expanded_id IS NULL
            WHEN 'expand' THEN f.state = 'cancelled' OR j.expanded_id IS NOT NULL
            WHEN 'fail' THEN f.state IN ('dlq', 'cancelled')
            ELSE f.state = 'cancelled' END THEN 'already'
        WHEN l.lease_expires_at IS NULL THEN 'not_inflight'
        WHEN l.lease_token <> p_token THEN 'mismatch'
        WHEN l.lease_expires_at <= p_now THEN 'expired'
        ELSE 'applied' END
    FROM th_job j LEFT JOIN th_live l ON l.seq = j.seq LEFT JOIN LATERAL th_finished_row(CASE WHEN l.seq IS NULL THEN j.seq END) f ON true
    WHERE j.seq = p_seq), 'not_found');
END $$;

-- Settles jobs. Returns only what is not simply applied: which item, and why not. Then a row without an item: the
-- queues in which there is work now. What an item does not say is NULL, and an array that would hold nothing else is
-- empty.
--
-- Jobs in no flow are settled all at once. The rest is done in order under the lock of its flow, acks that follow each
-- other all at once (SET-9). Where another transaction has the lock and the call may not wait for it, the item is answered
-- `busy` and nothing happens to it (REF-6): so a transaction that is kept open holds up its own flow alone. A call that
-- waits does so for p_wait_ms at most and then fails as a whole; NULL waits as the transaction does.
--
-- Calls cannot deadlock: a call that waits for several rows does so in their order, flows before jobs, and locks all of
-- them before it changes any. What comes after that waits for nothing. Of racing settlements of one job the first to lock
-- its row is applied (SET-10, CAN-9).
CREATE FUNCTION th_settle_v1(
  p_wait_ms bigint, p_wait_for_jobs boolean, p_wait_for_flows boolean, p_now bigint, p_ids text[], p_tokens bigint[],
  p_imported uuid[], p_kinds text[], p_outputs bytea[], p_attempts bigint[], p_errors text[], p_failed_ats bigint[],
  p_run_ats bigint[], p_reasons text[], p_notify text
) RETURNS TABLE (ord bigint, verdict text, detail text, wakes text[])
LANGUAGE plpgsql {settings} SET enable_hashjoin = off SET enable_mergejoin = off AS $$
#variable_conflict use_column
DECLARE
  v_tokens bigint[] := th_native_tokens(p_ids, p_tokens, p_imported);
  v_items  th_item[];
  v_locked th_item[];
  v_plain  record;
  v_rest   record;
  v_wakes  text[];
BEGIN
  PERFORM th_limit_lock_wait(p_wait_ms);
  SELECT array_agg(ROW(i.ord, j.seq, j.flow, i.token, i.kind, i.output, i.attempts, i.error, i.failed_at, i.run_at, i.reason)::th_item
                   ORDER BY i.ord)
  INTO v_items
  FROM unnest(p_ids, v_tokens, p_kinds, p_outputs, p_attempts, p_errors, p_failed_ats, p_run_ats, p_reasons)
    WITH ORDINALITY AS i (id, token, kind, output, attempts, error, failed_at, run_at, reason, ord)
  LEFT JOIN LATERAL (SELECT x.seq, x.flow FROM th_job x WHERE x.id = i.id OFFSET 0) j ON true;
  v_locked := th_lock_items(v_items, p_wait_for_jobs, p_wait_for_flows);
  v_plain := th_apply(ARRAY(SELECT i FROM unnest(v_locked) AS i WHERE i.flow IS NULL), p_now);
  v_wakes := v_plain.wakes;
  IF cardinality(v_plain.ords) < cardinality(v_items) THEN
    v_items := ARRAY(
      SELECT v_items[u.ord] FROM (SELECT i.ord FROM unnest(v_items) AS i UNION ALL SELECT unnest(v_plain.ords)) u
      GROUP BY u.ord HAVING count(*) = 1 ORDER BY u.ord);
    FOR v_rest IN SELECT * FROM th_settle_rest(v_items, p_wait_ms IS NULL, p_now) LOOP
      IF NOT v_rest.wakes <@ v_wakes THEN
        v_wakes := v_wakes || v_rest.wakes;
      END IF;
      IF v_rest.verdict <> 'applied' THEN
        RETURN QUERY SELECT v_rest.ord, v_rest.verdict, NULL::text, NULL::text[];
      END IF;
    END LOOP;
  END IF;
  v_wakes := v_wakes || th_starved_queues(ARRAY(SELECT i.seq FROM unnest(v_locked || v_items) AS i), p_wait_ms IS NULL);
  PERFORM th_notify(p_notify, v_wakes);
  RETURN QUERY SELECT NULL::bigint, NULL::text, NULL::text, v_wakes;
END $$;

-- Locks the flows of items and then their jobs, each in their order, as far as the caller waits for them; a row for which
-- it does not wait is locked if it is free. Returns the items whose jobs are locked and whose tokens are those of the
-- leases. The members of flows that are not locked are left alone.
CREATE FUNCTION th_lock_items(p_items th_item[], p_wait_for_jobs boolean, p_wait_for_flows boolean) RETURNS th_item[]
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_flows bigint[] := '{}';
BEGIN
  IF p_wait_for_flows THEN
    v_flows := ARRAY(
      SELECT f.seq FROM th_flow f WHERE f.seq = ANY (ARRAY(SELECT i.flow FROM unnest(p_items) AS i)) ORDER BY f.seq FOR UPDATE);
  END IF;
  IF p_wait_for_jobs THEN
    RETURN ARRAY(
      SELECT i.item FROM (
        SELECT i AS item, i.seq, i.token FROM unnest(p_items) AS i
        WHERE i.flow IS NULL OR i.flow = ANY (v_flows) ORDER BY i.seq OFFSET 0
      ) i CROSS JOIN LATERAL (
        SELECT FROM th_live l WHERE l.seq = i.seq AND l.lease_token = i.token FOR UPDATE) l);
  END IF;
  RETURN ARRAY(
    SELECT i.item FROM (
      SELECT i AS item, i.seq, i.token FROM unnest(p_items) AS i
      WHERE i.flow IS NULL OR i.flow = ANY (v_flows) ORDER BY i.seq OFFSET 0
    ) i CROSS JOIN LATERAL (
      SELECT FROM th_live l WHERE l.seq = i.seq AND l.lease_token = i.token FOR UPDATE SKIP LOCKED) l);
END $$;

-- Settles jobs that are locked, those of them whose leases are valid: acknowledged (SET-1), dead-lettered (SET-3), or
-- cancelled because that was requested (CAN-3, CAN-4); or waiting again. Returns the items, the jobs that failed, and the
-- queues in which there is work now.
CREATE FUNCTION th_apply(p_items th_item[], p_now bigint, OUT ords bigint[], OUT failed bigint[], OUT wakes text[])
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_ends   th_job_end[];
  v_put    th_item[];
  v_seqs       bigint[];            -- the failures to record
  v_failures   int[];
  v_attempts   bigint[];
  v_failed_ats bigint[];
  v_errors     text[];
BEGIN
  SELECT coalesce(array_agg(a.ord), '{}'), coalesce(array_agg(a.seq) FILTER (WHERE a.state <> 'done'), '{}'),
    array_agg(ROW(a.seq, a.state, true, a.attempts, a.failures, CASE WHEN a.state = 'dlq' THEN a.reason END, a.output)::th_job_end)
      FILTER (WHERE a.state IS NOT NULL),
    array_agg(a.item) FILTER (WHERE a.state IS NULL),
    array_agg(a.seq) FILTER (WHERE a.failures > 0), array_agg(a.failures) FILTER (WHERE a.failures > 0),
    array_agg(a.attempts::bigint) FILTER (WHERE a.failures > 0), array_agg(a.failed_at) FILTER (WHERE a.failures > 0),
    array_agg(a.error) FILTER (WHERE a.failures > 0)
  INTO ords, failed, v_ends, v_put, v_seqs, v_failures, v_attempts, v_failed_ats, v_errors
  FROM (
    SELECT i AS item, i.ord, i.seq, i.attempts, i.reason, i.output, i.failed_at, i.error,
      CASE WHEN i.kind IN ('retry', 'fail') THEN coalesce(l.failures, 0) + 1 END AS failures,
      CASE WHEN i.kind = 'ack' THEN 'done' WHEN l.cancel_requested THEN 'cancelled'
           WHEN i.kind = 'fail' THEN 'dlq' END::th_terminal AS state
    FROM unnest(p_items) AS i JOIN th_live l ON l.seq = ANY (ARRAY[i.seq]) AND l.lease_token = i.token AND l.lease_expires_at > p_now
  ) a;
  IF v_seqs IS NOT NULL THEN
    PERFORM th_record_errors(v_seqs, v_failures, v_attempts, v_failed_ats, v_errors);
  END IF;
  IF v_ends IS NOT NULL THEN
    PERFORM th_finish(v_ends, p_now, false, false);
  END IF;
  wakes := '{}';
  IF v_put IS NOT NULL THEN
    wakes := th_put_back(v_put, p_now);
  END IF;
END $$;

-- Jobs that wait again: retried (SET-2, SET-13, LEA-6), or released (SET-4, SET-12), after a handler had started (LEA-6)
-- or before. Returns their queues.
CREATE FUNCTION th_put_back(p_items th_item[], p_now bigint) RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE
  v_queues text[];
BEGIN
  WITH put AS (
    UPDATE th_live l SET
      lease_expires_at = NULL, lease_token = NULL, holder = NULL, moved_from = NULL, lease_mark = NULL,
      available_at = CASE WHEN i.kind <> 'retry' AND i.run_at IS NULL THEN coalesce(l.moved_from, l.available_at)
                          ELSE greatest(i.run_at, p_now) END,
      run_at = CASE WHEN i.kind <> 'retry' AND i.run_at IS NULL THEN l.run_at ELSE i.run_at END,
      attempts = CASE WHEN i.kind = 'retry' THEN nullif(i.attempts, 0) ELSE l.attempts END,
      failures = CASE WHEN i.kind = 'retry' THEN coalesce(l.failures, 0) + 1 ELSE l.failures END,
      expirations = CASE WHEN i.kind = 'release' THEN l.expirations END,
      released = CASE WHEN i.kind <> 'retry' THEN coalesce(i.reason, l.released) END,
      -- Its time is no longer the one it was enqueued with.
      is_special = CASE WHEN i.kind <> 'retry' AND i.run_at IS NULL THEN l.is_special ELSE true END,
      -- A job that is due later leaves its lane until then.
      is_in_lane = CASE WHEN i.run_at > p_now THEN NULL ELSE l.is_in_lane END
    FROM unnest(p_items) AS i WHERE l.seq = ANY (ARRAY[i.seq])
    RETURNING l.queue
  )
  SELECT array_agg(DISTINCT p.queue) INTO v_queues FROM put p;
  RETURN coalesce(v_queues, '{}');
END $$;

-- The items that could not be settled all at once: members of flows, and what is refused. A row for each that is not an
-- ack of a member, and one more that belongs to none.
CREATE FUNCTION th_settle_rest(p_items th_item[], p_waits boolean, p_now bigint)
RETURNS TABLE (ord bigint, verdict text, wakes text[]) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_busy    bigint[] := th_lock_flows(th_flows_of(p_items), p_waits);
  v_until   bigint := -1;           -- acks up to here were dealt with
  v_set     record;
  v_settled boolean[] := '{}';      -- by item
  v_ord     bigint;
  v_acked   bigint[] := '{}';       -- done in this order; their dependants are still to be unblocked
  v_flows   bigint[] := '{}';
  v_cancel  boolean;
  v_applied record;
  i         th_item;
BEGIN
  FOREACH i IN ARRAY p_items LOOP
    IF i.kind = 'ack' AND i.ord > v_until THEN
      v_set := th_ack_members(p_items, i.ord, v_busy, p_now);
      v_until := v_set.until;
      FOREACH v_ord IN ARRAY v_set.ords LOOP
        v_settled[v_ord] := true;
      END LOOP;
      v_acked := v_acked || v_set.acked;
      v_flows := v_flows || v_set.flows;
    END IF;
    CONTINUE WHEN v_settled[i.ord];
    ord := i.ord;
    wakes := '{}';
    verdict := th_try_item(i, v_busy, p_waits, p_now);
    v_cancel := (SELECT l.cancel_requested FROM th_live l WHERE l.seq = i.seq);
    IF verdict = 'applied' THEN
      -- Acks next to each other unblock their dependants together: a join of many parents would otherwise be written
      -- once for each. A settlement that may cancel other jobs has to find all that came before it.
      IF cardinality(v_acked) > 0 AND (i.kind = 'fail' OR v_cancel AND i.kind <> 'ack') THEN
        wakes := th_unblock_dependants(v_acked, p_now);
        v_acked := '{}';
      END IF;
      v_applied := th_apply(ARRAY[i], p_now);
      wakes := wakes || v_applied.wakes;
      v_flows := v_flows || i.flow;
      IF i.kind = 'ack' THEN
        v_acked := v_acked || i.seq;
      ELSIF cardinality(v_applied.failed) > 0 THEN
        wakes := wakes || th_propagate_failure(ARRAY[i.seq], p_now);
      END IF;
    END IF;
    RETURN NEXT;
  END LOOP;
  IF cardinality(v_acked) > 0 THEN
    ord := NULL;
    verdict := 'applied';
    wakes := th_unblock_dependants(v_acked, p_now);
    RETURN NEXT;
  END IF;
  PERFORM th_retire(ARRAY(SELECT DISTINCT f FROM unnest(v_flows) AS f WHERE f IS NOT NULL));
END $$;

-- Locks the job of an item and says whether its token may settle it, or `busy`. The jobs settled so far are locked, so a row
-- that another transaction has is not waited for, unless the transaction waits for everything. A job that has joined a flow
-- since was ended by the transaction that put it there. A token that is not that of the lease will not be again.
CREATE FUNCTION th_try_item(p_item th_item, p_busy bigint[], p_waits boolean, p_now bigint) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
  IF p_item.flow = ANY (p_busy) THEN
    RETURN 'busy';
  END IF;
  PERFORM FROM th_live l WHERE l.seq = p_item.seq AND l.lease_token = p_item.token FOR UPDATE SKIP LOCKED;
  IF NOT FOUND AND NOT p_waits
     AND EXISTS (SELECT FROM th_live l WHERE l.seq = p_item.seq AND l.lease_token = p_item.token) THEN
    RETURN 'busy';
  END IF;
  RETURN th_authorize(p_item.seq, p_item.token, p_item.kind, p_now);
END $$;

-- Locks flows, those that are free unless it waits. Returns the others. A call that waits has locked them before; a flow
-- that a job has joined since is skipped, because its transaction may be waiting for rows locked here.
CREATE FUNCTION th_lock_flows(p_flows bigint[], p_waits boolean) RETURNS bigint[] LANGUAGE plpgsql AS $$
BEGIN
  IF cardinality(p_flows) = 0 THEN
    RETURN '{}';
  END IF;
  -- With an older snapshot, what other transactions have done to the flow would not be seen.
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE serialization_failure USING
      MESSAGE = 'members of flows cannot be settled at REPEATABLE READ or above: use READ COMMITTED for this transaction';
  END IF;
  IF p_waits THEN
    PERFORM f.seq FROM th_flow f WHERE f.seq = ANY (p_flows) ORDER BY f.seq FOR UPDATE;
    RETURN '{}';
  END IF;
  RETURN ARRAY(
    SELECT unnest(p_flows)
    EXCEPT
    SELECT f.seq FROM (SELECT f.seq FROM th_flow f WHERE f.seq = ANY (p_flows) ORDER BY f.seq FOR UPDATE SKIP LOCKED) f);
END $$;

-- The flows of items.
CREATE FUNCTION th_flows_of(p_items th_item[]) RETURNS bigint[] LANGUAGE sql IMMUTABLE AS $$
  SELECT ARRAY(SELECT DISTINCT i.flow FROM unnest(p_items) AS i WHERE i.flow IS NOT NULL ORDER BY 1)
$$;

-- Acknowledges members among the acks that follow each other from this item on, those that are free and whose tokens may,
-- all at once. Their flows are locked. Returns where the acks end, the items that were settled, the jobs in the order of
-- the items, and their flows.
CREATE FUNCTION th_ack_members(
  p_items th_item[], p_from bigint, p_busy bigint[], p_now bigint,
  OUT until bigint, OUT ords bigint[], OUT acked bigint[], OUT flows bigint[]
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_ends th_job_end[];
BEGIN
  until := coalesce(
    (SELECT min(i.ord) - 1 FROM unnest(p_items) AS i WHERE i.ord > p_from AND i.kind <> 'ack'), 9223372036854775807);
  SELECT array_agg(ROW(i.seq, 'done', true, NULL, NULL, NULL, i.output)::th_job_end), coalesce(array_agg(i.ord), '{}'),
    coalesce(array_agg(i.seq ORDER BY i.ord), '{}'), coalesce(array_agg(DISTINCT i.flow), '{}')
  INTO v_ends, ords, acked, flows
  FROM (
    SELECT * FROM unnest(p_items) AS i
    WHERE i.ord BETWEEN p_from AND th_ack_members.until AND i.flow IS NOT NULL AND i.flow <> ALL (p_busy) ORDER BY i.seq OFFSET 0
  ) i CROSS JOIN LATERAL (
    -- Rows that another transaction has are not waited for.
    SELECT FROM th_live l WHERE l.seq = i.seq AND l.lease_token = i.token AND l.lease_expires_at > p_now
    FOR UPDATE SKIP LOCKED) l;
  IF v_ends IS NOT NULL THEN
    PERFORM th_finish(v_ends, p_now, false, false);
  END IF;
END $$;
