-- Stores a job, or a flow with its members, that another store has exported, whole or not at all (MOV-3). Returns the
-- result and, if it was not stored, the job that is the reason. Each job is an object in p_jobs; payloads and outputs
-- are separate arrays.
CREATE FUNCTION th_import_v1(p_flow text, p_jobs text, p_payloads bytea[], p_outputs bytea[])
RETURNS TABLE (verdict text, id text)
LANGUAGE plpgsql {settings} AS $$
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
  PERFORM th_import_jobs(v_jobs, v_seqs, v_flow, p_payloads);
  PERFORM th_import_lives(v_jobs, v_seqs, v_flow, p_payloads);
  PERFORM th_import_ends(v_jobs, v_seqs, v_flow, p_outputs);
  PERFORM th_import_relations(v_jobs, v_seqs);
  IF v_flow IS NOT NULL THEN
    INSERT INTO th_flow (seq, id, name, created_at, tail)
    SELECT v_flow, v_head->>'id', v_head->>'name', (v_head->>'created_at')::bigint, t.seq FROM th_job t WHERE t.id = v_head->>'tail';
    PERFORM th_retire(ARRAY[v_flow]);
  END IF;
  RETURN QUERY SELECT 'stored', NULL::text;
END $$;

-- Imports the jobs as they were enqueued.
CREATE FUNCTION th_import_jobs(p_jobs jsonb, p_seqs bigint[], p_flow bigint, p_payloads bytea[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO th_job (
    seq, created_at, priority, id, queue, type, payload, headers, run_at, timeout_us, key_time_us, flow, max_attempts, parents,
    kind, on_failure, key_hold, idempotency_key, expanded_id, lane)
  SELECT p_seqs[e.ord], (j->>'created_at')::bigint, (j->>'priority')::smallint, j->>'id', j->>'queue', j->>'type', p_payloads[e.ord],
    nullif(j->'headers', 'null'), (j->>'run_at')::bigint, (j->>'timeout_us')::bigint, (j->>'key_time')::bigint, p_flow,
    (j->>'max_attempts')::int, nullif(jsonb_array_length(j->'parents'), 0), (j->>'kind')::th_kind, (j->>'on_failure')::th_policy,
    (j->>'key_hold')::th_key_hold, j->>'key', j->>'expanded_into', j->>'lane'
  FROM jsonb_array_elements(p_jobs) WITH ORDINALITY AS e (j, ord);
  UPDATE th_job j SET expanded_into = t.seq FROM th_job t
  WHERE j.seq = ANY (p_seqs) AND j.expanded_id IS NOT NULL AND t.id = j.expanded_id;
END $$;

-- Jobs that are not terminal. A token that another store issued stands for one of this store's.
CREATE FUNCTION th_import_lives(p_jobs jsonb, p_seqs bigint[], p_flow bigint, p_payloads bytea[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO th_live (
    seq, available_at, priority, queue, waits_for, flow, run_at, lease_expires_at, started_at, lease_token, deliveries, attempts,
    expirations, failures, epoch, attempt_limit, is_large, is_special, cancel_requested, lease_mark, holder, progress,
    released, lane)
  SELECT p_seqs[e.ord], (j->>'due_at')::bigint, (j->>'priority')::smallint, j->>'queue',
    CASE WHEN (j->>'blocked')::boolean THEN (j->>'pending')::int END, p_flow, (j->>'run_at')::bigint,
    (j->>'lease_expires_at')::bigint, (j->>'started_at')::bigint, (j->>'native_token')::bigint, nullif((j->>'deliveries')::int, 0),
    nullif((j->>'attempts')::int, 0), nullif((j->>'expirations')::int, 0), nullif(jsonb_array_length(j->'errors'), 0),
    nullif((j->>'epoch')::int, 0), (j->>'attempt_limit')::int, CASE WHEN octet_length(p_payloads[e.ord]) > 65536 THEN true END,
    true, nullif((j->>'cancel')::boolean, false), (j->>'mark')::th_lease_mark, j->>'holder', j->>'progress',
    j->>'released', j->>'lane'
  FROM jsonb_array_elements(p_jobs) WITH ORDINALITY AS e (j, ord) WHERE j->>'state' IS NULL;
  -- LIM-7
  PERFORM th_note_grants(l.queue, array_agg(l.seq)) FROM th_live l JOIN th_limit m ON m.queue = l.queue
  WHERE l.seq = ANY (p_seqs) AND l.lease_expires_at IS NOT NULL AND th_counts_inflight(m.limits) GROUP BY l.queue;
  INSERT INTO th_imported_token (seq, lease_token, token)
  SELECT p_seqs[e.ord], (j->>'native_token')::bigint, (j->>'token')::uuid
  FROM jsonb_array_elements(p_jobs) WITH ORDINALITY AS e (j, ord) WHERE j->>'token' IS NOT NULL;
END $$;

-- Jobs that are terminal.
CREATE FUNCTION th_import_ends(p_jobs jsonb, p_seqs bigint[], p_flow bigint, p_outputs bytea[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO th_outcome (
    seq, run_at, priority, deliveries, attempts, expirations, failures, epoch, attempt_limit, progress, reason, output)
  SELECT p_seqs[e.ord], (j->>'run_at')::bigint, (j->>'priority')::smallint, nullif((j->>'deliveries')::int, 0),
    nullif((j->>'attempts')::int, 0), nullif((j->>'expirations')::int, 0), nullif(jsonb_array_length(j->'errors'), 0),
    nullif((j->>'epoch')::int, 0), (j->>'attempt_limit')::int, j->>'progress', j->>'reason', p_outputs[e.ord]
  FROM jsonb_array_elements(p_jobs) WITH ORDINALITY AS e (j, ord) WHERE j->>'state' IS NOT NULL;
  INSERT INTO th_finished (first, kept_until, finished_at, started_at, lease_token, flow, state, has_outcomes, queue, offsets)
  SELECT min(m.seq), m.kept_until, m.finished_at, m.started_at, m.token, p_flow, m.state, true, m.queue,
    array_agg((m.seq & 511)::smallint ORDER BY m.seq)
  FROM (
    SELECT p_seqs[e.ord] AS seq, (j->>'kept_until')::bigint AS kept_until, (j->>'finished_at')::bigint AS finished_at,
      (j->>'started_at')::bigint AS started_at, (j->>'native_token')::bigint AS token, (j->>'state')::th_terminal AS state,
      j->>'queue' AS queue
    FROM jsonb_array_elements(p_jobs) WITH ORDINALITY AS e (j, ord) WHERE j->>'state' IS NOT NULL
  ) m GROUP BY m.seq >> 9, m.kept_until, m.finished_at, m.started_at, m.token, m.state, m.queue;
END $$;

-- Failures, keys and edges.
CREATE FUNCTION th_import_relations(p_jobs jsonb, p_seqs bigint[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO th_error (seq, failure, attempts, failed_at, error)
  SELECT p_seqs[e.ord], x.ord, (x.f->>'attempts')::int, (x.f->>'failed_at')::bigint, x.f->>'error'
  FROM jsonb_array_elements(p_jobs) WITH ORDINALITY AS e (j, ord)
  CROSS JOIN jsonb_array_elements(e.j->'errors') WITH ORDINALITY AS x (f, ord);

  INSERT INTO th_key (queue, key, seq, job, held_until)
  SELECT e.j->>'queue', e.j->>'key', p_seqs[e.ord], e.j->>'id',
    th_held_until((e.j->>'created_at')::bigint, (e.j->>'key_time')::bigint)
  FROM jsonb_array_elements(p_jobs) WITH ORDINALITY AS e (j, ord)
  WHERE (e.j->>'holds_key')::boolean ORDER BY 1, 2;

  -- A parent that is gone is nowhere.
  INSERT INTO th_edge (child, ord, parent, status, failed_state, parent_id, failed_reason)
  SELECT p_seqs[e.ord], p.ord, coalesce((SELECT x.seq FROM th_job x WHERE x.id = p.p->>'id'), 0),
    (p.p->>'status')::th_edge_status, (p.p->>'state')::th_terminal, p.p->>'id', p.p->>'reason'
  FROM jsonb_array_elements(p_jobs) WITH ORDINALITY AS e (j, ord)
  CROSS JOIN jsonb_array_elements(e.j->'parents') WITH ORDINALITY AS p (p, ord);
  -- The same for a parent that is imported later: a detached job may be stored before the flow that its parents are in.
  UPDATE th_edge e SET parent = j.seq FROM th_job j
  WHERE e.parent = 0 AND e.run IS NULL AND j.id = e.parent_id AND j.seq = ANY (p_seqs);
END $$;

-- Stores a key that outlived its job. MOV-5.
CREATE FUNCTION th_import_key_v1(p_queue text, p_key text, p_job text, p_held_until bigint)
RETURNS TABLE (verdict text, id text) LANGUAGE plpgsql {settings} AS $$
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
