//! The privileges that `th_grant` gives to each part, and those that it does not give; and that objects
//! of other owners are never mistaken for the driver's.

use taskharbor_core::{
    Admin, Driver, DriverError, NewJob, Timestamp,
    admin::{Change, NewSchedule},
    driver::{DueSchedules, Enqueue, Enqueued, Fire, FireSchedule},
    job::{JobSet, KeyHold},
    name::{IdempotencyKey, ScheduleName},
};
use tokio_postgres::{Client, error::SqlState};

use crate::{
    fixture::{
        LEASE, ack, configure, counts, id, job, job_in, lease, noon, queue, settle, store,
        store_at, store_set,
    },
    harness::store::{Role, Store, named},
};

/// A connection on which everything is done by the role that has this part.
async fn sql_as(store: &Store, part: &str) -> Client {
    let client = store.sql().await;
    client.batch_execute(&format!("SET ROLE {}", Role::name(part))).await.unwrap();
    client
}

async fn refused(client: &Client, statements: &[&str]) {
    for sql in statements {
        match client.batch_execute(sql).await {
            Ok(()) => panic!("it is allowed: {sql}"),
            Err(error) => {
                assert_eq!(error.code().map(SqlState::code), Some("42501"), "{sql}: {error:?}");
            }
        }
    }
}

fn forbidden<T: std::fmt::Debug>(answer: Result<T, DriverError>) {
    let error = answer.unwrap_err();
    assert!(matches!(error, DriverError::Backend(_)), "{error:?}");
    let DriverError::Backend(cause) = &error else { unreachable!() };
    assert!(cause.to_string().contains("the role may not do this"), "{cause}");
    assert!(error.is_not_allowed(), "{error}");
}

