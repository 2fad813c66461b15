-- Functions for operators who use psql instead of the command. Each function on a job returns the state of the job
-- afterwards, and fails with the reason if nothing was changed.

-- Does one thing to one job. Answers its state, or fails with the reason.
CREATE FUNCTION th_manage_one(p_action text, p_id text, p_run_at bigint, p_reset boolean, p_priority bigint) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
  v record;
BEGIN
  SELECT m.state, m.denied, m.detail INTO v
  FROM th_manage_v1(p_action, ARRAY[p_id], th_now(), p_run_at, p_reset, false, p_priority, '{channel}') m LIMIT 1;
  IF v.denied = 'not_found' THEN
    RAISE no_data_found USING MESSAGE = 'no job has the id ' || quote_literal(p_id);
  ELSIF v.denied IS NOT NULL THEN
    RAISE object_not_in_prerequisite_state USING MESSAGE = 'cannot ' || p_action || ' job ' || quote_literal(p_id) || ': '
      || CASE v.denied WHEN 'wrong_state' THEN 'it is ' || v.state WHEN 'flow_over' THEN 'its flow has ended'
           WHEN 'key_held' THEN 'job ' || quote_literal(v.detail) || ' holds its idempotency key'
           ELSE 'it is a member of flow ' || quote_literal(v.detail) END;
  END IF;
  RETURN v.state;
END $$;

-- Cancels a job, or asks its worker to stop it if it is inflight.
CREATE FUNCTION th_cancel(job_id text) RETURNS text LANGUAGE plpgsql {settings} AS $$
BEGIN
  RETURN th_manage_one('cancel', job_id, NULL, false, 0);
END $$;

-- Requeues a dead-lettered or cancelled job, so that it runs again.
CREATE FUNCTION th_requeue(job_id text, reset_attempts boolean DEFAULT false) RETURNS text LANGUAGE plpgsql {settings} AS $$
BEGIN
  RETURN th_manage_one('requeue', job_id, NULL, reset_attempts, 0);
END $$;

-- Makes a scheduled job due at once.
CREATE FUNCTION th_run_now(job_id text) RETURNS text LANGUAGE plpgsql {settings} AS $$
BEGIN
  RETURN th_manage_one('run_now', job_id, NULL, false, 0);
END $$;

-- Sets the priority of a job that is not terminal: higher is granted first.
CREATE FUNCTION th_set_priority(job_id text, priority int) RETURNS text LANGUAGE plpgsql {settings} AS $$
BEGIN
  IF priority IS NULL OR priority NOT BETWEEN -32768 AND 32767 THEN
    RAISE invalid_parameter_value USING MESSAGE = 'the priority is out of range: choose -32768 to 32767';
  END IF;
  RETURN th_manage_one('set_priority', job_id, NULL, false, priority);
END $$;

-- Pauses or resumes a queue.
CREATE FUNCTION th_pause_queue(p_change text, p_queue text, p_notify text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM th_check_name('queue name', p_queue, 255);
  PERFORM th_configure_v1(
    jsonb_build_array(jsonb_build_object('change', p_change, 'name', p_queue))::text, '{}', th_now(), p_notify);
END $$;

-- Workers start no further jobs of the queue until it is resumed.
CREATE FUNCTION th_pause(queue text) RETURNS void LANGUAGE plpgsql {settings} AS $$
BEGIN
  PERFORM th_pause_queue('pause_queue', queue, NULL);
END $$;

-- Workers start jobs of the queue again.
CREATE FUNCTION th_resume(queue text) RETURNS void LANGUAGE plpgsql {settings} AS $$
BEGIN
  PERFORM th_pause_queue('resume_queue', queue, '{channel}');
END $$;
