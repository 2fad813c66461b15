-- Enqueueing from plain SQL: triggers, psql, any language.

-- The time of the server, in microseconds since 1970.
CREATE FUNCTION th_now() RETURNS bigint LANGUAGE sql VOLATILE AS $$
  SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
$$;

-- Refuses the same names as the Rust client.
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

-- How long a key is held, in microseconds, if it is given as an interval.
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

-- Creates an id that sorts by time, as the client does.
CREATE FUNCTION th_new_id(p_now bigint) RETURNS text LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_noise text := encode(sha256(convert_to(
    random()::text || clock_timestamp()::text || pg_backend_pid()::text || txid_current()::text || nextval('th_seq')::text,
    'UTF8')), 'hex');
BEGIN
  RETURN (lpad(to_hex(p_now / 1000), 12, '0') || '7' || substr(v_noise, 1, 3) || '8' || substr(v_noise, 4, 15))::uuid::text;
END $$;

-- Checks the options that a caller of SQL gives for a job, and converts them to the units of the tables.
CREATE FUNCTION th_check_options(
  p_priority int, p_max_attempts int, p_timeout interval, p_run_at timestamptz, OUT timeout_us bigint, OUT run_at bigint
) LANGUAGE plpgsql STABLE AS $$
BEGIN
  IF p_priority IS NULL OR p_priority NOT BETWEEN -32768 AND 32767 THEN
    RAISE invalid_parameter_value USING MESSAGE = 'the priority is out of range: choose -32768 to 32767';
  END IF;
  IF p_max_attempts < 1 THEN
    RAISE invalid_parameter_value USING MESSAGE = 'max_attempts is out of range: leave it out for the worker''s default, or choose 1 to 2147483647';
  END IF;
  -- What is far out of range, or infinite, cannot be converted.
  IF p_timeout BETWEEN interval '-1000 years' AND interval '1000 years' THEN
    timeout_us := (extract(epoch FROM p_timeout) * 1000000)::bigint;
  END IF;
  IF p_timeout IS NOT NULL AND (timeout_us IS NULL OR timeout_us NOT BETWEEN 1 AND 9223372036854775) THEN
    RAISE invalid_parameter_value USING MESSAGE = 'the timeout is out of range: leave it out for none, or choose 1 microsecond to 292 years';
  END IF;
  IF p_run_at NOT BETWEEN timestamptz '1970-01-01 00:00:00Z' AND timestamptz '9999-12-31 23:59:59.999999Z' THEN
    RAISE invalid_parameter_value USING MESSAGE = 'run_at is out of range: choose a time from 1970 to 9999';
  END IF;
  -- Seconds and microseconds apart: before version 14 both together are a double, too short for far years.
  run_at := extract(epoch FROM date_trunc('second', p_run_at))::bigint * 1000000
    + extract(microseconds FROM p_run_at)::bigint % 1000000;
END $$;

-- Refuses headers that are not names with texts, or too many or too large.
CREATE FUNCTION th_check_header_set(p_headers jsonb) RETURNS void LANGUAGE plpgsql STABLE AS $$
DECLARE
  v_header record;
  v_bytes  bigint := 0;
  v_count  int := 0;
BEGIN
  IF jsonb_typeof(p_headers) <> 'object' THEN
    RAISE invalid_parameter_value USING MESSAGE = 'the headers must be a JSON object, with a text for each name';
  END IF;
  FOR v_header IN SELECT h.key, jsonb_typeof(h.value) AS kind, h.value #>> '{}' AS text FROM jsonb_each(p_headers) h LOOP
    PERFORM th_check_name('header name', v_header.key, 255);
    IF v_header.kind <> 'string' THEN
      RAISE invalid_parameter_value USING MESSAGE = 'the value of header "' || v_header.key || '" must be a text';
    END IF;
    v_bytes := v_bytes + octet_length(v_header.key) + octet_length(v_header.text);
    v_count := v_count + CASE WHEN v_header.key LIKE 'th-%' THEN 0 ELSE 1 END;
  END LOOP;
  IF v_count > 32 THEN
    RAISE invalid_parameter_value USING MESSAGE = 'more than 32 headers: put the rest into the payload';
  END IF;
  IF v_bytes > 8192 THEN
    RAISE invalid_parameter_value USING MESSAGE = 'more than 8192 bytes of headers: put large values into the payload';
  END IF;
