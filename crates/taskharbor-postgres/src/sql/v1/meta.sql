-- The installed version, and the operator's settings for all producers. Programs of every version read the first four
-- columns, so these never change.
CREATE TABLE th_meta (
  only_row          boolean PRIMARY KEY DEFAULT true CHECK (only_row),
  version           int NOT NULL DEFAULT 0,  -- the last one that is installed whole
  min_compatible    int NOT NULL DEFAULT 0,  -- the oldest program that can use the schema, by the version that it knows
  step              int NOT NULL DEFAULT 0,  -- how many steps of migrations are done
  max_payload_bytes bigint NOT NULL DEFAULT 1048576 CHECK (max_payload_bytes BETWEEN 0 AND 16777216)
);
INSERT INTO th_meta DEFAULT VALUES;
