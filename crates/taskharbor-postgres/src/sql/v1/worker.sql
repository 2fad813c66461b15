-- The eviction of workers.

-- Whether another incarnation than the one that is meant has an announcement that is valid. EVI-4.
CREATE FUNCTION th_is_replaced(p_holder text, p_incarnation text, p_now bigint) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  RETURN EXISTS (
    SELECT FROM th_worker w WHERE w.holder = p_holder AND w.incarnation <> p_incarnation AND w.expires_at > p_now);
END $$;

-- The jobs on which a holder has a valid lease. It reads all of th_live: with an index on the holder, granting a lease would
-- not be a HOT update, and evictions are rare.
CREATE FUNCTION th_leased_by(p_holder text, p_now bigint) RETURNS bigint[] LANGUAGE plpgsql SET enable_seqscan = on AS $$
BEGIN
  RETURN ARRAY(SELECT l.seq FROM th_live l WHERE l.lease_expires_at > p_now AND l.holder = p_holder);
END $$;

-- Ends all valid leases of a holder now, and removes the announcement of the incarnation, or with NULL all
-- announcements of the holder. Returns how many leases ended, how many it skipped because their jobs are locked, and
-- the queues of those that ended. EVI-1, EVI-2, EVI-3.
--
-- As a call that extends, it locks members without their flows, and so waits for no lock while it has locked jobs. A job
-- that is being settled at this moment may be left to its settlement; the caller tries again soon.
CREATE FUNCTION th_evict_v1(
  p_holder text, p_incarnation text, p_now bigint, OUT is_replaced boolean, OUT leases bigint, OUT busy bigint, OUT wakes text[]
) LANGUAGE plpgsql {settings} AS $$
DECLARE
  v_seqs   bigint[];
  v_locked bigint[];
BEGIN
  leases := 0;
  busy := 0;
  is_replaced := th_is_replaced(p_holder, p_incarnation, p_now);
  IF is_replaced THEN
    RETURN;
  END IF;
  v_seqs := th_leased_by(p_holder, p_now);
  v_locked := th_lock_soon(v_seqs);
  -- A new incarnation announces itself before it has leases, so if one of these is its own it is seen here.
  is_replaced := th_is_replaced(p_holder, p_incarnation, p_now);
  IF is_replaced THEN
    RETURN;
  END IF;
  WITH ended AS (
    UPDATE th_live l SET
      lease_expires_at = p_now,
      -- LEA-2: back to the position at the last grant, from where an extension may have moved it, but not behind the end.
      available_at = least(coalesce(l.moved_from, l.available_at), p_now),
      moved_from = CASE WHEN coalesce(l.moved_from, l.available_at) > p_now THEN coalesce(l.moved_from, l.available_at) END
    WHERE l.seq = ANY (v_locked) AND l.holder = p_holder AND l.lease_expires_at > p_now
    RETURNING l.queue
  )
  SELECT count(*), array_agg(DISTINCT e.queue) INTO leases, wakes FROM ended e;
  busy := (SELECT count(*) FROM th_live l WHERE l.seq = ANY (v_seqs) AND l.holder = p_holder AND l.lease_expires_at > p_now);
  -- Last, and in order: the rows of announcements are waited for.
  PERFORM FROM th_worker w WHERE w.holder = p_holder AND (p_incarnation IS NULL OR w.incarnation = p_incarnation)
  ORDER BY w.holder, w.incarnation FOR UPDATE;
  DELETE FROM th_worker w WHERE w.holder = p_holder AND (p_incarnation IS NULL OR w.incarnation = p_incarnation);
END $$;

-- Forgets workers whose announcement ended a day ago or earlier. WRK-4. A row that is locked is about to be announced again
-- or to go. The condition on the holder, which is true of all, lets the primary key be read.
CREATE FUNCTION th_prune_workers(p_now bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  DELETE FROM th_worker WHERE ctid = ANY (ARRAY(
    SELECT w.ctid FROM th_worker w WHERE w.holder > '' AND w.expires_at <= p_now - 86400000000 FOR UPDATE SKIP LOCKED));
END $$;
