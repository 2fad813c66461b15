-- Reading the outputs of jobs.

-- Finds the job whose output replaces that of a job after its expansions; the job itself if it has none. NULL if its
-- record was removed.
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

-- The outputs that are asked for: p_of is `itself` for a job's own (OUT-3), `parents` for those of its parents (OUT-1),
-- `input` for its input: if it has one parent alone and that is a join that is done, the list of the join, else those of
-- its parents (OUT-6). A row for each entry: of which item, how many entries that item has in all, what kind of entry and
-- what belongs to it, and the join whose list the page is. An item without entries has one row without a kind; an unknown
-- job's says so (OUT-5). A page whose entries are all outputs has one row with an array of them. Pages end at p_limit
-- entries or p_page_bytes bytes (OUT-4).
CREATE FUNCTION th_outputs_v1(p_ids text[], p_of text[], p_froms bigint[], p_limit bigint, p_page_bytes bigint)
RETURNS TABLE (
  item bigint, total bigint, kind text, output bytea, reason text, join_id text, join_len bigint, reading text,
  list_id text, list_len bigint, list_reading text, outputs bytea[]
) LANGUAGE plpgsql STABLE {settings} AS $$
#variable_conflict use_column
DECLARE
  v         record;
  v_total   bigint;
  v_outputs bytea[];
BEGIN
  FOR v IN
    SELECT i.ord AS item, i.source, i.start, j.seq, coalesce(j.parents, 0)::bigint AS parents, l.seq AS list_seq, l.id AS list_id,
      l.parents AS list_len, l.kind::text AS list_reading
    FROM unnest(p_ids, p_of, p_froms) WITH ORDINALITY AS i (id, source, start, ord)
    LEFT JOIN th_job j ON j.id = ANY (ARRAY[i.id])
    LEFT JOIN LATERAL (
      SELECT t.seq, t.id, coalesce(t.parents, 0)::bigint AS parents, t.kind
      FROM (SELECT x.parent FROM th_edge x WHERE i.source = 'input' AND j.parents = 1 AND x.child = j.seq
              AND x.status <> 'failed' OFFSET 0) e
      JOIN th_job t ON t.seq = ANY (ARRAY[th_expanded(e.parent)])
      WHERE th_is_join(t.kind) AND EXISTS (SELECT FROM th_finished_row(t.seq) f WHERE f.state = 'done')
    ) l ON true
    ORDER BY i.ord
  LOOP
    v_total := CASE WHEN v.list_seq IS NOT NULL THEN v.list_len WHEN v.source <> 'itself' THEN v.parents ELSE 1 END;
    v_outputs := CASE WHEN v.source <> 'itself' THEN
      th_plain_outputs(coalesce(v.list_seq, v.seq), v.start, p_limit, p_page_bytes) END;
    IF v_outputs IS NOT NULL THEN
      RETURN QUERY SELECT v.item, v_total, NULL, NULL::bytea, NULL, NULL, NULL::bigint, NULL, v.list_id, v.list_len, v.list_reading, v_outputs;
      CONTINUE;
    END IF;
    RETURN QUERY
    SELECT v.item, v_total, CASE WHEN v.seq IS NULL THEN 'not_found' ELSE e.kind END, e.output, e.reason, e.join_id,
      e.join_len, e.reading, v.list_id, v.list_len, v.list_reading, NULL::bytea[]
    FROM (SELECT) one LEFT JOIN LATERAL (
      SELECT p.* FROM th_output_entries(v.source, coalesce(v.list_seq, v.seq), v.start, p_limit) p
      WHERE p.bytes <= p_page_bytes OR p.nth = v.start + 1
    ) e ON v.seq IS NOT NULL
    ORDER BY e.nth;
  END LOOP;
END $$;

-- The outputs of a page of a job's parents, or NULL if they are too large for a page or an entry is anything else. Most
-- pages of large joins are of this kind, and cost half as much as entry by entry.
CREATE FUNCTION th_plain_outputs(p_seq bigint, p_start bigint, p_limit bigint, p_page_bytes bigint)
RETURNS bytea[] LANGUAGE plpgsql STABLE AS $$
DECLARE
  v record;
