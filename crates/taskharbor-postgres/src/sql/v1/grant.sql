-- No role but the owner may use anything unless th_grant says so. What others have in the schema is theirs to grant.
DO $revoke$
DECLARE
  v_function regprocedure;
BEGIN
  FOR v_function IN
    SELECT oid::regprocedure FROM pg_proc WHERE pronamespace = '{schema}'::regnamespace AND proname LIKE 'th\_%'
  LOOP
    EXECUTE 'REVOKE ALL ON FUNCTION ' || v_function || ' FROM PUBLIC';
  END LOOP;
END $revoke$;

-- Lets a role do what its part needs and no more:
--   worker    everything but changing the schema
--   producer  enqueue, from Rust and from SQL
--   viewer    look at jobs, without payloads, outputs, headers and tokens
CREATE FUNCTION th_grant(part text, to_role text) RETURNS void LANGUAGE plpgsql SET search_path = {schema}, pg_temp AS $$
DECLARE
  v_role text := quote_ident(to_role);
  v_function regprocedure;
BEGIN
  IF part NOT IN ('worker', 'producer', 'viewer') THEN
    RAISE invalid_parameter_value USING MESSAGE = 'there is no part ' || quote_literal(part) || ': choose worker, producer or viewer';
  END IF;
  IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = to_role) THEN
    RAISE undefined_object USING MESSAGE = 'there is no role ' || v_role || ': create it first';
  END IF;
  EXECUTE 'GRANT USAGE ON SCHEMA {schema} TO ' || v_role;
  EXECUTE 'GRANT SELECT ON th_meta TO ' || v_role;
  IF part = 'worker' THEN
    EXECUTE 'GRANT SELECT, INSERT, UPDATE, DELETE ON th_job, th_hot, th_error, th_key, th_edge, th_flow, th_end, th_queue TO ' || v_role;
    EXECUTE 'GRANT SELECT ON th_record, th_jobs TO ' || v_role;
    EXECUTE 'GRANT USAGE ON SEQUENCE th_seq TO ' || v_role;
  ELSIF part = 'producer' THEN
    -- It adds rows and changes none. What it reads tells whether a job is stored and a key held already.
    EXECUTE 'GRANT SELECT (seq, id, queue, priority, run_at, idempotency_key), INSERT (seq, created_at, priority, kind, key_hold, '
      || 'on_failure, id, queue, type, payload, timeout_us, max_attempts, run_at, headers, idempotency_key, '
      || 'key_time_us, parents, flow, state, finished_at, kept_until, reason) ON th_job TO ' || v_role;
    EXECUTE 'GRANT INSERT (seq, line_at, priority, queue, pending, flow, run_at, large) ON th_hot TO ' || v_role;
    EXECUTE 'GRANT SELECT, INSERT ON th_key TO ' || v_role;
    EXECUTE 'GRANT INSERT (child, ord, parent, parent_id, tie) ON th_edge TO ' || v_role;
    EXECUTE 'GRANT INSERT ON th_flow, th_end TO ' || v_role;
    EXECUTE 'GRANT USAGE ON SEQUENCE th_seq TO ' || v_role;
  ELSE
    EXECUTE 'GRANT SELECT (id, type, queue, run_at, timeout_nanos, created_at, attempts, max_attempts, last_error, failed_at, '
      || 'status, lease_expires_at, dlq_reason, dlq_failed_at, idempotency_key, priority, due_at, deliveries, expirations, '
      || 'epoch, holder, cancel_requested, progress, reason, started_at, finished_at, flow, pending, seq) ON th_jobs TO ' || v_role;
    EXECUTE 'GRANT SELECT ON th_flow, th_queue TO ' || v_role;
  END IF;
  FOR v_function IN
    SELECT oid::regprocedure FROM pg_proc
    WHERE pronamespace = '{schema}'::regnamespace AND CASE part
      WHEN 'worker' THEN proname LIKE 'th\_%' AND proname <> 'th_grant'
      WHEN 'producer' THEN proname IN (
        'th_enqueue', 'th_enqueue_bytes', 'th_enqueue_v1', 'th_find_existing', 'th_repeated', 'th_enqueue_flow_v1',
        'th_add_members', 'th_plan_members', 'th_done_at_once', 'th_held_until', 'th_drop_expired_keys', 'th_notify', 'th_now',
        'th_new_id', 'th_check_name', 'th_key_time')
      ELSE proname = 'th_time' END
  LOOP
    EXECUTE 'GRANT EXECUTE ON FUNCTION ' || v_function || ' TO ' || v_role;
  END LOOP;
END $$;
REVOKE ALL ON FUNCTION th_grant(text, text) FROM PUBLIC;
