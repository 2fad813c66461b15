-- Stores a job, or a flow with its members, that another store has exported, whole or not at all (MOV-3). Answers what
-- became of it and, where it was not stored, because of which job. What is said of each job is an object in p_jobs;
-- payloads and outputs stand beside.
CREATE FUNCTION th_import_v1(p_flow text, p_jobs text, p_payloads bytea[], p_outputs bytea[])
RETURNS TABLE (verdict text, id text)
LANGUAGE plpgsql SET search_path = {schema}, pg_temp SET jit = off AS $$
#variable_conflict use_column
DECLARE
  v_head jsonb := p_flow::jsonb;
  v_jobs jsonb := p_jobs::jsonb;
  v_count int := jsonb_array_length(v_jobs);
  v_flow bigint;
  v_seqs bigint[];
  v_ids  text[];
  v_first text;
  v_known int;
BEGIN
  v_ids := ARRAY(SELECT e.j->>'id' FROM jsonb_array_elements(v_jobs) WITH ORDINALITY AS e (j, ord) ORDER BY e.ord);
  SELECT count(*), (array_agg(i.id ORDER BY i.ord))[1] INTO v_known, v_first
  FROM unnest(v_ids) WITH ORDINALITY AS i (id, ord) JOIN th_job j ON j.id = i.id;
  IF v_known = v_count THEN
    -- MOV-4
    RETURN QUERY SELECT 'existing', NULL::text;
    RETURN;
  ELSIF v_known > 0 THEN
    -- MOV-5
    RETURN QUERY SELECT 'overlap', v_first;
    RETURN;
  END IF;
  SELECT (array_agg(e.j->>'id' ORDER BY e.ord))[1] INTO v_first FROM jsonb_array_elements(v_jobs) WITH ORDINALITY AS e (j, ord)
  JOIN th_key k ON k.queue = e.j->>'queue' AND k.key = e.j->>'key' WHERE (e.j->>'holds_key')::boolean;
  IF v_first IS NOT NULL THEN
    RETURN QUERY SELECT 'key', v_first;
    RETURN;
  END IF;

  IF v_head IS NOT NULL THEN
    v_flow := nextval('th_seq');
  END IF;
  v_seqs := ARRAY(SELECT nextval('th_seq') FROM generate_series(1, v_count));
  INSERT INTO th_job (
    seq, created_at, priority, kind, key_hold, on_failure, id, queue, type, payload, timeout_us, max_attempts, run_at, headers,
    idempotency_key, key_time_us, parents, flow, expanded_id, state, finished_at, kept_until, secret, started_at, deliveries, attempts,
    expirations, failures, epoch, attempt_limit, progress, reason, output)
  SELECT v_seqs[e.ord], (j->>'created_at')::bigint, (j->>'priority')::smallint, (j->>'kind')::"char", (j->>'key_hold')::"char",
    (j->>'on_failure')::"char", j->>'id', j->>'queue', j->>'type', p_payloads[e.ord], (j->>'timeout_us')::bigint,
    (j->>'max_attempts')::int, (j->>'run_at')::bigint, nullif(j->'headers', 'null'), j->>'key',
    (j->>'key_time')::bigint, nullif(jsonb_array_length(j->'parents'), 0), v_flow, j->>'expanded_into', (j->>'state')::"char", (j->>'finished_at')::bigint,
    (j->>'kept_until')::bigint, (j->>'settled_by')::uuid,
    CASE WHEN j->>'state' IS NOT NULL THEN (j->>'started_at')::bigint END,
    CASE WHEN j->>'state' IS NOT NULL THEN nullif((j->>'deliveries')::int, 0) END,
    CASE WHEN j->>'state' IS NOT NULL THEN nullif((j->>'attempts')::int, 0) END,
    CASE WHEN j->>'state' IS NOT NULL THEN nullif((j->>'expirations')::int, 0) END,
    CASE WHEN j->>'state' IS NOT NULL THEN nullif(jsonb_array_length(j->'errors'), 0) END,
    CASE WHEN j->>'state' IS NOT NULL THEN nullif((j->>'epoch')::int, 0) END,
    CASE WHEN j->>'state' IS NOT NULL THEN (j->>'attempt_limit')::int END,
    CASE WHEN j->>'state' IS NOT NULL THEN j->>'progress' END, j->>'reason', p_outputs[e.ord]
  FROM jsonb_array_elements(v_jobs) WITH ORDINALITY AS e (j, ord);

  INSERT INTO th_hot (
    seq, line_at, priority, queue, pending, flow, due_at, run_at, lease_exp, started_at, secret, deliveries, attempts, expirations,
    failures, epoch, attempt_limit, large, cancel, holder, progress)
  SELECT v_seqs[e.ord], (j->>'due_at')::bigint, (j->>'priority')::smallint, j->>'queue',
    CASE WHEN (j->>'blocked')::boolean THEN (j->>'pending')::int END, v_flow, NULL, (j->>'run_at')::bigint,
    (j->>'lease_exp')::bigint, (j->>'started_at')::bigint, (j->>'secret')::uuid, nullif((j->>'deliveries')::int, 0),
    nullif((j->>'attempts')::int, 0), nullif((j->>'expirations')::int, 0), nullif(jsonb_array_length(j->'errors'), 0),
    nullif((j->>'epoch')::int, 0), (j->>'attempt_limit')::int, CASE WHEN octet_length(p_payloads[e.ord]) > 65536 THEN true END,
    nullif((j->>'cancel')::boolean, false), j->>'holder', j->>'progress'
  FROM jsonb_array_elements(v_jobs) WITH ORDINALITY AS e (j, ord) WHERE j->>'state' IS NULL;

  INSERT INTO th_end (queue, state, kept_until, flow, seqs)
  SELECT j->>'queue', (j->>'state')::"char", (j->>'kept_until')::bigint, v_flow, array_agg(v_seqs[e.ord] ORDER BY e.ord)
  FROM jsonb_array_elements(v_jobs) WITH ORDINALITY AS e (j, ord) WHERE j->>'state' IS NOT NULL GROUP BY 1, 2, 3;

  INSERT INTO th_error (seq, failure, attempts, failed_at, error)
  SELECT v_seqs[e.ord], x.ord, (x.f->>'attempts')::int, (x.f->>'failed_at')::bigint, x.f->>'error'
  FROM jsonb_array_elements(v_jobs) WITH ORDINALITY AS e (j, ord)
  CROSS JOIN jsonb_array_elements(e.j->'errors') WITH ORDINALITY AS x (f, ord);

  INSERT INTO th_key (queue, key, seq, job, held_until)
  SELECT e.j->>'queue', e.j->>'key', v_seqs[e.ord], e.j->>'id',
    th_held_until((e.j->>'created_at')::bigint, (e.j->>'key_time')::bigint)
  FROM jsonb_array_elements(v_jobs) WITH ORDINALITY AS e (j, ord)
  WHERE (e.j->>'holds_key')::boolean ORDER BY 1, 2;

  -- A parent that is gone is nowhere.
  INSERT INTO th_edge (child, ord, parent, parent_id, tie, spent_state, spent_reason)
  SELECT v_seqs[e.ord], p.ord, coalesce((SELECT x.seq FROM th_job x WHERE x.id = p.p->>'id'), 0), p.p->>'id',
    (p.p->>'tie')::"char", (p.p->>'state')::"char", p.p->>'reason'
  FROM jsonb_array_elements(v_jobs) WITH ORDINALITY AS e (j, ord)
  CROSS JOIN jsonb_array_elements(e.j->'parents') WITH ORDINALITY AS p (p, ord);

  -- Nor is one that is yet to come: a detached job may be stored before the flow that its parents are in.
  UPDATE th_edge e SET parent = j.seq FROM th_job j WHERE e.parent = 0 AND j.id = e.parent_id AND j.seq = ANY (v_seqs);

  UPDATE th_job j SET expanded_into = t.seq FROM th_job t
  WHERE j.seq = ANY (v_seqs) AND j.expanded_id IS NOT NULL AND t.id = j.expanded_id;
  IF v_flow IS NOT NULL THEN
    INSERT INTO th_flow (seq, id, name, created_at, tail)
    SELECT v_flow, v_head->>'id', v_head->>'name', (v_head->>'created_at')::bigint, t.seq FROM th_job t WHERE t.id = v_head->>'tail';
    PERFORM th_retire(ARRAY[v_flow]);
  END IF;
  RETURN QUERY SELECT 'stored', NULL::text;
END $$;

-- Stores a key that outlived its job. MOV-5.
CREATE FUNCTION th_import_key_v1(p_queue text, p_key text, p_job text, p_held_until bigint)
RETURNS TABLE (verdict text, id text) LANGUAGE plpgsql SET search_path = {schema}, pg_temp SET jit = off AS $$
BEGIN
  INSERT INTO th_key (queue, key, seq, job, held_until) VALUES (p_queue, p_key, NULL, p_job, p_held_until)
  ON CONFLICT DO NOTHING;
  IF FOUND THEN
    RETURN QUERY SELECT 'stored', NULL::text;
  ELSE
    RETURN QUERY SELECT CASE WHEN k.job = p_job THEN 'existing' ELSE 'key' END, p_job
    FROM th_key k WHERE k.queue = p_queue AND k.key = p_key;
  END IF;
END $$;
