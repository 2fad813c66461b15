-- Returns the command that removes an index whose build was interrupted, if there is one.
SELECT format('DROP INDEX CONCURRENTLY %s', i.indexrelid::regclass) FROM pg_index i
WHERE i.indexrelid = to_regclass('{schema}.{index}') AND NOT i.indisvalid
  AND EXISTS (SELECT FROM {schema}.th_meta WHERE step < {number})
