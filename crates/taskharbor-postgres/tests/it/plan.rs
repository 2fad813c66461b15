//! The plans of the statements inside the functions, on a store with a large backlog and a long
//! history: no call may read more than what it deals with.
//!
//! `auto_explain` tells the plans with the numbers of rows. It is asked for every statement inside
//! the functions.

use std::{pin::pin, sync::Arc};

use tokio::sync::Mutex;
use tokio_postgres::{AsyncMessage, Client, NoTls};

use crate::harness::{
    environment,
    store::{Store, named},
};

/// How many jobs wait, how many are over, and how many are scheduled: enough for a plan that reads
/// all to stand out.
const MANY: i64 = 100_000;

/// What a call about ten jobs may read. Ten jobs are found by id, by number and by place, and
/// looked at again.
const FEW: f64 = 400.0;

/// An announcement from 500,000 to 900,000.
pub(crate) fn announce(holder: &str, incarnation: &str, info: &str) -> String {
    let sql = include_str!("../../src/sql/announce.sql").replace("{schema}.", "");
    let values = [
        ("$1", holder),
        ("$2", incarnation),
        ("$3", info),
        ("$4", "500000::bigint"),
        ("$5", "900000::bigint"),
    ];
    values.iter().fold(sql, |sql, (place, value)| sql.replace(place, value))
}

const EXPLAIN: &str = "LOAD 'auto_explain'; SET auto_explain.log_min_duration = 0; SET auto_explain.log_analyze = on;
    SET auto_explain.log_nested_statements = on; SET auto_explain.log_timing = off; SET client_min_messages = log";

/// Jobs with lanes in two queues, one of them with limits: one large lane, many small ones, and many
/// lanes in which no job is due. Waiting jobs in five queues and two priorities, with as many of a higher priority that are due
/// much later, and as many that are over, a few of them in the DLQ.
const FILL: &str = "
INSERT INTO th_job (seq, created_at, priority, id, queue, type, payload, idempotency_key)
    SELECT nextval('th_seq'), 1, n % 2, 'w' || n, 'q' || n % 5, 't', 'x', CASE WHEN n % 10 = 0 THEN 'k' || n END
    FROM generate_series(1, $n) n;
INSERT INTO th_key SELECT queue, idempotency_key, seq, id FROM th_job WHERE idempotency_key IS NOT NULL;
INSERT INTO th_live (seq, available_at, priority, queue) SELECT seq, seq, priority, queue FROM th_job;
INSERT INTO th_job (seq, created_at, priority, id, queue, type, payload, run_at)
    SELECT nextval('th_seq'), 1, 9, 's' || n, 'q' || n % 5, 't', 'x', 900000000 + n FROM generate_series(1, $n) n;
INSERT INTO th_live (seq, available_at, priority, queue, run_at) SELECT seq, run_at, priority, queue, run_at FROM th_job WHERE run_at > 0;
INSERT INTO th_job (seq, created_at, priority, id, queue, type, payload)
    SELECT nextval('th_seq'), 1, 0, 'd' || n, 'q' || n % 5, 't', 'x' FROM generate_series(1, $n) n;
INSERT INTO th_finished (first, kept_until, finished_at, started_at, state, queue, offsets)
    SELECT seq, seq, seq, seq, CASE WHEN substr(id, 2)::int % 1000 = 0 THEN 'dlq' ELSE 'done' END::th_terminal, queue, ARRAY[seq & 511]
    FROM th_job WHERE id LIKE 'd%';
INSERT INTO th_job (seq, created_at, priority, id, queue, type, payload, run_at, lane)
    SELECT nextval('th_seq'), 1, 0, q || n, q, 't', 'x', CASE WHEN n % 2 = 0 THEN 900000000 + n END,
        CASE WHEN n % 2 = 0 THEN 'later' || n WHEN n % 100 = 1 THEN 'small' || n ELSE 'big' END
    FROM generate_series(1, $n / 2) n CROSS JOIN unnest('{laned,limited}'::text[]) q;
