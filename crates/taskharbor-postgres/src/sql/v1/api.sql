-- Enqueueing from plain SQL: triggers, psql, any language.

CREATE FUNCTION th_now() RETURNS bigint LANGUAGE sql VOLATILE AS $$
  SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
$$;

-- Refuses what the Rust client refuses as a name.
CREATE FUNCTION th_check_name(p_what text, p_name text, p_max int) RETURNS void LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
  v_problem text := CASE
    WHEN p_name IS NULL OR p_name = '' THEN 'is empty: give it at least one visible character'
    WHEN octet_length(p_name) > p_max THEN 'is ' || octet_length(p_name) || ' bytes long: shorten it to ' || p_max || ' or fewer'
    WHEN p_name ~ '[\u0001-\u001f\u007f-\u009f]' THEN 'has a control character: remove it'
    WHEN p_name ~ '^[\u0020\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]*$'
      THEN 'is blank: give it at least one visible character' END;
BEGIN
  IF v_problem IS NOT NULL THEN
    RAISE invalid_parameter_value USING MESSAGE = p_what || ' ' || v_problem;
  END IF;
END $$;

-- How long a key is held, in microseconds, if it is told as an interval.
CREATE FUNCTION th_key_time(p_hold text) RETURNS bigint LANGUAGE plpgsql STABLE AS $$
DECLARE
  v_hold interval;
  v_time bigint;
BEGIN
  BEGIN
    v_hold := p_hold::interval;
  EXCEPTION WHEN data_exception THEN
    NULL;
  END;
  -- What is far out of range, or infinite, cannot be converted.
  IF v_hold BETWEEN interval '-1000 years' AND interval '1000 years' THEN
    v_time := (extract(epoch FROM v_hold) * 1000000)::bigint;
  END IF;
  -- KEY-11
  IF v_time IS NULL OR v_time NOT BETWEEN 1 AND 9223372036854775 THEN
    RAISE invalid_parameter_value USING MESSAGE = 'key_hold is unknown or out of range: choose until_pruned, until_done, '
      || 'until_terminal, or a time such as ''1 day'', from 1 microsecond to 292 years';
  END IF;
  RETURN v_time;
END $$;

-- A new id that sorts by time, as the client makes them.
CREATE FUNCTION th_new_id(p_now bigint) RETURNS text LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_noise text := encode(sha256(convert_to(
    random()::text || clock_timestamp()::text || pg_backend_pid()::text || txid_current()::text || nextval('th_seq')::text,
    'UTF8')), 'hex');
BEGIN
  RETURN (lpad(to_hex(p_now / 1000), 12, '0') || '7' || substr(v_noise, 1, 3) || '8' || substr(v_noise, 4, 15))::uuid::text;
END $$;

-- Stores one job in the caller's transaction. Answers its id and whether it is new: if the id is stored or the key is
-- held already, the id of the job that stands in its place.
--
--   SELECT th_enqueue(type => 'email:send', payload => '{"to": "ada@example.com"}', queue => 'mail');
CREATE FUNCTION th_enqueue(
  type            text,
  payload         jsonb DEFAULT 'null',
  queue           text DEFAULT 'default',
  run_at          timestamptz DEFAULT NULL,
  priority        int DEFAULT 0,
  max_attempts    int DEFAULT NULL,
  timeout         interval DEFAULT NULL,
  idempotency_key text DEFAULT NULL,
  key_hold        text DEFAULT 'until_pruned',
  headers         jsonb DEFAULT '{}',
  id              text DEFAULT NULL,
  notify          boolean DEFAULT true,
  OUT job_id      text,
  OUT inserted    boolean
) LANGUAGE plpgsql SET search_path = {schema}, pg_temp AS $$
#variable_conflict use_variable
BEGIN
  SELECT * INTO job_id, inserted FROM th_enqueue_bytes(
    type, convert_to(payload::text, 'UTF8'), 'json', queue, run_at, priority, max_attempts, timeout, idempotency_key,
    key_hold, headers, id, notify);
END $$;

-- As th_enqueue, for a payload that is not JSON; the codec tells the worker how to read it.
CREATE FUNCTION th_enqueue_bytes(
  type            text,
  payload         bytea,
  codec           text,
  queue           text DEFAULT 'default',
  run_at          timestamptz DEFAULT NULL,
  priority        int DEFAULT 0,
  max_attempts    int DEFAULT NULL,
  timeout         interval DEFAULT NULL,
  idempotency_key text DEFAULT NULL,
  key_hold        text DEFAULT 'until_pruned',
  headers         jsonb DEFAULT '{}',
  id              text DEFAULT NULL,
  notify          boolean DEFAULT true,
  OUT job_id      text,
  OUT inserted    boolean
) LANGUAGE plpgsql SET search_path = {schema}, pg_temp AS $$
#variable_conflict use_variable
DECLARE
  v_now      bigint := th_now();
  v_run_at   bigint;
  v_timeout  bigint;
  v_largest  bigint := (SELECT max_payload_bytes FROM th_meta);
  v_id       text := coalesce(id, th_new_id(v_now));
  v_header   record;
  v_bytes    bigint := 0;
  v_existing text;
  v_hold     text;
  v_key_time bigint;
