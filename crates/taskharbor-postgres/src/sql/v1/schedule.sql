-- Configuring and reading schedules.

-- A schedule to be stored. With keeps_slot, a stored one keeps its next slot.
CREATE TYPE th_new_schedule AS (name text, definition bytea, next_slot bigint, keeps_slot boolean);

-- Stores schedules of an owner, NULL for none. One that is stored takes over another definition and its next slot; an
-- equal definition changes nothing, and schedules of other owners are left alone. The next slot may have been computed before
-- the last slot was fired, and is then put behind that one. SCH-9.
CREATE FUNCTION th_store_schedules(p_owner text, p_new th_new_schedule[]) RETURNS void LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_keeps boolean;
BEGIN
  -- One statement for those that keep their slots and one for the others: a conflict shows only the columns of the table.
  FOREACH v_keeps IN ARRAY '{f,t}'::boolean[] LOOP
    INSERT INTO th_schedule AS s (name, owner, definition, next_slot, revision)
    SELECT n.name, p_owner, n.definition, n.next_slot, nextval('th_revision') FROM unnest(p_new) AS n
    WHERE n.keeps_slot = v_keeps
    ON CONFLICT (name) DO UPDATE SET definition = excluded.definition, error = NULL, revision = excluded.revision,
      next_slot = coalesce(CASE WHEN v_keeps THEN s.next_slot END, CASE WHEN excluded.next_slot IS NOT NULL THEN
        greatest(excluded.next_slot,
                 least(coalesce((s.firings[cardinality(s.firings)]).slot + 1, excluded.next_slot), 253402300799999999)) END)
    WHERE s.definition <> excluded.definition AND s.owner IS NOT DISTINCT FROM excluded.owner;
  END LOOP;
END $$;

-- Which of the given schedules are stored and belong to another owner, or to none, by their places. SCH-12.
CREATE FUNCTION th_owned_elsewhere(p_owner text, p_new th_new_schedule[])
RETURNS TABLE (place bigint, name text, owner text) LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_column
BEGIN
  RETURN QUERY SELECT n.ordinality, n.name, s.owner FROM unnest(p_new) WITH ORDINALITY AS n
  CROSS JOIN LATERAL (
    SELECT x.owner FROM th_schedule x WHERE x.name = n.name AND x.owner IS DISTINCT FROM p_owner OFFSET 0) s
  ORDER BY n.ordinality;
END $$;

-- Makes these the schedules of an owner (SCH-10). If it is denied, returns the reason, and nothing has changed.
CREATE FUNCTION th_declare_schedules(p_owner text, p_version bigint, p_new th_new_schedule[])
RETURNS TABLE (denied text, name text, detail text) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_version bigint := (SELECT o.version FROM th_schedule_owner o WHERE o.owner = p_owner);
BEGIN
  -- SCH-11
  IF p_version < v_version THEN
    RETURN QUERY SELECT 'newer_version', NULL::text, v_version::text;
    RETURN;
  END IF;
  RETURN QUERY SELECT 'owned', o.name, o.owner FROM th_owned_elsewhere(p_owner, p_new) o LIMIT 1;
  IF FOUND THEN
    RETURN;
  END IF;
  DELETE FROM th_schedule WHERE name = ANY (ARRAY(
    SELECT s.name FROM th_schedule s WHERE s.owner = p_owner EXCEPT SELECT n.name FROM unnest(p_new) AS n));
  PERFORM th_store_schedules(p_owner, p_new);
  PERFORM th_set_owner_version(p_owner, p_version);
END $$;

-- NULL for no version.
CREATE FUNCTION th_set_owner_version(p_owner text, p_version bigint) RETURNS void LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
  DELETE FROM th_schedule_owner WHERE owner = p_owner AND version IS DISTINCT FROM p_version;
  INSERT INTO th_schedule_owner (owner, version) SELECT p_owner, p_version WHERE p_version IS NOT NULL
  ON CONFLICT DO NOTHING;
END $$;