INSERT INTO th_live (seq, available_at, priority, queue, run_at, lane, is_in_lane)
    SELECT seq, coalesce(run_at, seq % 400000), priority, queue, run_at, lane, CASE WHEN run_at IS NULL THEN true END FROM th_job WHERE lane IS NOT NULL;
INSERT INTO th_limit (queue, limits) VALUES ('limited', '{\"inflight\": 1000, \"per_lane\": 2, \"lane_rate\": {\"jobs\": 1, \"per_us\": 10, \"burst\": 5}}');
INSERT INTO th_schedule (name, owner, definition, next_slot, revision)
    SELECT 's' || n, CASE WHEN n % 1000 = 0 THEN 'o' END, 'x', n * 10, n FROM generate_series(1, $n) n;
INSERT INTO th_worker (holder, incarnation, started_at, seen_at, expires_at, info)
    SELECT 'w' || n % 20, lpad(to_hex(n), 16, '0'), 1, 1, 900000 + n, 'x' FROM generate_series(1, 100) n;
";

/// A connection that keeps what the server tells it beside the answers.
struct Told {
    client: Client,
    notices: Arc<Mutex<Vec<String>>>,
}

impl Told {
    async fn new(store: &Store) -> Self {
        let url = environment::required("TASKHARBOR_TEST_POSTGRES");
        let mut config: tokio_postgres::Config = url.parse().unwrap();
        config.options(format!("-c search_path={}", store.schema()));
        let (client, mut connection) = config.connect(NoTls).await.unwrap();
        let notices = Arc::new(Mutex::new(Vec::new()));
        let kept = notices.clone();
        tokio::spawn(async move {
            let mut messages = pin!(std::future::poll_fn(move |cx| connection.poll_message(cx)));
            loop {
                let message = std::future::poll_fn(|cx| messages.as_mut().poll(cx)).await;
                match message {
                    Some(Ok(AsyncMessage::Notice(notice))) => {
                        kept.lock().await.push(notice.message().to_owned());
                    }
                    Some(Ok(_)) => {}
                    _ => return,
                }
            }
        });
        client.batch_execute(EXPLAIN).await.unwrap();
        Self { client, notices }
    }

    /// The plans of all statements inside a call. Everything that was told before the answer has
    /// arrived with it.
    async fn plans(&self, sql: &str) -> Vec<Plan> {
        self.client.batch_execute("SELECT 'ready'").await.unwrap();
        self.notices.lock().await.clear();
        self.client.batch_execute(sql).await.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
        let notices = std::mem::take(&mut *self.notices.lock().await);
        notices.iter().filter(|it| it.contains("plan:")).map(|it| Plan::read(it)).collect()
    }
}

/// What matters of a plan.
struct Plan {
    text: String,
    /// Rows that came out of scans of tables, those that a filter dropped included.
    read: f64,
    sorted: f64,
    walks_a_table: bool,
}

impl Plan {
    fn read(text: &str) -> Self {
        let mut plan = Self { text: text.to_owned(), read: 0.0, sorted: 0.0, walks_a_table: false };
        let mut loops = 1.0;
        let mut is_scan = false;
        for line in text.lines() {
            let line = line.trim();
            if let Some(actual) = line.split("(actual ").nth(1) {
                let number = |name: &str| -> f64 {
                    let digits = actual.split(name).nth(1).unwrap_or("0");
                    let end = digits
                        .find(|it: char| !(it.is_ascii_digit() || it == '.'))
                        .unwrap_or(digits.len());
                    digits[..end].parse().unwrap_or(0.0)
                };
                loops = number("loops=");
                let node = line.split("(cost").next().unwrap_or_default();
                is_scan = node.contains(" on th_") && node.contains("Scan");
                if is_scan {
                    plan.read += number("rows=") * loops;
                    plan.walks_a_table |= node.contains("Seq Scan on th_")
                        && !node.contains("th_meta")
                        && !node.contains("th_queue");
                }
                if node.contains("Sort") {
                    plan.sorted = plan.sorted.max(number("rows="));
                }
            } else if let Some(removed) = line.strip_prefix("Rows Removed by")
                && is_scan
            {
                let rows: f64 =
                    removed.rsplit(' ').next().and_then(|it| it.parse().ok()).unwrap_or(0.0);
                plan.read += rows * loops;
            }
        }
        plan
    }
}

