-- The plain way to store jobs: one wide row for each, in which everything is updated in place, with the columns and
-- constraints that the documented schema has, and the indexes that its calls need.
CREATE TABLE th_jobs (
  id               text PRIMARY KEY,
  type             text NOT NULL,
  queue            text NOT NULL,
  payload          bytea NOT NULL,
  run_at           timestamptz,
  timeout_nanos    bigint NOT NULL DEFAULT 0 CHECK (timeout_nanos >= 0),
  created_at       timestamptz NOT NULL,
  attempts         int NOT NULL DEFAULT 0 CHECK (attempts >= 0),
  max_attempts     int NOT NULL DEFAULT 0 CHECK (max_attempts >= 0),
  last_error       text NOT NULL DEFAULT '',
  failed_at        timestamptz,
  status           text NOT NULL DEFAULT 'ready' CHECK (status IN ('ready', 'inflight', 'dlq', 'done')),
  lease_token      text,
  lease_expires_at timestamptz,
  dlq_reason       text,
  dlq_failed_at    timestamptz,
  idempotency_key  text,
  priority         smallint NOT NULL DEFAULT 0,
  due_at           timestamptz NOT NULL,
  deliveries       int NOT NULL DEFAULT 0,
  seq              bigserial,
  CONSTRAINT th_jobs_lease_pair_chk CHECK ((lease_token IS NULL) = (lease_expires_at IS NULL)),
  CONSTRAINT th_jobs_inflight_requires_lease_chk
    CHECK (status <> 'inflight' OR (lease_token IS NOT NULL AND lease_expires_at IS NOT NULL)),
  CONSTRAINT th_jobs_dlq_requires_metadata_chk CHECK (status <> 'dlq' OR (dlq_failed_at IS NOT NULL))
);
CREATE INDEX ON th_jobs (queue, priority DESC, due_at, seq) WHERE status = 'ready';
CREATE INDEX ON th_jobs (queue, lease_expires_at) WHERE status = 'inflight';
CREATE UNIQUE INDEX ON th_jobs (queue, idempotency_key) WHERE idempotency_key IS NOT NULL;
