-- Stores jobs without a flow and without keys, none of which may be stored yet. It does the same as th_enqueue_v1,
-- without the cost of a function: with few jobs in a call, that is more than the cost of the jobs. Jobs come in the
-- order of their ids, so concurrent calls cannot deadlock. They are numbered in the order of the call, which is passed
-- as places unless it is the order of the ids. If an id is stored already, nothing happens, and the driver calls the
-- function instead.
WITH numbers AS (
  SELECT ARRAY(SELECT nextval('{schema}.th_seq') FROM generate_series(1, cardinality($2))) AS seqs
), given AS (
  SELECT coalesce((SELECT seqs FROM numbers)[i.place], nextval('{schema}.th_seq')) AS seq, i.*
  FROM unnest($2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)
    AS i (place, id, queue, type, payload, priority, run_at, timeout_us, max_attempts, headers, policy, lane)
), stored AS (
  INSERT INTO {schema}.th_job (seq, created_at, priority, id, queue, type, payload, headers, run_at, timeout_us, max_attempts,
                               on_failure, lane)
  SELECT seq, $1, coalesce(priority, 0), id, queue, type, payload, headers::jsonb, run_at, timeout_us, max_attempts,
         policy::{schema}.th_policy, lane
  FROM given
)
INSERT INTO {schema}.th_live (seq, available_at, priority, queue, run_at, is_large, is_in_lane, lane)
SELECT seq, greatest(run_at, $1), coalesce(priority, 0), queue, run_at,
       CASE WHEN octet_length(payload) > 65536 THEN true END,
       CASE WHEN lane IS NOT NULL AND (run_at IS NULL OR run_at <= $1) THEN true END, lane
FROM given
ORDER BY seq
