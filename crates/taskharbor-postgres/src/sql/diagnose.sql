-- Facts about the server that slow down the store or endanger its durability. Values that the role may not see are
-- NULL.
SELECT current_setting('server_version') AS version,
  current_setting('fsync') AS fsync,
  current_setting('synchronous_commit') AS synchronous_commit,
  current_setting('full_page_writes') AS full_page_writes,
  current_setting('autovacuum') AS autovacuum,
  (SELECT extract(epoch FROM max(clock_timestamp() - a.xact_start))::bigint FROM pg_stat_activity a
   WHERE a.backend_xmin IS NOT NULL AND a.pid <> pg_backend_pid() AND a.backend_type = 'client backend') AS oldest_snapshot,
  (SELECT coalesce(sum(t.n_dead_tup), 0)::bigint FROM pg_stat_all_tables t WHERE t.schemaname = $1) AS dead_rows,
  (SELECT coalesce(sum(t.n_live_tup), 0)::bigint FROM pg_stat_all_tables t WHERE t.schemaname = $1) AS live_rows,
  (SELECT count(*) FROM pg_stat_activity)::bigint AS connections,
  current_setting('max_connections')::bigint AS max_connections,
  current_user::text AS role,
  has_schema_privilege(current_user, n.oid, 'USAGE') AS may_enter,
  has_function_privilege(current_user, f.oid, 'EXECUTE') AS may_work,
  -- What th_grant gives a worker and this role does not have.
  ARRAY(
    SELECT p.proname::text FROM pg_proc p
    WHERE p.pronamespace = n.oid AND p.proname LIKE 'th\_%' AND NOT has_function_privilege(current_user, p.oid, 'EXECUTE')
      AND p.proname NOT IN ('th_grant', 'th_grant_v1', 'th_restore_grants', 'th_revoke')
    UNION ALL
    SELECT c.relname::text FROM pg_class c
    WHERE c.relnamespace = n.oid AND c.relname LIKE 'th\_%' AND c.relname <> 'th_role' AND CASE c.relkind
      WHEN 'S' THEN NOT has_sequence_privilege(current_user, c.oid, 'USAGE')
      WHEN 'r' THEN NOT has_table_privilege(current_user, c.oid, 'SELECT') OR c.relname <> 'th_meta' AND NOT (
        has_table_privilege(current_user, c.oid, 'INSERT') AND has_table_privilege(current_user, c.oid, 'UPDATE')
        AND has_table_privilege(current_user, c.oid, 'DELETE'))
      WHEN 'v' THEN NOT has_table_privilege(current_user, c.oid, 'SELECT')
      ELSE false END
    ORDER BY 1) AS missing
FROM pg_proc f JOIN pg_namespace n ON n.oid = f.pronamespace
WHERE n.nspname = $1 AND f.proname = 'th_reserve_v1'
