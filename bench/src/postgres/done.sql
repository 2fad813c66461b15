-- Jobs that are over, as if they had been acknowledged 500 at a time.
WITH stored AS (
  INSERT INTO th_job (seq, created_at, priority, kind, key_hold, on_failure, id, queue, type, payload,
                      state, finished_at, kept_until, secret, started_at, deliveries)
  SELECT nextval('th_seq'), $1::bigint + n, 0, 'w', 'p', 'h', 'd-' || lpad(n::text, 34, '0'), 'default', 'noop', $3::bytea,
         'd', $1 + n / 500, $1 + n / 500, gen_random_uuid(), $1, 1
  FROM generate_series(1, $2::bigint) AS n
  RETURNING seq, kept_until
)
INSERT INTO th_end (queue, state, kept_until, seqs)
SELECT 'default', 'd', kept_until, array_agg(seq ORDER BY seq) FROM stored GROUP BY kept_until
