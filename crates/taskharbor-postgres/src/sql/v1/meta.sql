-- What is installed here, and what the operator has chosen for all who enqueue.
CREATE TABLE th_meta (
  only_row          boolean PRIMARY KEY DEFAULT true CHECK (only_row),
  version           int NOT NULL,
  max_payload_bytes bigint NOT NULL DEFAULT 1048576 CHECK (max_payload_bytes BETWEEN 0 AND 16777216)
);
INSERT INTO th_meta (version) VALUES (0);