END $$;

-- The headers with the codec, NULL for none. A job that names no codec is JSON.
CREATE FUNCTION th_check_headers(p_headers jsonb, p_codec text) RETURNS jsonb LANGUAGE plpgsql STABLE AS $$
DECLARE
  v_headers  jsonb := coalesce(p_headers, '{}');
  v_reserved text;
BEGIN
  PERFORM th_check_name('codec', p_codec, 255);
  PERFORM th_check_header_set(v_headers);
  SELECT h.name INTO v_reserved FROM jsonb_object_keys(v_headers) AS h (name) WHERE h.name LIKE 'th-%' LIMIT 1;
  IF FOUND THEN
    RAISE invalid_parameter_value USING MESSAGE = 'header name "' || v_reserved || '" is reserved: do not start names with "th-"';
  END IF;
  IF p_codec <> 'json' THEN
    v_headers := v_headers || jsonb_build_object('th-codec', p_codec);
    PERFORM th_check_header_set(v_headers);
  END IF;
  RETURN nullif(v_headers, '{}');
END $$;

-- Refuses a payload that is missing or too large.
CREATE FUNCTION th_check_payload(p_payload bytea) RETURNS void LANGUAGE plpgsql STABLE AS $$
DECLARE
  v_largest bigint := (SELECT max_payload_bytes FROM th_meta);
BEGIN
  IF p_payload IS NULL THEN
    RAISE invalid_parameter_value USING MESSAGE = 'the payload is NULL: give an empty payload instead';
  END IF;
  IF octet_length(p_payload) > v_largest THEN
    RAISE invalid_parameter_value USING MESSAGE = 'the payload is ' || octet_length(p_payload)
      || ' bytes: store it elsewhere and enqueue a reference, or raise the limit of ' || v_largest;
  END IF;
END $$;

-- Stores one job in the caller's transaction. Returns its id and whether it is new. If the id is stored or the key is
-- held already, returns the id of the existing job.
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
  lane            text DEFAULT NULL,
  notify          boolean DEFAULT true,
  OUT job_id      text,
  OUT inserted    boolean
) LANGUAGE plpgsql SECURITY DEFINER {settings} AS $$
#variable_conflict use_variable
BEGIN
  SELECT * INTO job_id, inserted FROM th_enqueue_bytes(
    type, convert_to(payload::text, 'UTF8'), 'json', queue, run_at, priority, max_attempts, timeout, idempotency_key,
    key_hold, headers, id, lane, notify);
END $$;

-- The same as th_enqueue for a payload that is not JSON; the codec tells the worker how to read it.
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
  lane            text DEFAULT NULL,
  notify          boolean DEFAULT true,
  OUT job_id      text,
  OUT inserted    boolean
) LANGUAGE plpgsql SECURITY DEFINER {settings} AS $$
#variable_conflict use_variable
DECLARE
  v_now     bigint := th_now();
  v_options record := th_check_options(priority, max_attempts, timeout, run_at);
  v_job     th_new_job;
  v_claim   th_key_claim;
