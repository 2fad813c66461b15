-- What a caller is held to that may do nothing but store jobs. The driver checks what it sends; such a role can call the
-- functions without the driver.

-- Whether the caller may do nothing but store jobs: it has no right to write the tables. Inside of a function that runs with
-- the rights of the owner, the caller is the role that was set, or that of the session.
CREATE FUNCTION th_is_producer() RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN NOT has_table_privilege(
    coalesce(nullif(current_setting('role'), 'none'), session_user::text)::name, '{schema}.th_live', 'INSERT');
END $$;

-- Refuses names that the driver would refuse. Most are visible ASCII, and looked at no further.
CREATE FUNCTION th_check_names(p_what text, p_names text[], p_max int) RETURNS void LANGUAGE plpgsql STABLE AS $$
BEGIN
  PERFORM th_check_name(p_what, n.name, p_max) FROM unnest(p_names) AS n (name)
  WHERE (octet_length(n.name) <= p_max AND n.name COLLATE "C" ~ '^[!-~]+$') IS NOT TRUE;
END $$;

-- Refuses jobs that the driver would refuse.
CREATE FUNCTION th_check_new_jobs(p_jobs th_new_job[]) RETURNS void LANGUAGE plpgsql STABLE AS $$
DECLARE
  v_largest bigint := (SELECT max_payload_bytes FROM th_meta);
BEGIN
  PERFORM th_check_names('job id', ARRAY(SELECT j.id FROM unnest(p_jobs) AS j), 255);
  PERFORM th_check_names('queue name', ARRAY(SELECT DISTINCT j.queue FROM unnest(p_jobs) AS j), 255);
  PERFORM th_check_names('job type', ARRAY(SELECT DISTINCT j.type FROM unnest(p_jobs) AS j), 255);
  PERFORM th_check_names('lane name', ARRAY(SELECT DISTINCT j.lane FROM unnest(p_jobs) AS j WHERE j.lane IS NOT NULL), 255);
  PERFORM th_check_payload(j.payload) FROM unnest(p_jobs) AS j
  WHERE (octet_length(j.payload) <= v_largest) IS NOT TRUE;
  PERFORM th_check_header_set(j.headers) FROM unnest(p_jobs) AS j WHERE j.headers IS NOT NULL;
  IF EXISTS (SELECT FROM unnest(p_jobs) AS j WHERE j.run_at NOT BETWEEN 0 AND 253402300799999999) THEN
    RAISE invalid_parameter_value USING MESSAGE = 'run_at is out of range: choose a time from 1970 to 9999';
  END IF;
  IF EXISTS (SELECT FROM unnest(p_jobs) AS j WHERE j.timeout_us NOT BETWEEN 1 AND 9223372036854775) THEN
    RAISE invalid_parameter_value USING MESSAGE = 'the timeout is out of range: leave it out for none, or choose 1 microsecond to 292 years';
  END IF;
END $$;

-- Refuses keys that the driver would refuse, and times for which a key cannot be held. KEY-11.
CREATE FUNCTION th_check_new_keys(p_keys text[], p_holds text[], p_times bigint[]) RETURNS void LANGUAGE plpgsql STABLE AS $$
BEGIN
  PERFORM th_check_names('idempotency key', ARRAY(SELECT k FROM unnest(p_keys) AS k WHERE k IS NOT NULL), 1024);
  IF EXISTS (
    SELECT FROM unnest(p_holds, p_times) AS h (hold, time_us)
    WHERE (h.hold = 'for_a_time') IS TRUE <> (h.time_us IS NOT NULL) OR h.time_us NOT BETWEEN 1 AND 9223372036854775
  ) THEN
    RAISE invalid_parameter_value USING MESSAGE = 'a key is held for a time that is missing or out of range: choose 1 microsecond to 292 years';
  END IF;
END $$;

-- Refuses a flow that the driver would refuse because of its name or of places that no member has.
CREATE FUNCTION th_check_new_flow(p_name text, p_members bigint, p_tail bigint, p_edges th_new_edge[]) RETURNS void
LANGUAGE plpgsql STABLE AS $$
BEGIN
  IF p_name IS NOT NULL THEN
    PERFORM th_check_name('flow name', p_name, 255);
  END IF;
  IF (p_tail BETWEEN 1 AND p_members) IS NOT TRUE OR EXISTS (
    SELECT FROM unnest(p_edges) AS e
    WHERE (e.child BETWEEN 1 AND p_members AND e.parent >= 1 AND e.run BETWEEN 1 AND p_members AND e.parent + e.run - 1 <= p_members) IS NOT TRUE
  ) THEN
    RAISE invalid_parameter_value USING MESSAGE = 'an edge or the tail of the flow is not a member of the flow';
  END IF;
END $$;