#[tokio::test]
async fn a_producer_enqueues_jobs_keys_and_flows_and_does_nothing_else() {
    let on = named().await;
    let producer = on.another_as(Role::Part("producer")).await;
    let key = |key: &str| IdempotencyKey::new(key).unwrap();
    store(&producer, vec![job("a"), job("b").idempotency_key(key("k")), job("b")]).await;
    let again = store(&producer, vec![job("a"), job("c").idempotency_key(key("k"))]).await;
    assert_eq!(again.iter().map(|it| it.id().as_str()).collect::<Vec<_>>(), ["a", "b"]);
    store_set(&producer, JobSet::flow(vec![job("p"), job("t").after([id("p")])])).await;
    // One that is done as soon as it is stored, together with those that are unblocked by that.
    let join = NewJob::join(id("empty"), queue("q"), []);
    store_set(&producer, JobSet::flow(vec![join, job("next").after([id("empty")])])).await;
    let join = NewJob::join(id("all"), queue("q"), [])
        .idempotency_key(key("d"))
        .key_hold(KeyHold::UntilDone);
    store_set(&producer, JobSet::flow(vec![join])).await;
    // A failure job that is not needed, and a key whose time has ended.
    let join = NewJob::join(id("none"), queue("q"), []);
    let handler = job("handler").after_failure_of([id("none")]);
    store_set(&producer, JobSet::flow(vec![join, handler])).await;
    // The time that a producer names is ignored: the server's time is used.
    let timed = |id, hold| job(id).idempotency_key(key("t")).key_hold(KeyHold::For(hold));
    let forever = std::time::Duration::from_secs(3_600 * 24 * 365);
    store_at(&on, timed("first", LEASE), Timestamp::EPOCH).await;
    let answer = store_at(&producer, timed("second", forever), Timestamp::EPOCH).await;
    assert_eq!(answer, Enqueued::Inserted(id("second")));
    let answer = store_at(&producer, timed("third", LEASE), Timestamp::MAX).await;
    assert_eq!(answer, Enqueued::Existing(id("second")));
    let created_at = producer_time(&on, "second").await;
    assert!(created_at > Timestamp::EPOCH && created_at < Timestamp::MAX, "{created_at:?}");
    assert_eq!(on.check().await.unwrap(), []);

    let client = sql_as(&on, "producer").await;
    client
        .batch_execute("SELECT th_enqueue('work', idempotency_key => 'x', id => 'sql')")
        .await
        .unwrap();
    let inserted = on.inspect(id("sql"), noon()).await.unwrap();
    assert!(inserted.is_some());

    let demands = vec![taskharbor_core::driver::Demand::new(queue("q"), 1)];
    let holder = taskharbor_core::name::Holder::new("w").unwrap();
    forbidden(
        producer
            .reserve(taskharbor_core::driver::Reserve::new(
                demands,
                holder,
                noon(),
                crate::fixture::LEASE,
            ))
            .await,
    );
    forbidden(configure(&producer, Change::PauseQueue(queue("q")), noon()).await);
    forbidden(producer.inspect(id("a"), noon()).await);
    forbidden(producer.due_schedules(DueSchedules::new(1, noon())).await);
    let name = ScheduleName::new("s").unwrap();
    let item = FireSchedule::new(name.clone(), 1, None);
    forbidden(producer.fire(Fire::new(vec![item], noon())).await);
    let new = NewSchedule::new(name, b"".as_slice(), None);
    forbidden(configure(&producer, Change::PutSchedule(new), noon()).await);
    forbidden(counts(&producer, noon()).await);
    forbidden(
        producer.prune(taskharbor_core::admin::Prune::new(1, noon()).done_before(noon())).await,
    );
    refused(
        &client,
        &[
            "SELECT payload FROM th_job",
            "SELECT output FROM th_outcome",
            "SELECT headers FROM th_job",
            "SELECT id FROM th_job",
            "SELECT * FROM th_jobs",
            "SELECT * FROM th_record",
            "SELECT lease_token FROM th_live",
            "SELECT FROM th_live",
            "SELECT * FROM th_error",
            "SELECT * FROM th_finished",
            "DELETE FROM th_job",
            "UPDATE th_job SET flow = NULL",
            "UPDATE th_job SET id = 'x'",
            "INSERT INTO th_job (seq) VALUES (1)",
            "DELETE FROM th_live",
            "UPDATE th_live SET lease_expires_at = NULL",
            "INSERT INTO th_live (seq, available_at, priority, queue) VALUES (1, 1, 1, 'q')",
            "DELETE FROM th_key",
            "UPDATE th_key SET seq = 1",
            "DELETE FROM th_edge",
            "UPDATE th_edge SET status = 'satisfied'",
            "DELETE FROM th_flow",
            "UPDATE th_flow SET state = NULL",
            "DELETE FROM th_finished",
            "INSERT INTO th_finished (first) VALUES (1)",
            "SELECT FROM th_key",
            "SELECT nextval('th_seq')",
            "SELECT th_remove_v1('{1}')",
            "INSERT INTO th_queue VALUES ('q', 1)",
            "SELECT FROM th_schedules",
            "SELECT FROM th_setting",
            "DELETE FROM th_schedule",
            "DELETE FROM th_schedule_owner",
            "SELECT FROM th_worker",
            "SELECT FROM th_workers",
            "INSERT INTO th_worker VALUES ('w', '0000000000000001', 1, 1, 2, '')",
            "DELETE FROM th_worker",
            "SELECT th_evict_v1('w', NULL, 1)",
            "SELECT nextval('th_revision')",
            "SELECT th_fire_v1(1, '[]', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', 1, NULL)",
            "UPDATE th_meta SET version = 9",
            "TRUNCATE th_job",
            "SELECT th_finish_all_v1('{1}', 'cancelled', NULL, 1, false)",
            "SELECT th_check()",
            "SELECT th_grant('worker', 'th_test_producer')",
            "SELECT setval('th_seq', 1)",
            "CREATE TABLE x ()",
        ],
    )
    .await;
}

async fn producer_time(on: &Store, text: &str) -> Timestamp {
    on.inspect(id(text), noon()).await.unwrap().unwrap().job.created_at
}

/// What a call of `th_enqueue_v1` gives for one job.
const JOB: [(&str, &str); 12] = [
    ("now", "1"),
    ("id", "'a'::text"),
    ("queue", "'q'::text"),
    ("type", "'t'::text"),
    ("payload", "'x'::bytea"),
    ("run_at", "NULL::bigint"),
    ("timeout", "NULL::bigint"),
    ("headers", "NULL::text"),
    ("lane", "NULL::text"),
    ("key", "NULL::text"),
    ("hold", "NULL::text"),
    ("time", "NULL::bigint"),
];

