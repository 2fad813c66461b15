-- Jobs that wait, as if they had been enqueued one after the other.
WITH stored AS (
  INSERT INTO th_job (seq, created_at, priority, kind, key_hold, on_failure, id, queue, type, payload)
  SELECT nextval('th_seq'), $1::bigint + n, 0, 'w', 'p', 'h', 'w-' || lpad(n::text, 34, '0'), 'default', 'noop', $3::bytea
  FROM generate_series(1, $2::bigint) AS n
  RETURNING seq, created_at, priority, queue
)
INSERT INTO th_hot (seq, line_at, priority, queue) SELECT seq, created_at, priority, queue FROM stored