BEGIN
  PERFORM th_check_name('job type', type, 255);
  PERFORM th_check_name('queue name', queue, 255);
  PERFORM th_check_name('job id', v_id, 255);
  PERFORM th_check_name('codec', codec, 255);
  IF idempotency_key IS NOT NULL THEN
    PERFORM th_check_name('idempotency key', idempotency_key, 1024);
  END IF;
  IF payload IS NULL THEN
    RAISE invalid_parameter_value USING MESSAGE = 'the payload is NULL: give an empty one if there is none';
  END IF;
  IF octet_length(payload) > v_largest THEN
    RAISE invalid_parameter_value USING MESSAGE = 'the payload is ' || octet_length(payload)
      || ' bytes: store it elsewhere and enqueue a reference, or raise the limit of ' || v_largest;
  END IF;
  IF priority IS NULL OR priority NOT BETWEEN -32768 AND 32767 THEN
    RAISE invalid_parameter_value USING MESSAGE = 'the priority is out of range: choose -32768 to 32767';
  END IF;
  IF max_attempts < 1 THEN
    RAISE invalid_parameter_value USING MESSAGE = 'max_attempts is out of range: leave it out for the worker''s default, or choose 1 to 2147483647';
  END IF;
  -- What is far out of range, or infinite, cannot be converted.
  IF timeout BETWEEN interval '-1000 years' AND interval '1000 years' THEN
    v_timeout := (extract(epoch FROM timeout) * 1000000)::bigint;
  END IF;
  IF timeout IS NOT NULL AND (v_timeout IS NULL OR v_timeout NOT BETWEEN 1 AND 9223372036854775) THEN
    RAISE invalid_parameter_value USING MESSAGE = 'the timeout is out of range: leave it out for none, or choose 1 microsecond to 292 years';
  END IF;
  IF run_at NOT BETWEEN timestamptz '1970-01-01 00:00:00Z' AND timestamptz '9999-12-31 23:59:59.999999Z' THEN
    RAISE invalid_parameter_value USING MESSAGE = 'run_at is out of range: choose a time from 1970 to 9999';
  END IF;
  -- Seconds and microseconds apart: before version 14 both together are a double, too short for far years.
  v_run_at := extract(epoch FROM date_trunc('second', run_at))::bigint * 1000000
    + extract(microseconds FROM run_at)::bigint % 1000000;
  v_hold := CASE key_hold WHEN 'until_pruned' THEN 'p' WHEN 'until_done' THEN 'd' WHEN 'until_terminal' THEN 't' END;
  IF v_hold IS NULL THEN
    v_hold := 'f';
    v_key_time := th_key_time(key_hold);
  END IF;
  headers := coalesce(headers, '{}');
  IF jsonb_typeof(headers) <> 'object' THEN
    RAISE invalid_parameter_value USING MESSAGE = 'the headers are no object: give names and texts';
  END IF;
  FOR v_header IN SELECT h.key, h.value, jsonb_typeof(h.value) AS kind, h.value #>> '{}' AS text FROM jsonb_each(headers) h LOOP
    PERFORM th_check_name('header name', v_header.key, 255);
    IF v_header.key LIKE 'th-%' THEN
      RAISE invalid_parameter_value USING MESSAGE = 'header name "' || v_header.key || '" is reserved: do not start names with "th-"';
    END IF;
    IF v_header.kind <> 'string' THEN
      RAISE invalid_parameter_value USING MESSAGE = 'the value of header "' || v_header.key || '" is no text';
    END IF;
    v_bytes := v_bytes + octet_length(v_header.key) + octet_length(v_header.text);
  END LOOP;
  -- A job that names no codec is JSON.
  IF codec <> 'json' THEN
    headers := headers || jsonb_build_object('th-codec', codec);
    v_bytes := v_bytes + octet_length('th-codec') + octet_length(codec);
  END IF;
  IF (SELECT count(*) FROM jsonb_object_keys(headers) AS name WHERE name NOT LIKE 'th-%') > 32 THEN
    RAISE invalid_parameter_value USING MESSAGE = 'more than 32 headers: put the rest into the payload';
  END IF;
  IF v_bytes > 8192 THEN
    RAISE invalid_parameter_value USING MESSAGE = 'more than 8192 bytes of headers: put large values into the payload';
  END IF;

  SELECT e.existing INTO v_existing FROM th_enqueue_v1(
    v_now, false, '{}', ARRAY[v_id], ARRAY[queue], ARRAY[type], ARRAY[payload], ARRAY[priority::bigint], ARRAY[v_run_at],
    ARRAY[v_timeout], ARRAY[max_attempts::bigint], ARRAY[nullif(headers, '{}')::text], '{}',
    CASE WHEN idempotency_key IS NULL THEN '{}' ELSE ARRAY[idempotency_key] END,
    ARRAY[v_hold], ARRAY[v_key_time], CASE WHEN notify THEN '{channel}' END) e;
  job_id := coalesce(v_existing, v_id);
  inserted := v_existing IS NULL;
END $$;