BEGIN
  PERFORM th_check_name('job type', type, 255);
  PERFORM th_check_name('queue name', queue, 255);
  PERFORM th_check_payload(payload);
  job_id := coalesce(id, th_new_id(v_now));
  PERFORM th_check_name('job id', job_id, 255);
  IF lane IS NOT NULL THEN
    PERFORM th_check_name('lane name', lane, 255);
  END IF;
  v_job := ROW(job_id, queue, type, payload, priority, v_options.run_at, v_options.timeout_us, max_attempts,
               th_check_headers(headers, codec), NULL, NULL, lane)::th_new_job;
  v_claim := th_check_claim(idempotency_key, key_hold);
  SELECT s.job_id, s.inserted INTO job_id, inserted FROM th_store_job(v_job, v_claim, v_now, id IS NOT NULL) s;
  IF notify THEN
    PERFORM th_notify('{channel}', ARRAY[queue]);
  END IF;
END $$;

-- A key and how long it is held; `until_pruned` is the default.
CREATE FUNCTION th_check_claim(p_key text, p_hold text) RETURNS th_key_claim LANGUAGE plpgsql STABLE AS $$
DECLARE
  v_claim th_key_claim;
BEGIN
  IF p_key IS NOT NULL THEN
    PERFORM th_check_name('idempotency key', p_key, 1024);
  END IF;
  v_claim.key := p_key;
  IF p_hold IN ('until_done', 'until_terminal') THEN
    v_claim.hold := p_hold::th_key_hold;
  ELSIF p_hold IS DISTINCT FROM 'until_pruned' THEN
    v_claim.hold := 'for_a_time';
    v_claim.time_us := th_key_time(p_hold);
  END IF;
  RETURN v_claim;
END $$;