-- Pauses, resumes or removes a schedule. Returns the reason if it is denied. SCH-13.
CREATE FUNCTION th_change_schedule(p_change text, p_name text, p_revision bigint, p_next_slot bigint, p_now bigint)
RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  v_stored record;
BEGIN
  SELECT s.paused_since, s.revision INTO v_stored FROM th_schedule s WHERE s.name = p_name FOR UPDATE;
  IF NOT FOUND THEN
    RETURN 'not_found';
  END IF;
  IF p_change = 'remove_schedule' THEN
    DELETE FROM th_schedule s WHERE s.name = p_name;
  ELSIF p_change = 'pause_schedule' AND v_stored.paused_since IS NULL THEN
    -- SCH-6
    UPDATE th_schedule s SET paused_since = p_now, revision = nextval('th_revision') WHERE s.name = p_name;
  ELSIF p_change = 'resume_schedule' AND v_stored.paused_since IS NOT NULL THEN
    -- SCH-7
    IF v_stored.revision IS DISTINCT FROM p_revision THEN
      RETURN 'changed';
    END IF;
    UPDATE th_schedule s SET paused_since = NULL, next_slot = p_next_slot, revision = nextval('th_revision')
    WHERE s.name = p_name;
  END IF;
  RETURN NULL;
END $$;

-- Stores a schedule as another store had it. Returns the reason if it is denied. SCH-16.
CREATE FUNCTION th_import_schedule(p_record jsonb, p_definition bytea) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  v_given  th_schedule := jsonb_populate_record(NULL::th_schedule, p_record);
  v_stored th_schedule;
BEGIN
  v_given.definition := p_definition;
  v_given.revision := nextval('th_revision');
  INSERT INTO th_schedule SELECT v_given.* ON CONFLICT DO NOTHING;
  IF NOT FOUND THEN
    SELECT s.* INTO v_stored FROM th_schedule s WHERE s.name = v_given.name;
    v_given.revision := v_stored.revision;
    IF v_given IS DISTINCT FROM v_stored THEN
      RETURN 'exists';
    END IF;
  END IF;
  RETURN NULL;
END $$;

-- Changes settings, in the order given (PAU-4). Returns the changes that were denied. Calls change settings one after
-- another, so no schedule comes or goes meanwhile; Reserve reads them, and firings move schedules. A change waits for a
-- firing of its schedule, and a firing waits for no change.
CREATE FUNCTION th_configure_v1(p_changes text, p_definitions bytea[], p_now bigint, p_notify text)
RETURNS TABLE (ord bigint, denied text, name text, detail text) LANGUAGE plpgsql {settings} AS $$
#variable_conflict use_column
DECLARE
  c     record;
  v_new th_new_schedule[];
BEGIN
  PERFORM th_limit_lock_wait(10000);
  LOCK TABLE th_queue IN SHARE ROW EXCLUSIVE MODE;
  FOR c IN SELECT x.* FROM jsonb_to_recordset(p_changes::jsonb) AS x (
    ord bigint, change text, name text, version bigint, revision bigint, next_slot bigint, first bigint, schedules jsonb,
    owner text, lane text, until bigint, limits jsonb
  ) LOOP
    v_new := ARRAY(
      SELECT ROW(n.name, n.definition, n.next_slot, n.keeps_slot)::th_new_schedule FROM ROWS FROM (
        jsonb_to_recordset(c.schedules) AS (name text, next_slot bigint, keeps_slot boolean),
        unnest(p_definitions[c.first:c.first + jsonb_array_length(c.schedules) - 1])
      ) WITH ORDINALITY AS n (name, next_slot, keeps_slot, definition, ord) ORDER BY n.ord);
    CASE c.change
      WHEN 'pause_queue' THEN
        -- PAU-2: the first time is kept.
        INSERT INTO th_queue (name, paused_since) VALUES (c.name, p_now) ON CONFLICT DO NOTHING;
      WHEN 'resume_queue' THEN
        DELETE FROM th_queue WHERE name = c.name;
        PERFORM th_notify(p_notify, ARRAY[c.name]);
      WHEN 'put_schedules' THEN
        RETURN QUERY SELECT c.ord + o.place - 1, 'owned', o.name, o.owner FROM th_owned_elsewhere(NULL, v_new) o;
        PERFORM th_store_schedules(NULL, v_new);
      WHEN 'declare_schedules' THEN
        RETURN QUERY SELECT c.ord, d.denied, d.name, d.detail FROM th_declare_schedules(c.name, c.version, v_new) d;
      WHEN 'set_owner_version' THEN
        PERFORM th_set_owner_version(c.name, c.version);
      WHEN 'set_limits', 'declare_limits', 'import_limits' THEN
        RETURN QUERY SELECT c.ord, d.denied, d.name, d.detail
        FROM th_configure_limits(c.change, c.name, c.owner, c.version, c.limits, p_notify) d;
      WHEN 'hold' THEN
        PERFORM th_hold(c.name, c.lane, c.until, p_notify);
      WHEN 'import_schedule' THEN
        RETURN QUERY SELECT c.ord, d.denied, c.name, NULL::text
        FROM th_import_schedule(c.schedules->0, p_definitions[c.first]) AS d (denied) WHERE d.denied IS NOT NULL;
      ELSE
        RETURN QUERY SELECT c.ord, d.denied, c.name, NULL::text
        FROM th_change_schedule(c.change, c.name, c.revision, c.next_slot, p_now) AS d (denied) WHERE d.denied IS NOT NULL;
    END CASE;
  END LOOP;