/// What each call about ten jobs is, in an order in which there is always something to do.
fn calls() -> Vec<(&'static str, String)> {
    let held = "(SELECT array_agg(j.id) AS ids, array_agg(l.lease_token) AS tokens, array_agg(j.seq) AS seqs FROM unnest($held) n JOIN th_live l ON l.seq = n JOIN th_job j ON j.seq = n) i";
    let settle = |kind: &str| {
        format!(
            "SELECT s.* FROM {held}, th_settle_v1(250, true, false, 500001, i.ids, i.tokens, '{{}}', array_fill('{kind}'::text, '{{10}}'), '{{}}',
            array_fill(1::bigint, '{{10}}'), array_fill('e'::text, '{{10}}'), array_fill(1::bigint, '{{10}}'), '{{}}', array_fill('r'::text, '{{10}}'), NULL) s"
        )
    };
    let reserve_from = |queue: &str| {
        format!(
            "SELECT * FROM th_reserve_v1('{{{queue}}}', '{{10}}', 'w', 500000, 600000, 7, 0, '{{}}', '{{}}', '{{}}', '{{}}', '{{}}', '{{}}', '{{}}', '{{}}', '{{}}')"
        )
    };
    let reserve = || reserve_from("q1");
    let list = |from: &str, scan: i64, queue: &str, state: &str| {
        format!(
            "SELECT * FROM th_list_v1({from}, 10, {scan}, {queue}, NULL, NULL, NULL, {state},
            NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 500000)"
        )
    };
    let rep = |what: &str| format!("ARRAY(SELECT {what} FROM generate_series(1, 10) n)");
    let enqueue = |ids: &str, keys: &str| {
        let (ids, q, t, p) = (rep(ids), rep("'q1'::text"), rep("'t'::text"), rep("'x'::bytea"));
        format!(
            "SELECT * FROM th_enqueue_v1(500000, false, '{{}}', {ids}, {q}, {t}, {p}, '{{}}', '{{}}', '{{}}', '{{}}', '{{}}', '{{}}', '{{}}', {keys}, '{{}}', '{{}}', 1000, NULL)"
        )
    };
    let schedules = |what: &str| {
        format!(
            "(SELECT jsonb_agg(jsonb_build_object({what})) FROM generate_series(1, 10) n)::text"
        )
    };
    let fired = schedules("'name', 's' || n, 'revision', n, 'next_slot', 5000000 + n, 'missed', 0");
    let fire = format!(
        "SELECT * FROM th_fire_v1(500000, {fired}, {items}, {items}, {ids}, {q}, {t}, {p}, '{{}}', '{{}}', '{{}}', '{{}}', '{{}}', '{{}}', '{{}}', {keys}, '{{}}', '{{}}', 1000, NULL)",
        items = rep("n::bigint"),
        ids = rep("'fired' || n"),
        q = rep("'q1'::text"),
        t = rep("'t'::text"),
        p = rep("'x'::bytea"),
        keys = rep("'fire' || n"),
    );
    let put = schedules("'name', 's' || n, 'next_slot', n");
    let configure = |change: &str| {
        format!(
            "SELECT * FROM th_configure_v1(('[{{\"ord\": 1, \"first\": 1, \"name\": \"o\", \"change\": \"{change}\", \"schedules\": ' || {put} || '}}]'), {}, 1, NULL)",
            rep("'y'::bytea")
        )
    };
    vec![
        ("due schedules", "SELECT * FROM th_due_schedules_v1(500000, -1, '', 10)".to_owned()),
        ("due schedules behind one", "SELECT * FROM th_due_schedules_v1(500000, 400000, 's40000', 10)".to_owned()),
        ("next slot", "SELECT th_next_slot_v1(500000)".to_owned()),
        ("fire", fire),
        ("put schedules", configure("put_schedules")),
        ("declare schedules", configure("declare_schedules")),
        ("settings", "SELECT * FROM th_settings_v1('schedule', 's1', NULL, NULL, 10)".to_owned()),
        ("settings by name", "SELECT * FROM th_settings_v1(NULL, NULL, NULL, 's500', 10)".to_owned()),
        ("reserve by turns", reserve_from("laned")),
        ("ack by turns", format!("SELECT a.* FROM {held}, th_ack_v1(500001, i.seqs, i.tokens, '{{}}') a")),
        ("reserve under limits", reserve_from("limited")),
        ("reserve under limits again", reserve_from("limited")),
        ("ack under limits", format!("SELECT a.* FROM {held}, th_ack_v1(500001, i.seqs, i.tokens, '{{}}') a")),
        ("reserve", reserve()),
        ("extend", format!("SELECT e.* FROM {held}, th_extend_v1(i.ids, i.tokens, '{{}}', '{{}}', '{{}}', 500000, 700000) e")),
        ("retry", settle("retry")),
        ("announce", announce("'w7'", "lpad(to_hex(7), 16, '0')", "'{y}'")),
        ("withdraw", "DELETE FROM th_worker WHERE holder = 'w7' AND incarnation = lpad(to_hex(7), 16, '0')".to_owned()),
        ("evict another start", "SELECT * FROM th_evict_v1('w7', lpad(to_hex(1), 16, '0'), 500000)".to_owned()),
        ("reserve", reserve()),
        ("evict", "SELECT * FROM th_evict_v1('w', NULL, 500000)".to_owned()),
        ("reserve", reserve()),
        ("fail", settle("fail")),
        ("reserve", reserve()),
        ("ack with an outcome", settle("ack")),
        ("reserve", reserve()),
        ("ack", format!("SELECT a.* FROM {held}, th_ack_v1(500001, i.seqs, i.tokens, '{{}}') a")),
        ("enqueue", enqueue("'new' || n", "'{}'")),
        ("enqueue with keys", enqueue("'keyed' || n", &rep("'key' || n"))),
        ("enqueue again", enqueue("'new' || n", "'{}'")),
        ("prune", "SELECT th_prune_v1(400000, 400000, 400000, 10, 500000)".to_owned()),
        ("list dlq", list("0, false", 50_000, "NULL", "'dlq'")),
        ("list done", list("0, false", 1_000_000, "NULL", "'done'")),
        ("list ready", list("0, false", 50_000, "'q1'", "'ready'")),
        ("list all", list("0, false", 50_000, "NULL", "NULL")),
        ("list newest", list("9223372036854775807, true", 50_000, "NULL", "NULL")),
        ("list within a budget", list("0, false", 100, "NULL", "'done'")),
        (
            "inspect",
            include_str!("../../src/sql/inspect.sql").replace("{schema}.", "").replace("$1", "'w100'").replace("$2", "500000"),
        ),
        ("flows", "SELECT * FROM th_flows_v1(0, false, 10, NULL, NULL, 'running', 500000)".to_owned()),
        ("requeue", "SELECT * FROM th_manage_v1('requeue', ARRAY(SELECT 'd' || n * 1000 FROM generate_series(10, 19) n), 500002, NULL, false, false, 0, NULL)".to_owned()),
        ("cancel", "SELECT * FROM th_manage_v1('cancel', ARRAY(SELECT 'w' || n FROM generate_series(100, 109) n), 500002, NULL, false, false, 0, NULL)".to_owned()),
    ]
}