BEGIN
  WITH page AS (
    SELECT * FROM th_edge_page(p_seq, p_start, p_limit)
  )
  SELECT count(*) = (SELECT sum(p.run) FROM page p) AND sum(octet_length(o.output)) <= p_page_bytes AS is_plain,
    array_agg(o.output ORDER BY p.ord, o.seq) AS outputs
  INTO v
  FROM page p CROSS JOIN LATERAL (
    SELECT x.seq, x.output FROM th_outcome x
    WHERE x.seq BETWEEN p.parent AND p.parent + p.run - 1 AND p.status <> 'failed' AND x.output IS NOT NULL OFFSET 0) o;
  RETURN CASE WHEN v.is_plain THEN v.outputs END;
END $$;

-- The edges of a child that are on a page, runs as far as they are on it.
CREATE FUNCTION th_edge_page(p_child bigint, p_start bigint, p_limit bigint) RETURNS TABLE (
  ord bigint, parent bigint, run bigint, status th_edge_status, failed_state th_terminal, failed_reason text
) LANGUAGE sql STABLE AS $$
  SELECT greatest(e.ord, p_start + 1), e.parent + greatest(p_start + 1 - e.ord, 0),
    least(e.ord + coalesce(e.run, 1), p_start + p_limit + 1) - greatest(e.ord, p_start + 1), e.status, e.failed_state, e.failed_reason
  FROM th_edge e
  WHERE e.child = p_child AND e.ord > p_start - 512 AND e.ord <= p_start + p_limit AND e.ord + coalesce(e.run, 1) > p_start + 1
$$;

-- Entries of a job's outputs from one on, with the bytes of all up to each.
CREATE FUNCTION th_output_entries(p_of text, p_seq bigint, p_start bigint, p_limit bigint)
RETURNS TABLE (
  nth bigint, kind text, output bytea, reason text, join_id text, join_len bigint, reading text, bytes bigint
) LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_column
BEGIN
  RETURN QUERY
  SELECT r.nth,
    CASE
      WHEN r.status = 'failed' THEN r.failed_state::text
      WHEN q.seq IS NOT NULL THEN 'done'
      WHEN s.seq IS NULL THEN 'missing'
      -- OUT-2
      WHEN s.state = 'done' AND th_is_join(s.kind) THEN 'list'
      ELSE coalesce(s.state::text, 'pending') END,
    CASE WHEN r.status IS DISTINCT FROM 'failed' THEN coalesce(q.output, s.output) END,
    CASE WHEN r.status = 'failed' THEN r.failed_reason WHEN s.state <> 'done' THEN s.reason END,
    s.id, s.parents, s.kind::text,
    sum(CASE WHEN r.status IS DISTINCT FROM 'failed' THEN coalesce(octet_length(q.output), octet_length(s.output), 0) ELSE 0 END)
      OVER (ORDER BY r.nth ROWS UNBOUNDED PRECEDING)::bigint
  FROM (
    SELECT 1::bigint AS nth, p_seq AS source, NULL::th_edge_status AS status, NULL::th_terminal AS failed_state,
      NULL::text AS failed_reason
    WHERE p_of = 'itself' AND p_start = 0
    UNION ALL
    SELECT e.ord + n, e.parent + n, e.status, e.failed_state, e.failed_reason
    FROM th_edge_page(p_seq, p_start, p_limit) e CROSS JOIN LATERAL generate_series(0, e.run - 1) AS n WHERE p_of <> 'itself'
  ) r
  -- A job with an output is done, no join, and was not replaced by an expansion. That is all there is to know of most.
  LEFT JOIN th_outcome q ON q.seq = ANY (ARRAY[r.source]) AND q.output IS NOT NULL
  LEFT JOIN LATERAL (
    SELECT j.seq, j.id, f.state, j.kind, coalesce(j.parents, 0)::bigint AS parents, o.output, o.reason
    FROM (
      SELECT x.seq, x.expanded_into FROM th_job x
      WHERE x.seq = CASE WHEN q.seq IS NULL AND r.status IS DISTINCT FROM 'failed' THEN r.source END OFFSET 0
    ) x
    JOIN th_job j ON j.seq = ANY (ARRAY[CASE WHEN x.expanded_into IS NULL THEN x.seq ELSE th_expanded(x.expanded_into) END])
    LEFT JOIN LATERAL th_finished_row(j.seq) f ON true LEFT JOIN th_outcome o ON o.seq = ANY (ARRAY[j.seq])
  ) s ON true
  ORDER BY r.nth;
END $$;
