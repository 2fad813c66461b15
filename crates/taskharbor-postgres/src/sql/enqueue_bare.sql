-- The same as enqueue_plain.sql for small jobs with default options.
WITH numbers AS (
  SELECT ARRAY(SELECT nextval('{schema}.th_seq') FROM generate_series(1, cardinality($2))) AS seqs
), stored AS (
  INSERT INTO {schema}.th_job (seq, created_at, priority, id, queue, type, payload, headers)
  SELECT coalesce((SELECT seqs FROM numbers)[i.place], nextval('{schema}.th_seq')), $1, 0, i.id, i.queue, i.type, i.payload,
         i.headers::jsonb
  FROM unnest($2, $3, $4, $5, $6, $7) AS i (place, id, queue, type, payload, headers)
  RETURNING seq, queue
)
INSERT INTO {schema}.th_live (seq, available_at, priority, queue) SELECT seq, $1, 0, queue FROM stored ORDER BY seq
