-- Pages of jobs and flows. Each walks one index from the end of the page before and stops when the page is full; which
-- one is chosen by what leaves few.

CREATE FUNCTION th_list_v1(
  p_after bigint, p_limit bigint, p_queue text, p_type text, p_flow text, p_state text, p_now bigint
) RETURNS TABLE (
  seq bigint, id text, type text, queue text, state text, priority bigint, run_at bigint, due_at bigint, created_at bigint,
  started_at bigint, finished_at bigint, attempts bigint, max_attempts bigint, deliveries bigint, expirations bigint,
  lease_exp bigint, holder text, error text, reason text, flow text, payload_bytes bigint
)
LANGUAGE plpgsql STABLE SET search_path = {schema}, pg_temp SET plan_cache_mode = force_generic_plan SET jit = off
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
#variable_conflict use_column
DECLARE
  v_flow bigint;
  v_seqs bigint[];
BEGIN
  IF p_flow IS NOT NULL THEN
    -- th_job_flow.
    v_flow := (SELECT f.seq FROM th_flow f WHERE f.id = p_flow);
    v_seqs := ARRAY(
      SELECT j.seq FROM th_job j
      WHERE j.flow = v_flow AND j.seq > p_after AND (p_queue IS NULL OR j.queue = p_queue) AND (p_type IS NULL OR j.type = p_type)
        AND (p_state IS NULL OR th_state(j.seq, p_now) = p_state)
      ORDER BY j.seq LIMIT p_limit);
  ELSIF p_state IN ('ready', 'scheduled', 'blocked', 'inflight') THEN
    -- The primary key of th_hot.
    v_seqs := ARRAY(
      SELECT h.seq FROM th_hot h
      WHERE h.seq > p_after AND (p_queue IS NULL OR h.queue = p_queue)
        AND CASE p_state WHEN 'inflight' THEN h.lease_exp IS NOT NULL
                         WHEN 'blocked' THEN h.pending IS NOT NULL
                         WHEN 'ready' THEN h.lease_exp IS NULL AND h.pending IS NULL AND h.line_at <= p_now
                         ELSE h.lease_exp IS NULL AND h.pending IS NULL AND h.line_at > p_now END
        AND (p_type IS NULL OR p_type = (SELECT j.type FROM th_job j WHERE j.seq = h.seq))
      ORDER BY h.seq LIMIT p_limit);
  ELSIF p_state IN ('dlq', 'cancelled') THEN
    -- th_end_job and th_end_flow, which hold numbers only.
    v_seqs := ARRAY(
      SELECT o.seq FROM (
        SELECT unnest(e.seqs) AS seq FROM th_end e
        WHERE e.flow IS NULL AND e.state = CASE p_state WHEN 'dlq' THEN 'q' ELSE 'c' END::"char" AND (p_queue IS NULL OR e.queue = p_queue)
        UNION ALL
        SELECT unnest(e.seqs) FROM th_end e
        WHERE e.flow IS NOT NULL AND e.state = CASE p_state WHEN 'dlq' THEN 'q' ELSE 'c' END::"char" AND (p_queue IS NULL OR e.queue = p_queue)
        ORDER BY 1
      ) o WHERE o.seq > p_after AND (p_type IS NULL OR p_type = (SELECT j.type FROM th_job j WHERE j.seq = o.seq))
      ORDER BY o.seq LIMIT p_limit);
  ELSE
    -- The primary key of th_job.
    v_seqs := ARRAY(
      SELECT j.seq FROM th_job j
      WHERE j.seq > p_after AND (p_queue IS NULL OR j.queue = p_queue) AND (p_type IS NULL OR j.type = p_type)
        AND (p_state IS NULL OR j.state = 'd')
      ORDER BY j.seq LIMIT p_limit);
  END IF;
  RETURN QUERY
  SELECT r.seq, r.id, r.type, r.queue,
    CASE WHEN r.ended_as = 'd' THEN 'done' WHEN r.ended_as = 'q' THEN 'dlq' WHEN r.ended_as = 'c' THEN 'cancelled'
         WHEN r.lease_exp IS NOT NULL THEN 'inflight' WHEN r.pending IS NOT NULL THEN 'blocked'
         WHEN r.due_at <= p_now THEN 'ready' ELSE 'scheduled' END,
    r.priority::bigint, r.run_at, r.due_at, r.created_at, r.started_at, r.finished_at, r.attempts::bigint,
    r.max_attempts::bigint, r.deliveries::bigint, r.expirations::bigint, r.lease_exp, r.holder, e.error, r.reason, f.id,
    octet_length(r.payload)::bigint
  FROM unnest(v_seqs) AS n (seq) CROSS JOIN LATERAL (SELECT x.* FROM th_record x WHERE x.seq = n.seq OFFSET 0) r
  LEFT JOIN th_error e ON e.seq = ANY (ARRAY[r.seq]) AND e.failure = r.failures
  LEFT JOIN th_flow f ON f.seq = ANY (ARRAY[r.flow])
  ORDER BY r.seq;
END $$;

-- Flows, and what follows from their members.
CREATE FUNCTION th_flows_v1(p_after bigint, p_limit bigint, p_id text, p_name text, p_state text, p_now bigint)
RETURNS TABLE (
  seq bigint, id text, name text, created_at bigint, tail text, tail_state text, ready bigint, scheduled bigint,
  blocked bigint, inflight bigint, done bigint, dlq bigint, cancelled bigint, finished_at bigint
)
LANGUAGE plpgsql STABLE SET search_path = {schema}, pg_temp SET plan_cache_mode = force_generic_plan SET jit = off
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
#variable_conflict use_column
DECLARE
  v_ended "char" := CASE p_state WHEN 'done' THEN 'd' WHEN 'failed' THEN 'q' WHEN 'cancelled' THEN 'c' END;
  v_live  boolean := p_state IN ('running', 'held');
  v_seqs  bigint[];
BEGIN
  IF p_id IS NOT NULL THEN
    v_seqs := ARRAY(SELECT f.seq FROM th_flow f WHERE f.id = p_id);
  ELSIF p_name IS NOT NULL THEN
    -- th_flow_name.
    v_seqs := ARRAY(
      SELECT f.seq FROM th_flow f
      WHERE f.name = p_name AND f.seq > p_after AND (v_ended IS NULL OR f.state = v_ended)
        AND CASE WHEN v_live THEN f.state IS NULL AND (p_state = 'running') =
                   EXISTS (SELECT FROM th_hot h WHERE h.flow = f.seq AND h.pending IS NULL) ELSE true END
      ORDER BY f.seq LIMIT p_limit);
  ELSE
    v_seqs := ARRAY(
      SELECT f.seq FROM th_flow f
      WHERE f.seq > p_after AND (v_ended IS NULL OR f.state = v_ended)
        AND CASE WHEN v_live THEN f.state IS NULL AND (p_state = 'running') =
                   EXISTS (SELECT FROM th_hot h WHERE h.flow = f.seq AND h.pending IS NULL) ELSE true END
      ORDER BY f.seq LIMIT p_limit);
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
  WHERE f.seq = ANY (v_seqs) ORDER BY f.seq;
END $$;
