-- As enqueue_plain.sql, of jobs about which nothing was said but what they are.
WITH given AS (
  SELECT nextval('{schema}.th_seq') AS seq, i.*
  FROM unnest($2, $3, $4, $5, $6) AS i (id, queue, type, payload, headers)
), stored AS (
  INSERT INTO {schema}.th_job (seq, created_at, priority, kind, key_hold, on_failure, id, queue, type, payload, headers)
  SELECT seq, $1, 0, 'w', 'p', 'h', id, queue, type, payload, headers::jsonb FROM given
  ORDER BY id COLLATE "C"
)
INSERT INTO {schema}.th_hot (seq, line_at, priority, queue, large)
SELECT seq, $1, 0, queue, CASE WHEN octet_length(payload) > 65536 THEN true END FROM given
