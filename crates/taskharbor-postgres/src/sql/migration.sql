-- Installs TaskHarbor into the schema {schema}, or brings it up to date. Safe to run again, and by many at once.
DO $taskharbor$
DECLARE
  v_version int := 0;
BEGIN
  PERFORM pg_advisory_xact_lock(hashtextextended('taskharbor:{name}', 0));
  IF current_setting('server_encoding') <> 'UTF8' THEN
    RAISE feature_not_supported USING MESSAGE = 'the database is not encoded in UTF8: create one that is';
  END IF;
  IF to_regnamespace('{schema}') IS NULL THEN
    CREATE SCHEMA {schema};
  END IF;
  IF to_regclass('{schema}.th_meta') IS NOT NULL THEN
    EXECUTE 'SELECT version FROM {schema}.th_meta' INTO v_version;
  END IF;
  IF v_version > {newest} THEN
    RAISE feature_not_supported USING MESSAGE =
      'the schema {name} is of version ' || v_version || ', newer than this program knows ({newest}): use a newer program';
  END IF;
  PERFORM set_config('search_path', '{schema}, pg_temp', true);
  {steps}
END $taskharbor$;
