-- The common part of everything that makes a job terminal. These functions are called by those that workers and
-- operators call, and implement the rules of `graph.rs` in taskharbor-core as statements over many rows.

-- Whether a job of this kind is a join, which no worker runs.
CREATE FUNCTION th_is_join(p_kind th_kind) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
  SELECT coalesce(p_kind > 'failure_job', false)
$$;

-- Finds the row in which a terminal job is listed.
CREATE FUNCTION th_finished_row(p_seq bigint) RETURNS SETOF {schema}.th_finished LANGUAGE sql STABLE AS $$
  SELECT f.* FROM {schema}.th_finished f
  WHERE f.first BETWEEN p_seq & ~511::bigint AND p_seq AND (p_seq & 511)::smallint = ANY (f.offsets)
  ORDER BY f.first DESC LIMIT 1
$$;

-- The members of a flow: the live and the terminal ones.
CREATE FUNCTION th_members(p_flow bigint) RETURNS TABLE (seq bigint, queue text) LANGUAGE sql STABLE AS $$
  SELECT l.seq, l.queue FROM {schema}.th_live l WHERE l.flow = p_flow
  UNION ALL
  SELECT (f.first & ~511::bigint) + o.off, f.queue FROM {schema}.th_finished f CROSS JOIN unnest(f.offsets) AS o (off)
  WHERE f.flow = p_flow
$$;

-- The end of a job. If `failures` is NULL, the attempts and failures stay as they are. If a holder settled the job, its
-- token may repeat that; otherwise no token may.
CREATE TYPE th_job_end AS (
  seq bigint, state th_terminal, is_settled boolean, attempts int, failures int, reason text, output bytea
);

-- Makes live jobs terminal. Returns the jobs that became terminal. With p_waiting, jobs that are inflight are left
-- alone. The keys that are held until the jobs end are freed, but for a job that was replaced by its expansion. KEY-4,
-- KEY-7.
CREATE FUNCTION th_finish(p_ends th_job_end[], p_now bigint, p_waiting boolean, p_is_replaced boolean)
RETURNS bigint[] LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_ended   bigint[];
  v_special bigint[];
  v_states  th_terminal[];
BEGIN
  WITH gone AS (
    DELETE FROM th_live l USING unnest(p_ends) AS e
    WHERE l.seq = ANY (ARRAY[e.seq]) AND NOT (p_waiting AND l.lease_expires_at IS NOT NULL)
    RETURNING l.*, e.state, e.is_settled, e.reason, e.output,
      CASE WHEN e.failures IS NULL THEN l.attempts ELSE nullif(e.attempts, 0) END AS all_attempts,
      coalesce(e.failures, l.failures) AS all_failures
  ), ended AS (
    SELECT g.*, nullif(g.deliveries > 1 OR g.is_special OR g.progress IS NOT NULL OR g.reason IS NOT NULL
      OR g.output IS NOT NULL OR g.all_failures IS NOT NULL, false) AS has_outcome
    FROM gone g
  ), described AS (
    INSERT INTO th_outcome (seq, run_at, priority, deliveries, attempts, expirations, failures, epoch, attempt_limit,
                            progress, reason, output)
    SELECT e.seq, e.run_at, e.priority, e.deliveries, e.all_attempts, e.expirations, e.all_failures, e.epoch,
      e.attempt_limit, e.progress, e.reason, e.output
    FROM ended e WHERE e.has_outcome
  ), listed AS (
    INSERT INTO th_finished (first, kept_until, finished_at, started_at, lease_token, flow, state, has_outcomes, queue, offsets)
    SELECT min(e.seq), CASE WHEN e.is_settled THEN e.lease_expires_at ELSE p_now END, p_now, e.started_at,
      CASE WHEN e.is_settled THEN e.lease_token END, e.flow, e.state, bool_or(e.has_outcome), e.queue,
      array_agg((e.seq & 511)::smallint ORDER BY e.seq)
    FROM ended e GROUP BY e.seq >> 9, 2, e.started_at, 5, e.flow, e.state, e.queue
  )
  SELECT coalesce(array_agg(e.seq ORDER BY e.seq), '{}'), array_agg(e.seq) FILTER (WHERE e.is_special),
    array_agg(e.state) FILTER (WHERE e.is_special)
  INTO v_ended, v_special, v_states FROM ended e;
  IF v_special IS NOT NULL AND NOT p_is_replaced THEN
    PERFORM th_free_keys(v_special, v_states);
  END IF;
  RETURN v_ended;
