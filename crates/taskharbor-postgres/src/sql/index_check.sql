DO $check$ BEGIN
  IF NOT EXISTS (SELECT FROM pg_index WHERE indexrelid = to_regclass('{schema}.{index}') AND indisvalid) THEN
    RAISE object_not_in_prerequisite_state USING MESSAGE = 'the index {index} was not built: run the migration again';
  END IF;
END $check$;