/// The list of everything in the DLQ reads the list of what is over, and that of what is done reads
/// the jobs before.
fn most(call: &str) -> f64 {
    match call {
        // A hundred records, each in three tables.
        "list within a budget" => 2.0 * FEW,
        "list dlq" => MANY as f64 / 100.0 + FEW,
        // The jobs that are not done were inserted first.
        "list done" => 2.0 * MANY as f64 + FEW,
        // Every live job once.
        "evict" => 3.0 * MANY as f64 + FEW,
        _ => FEW,
    }
}

async fn every_call_reads_what_it_deals_with(store: &Store) {
    let told = Told::new(store).await;
    let watching = store.sql().await;
    for (call, sql) in calls() {
        let held = "SELECT coalesce(array_agg(seq), '{}')::text FROM th_live WHERE lease_expires_at IS NOT NULL";
        let held: String = watching.query_one(held, &[]).await.unwrap().get(0);
        let plans = told.plans(&sql.replace("$held", &format!("'{held}'::bigint[]"))).await;
        // The last is the call itself, with what we need to make it.
        let (_, inside) = plans.split_last().unwrap_or_else(|| panic!("{call} told nothing"));
        let is_direct = ["inspect", "announce", "withdraw"].contains(&call);
        let inside = if is_direct { &plans } else { inside };
        assert!(!inside.is_empty(), "{call}");
        let read: f64 = inside.iter().map(|plan| plan.read).sum();
        let worst = inside.iter().max_by(|a, b| a.read.total_cmp(&b.read)).unwrap();
        assert!(read <= most(call), "{call} read {read} rows, most of them here:\n{}", worst.text);
        for plan in inside {
            // What is read beside the functions may be empty or tiny, and then it does not matter
            // how. No index tells which leases a holder has.
            let is_walk = is_direct || call == "evict" && plan.text.contains("p_holder");
            assert!(!plan.walks_a_table || is_walk, "{call}:\n{}", plan.text);
            assert!(call != "evict" || !plan.text.contains("th_job"), "{}", plan.text);
            assert!(plan.sorted <= most(call), "{call}:\n{}", plan.text);
        }
    }
}

