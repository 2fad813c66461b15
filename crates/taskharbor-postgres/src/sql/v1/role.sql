-- Only the owner may use anything, unless th_grant gives other roles a part. Privileges on other objects in the schema
-- are not changed.
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
CREATE FUNCTION th_grant_v1(part text, to_role text) RETURNS void LANGUAGE plpgsql SET search_path = {schema}, pg_temp AS $$
DECLARE
  v_role text := quote_ident(to_role);
  v_function regprocedure;
BEGIN
  IF part NOT IN ('worker', 'producer', 'viewer') THEN
    RAISE invalid_parameter_value USING MESSAGE = 'unknown part ' || quote_literal(part) || ': choose worker, producer or viewer';
  END IF;
  IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = to_role) THEN
    RAISE undefined_object USING MESSAGE = 'unknown role ' || v_role || ': create it first';
  END IF;
  EXECUTE 'GRANT USAGE ON SCHEMA {schema} TO ' || v_role;
  EXECUTE 'GRANT SELECT ON th_meta TO ' || v_role;
  IF part = 'worker' THEN
    EXECUTE 'GRANT SELECT, INSERT, UPDATE, DELETE ON th_job, th_live, th_finished, th_outcome, th_error, th_key, th_edge, th_flow, '
      || 'th_queue, th_imported_token, th_schedule, th_schedule_owner, th_limit, th_lane, th_grant_note, th_worker TO ' || v_role;
    EXECUTE 'GRANT SELECT ON th_record, th_jobs, th_stats, th_finished_job, th_each_edge, th_setting, th_schedules, th_workers TO ' || v_role;
    EXECUTE 'GRANT USAGE ON SEQUENCE th_seq, th_revision TO ' || v_role;
  ELSIF part = 'viewer' THEN
    EXECUTE 'GRANT SELECT (id, type, queue, run_at, timeout_nanos, created_at, attempts, max_attempts, last_error, failed_at, '
      || 'status, lease_expires_at, dlq_reason, dlq_failed_at, idempotency_key, priority, due_at, deliveries, expirations, '
      || 'epoch, holder, cancel_requested, progress, reason, started_at, finished_at, flow, pending, seq, schedule, slot, released, lane) ON th_jobs TO ' || v_role;
    EXECUTE 'GRANT SELECT (name, owner, status, next_slot, paused_since, stored, skipped, missed, error, firings, revision) '
      || 'ON th_schedules TO ' || v_role;
    EXECUTE 'GRANT SELECT ON th_flow, th_queue, th_stats, th_workers TO ' || v_role;
  END IF;
  FOR v_function IN
    SELECT oid::regprocedure FROM pg_proc
    WHERE pronamespace = '{schema}'::regnamespace AND CASE part
      WHEN 'worker' THEN proname LIKE 'th\_%'
        AND proname NOT IN ('th_grant', 'th_grant_v1', 'th_restore_grants', 'th_revoke')
      -- These run with the rights of the owner, so a producer can do nothing but store jobs.
      WHEN 'producer' THEN proname IN (
        'th_enqueue', 'th_enqueue_bytes', 'th_enqueue_many', 'th_enqueue_v1', 'th_enqueue_flow_v1')
      ELSE proname IN ('th_time', 'th_json') END
  LOOP
    EXECUTE 'GRANT EXECUTE ON FUNCTION ' || v_function || ' TO ' || v_role;
  END LOOP;
END $$;
REVOKE ALL ON FUNCTION th_grant_v1(text, text) FROM PUBLIC;
