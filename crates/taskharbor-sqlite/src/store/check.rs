//! Looking for contradictions in the store.

use taskharbor_core::admin::Inconsistency;

use super::Store;
use crate::error::Fault;

/// ADM-10: what must not be found. Each statement answers the text of one contradiction per row.
const CONTRADICTIONS: &[&str] = &[
    "SELECT 'job ' || s.id || ' has no row in th_job' FROM th_state s LEFT JOIN th_job j ON j.seq = s.seq WHERE j.seq IS NULL",
    "SELECT 'row ' || j.seq || ' of th_job has no state' FROM th_job j LEFT JOIN th_state s ON s.seq = j.seq WHERE s.seq IS NULL",
    "SELECT 'job ' || id || ' is available at another time than it is due' FROM th_state WHERE state = 0 AND available_at <> due_at",
    "SELECT 'job ' || id || ' holds a lease that it has not' FROM th_state WHERE state < 2 AND (cancel_requested <> 0 OR holder NOT NULL)",
    "SELECT 'job ' || id || ' has an end that its state contradicts' FROM th_state \
     WHERE (state >= 3) <> (finished_at IS NOT NULL) OR kept_until < finished_at",
    "SELECT 'job ' || id || ' waits for ' || pending || ' of ' || open || ' parents' FROM (SELECT s.id, s.pending, \
     (SELECT count(*) FROM th_edge e WHERE e.dependant = s.seq AND e.state IN (0, 3)) AS open FROM th_state s) WHERE pending <> open",
    "SELECT 'job ' || id || ' waits for ' || pending || ' parents and is not blocked' FROM th_state \
     WHERE state < 3 AND (state = 1) <> (pending > 0)",
    "SELECT 'job ' || s.id || ' reads ' || j.waits_for || ' outputs and has other edges' FROM th_state s \
     JOIN th_job j ON j.seq = s.seq WHERE j.waits_for <> (SELECT count(*) FROM th_edge e WHERE e.dependant = s.seq)",
    "SELECT 'job ' || s.id || ' is not in the flow it names' FROM th_state s LEFT JOIN th_flow f ON f.seq = s.flow \
     WHERE s.flow IS NOT NULL AND f.seq IS NULL AND s.flow NOT IN (SELECT flow FROM th_removal)",
    "SELECT 'flow ' || f.id || ' is there and was removed' FROM th_flow f JOIN th_removal r ON r.flow = f.seq",
    "SELECT 'flow ' || f.id || ' counts other members than it has' FROM th_flow f \
     JOIN (SELECT flow, sum(jobs) AS jobs FROM th_flow_count GROUP BY flow) c ON c.flow = f.seq \
     WHERE f.state IS NOT NULL AND c.jobs <> (SELECT count(*) FROM th_state s WHERE s.flow = f.seq)",
    "SELECT 'job ' || id || ' has half of an expansion' FROM th_state WHERE (expanded_into IS NULL) <> (expanded_id IS NULL)",
    "SELECT 'edge of ' || e.dependant || ' has no reader' FROM th_edge e LEFT JOIN th_state s ON s.seq = e.dependant \
     WHERE s.seq IS NULL",
    "SELECT 'job ' || c.id || ' waits for a job outside its flow' FROM th_edge e JOIN th_state c ON c.seq = e.dependant \
     LEFT JOIN th_state p ON p.seq = e.parent WHERE e.state IN (0, 3) AND (p.flow IS NULL OR p.flow IS NOT c.flow OR p.state = 3)",
    "SELECT 'job ' || c.id || ' waits for what its kind does not' FROM th_edge e JOIN th_state c ON c.seq = e.dependant \
     WHERE e.state IN (0, 3) AND (e.state = 3) <> (c.kind = 1)",
    "SELECT 'flow ' || f.id || ' has failure jobs that it does not know of' FROM th_flow f WHERE f.watched = 0 \
     AND EXISTS (SELECT 1 FROM th_state s WHERE s.flow = f.seq AND s.kind = 1)",
    "SELECT 'flow ' || f.id || ' counts ' || f.live || ' members that are not terminal' FROM th_flow f \
     WHERE f.live <> (SELECT count(*) FROM th_state s WHERE s.flow = f.seq AND s.state < 3)",
    "SELECT 'flow ' || f.id || ' ends with a job that is no member' FROM th_flow f LEFT JOIN th_state t ON t.seq = f.tail \
     WHERE t.flow IS NOT f.seq",
    "SELECT 'flow ' || f.id || ' has not ended as its members have' FROM th_flow f JOIN th_state t ON t.seq = f.tail \
     WHERE CASE WHEN f.live > 0 THEN f.state IS NOT NULL OR f.kept_until IS NOT NULL ELSE f.state IS NOT t.state \
     OR f.kept_until IS NOT (SELECT max(kept_until) FROM th_state s WHERE s.flow = f.seq) END",
    // KEY-9: a key whose job's record was removed has a time of its own, which the table demands.
    "SELECT 'key ' || k.key || ' of queue ' || k.queue || ' is held by no job that has it' FROM th_key k \
     LEFT JOIN th_state s ON s.seq = k.seq AND s.queue = k.queue AND s.keyed = 1 AND s.id = k.job \
     LEFT JOIN th_job j ON j.seq = s.seq AND j.idempotency_key = k.key WHERE k.seq <> 0 AND j.seq IS NULL",
    "SELECT 'key ' || k.key || ' of queue ' || k.queue || ' is held for another time than its job says' FROM th_key k \
     JOIN th_state s ON s.seq = k.seq JOIN th_job j ON j.seq = s.seq \
     WHERE k.held_until IS NOT min(j.created_at + s.key_us, 253402300799999999)",
    // KEY-3, KEY-5, KEY-7
    "SELECT 'job ' || s.id || ' does not hold its key' FROM th_state s JOIN th_job j ON j.seq = s.seq \
     WHERE s.keyed = 1 AND (s.key_hold = 0 OR s.key_hold = 1 AND s.state <> 3 OR s.key_hold = 2 AND s.state < 3) \
     AND (s.flow IS NULL OR s.flow NOT IN (SELECT flow FROM th_removal)) \
     AND NOT EXISTS (SELECT 1 FROM th_key k WHERE k.queue = s.queue AND k.key = j.idempotency_key AND k.seq = s.seq)",
    "SELECT 'queue ' || queue || ' counts other jobs in state ' || state || ' than it has' FROM ( \
     SELECT queue, state, count(*) AS jobs FROM th_state WHERE state <> 0 \
     AND (flow IS NULL OR flow NOT IN (SELECT flow FROM th_removal)) GROUP BY queue, state \
     UNION ALL SELECT queue, 1, -blocked FROM th_count UNION ALL SELECT queue, 2, -inflight FROM th_count \
     UNION ALL SELECT queue, 3, -done FROM th_count UNION ALL SELECT queue, 4, -dlq FROM th_count \
     UNION ALL SELECT queue, 5, -cancelled FROM th_count) GROUP BY queue, state HAVING sum(jobs) <> 0",
    "SELECT 'job ' || s.id || ' has other failures than it counts' FROM th_state s \
     WHERE min(s.failures, 10) <> (SELECT count(*) FROM th_error e \
     WHERE e.seq = s.seq AND e.failure BETWEEN s.failures - 9 AND s.failures)",
    "SELECT 'failures of job ' || e.seq || ', which is not there' FROM th_error e LEFT JOIN th_state s ON s.seq = e.seq \
     WHERE s.seq IS NULL",
    "SELECT 'job ' || id || ' stands in a line that is not its lane''s' FROM th_state \
     WHERE line IS NOT NULL AND (line IS NOT lane OR available_at IS NULL)",
    // LIM-1
    "SELECT 'the lease of job ' || s.id || ' is not counted as it should be' FROM th_state s \
     LEFT JOIN th_queue q ON q.name = s.queue WHERE s.counted <> (s.state = 2 AND q.limits IS NOT NULL)",
    "SELECT 'queue ' || name || ' has a row that says nothing' FROM th_queue \
     WHERE paused_since IS NULL AND held_until IS NULL AND limits IS NULL",
    "SELECT 'lane ' || lane || ' of queue ' || queue || ' ends at another time than it says' FROM th_lane \
     WHERE ends_at <> max(coalesce(tat, 0), coalesce(held_until, 0)) OR tat IS NULL AND held_until IS NULL",
    "SELECT 'lane ' || l.lane || ' of queue ' || l.queue || ' is charged without limits' FROM th_lane l \
     LEFT JOIN th_queue q ON q.name = l.queue WHERE l.tat IS NOT NULL AND q.limits IS NULL",
    "SELECT 'job ' || s.id || ' has a number that was not given yet' FROM th_state s JOIN th_meta m WHERE s.seq > m.seq",
];

impl Store<'_> {
    pub(crate) fn check(&self) -> Result<Vec<Inconsistency>, Fault> {
        let mut found = self.texts("PRAGMA integrity_check(20)")?;
        found.retain(|line| line != "ok");
        for sql in CONTRADICTIONS {
            found.extend(self.texts(sql)?);
        }
        Ok(found.into_iter().map(Inconsistency::new).collect())
    }

    fn texts(&self, sql: &str) -> Result<Vec<String>, Fault> {
        // Rare, so that it does not take the place of others among the statements that are kept.
        let mut statement = self.conn.prepare(sql)?;
        let found = statement.query_map([], |row| row.get(0))?;
        Ok(found.collect::<Result<_, _>>()?)
    }
}