END $$;

-- The same as th_finish for jobs that end in the same way and were not settled by a holder.
CREATE FUNCTION th_finish_all(p_seqs bigint[], p_state th_terminal, p_reason text, p_now bigint, p_waiting boolean)
RETURNS bigint[] LANGUAGE plpgsql AS $$
BEGIN
  RETURN th_finish(
    ARRAY(SELECT ROW(s, p_state, false, NULL, NULL, p_reason, NULL)::th_job_end FROM unnest(p_seqs) AS s),
    p_now, p_waiting, false);
END $$;

-- Frees the keys that are held until these jobs end in these ways: a job's own, and if it is the tail of its flow, that of
-- the job under whose id the flow began. KEY-4, KEY-7.
CREATE FUNCTION th_free_keys(p_seqs bigint[], p_states th_terminal[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  DELETE FROM th_key WHERE ctid = ANY (ARRAY(
    SELECT k.row FROM (
      SELECT j.queue, j.idempotency_key AS key, j.seq, j.key_hold, e.state
      FROM unnest(p_seqs, p_states) AS e (seq, state) JOIN th_job j ON j.seq = ANY (ARRAY[e.seq])
      WHERE j.idempotency_key IS NOT NULL
      UNION
      SELECT b.queue, b.idempotency_key, b.seq, b.key_hold, e.state
      FROM unnest(p_seqs, p_states) AS e (seq, state) JOIN th_job j ON j.seq = ANY (ARRAY[e.seq])
      JOIN th_flow f ON f.seq = ANY (ARRAY[j.flow]) AND f.tail = j.seq JOIN th_job b ON b.id = ANY (ARRAY[f.id])
      WHERE b.idempotency_key IS NOT NULL
    ) held CROSS JOIN LATERAL (
      SELECT x.ctid AS row FROM th_key x WHERE x.queue = held.queue AND x.key = held.key AND x.seq = held.seq OFFSET 0) k
    WHERE held.key_hold = 'until_terminal' OR held.key_hold = 'until_done' AND held.state = 'done'));
END $$;

-- Takes terminal jobs out of the list. The lowest number is the key of its row: where that goes, the next becomes it.
-- Only under th_lock_finished, so the rows stay as they were found.
CREATE FUNCTION th_unlist(p_seqs bigint[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  WITH goes AS (
    SELECT f.first, array_agg((s.seq & 511)::smallint) AS offsets
    FROM unnest(p_seqs) AS s (seq) CROSS JOIN LATERAL th_finished_row(s.seq) f GROUP BY f.first
  ), kept AS (
    SELECT f.first, ARRAY(SELECT o FROM unnest(f.offsets) AS o WHERE o <> ALL (g.offsets) ORDER BY o) AS offsets
    FROM goes g JOIN th_finished f ON f.first = ANY (ARRAY[g.first])
  ), emptied AS (
    DELETE FROM th_finished WHERE first = ANY (ARRAY(SELECT k.first FROM kept k WHERE k.offsets = '{}'))
  )
  UPDATE th_finished f SET first = (k.first & ~511::bigint) + k.offsets[1], offsets = k.offsets
  FROM kept k WHERE f.first = ANY (ARRAY[k.first]) AND k.offsets <> '{}';
END $$;

-- Records a failure of each job and removes the eleventh last. JOB-7.
CREATE FUNCTION th_record_errors(
  p_seqs bigint[], p_failures int[], p_attempts bigint[], p_failed_ats bigint[], p_errors text[]
) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO th_error (seq, failure, attempts, failed_at, error)
  SELECT * FROM unnest(p_seqs, p_failures, p_attempts, p_failed_ats, p_errors);
  DELETE FROM th_error x USING unnest(p_seqs, p_failures) AS g (seq, failure)
  WHERE g.failure > 10 AND x.seq = ANY (ARRAY[g.seq]) AND x.failure <= g.failure - 10;
END $$;

-- Unblocks dependants: p_edges says how many edges of each are satisfied. A dependant that waits for no parent any more
-- becomes ready or scheduled. A join among them is done, and unblocks its own dependants. Returns the queues in which
-- there is work now.
CREATE FUNCTION th_unblock(p_children bigint[], p_edges bigint[], p_now bigint) RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE
  v_children bigint[] := p_children;
  v_edges    bigint[] := p_edges;
  v_joins    bigint[];
  v_queues   text[];
  v_wakes    text[] := '{}';
BEGIN
  WHILE cardinality(v_children) > 0 LOOP
    WITH closed AS (
      SELECT c.child, sum(c.edges)::int AS edges FROM unnest(v_children, v_edges) AS c (child, edges) GROUP BY 1 ORDER BY 1
    ), unblocked AS (
      -- FLO-1, FAI-1; a job is done once, so FLO-2 and FLO-8.
      UPDATE th_live l SET
        waits_for = nullif(l.waits_for - c.edges, 0),
        available_at = CASE WHEN l.waits_for = c.edges THEN greatest(l.run_at, p_now) ELSE l.available_at END
      FROM closed c WHERE l.seq = ANY (ARRAY[c.child])
      RETURNING l.seq, l.queue, l.waits_for
    )
    SELECT array_agg(u.seq ORDER BY u.seq) FILTER (WHERE th_is_join(j.kind)),
           array_agg(DISTINCT u.queue) FILTER (WHERE NOT th_is_join(j.kind))
    INTO v_joins, v_queues
    FROM unblocked u JOIN th_job j ON j.seq = ANY (ARRAY[u.seq]) WHERE u.waits_for IS NULL;
    v_wakes := v_wakes || coalesce(v_queues, '{}');
    EXIT WHEN v_joins IS NULL;
    -- FLO-6
    v_joins := th_finish_all(v_joins, 'done', NULL, p_now, false);
    SELECT d.children, d.edges INTO v_children, v_edges FROM th_dependants(v_joins, p_now) d;
  END LOOP;
  RETURN v_wakes;
END $$;

-- These members are done, in this order: unblocks their dependants.
CREATE FUNCTION th_unblock_dependants(p_done bigint[], p_now bigint) RETURNS text[] LANGUAGE plpgsql AS $$
BEGIN
  RETURN (SELECT th_unblock(d.children, d.edges, p_now) FROM th_dependants(p_done, p_now) d);
END $$;

-- These members are done, in this order. Cancels the failure jobs that waited for their failure, and returns the other
-- dependants with the number of edges of each. FAI-2.
CREATE FUNCTION th_dependants(p_done bigint[], p_now bigint, OUT children bigint[], OUT edges bigint[]) LANGUAGE plpgsql AS $$
DECLARE
  v_needless bigint[];
  v_parents  bigint[];
BEGIN
  SELECT array_agg(e.child) FILTER (WHERE e.status = 'waits_for_success'),
         array_agg(e.edges) FILTER (WHERE e.status = 'waits_for_success'),
         array_agg(e.child) FILTER (WHERE e.status = 'waits_for_failure'),
         array_agg(e.parent) FILTER (WHERE e.status = 'waits_for_failure')
  INTO children, edges, v_needless, v_parents FROM th_waiting_edges(p_done) e;
  IF v_needless IS NOT NULL THEN
    UPDATE th_edge SET status = 'not_needed' WHERE parent = ANY (v_parents) AND run IS NULL AND status = 'waits_for_failure';
    PERFORM th_cancel_needless(v_needless, v_parents, p_done, p_now);
  END IF;
END $$;

-- The edges of these parents that wait for something. Those of one run are one row, with their number and one of the
-- parents. Members of a large join mostly end in the order of their numbers, so numbers that follow each other are looked
-- up together.
CREATE FUNCTION th_waiting_edges(p_parents bigint[])
RETURNS TABLE (child bigint, parent bigint, status th_edge_status, edges bigint) LANGUAGE sql STABLE AS $$
  SELECT e.child, e.parent, e.status, e.edges
  FROM (
    SELECT min(s.seq) AS low, max(s.seq) AS high
    FROM (SELECT p.seq, p.seq - row_number() OVER (ORDER BY p.seq) AS start FROM unnest(p_parents) AS p (seq)) s GROUP BY s.start
  ) s CROSS JOIN LATERAL (
    SELECT x.child, x.parent, x.status, 1::bigint AS edges FROM th_edge x
    WHERE x.run IS NULL AND x.parent BETWEEN s.low AND s.high AND x.status IN ('waits_for_success', 'waits_for_failure')
    UNION ALL
    SELECT x.child, x.parent, x.status, least(s.high + 1, x.parent + x.run) - greatest(s.low, x.parent) FROM th_edge x
    WHERE x.run IS NOT NULL AND x.parent BETWEEN s.low & ~511::bigint AND s.high AND x.parent + x.run > s.low
    OFFSET 0) e
$$;

-- Makes a row of each edge of the runs that these parents are in.
CREATE FUNCTION th_split_runs(p_parents bigint[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  WITH runs AS (
    DELETE FROM th_edge WHERE ctid = ANY (ARRAY(
      SELECT x.row FROM unnest(p_parents) AS p (seq) CROSS JOIN LATERAL (
        SELECT x.ctid AS row FROM th_edge x
        WHERE x.run IS NOT NULL AND x.parent BETWEEN p.seq & ~511::bigint AND p.seq AND x.parent + x.run > p.seq OFFSET 0) x))
    RETURNING child, parent, ord, run
  )
  INSERT INTO th_edge (child, parent, ord, status, parent_id)
  SELECT r.child, r.parent + n, r.ord + n, 'waits_for_success', j.id
  FROM runs r CROSS JOIN LATERAL generate_series(0, r.run - 1) AS n JOIN th_job j ON j.seq = ANY (ARRAY[r.parent + n]);
END $$;

-- Cancels failure jobs that are blocked, each because of the parent of it that was done first. FAI-2.
CREATE FUNCTION th_cancel_needless(p_jobs bigint[], p_parents bigint[], p_done bigint[], p_now bigint)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM th_finish_all(n.jobs, 'cancelled', 'not needed: job ' || j.id || ' succeeded', p_now, true)
  FROM (
    SELECT f.parent, array_agg(f.job ORDER BY f.job) AS jobs FROM (
      SELECT DISTINCT ON (e.job) e.job, e.parent FROM unnest(p_jobs, p_parents) AS e (job, parent)
      JOIN unnest(p_done) WITH ORDINALITY AS d (seq, ord) ON d.seq = e.parent ORDER BY e.job, d.ord
    ) f GROUP BY f.parent
  ) n JOIN th_job j ON j.seq = n.parent;
END $$;

-- These members failed: their failure jobs wait for them no longer, nor do the other dependants of a member whose
-- policy is to continue, or with p_all those of any. Each reads the failure, even if the member is requeued later.
-- FAI-1, POL-4.
CREATE FUNCTION th_fail_edges(p_seqs bigint[], p_all boolean, p_now bigint) RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE
  v_children bigint[];
BEGIN
  PERFORM th_split_runs(ARRAY(SELECT j.seq FROM th_job j WHERE j.seq = ANY (p_seqs) AND (p_all OR j.on_failure = 'continue')));
  WITH failed AS (
    UPDATE th_edge e SET status = 'failed', failed_state = f.state, failed_reason = f.reason
    FROM (
      SELECT j.seq, j.on_failure, x.state, o.reason
      FROM unnest(p_seqs) AS s (seq) JOIN th_job j ON j.seq = ANY (ARRAY[s.seq])
      CROSS JOIN LATERAL th_finished_row(s.seq) x LEFT JOIN th_outcome o ON o.seq = ANY (ARRAY[s.seq])
    ) f
    WHERE e.parent = ANY (ARRAY[f.seq]) AND e.run IS NULL AND (e.status = 'waits_for_failure'
      OR e.status = 'waits_for_success' AND (p_all OR f.on_failure = 'continue'))
    RETURNING e.child
  )
  SELECT array_agg(child) INTO v_children FROM failed;
  IF v_children IS NULL THEN
    RETURN '{}';
  END IF;
  RETURN th_unblock(v_children, array_fill(1::bigint, ARRAY[cardinality(v_children)]), p_now);
END $$;

-- These members were dead-lettered or cancelled, several at once only if their policies cancel no other member. Their
-- policies apply, and so do those of the members that are cancelled because of them, all of one step at once. All
-- cancellations come before anything is unblocked, so that the order does not matter. POL-6.
CREATE FUNCTION th_propagate_failure(p_seqs bigint[], p_now bigint) RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE
  v_failed    bigint[] := p_seqs;
  v_all       bigint[] := '{}';
  v_is_first  boolean := true;
  v_is_fast   boolean := false;
  v_step      record;
  v_to_cancel bigint[];
  -- POL-5
  v_reason    text := (SELECT 'job ' || id || ' of the same flow failed' FROM th_job WHERE seq = p_seqs[1]);
BEGIN
  WHILE cardinality(v_failed) > 0 LOOP
    v_all := v_all || v_failed;
    -- POL-1: what fails first and blocks passes nothing on.
    SELECT array_agg(j.seq) FILTER (
        WHERE j.on_failure = 'cancel' OR coalesce(j.on_failure, 'block') = 'block' AND NOT v_is_first) AS passing,
      min(j.flow) FILTER (WHERE j.on_failure = 'fail_fast') AS fast
    INTO v_step FROM th_job j WHERE j.seq = ANY (v_failed);
    v_to_cancel := '{}';
    IF v_step.fast IS NOT NULL AND NOT v_is_fast THEN
      -- POL-3, FAI-3. Once is enough: no other member is in line or blocked after that.
      v_is_fast := true;
      v_to_cancel := ARRAY(
        SELECT l.seq FROM th_live l WHERE l.flow = v_step.fast AND l.lease_expires_at IS NULL
          AND (SELECT j.kind FROM th_job j WHERE j.seq = l.seq) IS DISTINCT FROM 'failure_job' ORDER BY l.seq);
    ELSIF v_step.passing IS NOT NULL AND NOT v_is_fast THEN
      -- POL-2: over the edges that wait for success alone.
      v_to_cancel := ARRAY(
        SELECT DISTINCT e.child FROM th_waiting_edges(v_step.passing) e WHERE e.status = 'waits_for_success' ORDER BY e.child);
    END IF;
    v_is_first := false;
    v_failed := '{}';
    IF cardinality(v_to_cancel) > 0 THEN
      v_failed := th_finish_all(v_to_cancel, 'cancelled', v_reason, p_now, true);
    END IF;
  END LOOP;
  RETURN th_fail_edges(v_all, false, p_now);
END $$;

-- Marks flows as terminal if all their members are terminal, and as not terminal otherwise. FLO-7. A flow's members
-- mostly end in the order of their numbers, so a live one is looked for from the other end.
CREATE FUNCTION th_retire(p_flows bigint[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  UPDATE th_flow f SET state = e.state, kept_until = e.kept_until
  FROM (
    SELECT w.flow,
      CASE WHEN live.seq IS NULL THEN (SELECT t.state FROM th_finished_row(g.tail) t) END AS state,
      CASE WHEN live.seq IS NULL THEN (SELECT max(m.kept_until) FROM th_finished m WHERE m.flow = w.flow) END AS kept_until
    FROM unnest(p_flows) AS w (flow) JOIN th_flow g ON g.seq = ANY (ARRAY[w.flow])
    LEFT JOIN LATERAL (SELECT l.seq FROM th_live l WHERE l.flow = w.flow ORDER BY l.seq DESC LIMIT 1) live ON true
  ) e
  WHERE f.seq = ANY (ARRAY[e.flow]) AND (f.state, f.kept_until) IS DISTINCT FROM (e.state, e.kept_until);
END $$;