END $$;

-- All settings, times in microseconds. What the driver reads.
CREATE VIEW th_setting AS
SELECT 'paused_queue'::text AS kind, q.name, q.paused_since, NULL::bigint AS version, NULL::text COLLATE "C" AS owner,
  NULL::bytea AS definition, NULL::bigint AS next_slot, NULL::bigint AS revision, NULL::bigint AS stored,
  NULL::bigint AS skipped, NULL::bigint AS missed, NULL::text AS error, NULL::text AS firings, NULL::text AS limits
FROM th_queue q
UNION ALL
SELECT 'owner', o.owner, NULL, o.version, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL FROM th_schedule_owner o
UNION ALL
SELECT 'schedule', s.name, s.paused_since, NULL, s.owner, s.definition, s.next_slot, s.revision, s.stored, s.skipped,
  s.missed, s.error, to_jsonb(s.firings)::text, NULL
FROM th_schedule s
UNION ALL
SELECT 'limits', m.queue, NULL, NULL, m.owner, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, m.limits::text
FROM th_limit m WHERE m.limits IS NOT NULL;

-- A page of settings, by kind and name: behind the given one, of one kind and of one name if these are given. PAU-3.
CREATE FUNCTION th_settings_v1(p_after_kind text, p_after_name text, p_kind text, p_name text, p_limit bigint)
RETURNS SETOF th_setting LANGUAGE plpgsql STABLE {settings} AS $$
DECLARE
  v_kinds text[] := '{paused_queue,owner,schedule,limits}';
  v_left  bigint := p_limit;
  v_rows  bigint;
BEGIN
  FOR at IN coalesce(array_position(v_kinds, p_after_kind), 1)..4 LOOP
    IF v_kinds[at] = coalesce(p_kind, v_kinds[at]) THEN
      -- The kind is part of the text, so that the plan has one table alone.
      RETURN QUERY EXECUTE 'SELECT s.* FROM th_setting s WHERE s.kind = ' || quote_literal(v_kinds[at]) || ' AND s.name > $1'
        || CASE WHEN p_name IS NULL THEN '' ELSE ' AND s.name = $2' END || ' ORDER BY s.name LIMIT $3'
        USING CASE WHEN v_kinds[at] = p_after_kind THEN p_after_name ELSE '' END, p_name, v_left;
      GET DIAGNOSTICS v_rows = ROW_COUNT;
      v_left := v_left - v_rows;
    END IF;
  END LOOP;
END $$;

-- The schedules that are due, by next slot and name, behind the given ones. SCH-8.
CREATE FUNCTION th_due_schedules_v1(p_now bigint, p_after_slot bigint, p_after_name text, p_limit bigint)
RETURNS SETOF th_setting LANGUAGE plpgsql STABLE {settings} AS $$
BEGIN
  RETURN QUERY SELECT s.* FROM th_setting s WHERE s.kind = 'schedule' AND s.paused_since IS NULL AND s.next_slot <= p_now
    AND (s.next_slot, s.name) > (p_after_slot, p_after_name)
  ORDER BY s.next_slot, s.name LIMIT p_limit;
END $$;

-- The earliest slot after now of all schedules that are not paused.
CREATE FUNCTION th_next_slot_v1(p_now bigint) RETURNS bigint LANGUAGE plpgsql STABLE {settings} AS $$
BEGIN
  RETURN (SELECT s.next_slot FROM th_schedule s WHERE s.paused_since IS NULL AND s.next_slot > p_now
          ORDER BY s.next_slot, s.name LIMIT 1);
END $$;