/// A call in which one thing is said in another way, by the function for jobs and that for flows.
fn calls_with(column: &str, value: &str) -> [String; 2] {
    let fill = |text: &str| {
        JOB.into_iter().fold(text.to_owned(), |text, (name, usual)| {
            text.replace(&format!("{{{name}}}"), if name == column { value } else { usual })
        })
    };
    let common = "ARRAY[{id}], ARRAY[{queue}], ARRAY[{type}], ARRAY[{payload}], '{}', ARRAY[{run_at}], ARRAY[{timeout}], \
                  '{}', ARRAY[{headers}], '{}', ARRAY[{lane}]";
    [
        fill(&format!(
            "SELECT * FROM th_enqueue_v1({{now}}, false, '{{}}', {common}, ARRAY[{{key}}], ARRAY[{{hold}}], ARRAY[{{time}}], 1000, NULL)"
        )),
        fill(&format!(
            "SELECT * FROM th_enqueue_flow_v1({{now}}, NULL, {common}, '{{}}', {{key}}, {{hold}}, {{time}}, 1, '{{}}', '{{}}', '{{}}', 1000, NULL)"
        )),
    ]
}

#[tokio::test]
async fn what_the_driver_refuses_is_refused_to_a_producer_without_the_driver() {
    let on = named().await;
    let client = sql_as(&on, "producer").await;
    let mut refused = Vec::new();
    for (column, value, said) in [
        ("queue", "''::text", "queue name is empty"),
        ("queue", "NULL::text", "queue name is empty"),
        ("queue", "E'a\\nb'::text", "queue name has a control character"),
        ("id", "repeat('x', 2000)", "job id is 2000 bytes long"),
        ("id", "'\u{2003}'::text", "job id is blank"),
        ("type", "repeat('é', 128)", "job type is 256 bytes long"),
        ("lane", "''::text", "lane name is empty"),
        ("key", "repeat('x', 1025)", "idempotency key is 1025 bytes long"),
        ("headers", "'[1,2]'::text", "the headers must be a JSON object"),
        ("headers", "'{\"a\": 1}'::text", "the value of header \"a\" must be a text"),
        (
            "headers",
            "jsonb_build_object('a', repeat('x', 8192))::text",
            "more than 8192 bytes of headers",
        ),
        ("payload", "NULL::bytea", "the payload is NULL"),
        ("payload", "convert_to(repeat('x', 1048577), 'UTF8')", "the payload is 1048577 bytes"),
        ("run_at", "(-1)::bigint", "run_at is out of range"),
        ("timeout", "9223372036854775807", "the timeout is out of range"),
        ("time", "5::bigint", "a key is held for a time that is missing or out of range"),
        ("hold", "'for_a_time'::text", "a key is held for a time that is missing or out of range"),
    ] {
        for sql in calls_with(column, value) {
            match client.batch_execute(&sql).await {
                Ok(()) => refused.push(format!("it is allowed: {sql:.300}")),
                Err(error) => {
                    let message = error.as_db_error().map_or("", |it| it.message());
                    if error.code() != Some(&SqlState::INVALID_PARAMETER_VALUE)
                        || !message.contains(said)
                    {
                        refused.push(format!("{column} {value}: {error:?}"));
                    }
                }
            }
        }
    }
    assert!(refused.is_empty(), "{refused:#?}");
    for (tail, child, parent, run) in
        [(0, 1, 1, 1), (2, 1, 1, 1), (1, 2, 1, 1), (1, 1, 0, 1), (1, 1, 1, 2)]
    {
        let [_, flow] = calls_with("", "");
        let edges = format!("{tail}, '{{{child}}}', '{{{parent}}}', '{{{run}}}', 1000, NULL)");
        let sql = flow.replace("1, '{}', '{}', '{}', 1000, NULL)", &edges);
        let error = client.batch_execute(&sql).await.unwrap_err();
        assert_eq!(error.code(), Some(&SqlState::INVALID_PARAMETER_VALUE), "{sql}: {error:?}");
    }
    for sql in calls_with("id", "'J\u{f6}b \u{2003}1'::text") {
        client.batch_execute(&sql).await.unwrap();
    }
    assert_eq!(on.check().await.unwrap(), []);
}