async fn filled() -> (Store, Client) {
    let store = named().await;
    let client = store.sql().await;
    // Autovacuum must not analyse the tables during the test.
    client
        .batch_execute("DO $$ DECLARE t text; BEGIN FOREACH t IN ARRAY '{th_job,th_live,th_finished,th_outcome,th_key,th_error,th_schedule,th_limit,th_lane,th_grant_note,th_worker}'::text[] LOOP
            EXECUTE format('ALTER TABLE %I SET (autovacuum_enabled = off)', t); END LOOP; END $$")
        .await
        .unwrap();
    (store, client)
}

#[tokio::test]
async fn plans_are_good_without_statistics() {
    let (store, client) = filled().await;
    client.batch_execute(&FILL.replace("$n", &MANY.to_string())).await.unwrap();
    every_call_reads_what_it_deals_with(&store).await;
}

#[tokio::test]
async fn plans_are_good_with_fresh_statistics() {
    let (store, client) = filled().await;
    client.batch_execute(&FILL.replace("$n", &MANY.to_string())).await.unwrap();
    client
        .batch_execute(
            "ANALYZE th_job, th_live, th_finished, th_outcome, th_key, th_error, th_edge, th_flow, th_schedule, th_worker",
        )
        .await
        .unwrap();
    every_call_reads_what_it_deals_with(&store).await;
}

#[tokio::test]
async fn plans_are_good_with_statistics_of_an_idle_store() {
    let (store, client) = filled().await;
    let fill = FILL.replace("$n", &MANY.to_string());
    // The rows were inserted and deleted: the tables have pages, and statistics without rows.
    client.batch_execute(&fill).await.unwrap();
    client
        .batch_execute(
            "DELETE FROM th_job; DELETE FROM th_live; DELETE FROM th_finished; DELETE FROM th_key; DELETE FROM th_schedule;
             DELETE FROM th_limit; DELETE FROM th_lane; DELETE FROM th_grant_note; DELETE FROM th_worker",
        )
        .await
        .unwrap();
    for table in ["th_job", "th_live", "th_finished", "th_key", "th_schedule", "th_worker"] {
        client.batch_execute(&format!("VACUUM (ANALYZE, TRUNCATE off) {table}")).await.unwrap();
    }
    client.batch_execute(&fill).await.unwrap();
    every_call_reads_what_it_deals_with(&store).await;
}
