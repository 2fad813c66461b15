-- Reading what jobs produced.

-- The job that a job has grown into in the end; itself if it has not. NULL if its record was removed.
CREATE FUNCTION th_grown(p_seq bigint) RETURNS bigint LANGUAGE plpgsql STABLE AS $$
DECLARE
  v_seq  bigint := p_seq;
  v_next bigint;
BEGIN
  LOOP
    SELECT expanded_into INTO v_next FROM th_job WHERE seq = v_seq;
    IF NOT FOUND THEN
      RETURN NULL;
    END IF;
    IF v_next IS NULL THEN
      RETURN v_seq;
    END IF;
    v_seq := v_next;
  END LOOP;
END $$;

-- The outputs that are asked for. A row for each entry: of which item, how many entries that item has in all, what kind
-- of entry, and what belongs to it. An item without entries has one row without a kind; an unknown job's says so.
CREATE FUNCTION th_outputs_v1(p_ids text[], p_parents bigint[], p_froms bigint[], p_limit bigint, p_page_bytes bigint)
RETURNS TABLE (item bigint, total bigint, kind text, output bytea, reason text, join_id text, join_len bigint)
LANGUAGE sql STABLE SET search_path = {schema}, pg_temp SET jit = off SET enable_seqscan = off AS $$
  SELECT i.item,
    CASE WHEN i.parents = 1 THEN coalesce(j.parents, 0) ELSE 1 END,
    CASE WHEN j.seq IS NULL THEN 'not_found' ELSE e.kind END, e.output, e.reason, e.join_id, e.join_len
  FROM unnest(p_ids, p_parents, p_froms) WITH ORDINALITY AS i (id, parents, start, item)
  LEFT JOIN th_job j ON j.id = ANY (ARRAY[i.id])
  LEFT JOIN LATERAL (
    SELECT p.* FROM (
      SELECT o.*, sum(coalesce(octet_length(o.output), 0)) OVER (ORDER BY o.nth) AS bytes, row_number() OVER (ORDER BY o.nth) AS row
      FROM (
        SELECT r.nth,
          CASE
            WHEN r.tie = 's' THEN CASE r.spent_state WHEN 'q' THEN 'dlq' ELSE 'cancelled' END
            WHEN t.seq IS NULL THEN 'missing'
            WHEN t.state = 'd' AND t.kind = 'j' THEN 'list'
            WHEN t.state = 'd' THEN 'done'
            WHEN t.state = 'q' THEN 'dlq'
            WHEN t.state = 'c' THEN 'cancelled'
            ELSE 'pending' END AS kind,
          CASE WHEN r.tie IS DISTINCT FROM 's' AND t.state = 'd' THEN t.output END AS output,
          CASE WHEN r.tie = 's' THEN r.spent_reason WHEN t.state IN ('q', 'c') THEN t.reason END AS reason,
          t.id AS join_id, coalesce(t.parents, 0)::bigint AS join_len
        FROM (
          SELECT 1::bigint AS nth, j.seq AS source, NULL::"char" AS tie, NULL::"char" AS spent_state, NULL::text AS spent_reason
          WHERE i.parents = 0 AND i.start = 0
          UNION ALL
          (SELECT e.ord, e.parent, e.tie, e.spent_state, e.spent_reason FROM th_edge e
           WHERE i.parents = 1 AND e.child = j.seq AND e.ord > i.start ORDER BY e.ord LIMIT p_limit)
        ) r
        LEFT JOIN th_job t ON t.seq = CASE WHEN r.tie IS DISTINCT FROM 's' THEN th_grown(r.source) END
      ) o
    ) p WHERE p.bytes <= p_page_bytes OR p.row = 1
    ORDER BY p.nth
  ) e ON j.seq IS NOT NULL
  ORDER BY i.item, e.nth
$$;