#[tokio::test]
async fn a_viewer_sees_jobs_without_what_is_in_them_and_changes_nothing() {
    let on = named().await;
    store(&on, vec![job("a"), job("b")]).await;
    settle(&on, &lease(&on, "q", 1).await, ack()).await;
    lease(&on, "q", 1).await;
    let client = sql_as(&on, "viewer").await;
    let sql = "SELECT id, type, queue, run_at, timeout_nanos, created_at, attempts, max_attempts, last_error, failed_at,
        status, lease_expires_at, dlq_reason, dlq_failed_at, idempotency_key, priority, holder, schedule, slot FROM th_jobs ORDER BY id";
    let rows = client.query(sql, &[]).await.unwrap();
    assert_eq!(rows.iter().map(|it| it.get("status")).collect::<Vec<&str>>(), ["done", "inflight"]);
    client
        .batch_execute(
            "SELECT * FROM th_flow; SELECT * FROM th_queue; SELECT * FROM th_meta;
            SELECT name, owner, status, next_slot, stored, error, firings FROM th_schedules;
            SELECT * FROM th_workers",
        )
        .await
        .unwrap();
    refused(
        &client,
        &[
            "SELECT payload FROM th_jobs",
            "SELECT output FROM th_jobs",
            "SELECT headers FROM th_jobs",
            "SELECT lease_token FROM th_jobs",
            "SELECT * FROM th_jobs",
            "SELECT * FROM th_record",
            "SELECT FROM th_job",
            "SELECT FROM th_live",
            "SELECT FROM th_error",
            "SELECT FROM th_key",
            "DELETE FROM th_flow",
            "INSERT INTO th_queue VALUES ('q', 1)",
            "SELECT th_enqueue('work')",
            "SELECT definition FROM th_schedules",
            "SELECT definition_json FROM th_schedules",
            "SELECT FROM th_schedule",
            "SELECT FROM th_worker",
            "INSERT INTO th_worker VALUES ('w', '0000000000000001', 1, 1, 2, '')",
            "DELETE FROM th_worker",
            "SELECT th_evict_v1('w', NULL, 1)",
            "SELECT th_configure_v1('[]', '{}', 1, NULL)",
            "SELECT nextval('th_seq')",
        ],
    )
    .await;
}

#[tokio::test]
async fn a_worker_may_not_change_the_schema() {
    let on = named().await;
    let client = sql_as(&on, "worker").await;
    refused(
        &client,
        &[
            "UPDATE th_meta SET version = 9",
            "DELETE FROM th_meta",
            "TRUNCATE th_job",
            "CREATE TABLE x ()",
            "SELECT th_grant('worker', 'th_test_viewer')",
            "SELECT setval('th_seq', 1)",
        ],
    )
    .await;
    let worker = on.another_as(Role::Part("worker")).await;
    worker.migrate().await.unwrap();
}

#[tokio::test]
async fn other_roles_have_no_privileges() {
    let on = named().await;
    let client = on.sql().await;
    let public = "SELECT 'schema' FROM pg_namespace n, aclexplode(nspacl) a WHERE oid = $1::text::regnamespace AND a.grantee = 0
        UNION ALL SELECT relname FROM pg_class, aclexplode(relacl) a WHERE relnamespace = $1::regnamespace AND a.grantee = 0
        UNION ALL SELECT proname FROM pg_proc, aclexplode(coalesce(proacl, acldefault('f', proowner))) a
            WHERE pronamespace = $1::regnamespace AND a.grantee = 0";
    let found = client.query(public, &[&on.schema()]).await.unwrap();
    assert!(found.is_empty(), "{:?}", found.iter().map(|it| it.get(0)).collect::<Vec<&str>>());
    for (part, role, unknown) in [
        ("owner", "th_test_worker", "unknown part 'owner'"),
        ("worker", "public", "unknown role public"),
        ("worker", "no_such_role", "unknown role no_such_role"),
    ] {
        let refused = client.query("SELECT th_grant($1, $2)", &[&part, &role]).await.unwrap_err();
        let said = refused.as_db_error().unwrap().message().to_owned();
        assert!(said.starts_with(unknown), "{said}");
    }
}

#[tokio::test]
async fn functions_that_store_run_as_the_owner_and_all_search_nothing_but_the_schema() {
    let on = named().await;
    let client = on.sql().await;
    let sql = "SELECT proname::text, prosecdef, proconfig::text[] FROM pg_proc WHERE pronamespace = $1::text::regnamespace";
    let rows = client.query(sql, &[&on.schema()]).await.unwrap();
    let mut called = 0;
    for row in rows {
        let (name, definer): (String, bool) = (row.get(0), row.get(1));
        // They store jobs and do nothing else, for producers, which have no rights on the tables.
        assert_eq!(definer, name.starts_with("th_enqueue"), "{name}");
        let sent = include_str!("../../src/statement.rs").contains(&format!("{{schema}}.{name}("));
        let by_clients = definer || sent || !name.ends_with("_v1");
        if by_clients {
            called += 1;
            let path = format!("search_path={}, pg_temp", on.schema());
            let settings: Vec<String> = row.get::<_, Option<Vec<String>>>(2).unwrap_or_default();
            let pinned = settings.iter().any(|it| it.replace('"', "") == path);
            assert!(pinned, "{name}: {settings:?}");
        }
    }
    assert!(called >= 24, "{called}");
}

