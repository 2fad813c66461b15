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
    -- th_live_flow and th_finished_flow.
    source := 'SELECT x.seq, x.queue FROM th_members($2) x WHERE ' || v_walk;
  ELSIF p_state IN ('ready', 'scheduled', 'blocked', 'inflight') THEN
    -- The primary key of th_live.
    source := 'SELECT x.seq, x.queue, x.waits_for, x.lease_expires_at, x.available_at FROM th_live x WHERE ' || v_walk;
    known := known || CASE p_state
      WHEN 'inflight' THEN ' AND c.lease_expires_at IS NOT NULL'
      WHEN 'blocked' THEN ' AND c.waits_for IS NOT NULL'
      WHEN 'ready' THEN ' AND c.lease_expires_at IS NULL AND c.waits_for IS NULL AND c.available_at <= $6'
      ELSE ' AND c.lease_expires_at IS NULL AND c.waits_for IS NULL AND c.available_at > $6' END;
  ELSIF p_state IN ('dlq', 'cancelled') THEN
    -- th_finished_failed: span by span, and in each span by number.
    source := 'SELECT x.seq, x.queue FROM (
        SELECT f.first >> 9 AS span, (f.first & ~511::bigint) + o.off AS seq, f.queue
        FROM th_finished f CROSS JOIN unnest(f.offsets) AS o (off)
        WHERE f.state = $5::th_terminal AND f.state <> ''done'' AND '
      || CASE WHEN p_desc THEN 'f.first >> 9 <= $1 >> 9' ELSE 'f.first >> 9 >= $1 >> 9' END
      || ') x WHERE '
      || CASE WHEN p_desc THEN 'x.seq < $1 ORDER BY x.span DESC, x.seq DESC' ELSE 'x.seq > $1 ORDER BY x.span, x.seq' END;
  ELSE
    -- The primary key of th_job.
    source := 'SELECT x.seq, x.queue, x.type FROM th_job x WHERE ' || v_walk;
    known := known || ' AND ($4 IS NULL OR c.type = $4)';
  END IF;
END $$;

-- Then, if the call has read as many records as it may and the page is short, a row without an id: the last one read.
CREATE FUNCTION th_list_v1(
  p_after bigint, p_desc boolean, p_limit bigint, p_scan bigint, p_queue text, p_type text, p_lane text, p_flow text,
  p_state text, p_key text, p_header text, p_value text, p_error text, p_created_from bigint, p_created_before bigint,
  p_finished_from bigint, p_finished_before bigint, p_now bigint
) RETURNS TABLE (
  seq bigint, id text, type text, queue text, state text, priority bigint, run_at bigint, due_at bigint, created_at bigint,
  started_at bigint, finished_at bigint, attempts bigint, max_attempts bigint, deliveries bigint, expirations bigint,
  lease_expires_at bigint, holder text, error text, reason text, flow text, payload_bytes bigint, lane text
)
LANGUAGE plpgsql STABLE {settings} SET enable_hashjoin = off SET enable_mergejoin = off AS $$
#variable_conflict use_column
DECLARE
  v_flow bigint := (SELECT f.seq FROM th_flow f WHERE f.id = p_flow);
  v      record := th_list_source(p_desc, p_flow IS NOT NULL, p_state);
  v_rows bigint;
  v_last bigint;
