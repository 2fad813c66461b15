-- Pages of jobs and flows. Each walks one index from the end of the page before, in either direction, and stops when the
-- page is full; which one is chosen by what leaves few. The statements are put together from the parts that a request
-- needs, and its values are bound. ADM-2, ADM-3, ADM-9, ADM-12.

-- Which records a list of jobs looks at, in order, and what of the filter is known without the rest of the record.
-- Parameters: $1: the number of the last record before, $2: flow, $3: queue, $4: type, $5: state, $6: now.
CREATE FUNCTION th_list_source(
  p_desc boolean, p_by_flow boolean, p_state text, OUT source text, OUT known text
) LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
  v_walk text := CASE WHEN p_desc THEN 'x.seq < $1 ORDER BY x.seq DESC' ELSE 'x.seq > $1 ORDER BY x.seq' END;
BEGIN
  known := '($3 IS NULL OR c.queue = $3)';
  IF p_by_flow THEN
    -- th_job_flow
    source := 'SELECT x.seq, x.queue, x.type FROM th_job x WHERE x.flow = $2 AND ' || v_walk;
    known := known || ' AND ($4 IS NULL OR c.type = $4)';
  ELSIF p_state IN ('ready', 'scheduled', 'blocked', 'inflight') THEN
    -- The primary key of th_hot.
    source := 'SELECT x.seq, x.queue, x.pending, x.lease_exp, x.line_at FROM th_hot x WHERE ' || v_walk;
    known := known || CASE p_state
      WHEN 'inflight' THEN ' AND c.lease_exp IS NOT NULL'
      WHEN 'blocked' THEN ' AND c.pending IS NOT NULL'
      WHEN 'ready' THEN ' AND c.lease_exp IS NULL AND c.pending IS NULL AND c.line_at <= $6'
      ELSE ' AND c.lease_exp IS NULL AND c.pending IS NULL AND c.line_at > $6' END;
  ELSIF p_state IN ('dlq', 'cancelled') THEN
    -- th_end_job and th_end_flow, which hold numbers only.
    source := 'SELECT x.seq, x.queue FROM (
        SELECT unnest(e.seqs) AS seq, e.queue FROM th_end e
        WHERE e.flow IS NULL AND e.state = CASE $5 WHEN ''dlq'' THEN ''q'' ELSE ''c'' END::"char"
        UNION ALL
        SELECT unnest(e.seqs), e.queue FROM th_end e
        WHERE e.flow IS NOT NULL AND e.state = CASE $5 WHEN ''dlq'' THEN ''q'' ELSE ''c'' END::"char"
      ) x WHERE ($3 IS NULL OR x.queue = $3) AND ' || v_walk;
  ELSE
    -- The primary key of th_job.
    source := 'SELECT x.seq, x.queue, x.type, x.state FROM th_job x WHERE ' || v_walk;
    known := known || ' AND ($4 IS NULL OR c.type = $4) AND ($5 IS NULL OR c.state = ''d'')';
  END IF;
END $$;

-- Then, if the page is short because so many records as may be looked at were, a row without an id: the last of them.
CREATE FUNCTION th_list_v1(
  p_after bigint, p_desc boolean, p_limit bigint, p_scan bigint, p_queue text, p_type text, p_flow text, p_state text,
  p_key text, p_header text, p_value text, p_error text, p_created_from bigint, p_created_before bigint,
  p_finished_from bigint, p_finished_before bigint, p_now bigint
) RETURNS TABLE (
  seq bigint, id text, type text, queue text, state text, priority bigint, run_at bigint, due_at bigint, created_at bigint,
  started_at bigint, finished_at bigint, attempts bigint, max_attempts bigint, deliveries bigint, expirations bigint,
  lease_exp bigint, holder text, error text, reason text, flow text, payload_bytes bigint
)
LANGUAGE plpgsql STABLE SET search_path = {schema}, pg_temp SET jit = off
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
#variable_conflict use_column
DECLARE
  v_flow bigint := (SELECT f.seq FROM th_flow f WHERE f.id = p_flow);
  v      record := th_list_source(p_desc, p_flow IS NOT NULL, p_state);
  v_rows bigint;
  v_last bigint;