#[tokio::test]
async fn hostile_objects_are_not_taken_for_ours() {
    let on = named().await;
    store(&on, vec![job_in("s", "sound")]).await;
    let client = on.sql().await;
    // On this connection, before all else: tables of the same names, and functions that fit better
    // than the built-in ones, since those take anything.
    let schema = format!("{}_999999", on.schema().rsplit_once('_').unwrap().0);
    client
        .batch_execute(&format!(
            "CREATE SCHEMA {schema};
            CREATE TEMP TABLE th_job (id text, seq bigint); CREATE TEMP TABLE th_live (seq bigint);
            CREATE TEMP TABLE th_meta (version int, max_payload_bytes bigint); INSERT INTO pg_temp.th_meta VALUES (99, 0);
            CREATE TEMP TABLE th_queue (name text); INSERT INTO pg_temp.th_queue VALUES ('s'), ('q');
            CREATE FUNCTION {schema}.th_now_v1() RETURNS bigint LANGUAGE plpgsql AS $$ BEGIN RAISE 'called'; END $$;
            CREATE FUNCTION {schema}.th_notify_v1(text, text[]) RETURNS void LANGUAGE plpgsql AS $$ BEGIN RAISE 'called'; END $$;
            CREATE FUNCTION {schema}.cardinality(bigint[]) RETURNS int LANGUAGE plpgsql AS $$ BEGIN RAISE 'called'; END $$;
            CREATE FUNCTION {schema}.cardinality(text[]) RETURNS int LANGUAGE plpgsql AS $$ BEGIN RAISE 'called'; END $$;
            CREATE FUNCTION {schema}.unnest(bigint[]) RETURNS SETOF bigint LANGUAGE plpgsql AS $$ BEGIN RAISE 'called'; END $$;
            CREATE FUNCTION {schema}.unnest(text[]) RETURNS SETOF text LANGUAGE plpgsql AS $$ BEGIN RAISE 'called'; END $$;
            CREATE FUNCTION {schema}.raise(bigint, bigint) RETURNS bigint LANGUAGE plpgsql AS $$ BEGIN RAISE 'called'; END $$;
            CREATE FUNCTION {schema}.raise(bigint, int) RETURNS bigint LANGUAGE plpgsql AS $$ BEGIN RAISE 'called'; END $$;
            CREATE AGGREGATE {schema}.count(int) (sfunc = {schema}.raise, stype = bigint);
            CREATE AGGREGATE {schema}.count(bigint) (sfunc = {schema}.raise, stype = bigint);
            SET search_path = pg_temp, {schema}"
        ))
        .await
        .unwrap_or_else(|error| panic!("{error:?}"));
    let ours = on.schema();
    for sql in [
        format!("SELECT * FROM {ours}.th_enqueue('work', queue => 'q', id => 'by-sql')"),
        format!(
            "SELECT id FROM {ours}.th_reserve_v1('{{s}}', '{{1}}', 'w', 1794744000000000, 1794744000000009, 7, 0, '{{}}', '{{}}', '{{}}', '{{}}', '{{}}', '{{}}', '{{}}', '{{}}', '{{}}') WHERE id = 'sound'"
        ),
        format!(
            "SELECT * FROM {ours}.th_list_v1(0, false, 10, 10, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 1) WHERE id = 'by-sql'"
        ),
        include_str!("../../src/sql/counts.sql")
            .replace("{schema}", ours)
            .replace("$1", "1::bigint"),
        include_str!("../../src/sql/inspect.sql")
            .replace("{schema}", ours)
            .replace("$1", "'sound'")
            .replace("$2", "1::bigint"),
        format!("SELECT * FROM {ours}.th_jobs"),
    ] {
        let rows = client.query(&sql, &[]).await.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
        assert!(!rows.is_empty(), "{sql}");
    }
    let wrong = client.query(&format!("SELECT {ours}.th_check()"), &[]).await.unwrap();
    assert!(wrong.is_empty());
    client
        .batch_execute(&format!("SET client_min_messages = error; DROP SCHEMA {schema} CASCADE"))
        .await
        .unwrap();
    let enqueued = on.enqueue(Enqueue::new(vec![job("by-sql").into()], noon())).await.unwrap();
    assert!(!enqueued[0].as_ref().unwrap()[0].is_new(), "it is in our table");
}