BEGIN
  RETURN QUERY EXECUTE '
    SELECT r.seq, r.id, r.type, r.queue, s.state, r.priority::bigint, r.run_at, r.due_at, r.created_at, r.started_at,
      r.finished_at, r.attempts::bigint, r.max_attempts::bigint, r.deliveries::bigint, r.expirations::bigint, r.lease_expires_at,
      r.holder, e.error, r.reason, f.id, octet_length(r.payload)::bigint, r.lane
    FROM (SELECT c.seq FROM (' || v.source || ' LIMIT $7) c WHERE ' || v.known || ') n
    CROSS JOIN LATERAL (SELECT x.* FROM th_record x WHERE x.seq = n.seq OFFSET 0) r
    CROSS JOIN LATERAL (SELECT CASE
        WHEN r.ended_as IS NOT NULL THEN r.ended_as::text
        WHEN r.lease_expires_at IS NOT NULL THEN ''inflight'' WHEN r.waits_for IS NOT NULL THEN ''blocked''
        WHEN r.due_at <= $6 THEN ''ready'' ELSE ''scheduled'' END AS state) s
    LEFT JOIN th_error e ON e.seq = ANY (ARRAY[r.seq]) AND e.failure = r.failures
    LEFT JOIN th_flow f ON f.seq = ANY (ARRAY[r.flow])
    WHERE ($4 IS NULL OR r.type = $4) AND ($5 IS NULL OR s.state = $5) AND ($8 IS NULL OR r.idempotency_key = $8)
      AND ($9 IS NULL OR r.headers->>$9 = $10) AND ($11 IS NULL OR strpos(e.error, $11) > 0 OR strpos(r.reason, $11) > 0)
      AND ($12 IS NULL OR r.created_at >= $12) AND ($13 IS NULL OR r.created_at < $13)
      AND ($14 IS NULL OR r.finished_at >= $14) AND ($15 IS NULL OR r.finished_at < $15)
      AND ($17 IS NULL OR r.lane = $17)
    ORDER BY n.seq ' || CASE WHEN p_desc THEN 'DESC' ELSE 'ASC' END || ' LIMIT $16'
  USING p_after, v_flow, p_queue, p_type, p_state, p_now, p_scan, p_key, p_header, p_value, p_error, p_created_from,
    p_created_before, p_finished_from, p_finished_before, p_limit, p_lane;
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
LANGUAGE plpgsql STABLE {settings} SET enable_hashjoin = off SET enable_mergejoin = off AS $$
#variable_conflict use_column
DECLARE
  v_seqs bigint[];
BEGIN
  IF p_id IS NOT NULL THEN
    v_seqs := ARRAY(SELECT f.seq FROM th_flow f WHERE f.id = p_id);
  ELSE
    -- th_flow_name, or the primary key. FLO-7: a flow is running while a member is in line or inflight.
    EXECUTE 'SELECT ARRAY(SELECT f.seq FROM th_flow f WHERE ' || CASE p_state
        WHEN 'running' THEN 'f.state IS NULL AND EXISTS (SELECT FROM th_live l WHERE l.flow = f.seq AND l.waits_for IS NULL OFFSET 0)'
        WHEN 'blocked' THEN 'f.state IS NULL AND NOT EXISTS (SELECT FROM th_live l WHERE l.flow = f.seq AND l.waits_for IS NULL OFFSET 0)'
        WHEN 'done' THEN 'f.state = ''done''' WHEN 'failed' THEN 'f.state = ''dlq''' WHEN 'cancelled' THEN 'f.state = ''cancelled'''
        ELSE 'true' END
      || CASE WHEN p_name IS NOT NULL THEN ' AND f.name = $3' ELSE '' END
      || CASE WHEN p_desc THEN ' AND f.seq < $1 ORDER BY f.seq DESC' ELSE ' AND f.seq > $1 ORDER BY f.seq' END || ' LIMIT $2)'
    INTO v_seqs USING p_after, p_limit, p_name;
  END IF;
  RETURN QUERY
  SELECT f.seq, f.id, f.name, f.created_at, t.id, th_state(t.seq, p_now),
    live.ready, live.scheduled, live.blocked, live.inflight, ended.done, ended.dlq, ended.cancelled,
    CASE WHEN f.state IS NOT NULL THEN ended.finished_at END
  FROM th_flow f JOIN th_job t ON t.seq = ANY (ARRAY[f.tail])
  CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE l.lease_expires_at IS NULL AND l.waits_for IS NULL AND l.available_at <= p_now) AS ready,
      count(*) FILTER (WHERE l.lease_expires_at IS NULL AND l.waits_for IS NULL AND l.available_at > p_now) AS scheduled,
      count(l.waits_for) AS blocked, count(l.lease_expires_at) AS inflight
    FROM th_live l WHERE l.flow = f.seq
  ) live
  CROSS JOIN LATERAL (
    SELECT coalesce(sum(cardinality(e.offsets)) FILTER (WHERE e.state = 'done'), 0)::bigint AS done,
      coalesce(sum(cardinality(e.offsets)) FILTER (WHERE e.state = 'dlq'), 0)::bigint AS dlq,
      coalesce(sum(cardinality(e.offsets)) FILTER (WHERE e.state = 'cancelled'), 0)::bigint AS cancelled,
      max(e.finished_at) AS finished_at
    FROM th_finished e WHERE e.flow = f.seq
  ) ended
  WHERE f.seq = ANY (v_seqs) ORDER BY CASE WHEN p_desc THEN -f.seq ELSE f.seq END;
END $$;