-- Stores one job without a subtransaction, so that a trigger may do it for many rows. If another transaction is storing
-- the same id or taking the key, it waits for that transaction and returns the existing job.
CREATE FUNCTION th_store_job(
  p_job th_new_job, p_claim th_key_claim, p_now bigint, p_has_id boolean, OUT job_id text, OUT inserted boolean
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_seq  bigint := nextval('th_seq');
  v_held record;
BEGIN
  inserted := false;
  SELECT j.id INTO job_id FROM th_job j WHERE p_has_id AND j.id = p_job.id;
  IF FOUND THEN
    RETURN;
  END IF;
  WHILE p_claim.key IS NOT NULL LOOP
    INSERT INTO th_key (queue, key, seq, job, held_until)
    VALUES (p_job.queue, p_claim.key, v_seq, p_job.id, th_held_until(p_now, p_claim.time_us)) ON CONFLICT DO NOTHING;
    EXIT WHEN FOUND;
    SELECT k.ctid AS row, k.job, k.held_until <= p_now AS is_free INTO v_held FROM th_key k
    WHERE k.queue = p_job.queue AND k.key = p_claim.key;
    IF v_held.is_free THEN
      DELETE FROM th_key WHERE ctid = v_held.row;
    ELSIF v_held.job IS NOT NULL THEN
      job_id := v_held.job;
      RETURN;
    END IF;
  END LOOP;
  INSERT INTO th_job (seq, created_at, priority, id, queue, type, payload, headers, run_at, timeout_us, key_time_us,
                      max_attempts, key_hold, idempotency_key, lane)
  VALUES (v_seq, p_now, p_job.priority, p_job.id, p_job.queue, p_job.type, p_job.payload, p_job.headers, p_job.run_at,
          p_job.timeout_us, p_claim.time_us, p_job.max_attempts, p_claim.hold, p_claim.key, p_job.lane)
  ON CONFLICT DO NOTHING;
  inserted := FOUND;
  job_id := p_job.id;
  IF NOT inserted THEN
    PERFORM th_count_conflict(0, 'th_job_pkey') FROM th_job WHERE seq = v_seq;
    DELETE FROM th_key WHERE queue = p_job.queue AND key = p_claim.key AND seq = v_seq;
    RETURN;
  END IF;
  INSERT INTO th_live (seq, available_at, priority, queue, run_at, is_large, is_special, is_in_lane, lane)
  VALUES (v_seq, greatest(p_job.run_at, p_now), p_job.priority, p_job.queue, p_job.run_at,
          CASE WHEN octet_length(p_job.payload) > 65536 THEN true END,
          CASE WHEN p_claim.hold IN ('until_done', 'until_terminal') THEN true END,
          CASE WHEN p_job.lane IS NOT NULL AND (p_job.run_at IS NULL OR p_job.run_at <= p_now) THEN true END, p_job.lane);
END $$;

-- Stores one job for each payload, in one statement. For triggers on statements with a transition table. Returns the
-- ids.
--
--   SELECT th_enqueue_many('order:placed', ARRAY(SELECT to_jsonb(n) FROM new_rows n), queue => 'orders');
CREATE FUNCTION th_enqueue_many(
  type            text,
  payloads        jsonb[],
  queue           text DEFAULT 'default',
  run_at          timestamptz DEFAULT NULL,
  priority        int DEFAULT 0,
  max_attempts    int DEFAULT NULL,
  timeout         interval DEFAULT NULL,
  headers         jsonb DEFAULT '{}',
  lane            text DEFAULT NULL,
  notify          boolean DEFAULT true
) RETURNS SETOF text LANGUAGE plpgsql SECURITY DEFINER {settings} AS $$
#variable_conflict use_variable
DECLARE
  v_now     bigint := th_now();
  v_options record := th_check_options(priority, max_attempts, timeout, run_at);
  v_headers jsonb := th_check_headers(headers, 'json');
BEGIN
  PERFORM th_check_name('job type', type, 255);
  PERFORM th_check_name('queue name', queue, 255);
  IF lane IS NOT NULL THEN
    PERFORM th_check_name('lane name', lane, 255);
  END IF;
  PERFORM th_check_payload(convert_to(p::text, 'UTF8')) FROM unnest(payloads) AS p;
  RETURN QUERY SELECT * FROM th_store_many(
    ROW(NULL, queue, type, NULL, priority, v_options.run_at, v_options.timeout_us, max_attempts, v_headers, NULL, NULL, lane)::th_new_job,
    payloads, v_now);
  IF notify AND cardinality(payloads) > 0 THEN
    PERFORM th_notify('{channel}', ARRAY[queue]);
  END IF;
END $$;

-- Stores jobs that differ in nothing but their payloads. Answers the ids.
CREATE FUNCTION th_store_many(p_job th_new_job, p_payloads jsonb[], p_now bigint) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
  v_constraint text;
BEGIN
  RETURN QUERY
  WITH given AS (
    SELECT nextval('th_seq') AS seq, th_new_id(p_now) AS id, convert_to(p.payload::text, 'UTF8') AS payload
    FROM unnest(p_payloads) WITH ORDINALITY AS p (payload, ord) ORDER BY p.ord
  ), stored AS (
    INSERT INTO th_job (seq, created_at, priority, id, queue, type, payload, headers, run_at, timeout_us, max_attempts, lane)
    SELECT g.seq, p_now, p_job.priority, g.id, p_job.queue, p_job.type, g.payload, p_job.headers, p_job.run_at, p_job.timeout_us,
      p_job.max_attempts, p_job.lane
    FROM given g
  ), live AS (
    INSERT INTO th_live (seq, available_at, priority, queue, run_at, is_large, is_in_lane, lane)
    SELECT g.seq, greatest(p_job.run_at, p_now), p_job.priority, p_job.queue, p_job.run_at,
      CASE WHEN octet_length(g.payload) > 65536 THEN true END,
      CASE WHEN p_job.lane IS NOT NULL AND (p_job.run_at IS NULL OR p_job.run_at <= p_now) THEN true END, p_job.lane
    FROM given g
  )
  SELECT g.id FROM given g ORDER BY g.seq;
EXCEPTION WHEN unique_violation THEN
  GET STACKED DIAGNOSTICS v_constraint = CONSTRAINT_NAME;
  PERFORM th_count_conflict(50, v_constraint);
END $$;
