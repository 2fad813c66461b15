//! Every statement of the driver, with the index that serves it.
//!
//! A test asks SQLite for the plan of each of them, and fails on a scan or a sort that is not
//! announced here.

/// The narrow row of a job, in the order in which `entry::read` expects it.
macro_rules! state {
    () => {
        "s.seq, s.state, s.available_at, s.due_at, s.priority, s.pending, s.kind, s.key_hold, s.on_failure, s.keyed, \
         s.attempts, s.deliveries, s.expirations, s.epoch, s.failures, s.cancel_requested, s.flow, s.run_at, s.started_at, \
         s.lease_expires_at, s.finished_at, s.attempt_limit, s.expanded_into, s.id, s.queue, s.holder, s.expanded_id, s.lease_token, \
         s.progress, s.reason, s.key_us, s.lease_mark, s.released, s.lane"
    };
}

/// What follows it where the body is read too.
macro_rules! job {
    () => {
        "j.type, j.created_at, j.timeout_us, j.max_attempts, j.waits_for, j.idempotency_key, j.headers"
    };
}

/// A schedule, in the order in which it is read and written.
macro_rules! schedule {
    () => {
        "name, owner, next_slot, paused_since, revision, stored, skipped, missed, error, firings, definition"
    };
}

/// A flow with its tail.
macro_rules! flow_head {
    () => {
        "f.seq, f.id, f.name, f.created_at, t.id, t.state, t.available_at"
    };
}

/// What a grant changes, of jobs that were waiting.
macro_rules! grant {
    () => {
        "UPDATE th_state SET state = 2, available_at = ?2, deliveries = min(deliveries + 1, 4294967295), \
         cancel_requested = 0, lease_mark = 0, started_at = ?3, lease_expires_at = ?2, holder = ?4, lease_token = ?5, \
         progress = NULL, line = NULL, counted = ?6 WHERE "
    };
}

/// What an ack changes, of jobs of one queue that are in no flow and whose keys, if they have one, stay held, under a
/// lease that is valid. PRU-2: its end is later than the job's.
macro_rules! ack {
    () => {
        "UPDATE th_state SET state = 3, available_at = NULL, cancel_requested = 0, finished_at = ?2, \
         kept_until = lease_expires_at, holder = NULL, released = NULL, output = ?3, line = NULL, counted = 0 \
         WHERE state = 2 AND lease_expires_at > ?2 AND lease_token = ?4 AND queue = ?5 AND flow IS NULL \
         AND (keyed = 0 OR key_hold IN (0, 3)) AND "
    };
}

/// The jobs without a lane that time can make available, as `th_state_position` has them.
macro_rules! plain {
    () => {
        " FROM th_state INDEXED BY th_state_position WHERE available_at IS NOT NULL AND lane IS NULL AND "
    };
}

/// Those with a lane, as `th_state_lane` has them.
macro_rules! laned {
    () => {
        " FROM th_state INDEXED BY th_state_lane WHERE available_at IS NOT NULL AND lane IS NOT NULL AND "
    };
}

/// That a job is there for callers: its flow, if it is in one, is not being removed (PRU-4).
macro_rules! visible {
    () => {
        "(s.flow IS NULL OR EXISTS (SELECT 1 FROM th_flow v WHERE v.seq = s.flow))"
    };
}

/// How a statement may find its rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cost {
    /// By keys and indexes alone, in their order.
    Seek,
    /// It walks over what it reports, or sorts it: for people.
    Walk,
}

