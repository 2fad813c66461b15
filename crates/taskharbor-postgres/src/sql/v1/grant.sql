-- Nobody but the owner may use anything unless th_grant says so.
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA {schema} FROM PUBLIC;

-- Lets a role do what its part needs and no more:
--   worker    everything but changing the schema
--   producer  enqueue, from Rust and from SQL
--   viewer    look at jobs, without payloads, outputs, headers and tokens
CREATE FUNCTION th_grant(part text, to_role text) RETURNS void LANGUAGE plpgsql SET search_path = {schema}, pg_temp AS $$
DECLARE
  v_role text := quote_ident(to_role);
  v_function regprocedure;
BEGIN
  EXECUTE 'GRANT USAGE ON SCHEMA {schema} TO ' || v_role;
  EXECUTE 'GRANT SELECT ON th_meta TO ' || v_role;
  IF part = 'worker' THEN
    EXECUTE 'GRANT SELECT, INSERT, UPDATE, DELETE ON th_job, th_hot, th_error, th_key, th_edge, th_flow, th_end, th_queue TO ' || v_role;
    EXECUTE 'GRANT SELECT ON th_record, th_jobs TO ' || v_role;
    EXECUTE 'GRANT USAGE ON SEQUENCE th_seq TO ' || v_role;
    EXECUTE 'GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA {schema} TO ' || v_role;
    EXECUTE 'REVOKE EXECUTE ON FUNCTION th_grant(text, text) FROM ' || v_role;
  ELSIF part = 'producer' THEN
    -- It reads no payload: only what tells whether a job is stored already.
    EXECUTE 'GRANT INSERT, SELECT (seq, id, queue, kind, parents, state, flow, idempotency_key, key_hold, priority, run_at) ON th_job TO ' || v_role;
    EXECUTE 'GRANT UPDATE (state, finished_at, kept_until, reason, priority, run_at, started_at, deliveries, attempts, expirations, failures, epoch, attempt_limit, progress) ON th_job TO ' || v_role;
    EXECUTE 'GRANT SELECT, INSERT, UPDATE, DELETE ON th_hot TO ' || v_role;
    EXECUTE 'GRANT SELECT, INSERT ON th_key, th_end TO ' || v_role;
    EXECUTE 'GRANT SELECT, INSERT, UPDATE ON th_edge, th_flow TO ' || v_role;
    EXECUTE 'GRANT DELETE ON th_key TO ' || v_role;
    EXECUTE 'GRANT USAGE ON SEQUENCE th_seq TO ' || v_role;
    FOR v_function IN
      SELECT p.oid::regprocedure FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
      WHERE n.nspname = current_schema() AND p.proname IN (
        'th_enqueue', 'th_enqueue_bytes', 'th_enqueue_v1', 'th_enqueue_flow_v1', 'th_add_members', 'th_start_members',
        'th_finish', 'th_close', 'th_let_go', 'th_retire', 'th_notify', 'th_now', 'th_new_id', 'th_check_name')
    LOOP
      EXECUTE 'GRANT EXECUTE ON FUNCTION ' || v_function || ' TO ' || v_role;
    END LOOP;
  ELSIF part = 'viewer' THEN
    EXECUTE 'GRANT SELECT (id, type, queue, run_at, timeout_nanos, created_at, attempts, max_attempts, last_error, failed_at, '
      || 'status, lease_expires_at, dlq_reason, dlq_failed_at, idempotency_key, priority, due_at, deliveries, expirations, '
      || 'epoch, holder, cancel_requested, progress, reason, started_at, finished_at, flow, pending, seq) ON th_jobs TO ' || v_role;
    EXECUTE 'GRANT SELECT ON th_flow, th_queue TO ' || v_role;
    EXECUTE 'GRANT EXECUTE ON FUNCTION th_time(bigint) TO ' || v_role;
  ELSE
    RAISE invalid_parameter_value USING MESSAGE = 'there is no part ' || quote_literal(part) || ': choose worker, producer or viewer';
  END IF;
END $$;
REVOKE ALL ON FUNCTION th_grant(text, text) FROM PUBLIC;
