-- Step {number}: {title}.
DO $taskharbor$
DECLARE
  v_step int := 0;
  v_min_compatible int := 0;
BEGIN
  -- One process at a time. Waiting for it stops no writer, so it has no limit.
  PERFORM set_config('lock_timeout', '0', true);
  PERFORM pg_advisory_xact_lock(hashtextextended('taskharbor:{name}', 0));
  -- A statement that waits for a lock stops the writers behind it, so it gives up soon.
  PERFORM set_config('lock_timeout', '{lock_wait}', true);
  IF current_setting('server_encoding') <> 'UTF8' THEN
    RAISE feature_not_supported USING MESSAGE = 'the database is not encoded in UTF8: create one that is';
  END IF;
  IF to_regnamespace('{schema}') IS NULL THEN
    CREATE SCHEMA {schema};
  END IF;
  IF to_regclass('{schema}.th_meta') IS NOT NULL THEN
    EXECUTE 'SELECT step, min_compatible FROM {schema}.th_meta' INTO v_step, v_min_compatible;
  END IF;
  IF v_min_compatible > {newest} THEN
    RAISE feature_not_supported USING MESSAGE = 'the schema {name} needs a program that knows version '
      || v_min_compatible || ', and this one knows {newest}: use a newer program';
  END IF;
  IF v_step >= {number} THEN
    RETURN;
  END IF;
  PERFORM set_config('search_path', '{schema}, pg_temp', true);
  EXECUTE $step$
{body}$step$;
  UPDATE {schema}.th_meta SET step = {number}, min_compatible = greatest(min_compatible, {min_compatible});
  {last}
END $taskharbor$;