/// Makes a constant of each statement, and a list of all of them.
macro_rules! statements {
    ($($(#[$doc:meta])* $cost:ident $name:ident = $sql:expr;)*) => {
        $($(#[$doc])* pub(crate) const $name: &str = $sql;)*

        /// All statements: name, cost, text.
        pub const ALL: &[(&str, Cost, &str)] = &[$((stringify!($name), Cost::$cost, $name)),*];
    };
}

statements! {
    /// The one row of `th_meta`.
    Seek VERSION = "SELECT version FROM th_meta WHERE one = 1";
    Seek LAST_SEQ = "SELECT seq FROM th_meta WHERE one = 1";
    Seek SET_SEQ = "UPDATE th_meta SET seq = ?1 WHERE one = 1";

    /// `th_state_id` says whether the id is stored already.
    Seek INSERT_STATE = "INSERT INTO th_state (seq, state, available_at, due_at, priority, pending, kind, key_hold, \
         on_failure, keyed, flow, run_at, finished_at, kept_until, id, queue, key_us, lane, line) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19) ON CONFLICT (id) DO NOTHING";
    Seek INSERT_JOB = "INSERT INTO th_job (seq, type, created_at, timeout_us, max_attempts, waits_for, idempotency_key, \
         headers, payload) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
    /// `th_state_id`.
    Seek SEQ_OF = concat!("SELECT s.seq FROM th_state s WHERE s.id = ?1 AND ", visible!());
    /// The job whose record is about to be deleted with its flow.
    Seek REMOVED_SEQ_OF = concat!("SELECT s.seq FROM th_state s WHERE s.id = ?1 AND NOT ", visible!());
    /// KEY-1, KEY-10. The primary key of `th_key`, as in the next five.
    Seek KEY_HOLDER = "SELECT job FROM th_key WHERE queue = ?1 AND key = ?2 AND (held_until IS NULL OR held_until > ?3)";
    /// In the place of a key whose time has ended.
    Seek HOLD_KEY = "INSERT INTO th_key (queue, key, job, seq, held_until) VALUES (?1, ?2, ?3, ?4, ?5) \
         ON CONFLICT (queue, key) DO UPDATE SET job = excluded.job, seq = excluded.seq, held_until = excluded.held_until";
    Seek FREE_KEY = "DELETE FROM th_key WHERE queue = ?1 AND key = ?2 AND seq = ?3";
    /// KEY-9: the record of the job is removed, and the key stays.
    Seek ORPHAN_KEY = "UPDATE th_key SET seq = 0 WHERE queue = ?1 AND key = ?2 AND seq = ?3";
    /// A key that is stored, even if its time has ended.
    Seek STORED_KEY = "SELECT job, seq FROM th_key WHERE queue = ?1 AND key = ?2";
    Seek KEY_OF = "SELECT idempotency_key, created_at FROM th_job WHERE seq = ?1";
    /// `th_key_orphan`.
    Seek DELETE_KEYS = "DELETE FROM th_key WHERE seq = 0 AND held_until <= ?1";

    /// `th_state_id`.
    Seek JOB_BY_ID = concat!("SELECT ", state!(), " FROM th_state s WHERE s.id = ?1 AND ", visible!());
    Seek JOB_BY_SEQ = concat!("SELECT ", state!(), " FROM th_state s WHERE s.seq = ?1");
    Seek WRITE_STATE = "UPDATE th_state SET state = ?2, available_at = ?3, due_at = ?4, priority = ?5, pending = ?6, attempts = ?7, \
         deliveries = ?8, expirations = ?9, epoch = ?10, failures = ?11, cancel_requested = ?12, flow = ?13, run_at = ?14, \
         started_at = ?15, lease_expires_at = ?16, finished_at = ?17, kept_until = ?18, attempt_limit = ?19, expanded_into = ?20, \
         holder = ?21, expanded_id = ?22, lease_token = ?23, progress = ?24, reason = ?25, lease_mark = ?26, \
         released = ?27, line = NULL, counted = CASE WHEN ?2 = 2 THEN counted ELSE 0 END WHERE seq = ?1";
    Seek WRITE_OUTPUT = "UPDATE th_state SET output = ?2 WHERE seq = ?1";
    /// What a grant changes, of a job that was waiting.
    Seek GRANT_ONE = concat!(grant!(), "seq = ?1");
    /// The same for many, by their numbers.
    Seek GRANT_MANY = concat!(grant!(), "seq IN (SELECT value FROM json_each(?1))");
    /// What a grant changes, of a job whose lease had ended. LEA-4: `run_at` too.
    Seek GRANT = "UPDATE th_state SET state = 2, available_at = ?2, due_at = ?3, deliveries = ?4, expirations = ?5, cancel_requested = 0, \
         lease_mark = 0, run_at = ?6, started_at = ?7, lease_expires_at = ?2, holder = ?8, lease_token = ?9, progress = NULL, \
         released = NULL, line = NULL, counted = ?10 WHERE seq = ?1";
    /// An ack of a job that is in no flow and whose key, if it has one, stays held: all rules in one step.
    Seek ACK_ONE = concat!(ack!(), "seq = ?1 AND id = ?6");
    /// The same for many without outputs, by their numbers. The secret vouches for the ids.
    Seek ACK_MANY = concat!(ack!(), "seq IN (SELECT value FROM json_each(?1))");
    Seek QUEUE_OF = "SELECT queue FROM th_state WHERE seq = ?1 AND id = ?2";
    /// What any other ack changes.
    Seek ACK = "UPDATE th_state SET state = 3, available_at = NULL, cancel_requested = 0, finished_at = ?2, kept_until = ?3, holder = NULL, \
         released = NULL, output = ?4, line = NULL, counted = 0 WHERE seq = ?1";
    /// The primary key of `th_error`, as in the next three.
    Seek ADD_ERROR = "INSERT INTO th_error (seq, failure, attempts, failed_at, error) VALUES (?1, ?2, ?3, ?4, ?5)";
    Seek DROP_ERRORS = "DELETE FROM th_error WHERE seq = ?1 AND failure <= ?2";
    Seek LAST_ERROR = "SELECT attempts, failed_at, error FROM th_error WHERE seq = ?1 AND failure = ?2";
    Seek ERRORS = "SELECT attempts, failed_at, error FROM th_error WHERE seq = ?1 ORDER BY failure";

    /// What a Reserve has to know of a queue: the primary keys of `th_queue` and `th_lane`, and `th_state_lane`.
    Seek QUEUE = concat!("SELECT q.paused_since, q.tat, q.held_until, q.limits, \
         EXISTS (SELECT 1 FROM th_lane l WHERE l.queue = ?1), EXISTS (SELECT 1", laned!(), "queue = ?1) \
         FROM th_meta LEFT JOIN th_queue q ON q.name = ?1 WHERE one = 1");
    /// The next priority that has jobs. `th_state_position`, its first entry below the last one.
    Seek NEXT_PRIORITY = concat!("SELECT priority", plain!(), "queue = ?1 AND priority < ?2 ORDER BY priority DESC LIMIT 1");
    /// RES-1, RES-4: the jobs of one priority that may be granted. `th_state_position`, from the front.
    Seek DUE = concat!("SELECT ", state!(), ", ", job!(), ", j.payload \
         FROM th_state s INDEXED BY th_state_position CROSS JOIN th_job j ON j.seq = s.seq \
         WHERE s.queue = ?1 AND s.priority = ?2 AND s.available_at IS NOT NULL AND s.lane IS NULL AND s.available_at <= ?3 \
         AND (s.available_at, s.seq) > (?4, ?5) ORDER BY s.available_at, s.seq LIMIT ?6");
    /// When the next job of one priority may be granted. `th_state_position`, its first entry.
    Seek FIRST_AT = concat!("SELECT available_at", plain!(), "queue = ?1 AND priority = ?2 ORDER BY available_at LIMIT 1");

    /// One of them, by its number.
    Seek DUE_JOB = concat!("SELECT ", state!(), ", ", job!(), ", j.payload \
         FROM th_state s CROSS JOIN th_job j ON j.seq = s.seq WHERE s.seq = ?1");
    /// Where turns are taken: the positions of jobs without a lane, and when the next of them is available.
    /// `th_state_position`.
    Seek PLAIN_FROM = concat!("SELECT available_at, seq", plain!(), "queue = ?1 AND priority = ?2 \
         AND (available_at, seq) > (?3, ?4) ORDER BY available_at, seq LIMIT ?5");
    Seek PLAIN_AFTER = concat!("SELECT available_at", plain!(), "queue = ?1 AND priority = ?2 AND available_at > ?3 \
         ORDER BY available_at LIMIT 1");
    /// The same of jobs with a lane. `th_state_lane`, as in the next five.
    Seek NEXT_LANED_PRIORITY = concat!("SELECT priority", laned!(), "queue = ?1 AND priority < ?2 \
         ORDER BY priority DESC LIMIT 1");
    /// Puts jobs that are due into the lines of their lanes.
    Seek LINE_UP = concat!("UPDATE th_state SET line = lane WHERE seq IN (SELECT seq", laned!(), "queue = ?1 AND priority = ?2 \
         AND line IS NULL AND available_at <= ?3 ORDER BY available_at, seq LIMIT ?4)");
    /// The next line and its first position.
    Seek NEXT_LINE = concat!("SELECT line, available_at, seq", laned!(), "queue = ?1 AND priority = ?2 AND line >= ?3 \
         ORDER BY line, available_at, seq LIMIT 1");
    Seek LINE_FROM = concat!("SELECT available_at, seq", laned!(), "queue = ?1 AND priority = ?2 AND line = ?6 \
         AND (available_at, seq) > (?3, ?4) ORDER BY available_at, seq LIMIT ?5");
    Seek LANED_AFTER = concat!("SELECT available_at", laned!(), "queue = ?1 AND priority = ?2 AND line IS NULL \
         AND available_at > ?3 ORDER BY available_at LIMIT 1");

    /// `th_state_line`.
    Seek LINED_AFTER = "SELECT available_at FROM th_state INDEXED BY th_state_line \
         WHERE line IS NOT NULL AND queue = ?1 AND available_at > ?2 ORDER BY available_at LIMIT 1";

    /// LIM-1: how many leases are valid in a queue, and in one of its lanes. `th_state_lease`, as in the next two.
    Seek LEASES = "SELECT count(*) FROM th_state INDEXED BY th_state_lease \
         WHERE counted = 1 AND queue = ?1 AND lease_expires_at > ?2";
    Seek LANE_LEASES = "SELECT count(*) FROM th_state INDEXED BY th_state_lease \
         WHERE counted = 1 AND queue = ?1 AND lane = ?3 AND lease_expires_at > ?2";
    Seek FORGET_LEASES = "UPDATE th_state SET counted = 0 WHERE seq IN ( \
         SELECT seq FROM th_state INDEXED BY th_state_lease WHERE counted = 1 AND queue = ?1)";
    /// LIM-6: counts all leases of a queue, past the jobs that wait. `th_state_position`, `th_state_lane`.
    Walk COUNT_LEASES = concat!("UPDATE th_state SET counted = 1 WHERE seq IN (SELECT seq", plain!(), "queue = ?1 AND state = 2 \
         UNION ALL SELECT seq", laned!(), "queue = ?1 AND state = 2)");
    /// An imported lease.
    Seek COUNT_LEASE = "UPDATE th_state SET counted = 1 WHERE seq = ?1 AND state = 2 \
         AND EXISTS (SELECT 1 FROM th_queue q WHERE q.name = queue AND q.limits IS NOT NULL)";

    /// EVI-1: the leases of a holder among the jobs of one priority. It passes the jobs that are scheduled and the leases of
    /// others, but not the jobs that are ready. `th_state_position`.
    Seek PLAIN_LEASES_OF = concat!("SELECT seq", plain!(), "queue = ?1 AND priority = ?2 AND available_at > ?3 \
         AND state = 2 AND holder = ?4");
    /// The same of jobs with a lane: those in no line. `th_state_lane`.
    Seek LANED_LEASES_OF = concat!("SELECT seq", laned!(), "queue = ?1 AND priority = ?2 AND line IS NULL \
         AND available_at > ?3 AND state = 2 AND holder = ?4");
    /// Those in line: a call with a later `now` has put them there. `th_state_line`.
    Seek LINED_LEASES_OF = "SELECT seq FROM th_state INDEXED BY th_state_line \
         WHERE line IS NOT NULL AND queue = ?1 AND available_at > ?2 AND state = 2 AND holder = ?3";

    /// WRK-1. The primary key of `th_worker`, as in the next five.
    Seek ANNOUNCE = "INSERT INTO th_worker (holder, incarnation, started_at, seen_at, expires_at, info) \
         VALUES (?1, ?2, ?3, ?3, ?4, ?5) ON CONFLICT (holder, incarnation) DO UPDATE SET seen_at = excluded.seen_at, \
         expires_at = excluded.expires_at, info = excluded.info";
    Seek WITHDRAW = "DELETE FROM th_worker WHERE holder = ?1 AND incarnation = ?2";
    Seek WORKERS_FROM = "SELECT holder, incarnation, started_at, seen_at, expires_at, info FROM th_worker \
         WHERE (holder, incarnation) > (?1, ?2) ORDER BY holder, incarnation";
    Seek OTHER_INCARNATION = "SELECT 1 FROM th_worker \
         WHERE holder = ?1 AND incarnation <> ?2 AND expires_at > ?3 LIMIT 1";
    Seek FORGET_WORKER = "DELETE FROM th_worker WHERE holder = ?1 AND (?2 IS NULL OR incarnation = ?2)";
    /// There are few.
    Walk FORGET_WORKERS = "DELETE FROM th_worker WHERE expires_at <= ?1";

    /// The primary key of `th_lane`, as in the next eight.
    Seek LANE_USE = "SELECT tat, held_until FROM th_lane WHERE queue = ?1 AND lane = ?2";
    Seek CHARGE_LANE = "INSERT INTO th_lane (queue, lane, tat, ends_at) VALUES (?1, ?2, ?3, ?3) ON CONFLICT (queue, lane) \
         DO UPDATE SET tat = excluded.tat, ends_at = max(excluded.tat, coalesce(held_until, 0))";
    Seek HOLD_LANE = "INSERT INTO th_lane (queue, lane, held_until, ends_at) VALUES (?1, ?2, ?3, ?3) \
         ON CONFLICT (queue, lane) DO UPDATE SET held_until = max(coalesce(held_until, 0), excluded.held_until), \
         ends_at = max(ends_at, excluded.ends_at)";
    Seek END_LANE_HOLD = "UPDATE th_lane SET held_until = NULL, ends_at = coalesce(tat, 0) WHERE queue = ?1 AND lane = ?2";
    Seek FORGET_CHARGES = "UPDATE th_lane SET tat = NULL, ends_at = coalesce(held_until, 0) WHERE queue = ?1";
    Seek DROP_LANES = "DELETE FROM th_lane WHERE queue = ?1 AND tat IS NULL AND held_until IS NULL";
    Seek HELD_LANES = "SELECT lane FROM th_lane WHERE queue = ?1 AND held_until > ?2";
    /// `th_lane_end`.
    Seek FORGET_LANES = "DELETE FROM th_lane WHERE ends_at <= ?1";
    Walk FORGET_QUEUES = "UPDATE th_queue SET tat = NULL, held_until = NULL \
         WHERE (tat IS NOT NULL OR held_until IS NOT NULL) AND max(coalesce(tat, 0), coalesce(held_until, 0)) <= ?1";
    Walk DROP_IDLE_QUEUES = "DELETE FROM th_queue WHERE paused_since IS NULL AND held_until IS NULL AND limits IS NULL";

    /// The primary key of `th_queue`, as in the next eight.
    Seek PAUSE = "INSERT INTO th_queue (name, paused_since) VALUES (?1, ?2) \
         ON CONFLICT (name) DO UPDATE SET paused_since = coalesce(paused_since, excluded.paused_since)";
    Seek RESUME = "UPDATE th_queue SET paused_since = NULL WHERE name = ?1 AND paused_since IS NOT NULL";
    Seek LIMITS_OF = "SELECT name, owner, limits FROM th_queue WHERE name = ?1 AND limits IS NOT NULL";
    Seek SET_LIMITS = "INSERT INTO th_queue (name, owner, limits) VALUES (?1, ?2, ?3) \
         ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, limits = excluded.limits";
    Seek REMOVE_LIMITS = "UPDATE th_queue SET owner = NULL, limits = NULL, tat = NULL WHERE name = ?1";
    Seek CHARGE_QUEUE = "UPDATE th_queue SET tat = ?2 WHERE name = ?1";
    Seek HOLD_QUEUE = "INSERT INTO th_queue (name, held_until) VALUES (?1, ?2) \
         ON CONFLICT (name) DO UPDATE SET held_until = max(coalesce(held_until, 0), excluded.held_until)";
    Seek END_QUEUE_HOLD = "UPDATE th_queue SET held_until = NULL WHERE name = ?1";
    Seek DROP_QUEUE = "DELETE FROM th_queue \
         WHERE name = ?1 AND paused_since IS NULL AND held_until IS NULL AND limits IS NULL";
    /// `th_queue_owner`.
    Seek LIMITS_OWNED = "SELECT name FROM th_queue WHERE owner = ?1";

    Seek INSERT_EDGE = "INSERT INTO th_edge (dependant, ord, parent, state, parent_id) VALUES (?1, ?2, ?3, ?4, ?5)";
    /// `th_edge_missing`.
    Seek FIND_PARENT = "UPDATE th_edge INDEXED BY th_edge_missing SET parent = ?2 WHERE parent = 0 AND parent_id = ?1";
    /// `th_edge_parent`.
    Seek DEPENDANTS = "SELECT dependant, ord FROM th_edge WHERE parent = ?1 AND state = 0 ORDER BY dependant, ord";
    /// `th_edge_failure`.
    Seek FAILURE_DEPENDANTS = "SELECT dependant, ord FROM th_edge WHERE parent = ?1 AND state = 3 ORDER BY dependant, ord";
    Seek CLOSE_EDGE = "UPDATE th_edge SET state = ?3, spent_state = ?4, spent_reason = ?5 WHERE dependant = ?1 AND ord = ?2";
    /// `th_edge_parent`.
    Seek CLOSE_EDGES = "UPDATE th_edge SET state = 1 WHERE parent = ?1 AND state = 0 RETURNING dependant";
    /// Unless it would wait for no parent then.
    Seek WAIT_FOR_FEWER = "UPDATE th_state SET pending = pending - ?2 WHERE seq = ?1 AND state = 1 AND pending > ?2";
    /// The primary key of `th_edge`, as in the next one.
    Seek CLOSE_INPUTS = "UPDATE th_edge SET state = 1 WHERE dependant = ?1 AND state IN (0, 3)";
    Seek NOT_NEEDED = "SELECT 1 FROM th_edge WHERE dependant = ?1 AND state = 1 LIMIT 1";
    /// `th_edge_parent`.
    Seek MOVE_EDGES = "UPDATE th_edge SET parent = ?2, parent_id = ?3 WHERE parent = ?1 AND state = 0";
    /// `th_edge_failure`.
    Seek MOVE_FAILURE_EDGES = "UPDATE th_edge SET parent = ?2, parent_id = ?3 WHERE parent = ?1 AND state = 3";
    /// The primary key of `th_edge`, as in the next two.
    Seek PARENTS = "SELECT parent_id FROM th_edge WHERE dependant = ?1 ORDER BY ord";
    Seek INPUTS = "SELECT parent, state, spent_state, spent_reason FROM th_edge \
         WHERE dependant = ?1 AND ord >= ?2 ORDER BY ord LIMIT ?3";
    Seek INPUT_COUNT = "SELECT count(*) FROM th_edge WHERE dependant = ?1";

    Seek INSERT_FLOW = "INSERT INTO th_flow (seq, id, name, created_at, tail, live) VALUES (?1, ?2, ?3, ?4, ?5, 0)";
    Seek FLOW_BY_SEQ = "SELECT seq, id, tail, watched FROM th_flow WHERE seq = ?1";
    /// The unique index on `id`.
    Seek FLOW_BY_ID = "SELECT seq FROM th_flow WHERE id = ?1";
    Seek TAIL = "SELECT tail FROM th_flow WHERE seq = ?1";
    /// `th_state_id`.
    Seek FIRST_TAIL = concat!("SELECT s.seq FROM th_flow f CROSS JOIN th_state s ON s.id = f.id WHERE f.seq = ?1 AND ", visible!());
    Seek WATCH_FLOW = "UPDATE th_flow SET watched = 1 WHERE seq = ?1";
    Seek COUNT_LIVE = "UPDATE th_flow SET live = live + ?2 WHERE seq = ?1 RETURNING live";
    Seek SET_TAIL = "UPDATE th_flow SET tail = ?2 WHERE seq = ?1";
    Seek END_FLOW = "UPDATE th_flow SET state = ?2, kept_until = ?3 WHERE seq = ?1";
    /// All members, once, when the last of them is terminal. `th_state_flow`.
    Seek FLOW_KEPT = "SELECT max(kept_until), count(*) FROM th_state WHERE flow = ?1";
    /// The primary key of `th_flow_count`, as in the next two.
    Seek FORGET_MEMBERS = "DELETE FROM th_flow_count WHERE flow = ?1";
    Seek MEMBER_COUNTS = "SELECT queue, state, jobs FROM th_flow_count WHERE flow = ?1";
    /// Of a large flow. `th_state_flow`; what it finds is sorted.
    Walk COUNT_MEMBERS = "INSERT INTO th_flow_count (flow, queue, state, jobs) \
         SELECT flow, queue, state, count(*) FROM th_state WHERE flow = ?1 GROUP BY queue, state";
    /// `th_state_flow`, as in the next two.
    Seek MEMBERS = "SELECT seq FROM th_state WHERE flow = ?1";
    Seek NOT_STARTED = "SELECT seq FROM th_state WHERE flow = ?1 AND state IN (0, 1)";
    Seek NOT_TERMINAL = "SELECT seq FROM th_state WHERE flow = ?1 AND state IN (0, 1, 2)";
    Seek DELETE_FLOW = "DELETE FROM th_flow WHERE seq = ?1";
    /// `th_state_flow_key`.
    Seek KEYED_MEMBERS = "SELECT seq FROM th_state INDEXED BY th_state_flow_key WHERE flow = ?1 AND keyed = 1";
    /// Flows whose members are deleted in steps.
    Seek BEGIN_REMOVAL = "INSERT INTO th_removal (flow) VALUES (?1)";
    Seek NEXT_REMOVAL = "SELECT flow FROM th_removal WHERE flow > 0 ORDER BY flow LIMIT 1";
    Seek END_REMOVAL = "DELETE FROM th_removal WHERE flow = ?1";
    /// `th_state_flow`.
    Seek SOME_MEMBERS = "SELECT seq FROM th_state WHERE flow = ?1 LIMIT ?2";

    Seek DELETE_STATE = "DELETE FROM th_state WHERE seq = ?1";
    Seek DELETE_JOB = "DELETE FROM th_job WHERE seq = ?1";
    Seek DELETE_ERRORS = "DELETE FROM th_error WHERE seq = ?1";
    Seek DELETE_EDGES = "DELETE FROM th_edge WHERE dependant = ?1";
    /// PRU-1. `th_state_end`, from the front.
    Seek OLDEST_JOB = "SELECT kept_until, seq FROM th_state INDEXED BY th_state_end \
         WHERE state = ?1 AND kept_until IS NOT NULL AND flow IS NULL ORDER BY kept_until, seq LIMIT 1";
    /// PRU-4. `th_flow_end`, from the front.
    Seek OLDEST_FLOW = "SELECT kept_until, seq FROM th_flow INDEXED BY th_flow_end \
         WHERE state = ?1 ORDER BY kept_until, seq LIMIT 1";

    /// What a job produced. Its parents are counted for a join alone.
    Seek OUTPUT = concat!("SELECT s.state, s.kind, s.expanded_into, s.id, s.reason, s.output FROM th_state s \
         WHERE s.seq = ?1 AND ", visible!());

    /// `th_state_id`.
    Seek RECORD = concat!("SELECT ", state!(), ", ", job!(), ", j.payload, s.output, \
         (SELECT f.id FROM th_flow f WHERE f.seq = s.flow) \
         FROM th_state s CROSS JOIN th_job j ON j.seq = s.seq WHERE s.id = ?1 AND ", visible!());
    /// One record that a list looks at, if it matches as far as that is seen here.
    Seek LIST_ROW = concat!("SELECT ", state!(), ", ", job!(), ", length(j.payload), \
         (SELECT f.id FROM th_flow f WHERE f.seq = s.flow), e.error \
         FROM th_state s CROSS JOIN th_job j ON j.seq = s.seq \
         LEFT JOIN th_error e ON e.seq = s.seq AND e.failure = s.failures \
         WHERE s.seq = ?1 AND (?2 IS NULL OR s.queue = ?2) AND (?3 IS NULL OR s.state = ?3) \
         AND (?4 IS NULL OR j.type = ?4) AND (?5 IS NULL OR j.idempotency_key = ?5) \
         AND (?6 IS NULL OR j.created_at >= ?6) AND (?7 IS NULL OR j.created_at < ?7) \
         AND (?8 IS NULL OR s.finished_at >= ?8) AND (?9 IS NULL OR s.finished_at < ?9) \
         AND (?10 IS NULL OR instr(e.error, ?10) > 0 OR instr(s.reason, ?10) > 0) \
         AND (?11 IS NULL OR s.lane = ?11) AND ", visible!());
    /// The records that a list looks at, in its order. The primary key.
    Seek JOBS_AFTER = "SELECT seq FROM th_state WHERE seq > ?1 ORDER BY seq LIMIT ?2";
    Seek JOBS_BEFORE = "SELECT seq FROM th_state WHERE seq < ?1 ORDER BY seq DESC LIMIT ?2";
    /// Of those that are dead-lettered or cancelled. `th_state_dead`.
    Seek DEAD_AFTER = "SELECT seq FROM th_state INDEXED BY th_state_dead \
         WHERE state >= 4 AND state = ?3 AND seq > ?1 ORDER BY seq LIMIT ?2";
    Seek DEAD_BEFORE = "SELECT seq FROM th_state INDEXED BY th_state_dead \
         WHERE state >= 4 AND state = ?3 AND seq < ?1 ORDER BY seq DESC LIMIT ?2";
    /// Of the members of one flow, which are sorted. `th_state_flow`.
    Walk MEMBERS_AFTER = "SELECT seq FROM th_state INDEXED BY th_state_flow \
         WHERE flow = ?3 AND seq > ?1 ORDER BY seq LIMIT ?2";
    Walk MEMBERS_BEFORE = "SELECT seq FROM th_state INDEXED BY th_state_flow \
         WHERE flow = ?3 AND seq < ?1 ORDER BY seq DESC LIMIT ?2";
    Seek CREATED_AT = "SELECT created_at FROM th_job WHERE seq = ?1";
    /// What is exported, a flow at the first of its members. The primary key; `th_state_flow`.
    Seek UNITS = concat!("SELECT s.seq, s.flow FROM th_state s WHERE s.seq > ?1 AND (s.flow IS NULL \
         OR NOT EXISTS (SELECT 1 FROM th_state m INDEXED BY th_state_flow WHERE m.flow = s.flow \
         AND m.state IN (0, 1, 2, 3, 4, 5) AND m.seq < s.seq)) \
         AND ", visible!(), " ORDER BY s.seq LIMIT ?2");
    /// `th_state_flow`; what it finds is sorted.
    Walk MEMBERS_IN_ORDER = "SELECT seq FROM th_state INDEXED BY th_state_flow WHERE flow = ?1 ORDER BY seq";
    Seek STORED_FLOW = "SELECT f.id, f.name, f.created_at, t.id FROM th_flow f CROSS JOIN th_state t ON t.seq = f.tail \
         WHERE f.seq = ?1";
    Seek STORED_JOB = concat!("SELECT ", state!(), ", ", job!(), ", j.payload, s.output, f.id \
         FROM th_state s CROSS JOIN th_job j ON j.seq = s.seq LEFT JOIN th_flow f ON f.seq = s.flow WHERE s.seq = ?1");
    /// The keys that outlived their jobs, past those that did not. The primary key of `th_key`.
    Seek ORPHAN_KEYS = "SELECT queue, key, job, held_until FROM th_key \
         WHERE (queue, key) > (?1, ?2) AND +seq = 0 ORDER BY queue, key LIMIT ?3";
    /// The primary key of `th_edge`.
    Seek EDGES = "SELECT state, spent_state, spent_reason FROM th_edge WHERE dependant = ?1 ORDER BY ord";
    Seek SET_EXPANDED = "UPDATE th_state SET expanded_into = ?2 WHERE seq = ?1";
    Seek SET_FLOW = "UPDATE th_state SET flow = ?2 WHERE seq = ?1";

    /// The primary key of `th_count`, as in the next two.
    Seek ADD_COUNTS = "UPDATE th_count SET blocked = blocked + ?2, inflight = inflight + ?3, done = done + ?4, \
         dlq = dlq + ?5, cancelled = cancelled + ?6 WHERE queue = ?1";
    Seek FIRST_COUNTS = "INSERT INTO th_count (queue, blocked, inflight, done, dlq, cancelled) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
    Seek DROP_COUNTS = "DELETE FROM th_count WHERE queue = ?1 AND blocked = 0 AND inflight = 0 AND done = 0 \
         AND dlq = 0 AND cancelled = 0";
    Walk COUNTS = "SELECT queue, blocked, inflight, done, dlq, cancelled FROM th_count";
    /// The next queue with jobs that wait or are inflight. `th_state_position`, its first entry behind the last one.
    Seek NEXT_QUEUE = concat!("SELECT queue", plain!(), "queue > ?1 ORDER BY queue LIMIT 1");
    /// `th_state_lane`, as above.
    Seek NEXT_LANED_QUEUE = concat!("SELECT queue", laned!(), "queue > ?1 ORDER BY queue LIMIT 1");
    /// `th_state_position`, past the jobs that are inflight, and no further than the limit. As in the next two.
    Walk COUNT_READY = concat!("SELECT count(*) FROM (SELECT 1", plain!(), "queue = ?1 AND priority = ?2 \
         AND available_at <= ?3 AND state = 0 LIMIT ?4)");
    Walk COUNT_SCHEDULED = concat!("SELECT count(*) FROM (SELECT 1", plain!(), "queue = ?1 AND priority = ?2 \
         AND available_at > ?3 AND state = 0 LIMIT ?4)");
    Seek OLDEST_READY = concat!("SELECT available_at", plain!(), "queue = ?1 AND priority = ?2 \
         AND available_at <= ?3 AND state = 0 ORDER BY available_at LIMIT 1");
    /// The same of jobs with a lane, the oldest of each line or of those in none. `th_state_lane`.
    Walk COUNT_LANED_READY = concat!("SELECT count(*) FROM (SELECT 1", laned!(), "queue = ?1 AND priority = ?2 \
         AND available_at <= ?3 AND state = 0 LIMIT ?4)");
    Walk COUNT_LANED_SCHEDULED = concat!("SELECT count(*) FROM (SELECT 1", laned!(), "queue = ?1 AND priority = ?2 \
         AND available_at > ?3 AND state = 0 LIMIT ?4)");
    Seek OLDEST_IN_LINE = concat!("SELECT available_at", laned!(), "queue = ?1 AND priority = ?2 AND line IS ?4 \
         AND available_at <= ?3 AND state = 0 ORDER BY available_at LIMIT 1");
    /// LAN-6: the lanes of a queue that have ready or inflight jobs, with their numbers. All of `th_state_lane`, or of
    /// `th_state_position`, that concerns the queue.
    Walk LANES = concat!("SELECT lane, count(CASE WHEN state = 0 THEN 1 END), count(CASE WHEN state = 2 THEN 1 END)", laned!(),
         "queue = ?1 AND (state = 2 OR available_at <= ?2) AND lane > ?3 GROUP BY lane ORDER BY lane LIMIT ?4");
    Walk LANELESS = concat!("SELECT count(CASE WHEN state = 0 THEN 1 END), count(CASE WHEN state = 2 THEN 1 END)", plain!(),
         "queue = ?1 AND (state = 2 OR available_at <= ?2)");
    Walk PAUSES = "SELECT name, paused_since FROM th_queue WHERE paused_since IS NOT NULL";
    /// The primary key of `th_queue`, as in the next one.
    Seek PAUSES_FROM = "SELECT name, paused_since FROM th_queue \
         WHERE name >= ?1 AND name <= ?2 AND paused_since IS NOT NULL ORDER BY name LIMIT ?3";
    Seek LIMITS_FROM = "SELECT name, owner, limits FROM th_queue \
         WHERE name >= ?1 AND name <= ?2 AND limits IS NOT NULL ORDER BY name LIMIT ?3";
    /// The primary key of `th_owner`, as in the next three.
    Seek OWNERS_FROM = "SELECT name, version FROM th_owner WHERE name >= ?1 AND name <= ?2 ORDER BY name LIMIT ?3";
    Seek OWNER_VERSION = "SELECT version FROM th_owner WHERE name = ?1";
    Seek SET_OWNER_VERSION = "INSERT INTO th_owner (name, version) VALUES (?1, ?2) \
         ON CONFLICT (name) DO UPDATE SET version = excluded.version";
    Seek FORGET_OWNER = "DELETE FROM th_owner WHERE name = ?1";
    /// The unique index on the name, as in the next four.
    Seek SCHEDULE = concat!("SELECT ", schedule!(), " FROM th_schedule WHERE name = ?1");
    Seek SCHEDULES_FROM = concat!("SELECT ", schedule!(),
         " FROM th_schedule WHERE name >= ?1 AND name <= ?2 ORDER BY name LIMIT ?3");
    Seek WRITE_SCHEDULE = concat!("INSERT INTO th_schedule (", schedule!(),
         ") VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11) ON CONFLICT (name) DO UPDATE SET \
         next_slot = excluded.next_slot, paused_since = excluded.paused_since, revision = excluded.revision, \
         stored = excluded.stored, skipped = excluded.skipped, missed = excluded.missed, error = excluded.error, \
         firings = excluded.firings, definition = excluded.definition");
    Seek REMOVE_SCHEDULE = "DELETE FROM th_schedule WHERE name = ?1";
    /// `th_schedule_owner`.
    Seek SCHEDULES_OF = "SELECT name FROM th_schedule WHERE owner = ?1";
    /// SCH-8: `th_schedule_due`, as in the next.
    Seek DUE_SCHEDULES = concat!("SELECT ", schedule!(),
         " FROM th_schedule WHERE paused_since IS NULL AND next_slot <= ?1 AND (next_slot, name) > (?2, ?3) \
         ORDER BY next_slot, name LIMIT ?4");
    Seek NEXT_SLOT = "SELECT next_slot FROM th_schedule WHERE paused_since IS NULL AND next_slot > ?1 \
         ORDER BY next_slot LIMIT 1";
    /// A flow and its members by state. `th_state_flow`.
    Seek FLOW_HEAD = concat!("SELECT ", flow_head!(), " FROM th_flow f CROSS JOIN th_state t ON t.seq = f.tail WHERE f.id = ?1");
    Seek FLOWS_AFTER = concat!("SELECT ", flow_head!(), " FROM th_flow f CROSS JOIN th_state t ON t.seq = f.tail \
         WHERE f.seq > ?1 AND (?2 IS NULL OR f.name = ?2) ORDER BY f.seq");
    Seek FLOWS_BEFORE = concat!("SELECT ", flow_head!(), " FROM th_flow f CROSS JOIN th_state t ON t.seq = f.tail \
         WHERE f.seq < ?1 AND (?2 IS NULL OR f.name = ?2) ORDER BY f.seq DESC");
    /// `th_flow_name`, as in the next one.
    Seek NAMED_FLOWS_AFTER = concat!("SELECT ", flow_head!(), " \
         FROM th_flow f INDEXED BY th_flow_name CROSS JOIN th_state t ON t.seq = f.tail \
         WHERE f.seq > ?1 AND f.name = ?2 ORDER BY f.seq");
    Seek NAMED_FLOWS_BEFORE = concat!("SELECT ", flow_head!(), " \
         FROM th_flow f INDEXED BY th_flow_name CROSS JOIN th_state t ON t.seq = f.tail \
         WHERE f.seq < ?1 AND f.name = ?2 ORDER BY f.seq DESC");
    /// Every member of a flow, read once. `th_state_flow` gives them state by state.
    Seek FLOW_COUNTS = "SELECT state, count(*), count(CASE WHEN state = 0 AND available_at <= ?2 THEN 1 END), max(finished_at) \
         FROM th_state INDEXED BY th_state_flow WHERE flow = ?1 GROUP BY state";
}
