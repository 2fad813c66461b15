-- The parts of roles, so that a migration can grant privileges on new objects. th_grant and th_revoke write it.
CREATE TABLE th_role (
  role text NOT NULL,
  part text NOT NULL,
  PRIMARY KEY (role, part)
);
COMMENT ON TABLE th_role IS 'Which role has which part, as th_grant and th_revoke keep it. Migrations grant again what they add.';
COMMENT ON COLUMN th_role.role IS 'Name of the role.';
COMMENT ON COLUMN th_role.part IS 'worker, producer or viewer.';

-- Grants a role the privileges of a part, and records that.
CREATE FUNCTION th_grant(part text, to_role text) RETURNS void LANGUAGE plpgsql SET search_path = {schema}, pg_temp AS $$
BEGIN
  PERFORM th_grant_v1(part, to_role);
  INSERT INTO th_role (role, part) VALUES (to_role, th_grant.part) ON CONFLICT DO NOTHING;
END $$;

-- Grants every part that was granted once more. The last step of each version runs it. A role that does not exist in this
-- cluster, as in a restored copy, is passed over.
CREATE FUNCTION th_restore_grants() RETURNS void LANGUAGE plpgsql SET search_path = {schema}, pg_temp AS $$
BEGIN
  PERFORM th_grant(r.part, r.role) FROM th_role r
  WHERE EXISTS (SELECT FROM pg_roles p WHERE p.rolname = r.role);
END $$;

-- Revokes everything that th_grant gave a role, and removes the record.
CREATE FUNCTION th_revoke(from_role text) RETURNS void LANGUAGE plpgsql SET search_path = {schema}, pg_temp AS $$
DECLARE
  v_role text := quote_ident(from_role);
  v_object text;
BEGIN
  DELETE FROM th_role WHERE role = from_role;
  IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = from_role) THEN
    RETURN;
  END IF;
  FOR v_object IN
    SELECT CASE WHEN relkind = 'S' THEN 'SEQUENCE ' ELSE 'TABLE ' END || oid::regclass FROM pg_class
    WHERE relnamespace = '{schema}'::regnamespace AND relname LIKE 'th\_%' AND relkind IN ('r', 'v', 'p', 'S')
    UNION ALL SELECT 'FUNCTION ' || oid::regprocedure FROM pg_proc
    WHERE pronamespace = '{schema}'::regnamespace AND proname LIKE 'th\_%'
    UNION ALL SELECT 'SCHEMA {schema}'
  LOOP
    EXECUTE 'REVOKE ALL ON ' || v_object || ' FROM ' || v_role;
  END LOOP;
END $$;
REVOKE ALL ON FUNCTION th_grant(text, text), th_restore_grants(), th_revoke(text) FROM PUBLIC;