BEGIN
  RETURN QUERY EXECUTE '
    SELECT r.seq, r.id, r.type, r.queue, s.state, r.priority::bigint, r.run_at, r.due_at, r.created_at, r.started_at,
      r.finished_at, r.attempts::bigint, r.max_attempts::bigint, r.deliveries::bigint, r.expirations::bigint, r.lease_exp,
      r.holder, e.error, r.reason, f.id, octet_length(r.payload)::bigint
    FROM (SELECT c.seq FROM (' || v.source || ' LIMIT $7) c WHERE ' || v.known || ') n
    CROSS JOIN LATERAL (SELECT x.* FROM th_record x WHERE x.seq = n.seq OFFSET 0) r
    CROSS JOIN LATERAL (SELECT CASE
        WHEN r.ended_as = ''d'' THEN ''done'' WHEN r.ended_as = ''q'' THEN ''dlq'' WHEN r.ended_as = ''c'' THEN ''cancelled''
        WHEN r.lease_exp IS NOT NULL THEN ''inflight'' WHEN r.pending IS NOT NULL THEN ''blocked''
        WHEN r.due_at <= $6 THEN ''ready'' ELSE ''scheduled'' END AS state) s
    LEFT JOIN th_error e ON e.seq = ANY (ARRAY[r.seq]) AND e.failure = r.failures
    LEFT JOIN th_flow f ON f.seq = ANY (ARRAY[r.flow])
    WHERE ($4 IS NULL OR r.type = $4) AND ($5 IS NULL OR s.state = $5) AND ($8 IS NULL OR r.idempotency_key = $8)
      AND ($9 IS NULL OR r.headers->>$9 = $10) AND ($11 IS NULL OR strpos(e.error, $11) > 0 OR strpos(r.reason, $11) > 0)
      AND ($12 IS NULL OR r.created_at >= $12) AND ($13 IS NULL OR r.created_at < $13)
      AND ($14 IS NULL OR r.finished_at >= $14) AND ($15 IS NULL OR r.finished_at < $15)
    ORDER BY n.seq ' || CASE WHEN p_desc THEN 'DESC' ELSE 'ASC' END || ' LIMIT $16'
  USING p_after, v_flow, p_queue, p_type, p_state, p_now, p_scan, p_key, p_header, p_value, p_error, p_created_from,
    p_created_before, p_finished_from, p_finished_before, p_limit;
  GET DIAGNOSTICS v_rows = ROW_COUNT;
  IF v_rows < p_limit THEN
    EXECUTE 'SELECT c.seq FROM (' || v.source || ' LIMIT $7) c OFFSET $7 - 1'
    INTO v_last USING p_after, v_flow, p_queue, p_type, p_state, p_now, p_scan;
    seq := v_last;
    created_at := (SELECT j.created_at FROM th_job j WHERE j.seq = v_last);
    IF created_at IS NOT NULL THEN
      RETURN NEXT;
    END IF;
  END IF;
END $$;

-- Flows, and what follows from their members.
CREATE FUNCTION th_flows_v1(
  p_after bigint, p_desc boolean, p_limit bigint, p_id text, p_name text, p_state text, p_now bigint
) RETURNS TABLE (
  seq bigint, id text, name text, created_at bigint, tail text, tail_state text, ready bigint, scheduled bigint,
  blocked bigint, inflight bigint, done bigint, dlq bigint, cancelled bigint, finished_at bigint
)
LANGUAGE plpgsql STABLE SET search_path = {schema}, pg_temp SET plan_cache_mode = force_generic_plan SET jit = off
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
#variable_conflict use_column
DECLARE
  v_seqs bigint[];
BEGIN
  IF p_id IS NOT NULL THEN
    v_seqs := ARRAY(SELECT f.seq FROM th_flow f WHERE f.id = p_id);
  ELSE
    -- th_flow_name, or the primary key. FLO-7: a flow is running while a member is in line or inflight.
    EXECUTE 'SELECT ARRAY(SELECT f.seq FROM th_flow f WHERE ' || CASE p_state
        WHEN 'running' THEN 'f.state IS NULL AND EXISTS (SELECT FROM th_hot h WHERE h.flow = f.seq AND h.pending IS NULL OFFSET 0)'
        WHEN 'blocked' THEN 'f.state IS NULL AND NOT EXISTS (SELECT FROM th_hot h WHERE h.flow = f.seq AND h.pending IS NULL OFFSET 0)'
        WHEN 'done' THEN 'f.state = ''d''' WHEN 'failed' THEN 'f.state = ''q''' WHEN 'cancelled' THEN 'f.state = ''c'''
        ELSE 'true' END
      || CASE WHEN p_name IS NOT NULL THEN ' AND f.name = $3' ELSE '' END
      || CASE WHEN p_desc THEN ' AND f.seq < $1 ORDER BY f.seq DESC' ELSE ' AND f.seq > $1 ORDER BY f.seq' END || ' LIMIT $2)'
    INTO v_seqs USING p_after, p_limit, p_name;
  END IF;
  RETURN QUERY
  SELECT f.seq, f.id, f.name, f.created_at, t.id, th_state(t.seq, p_now),
    live.ready, live.scheduled, live.blocked, live.inflight, ended.done, ended.dlq, ended.cancelled,
    CASE WHEN f.state IS NOT NULL THEN (SELECT max(m.finished_at) FROM th_job m WHERE m.flow = f.seq) END
  FROM th_flow f JOIN th_job t ON t.seq = ANY (ARRAY[f.tail])
  CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE h.lease_exp IS NULL AND h.pending IS NULL AND h.line_at <= p_now) AS ready,
      count(*) FILTER (WHERE h.lease_exp IS NULL AND h.pending IS NULL AND h.line_at > p_now) AS scheduled,
      count(h.pending) AS blocked, count(h.lease_exp) AS inflight
    FROM th_hot h WHERE h.flow = f.seq
  ) live
  CROSS JOIN LATERAL (
    SELECT coalesce(sum(cardinality(e.seqs)) FILTER (WHERE e.state = 'd'), 0)::bigint AS done,
      coalesce(sum(cardinality(e.seqs)) FILTER (WHERE e.state = 'q'), 0)::bigint AS dlq,
      coalesce(sum(cardinality(e.seqs)) FILTER (WHERE e.state = 'c'), 0)::bigint AS cancelled
    FROM th_end e WHERE e.flow = f.seq
  ) ended
  WHERE f.seq = ANY (v_seqs) ORDER BY CASE WHEN p_desc THEN -f.seq ELSE f.seq END;
END $$;
