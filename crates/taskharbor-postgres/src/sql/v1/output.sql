-- Reading what jobs produced.

-- The job that stands for a job after its expansions; itself if it has none. NULL if its record was removed.
CREATE FUNCTION th_expanded(p_seq bigint) RETURNS bigint LANGUAGE plpgsql STABLE AS $$
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

-- The outputs that are asked for: p_of is 0 for a job's own (OUT-3), 1 for those of its parents (OUT-1), 2 for its input:
-- if it has one parent alone and that is a join that is done, the list of the join, else those of its parents (OUT-6).
-- A row for each entry: of which item, how many entries that item has in all, what kind of entry and what belongs to it,
-- and the join whose list the page is. An item without entries has one row without a kind; an unknown job's says so
-- (OUT-5). Pages end at p_limit entries or p_page_bytes bytes (OUT-4).
CREATE FUNCTION th_outputs_v1(p_ids text[], p_of bigint[], p_froms bigint[], p_limit bigint, p_page_bytes bigint)
RETURNS TABLE (
  item bigint, total bigint, kind text, output bytea, reason text, join_id text, join_len bigint, reading text,
  list_id text, list_len bigint, list_reading text
)
LANGUAGE sql STABLE SET search_path = {schema}, pg_temp SET jit = off SET enable_seqscan = off AS $$
  SELECT i.item,
    CASE WHEN l.seq IS NOT NULL THEN l.len WHEN i.source > 0 THEN coalesce(j.parents, 0) ELSE 1 END,
    CASE WHEN j.seq IS NULL THEN 'not_found' ELSE e.kind END, e.output, e.reason, e.join_id, e.join_len, e.reading,
    l.id, l.len, l.reading
  FROM unnest(p_ids, p_of, p_froms) WITH ORDINALITY AS i (id, source, start, item)
  LEFT JOIN th_job j ON j.id = ANY (ARRAY[i.id])
  LEFT JOIN LATERAL (
    SELECT t.seq, t.id, coalesce(t.parents, 0)::bigint AS len, t.kind::text AS reading
    FROM th_edge e JOIN th_job t ON t.seq = th_expanded(e.parent)
    WHERE i.source = 2 AND j.parents = 1 AND e.child = j.seq AND e.tie <> 's' AND t.state = 'd' AND t.kind NOT IN ('w', 'x')
  ) l ON true
  LEFT JOIN LATERAL (
    SELECT p.* FROM (
      SELECT o.*, sum(coalesce(octet_length(o.output), 0)) OVER (ORDER BY o.nth) AS bytes, row_number() OVER (ORDER BY o.nth) AS row
      FROM (
        SELECT r.nth,
          CASE
            WHEN r.tie = 's' THEN CASE r.spent_state WHEN 'q' THEN 'dlq' ELSE 'cancelled' END
            WHEN t.seq IS NULL THEN 'missing'
            -- OUT-2
            WHEN t.state = 'd' AND t.kind NOT IN ('w', 'x') THEN 'list'
            WHEN t.state = 'd' THEN 'done'
            WHEN t.state = 'q' THEN 'dlq'
            WHEN t.state = 'c' THEN 'cancelled'
            ELSE 'pending' END AS kind,
          CASE WHEN r.tie IS DISTINCT FROM 's' AND t.state = 'd' THEN t.output END AS output,
          CASE WHEN r.tie = 's' THEN r.spent_reason WHEN t.state IN ('q', 'c') THEN t.reason END AS reason,
          t.id AS join_id, coalesce(t.parents, 0)::bigint AS join_len, t.kind::text AS reading
        FROM (
          SELECT 1::bigint AS nth, j.seq AS source, NULL::"char" AS tie, NULL::"char" AS spent_state, NULL::text AS spent_reason
          WHERE i.source = 0 AND i.start = 0
          UNION ALL
          (SELECT e.ord, e.parent, e.tie, e.spent_state, e.spent_reason FROM th_edge e
           WHERE i.source > 0 AND e.child = coalesce(l.seq, j.seq) AND e.ord > i.start ORDER BY e.ord LIMIT p_limit)
        ) r
        LEFT JOIN th_job t ON t.seq = CASE WHEN r.tie IS DISTINCT FROM 's' THEN th_expanded(r.source) END
      ) o
    ) p WHERE p.bytes <= p_page_bytes OR p.row = 1
    ORDER BY p.nth
  ) e ON j.seq IS NOT NULL
  ORDER BY i.item, e.nth
$$;
