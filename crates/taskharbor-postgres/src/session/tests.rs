//! Tests of calls against a server.

use std::{
    process,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use taskharbor_testkit::environment;
use tokio::time::timeout;

use super::*;

/// A session whose connections can be told from all others, and one to look at them with.
struct Bench {
    session: Session,
    watch: Session,
    name: String,
}

fn config() -> Config {
    Config::from_url(&environment::required("TASKHARBOR_TEST_POSTGRES")).unwrap()
}

fn bench(change: impl Fn(Config) -> Config) -> Bench {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let name = format!("session {} {}", process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    let session = Session::open(&change(config()).application_name(name.clone())).unwrap();
    let watch = Session::open(&config().pool_size(1)).unwrap();
    Bench { session, watch, name }
}

impl Bench {
    /// How many connections the server has of ours for which `condition` holds.
    async fn backends(&self, condition: &str) -> i64 {
        let sql = format!(
            "select count(*) from pg_stat_activity where application_name = $1 and {condition}"
        );
        let rows = self.watch.query(&sql, &[Value::Text(Some(&self.name))]).await.unwrap();
        rows[0].get(0)
    }

    /// Waits until the server has as many connections of ours as `expected` says.
    async fn until(&self, condition: &str, expected: impl Fn(i64) -> bool) {
        let wait = async {
            while !expected(self.backends(condition).await) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(Duration::from_secs(10), wait).await.expect(condition);
    }
}

async fn number(session: &Session, sql: &str) -> Result<i64, DriverError> {
    session.query(sql, &[]).await.map(|rows| rows[0].get(0))
}

fn assert_unavailable<T: std::fmt::Debug>(answer: Result<T, DriverError>) -> String {
    match answer {
        Err(DriverError::Unavailable(source)) => source.to_string(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn every_kind_of_value_arrives_in_both_modes() {
    let sql = "select $1, $2, $3, $4, $5, $6, $7";
    let values = [
        Value::BigInt(Some(-7)),
        Value::BigInts(vec![Some(1), None]),
        Value::Text(Some("é")),
        Value::Texts(vec![Some("a"), None]),
        Value::Byteas(vec![Some(&[0, 255]), None]),
        Value::Uuids(vec![u128::MAX, 1]),
        Value::Bool(true),
    ];
    for mode in [StatementMode::Named, StatementMode::Unnamed] {
        let bench = bench(|config| config.statements(mode).pool_size(1));
        for _ in 0..2 {
            let rows = bench.session.query(sql, &values).await.unwrap();
            let row = &rows[0];
            assert_eq!(row.get::<_, i64>(0), -7);
            assert_eq!(row.get::<_, Vec<Option<i64>>>(1), [Some(1), None]);
            assert_eq!(row.get::<_, &str>(2), "é");
            assert_eq!(row.get::<_, Vec<Option<&str>>>(3), [Some("a"), None]);
            assert_eq!(row.get::<_, Vec<Option<&[u8]>>>(4), [Some(&[0, 255][..]), None]);
            assert_eq!(row.get::<_, Vec<crate::value::Bits>>(5).map_bits(), [u128::MAX, 1]);
            assert!(row.get::<_, bool>(6));
        }
        let named = number(&bench.session, "select count(*) from pg_prepared_statements").await;
        // The second is the one that counts them.
        assert_eq!(named.unwrap(), if mode == StatementMode::Named { 2 } else { 0 });
    }
}

trait MapBits {
    fn map_bits(self) -> Vec<u128>;
}

impl MapBits for Vec<crate::value::Bits> {
    fn map_bits(self) -> Vec<u128> {
        self.into_iter().map(|bits| bits.0).collect()
    }
}

#[tokio::test]
async fn a_call_that_takes_too_long_is_cancelled_and_its_place_is_free_again() {
    for mode in [StatementMode::Named, StatementMode::Unnamed] {
        let limit = Duration::from_millis(300);
        let bench = bench(|config| config.statements(mode).pool_size(1).call_deadline(limit));
        let call = bench.session.query("select pg_sleep(60)::text", &[]);
        let message = assert_unavailable(timeout(limit * 5, call).await.unwrap());
        assert!(message.contains("300ms"), "{message}");
        bench.until("query like '%pg_sleep%'", |count| count == 0).await;
        assert_eq!(number(&bench.session, "select 1::int8").await.unwrap(), 1);
        assert_eq!(bench.session.status(), PoolStatus { size: 1, idle: 1 });
    }
}

#[tokio::test]
async fn a_dropped_call_does_not_hold_up_the_next_for_long() {
    let bench = bench(|config| config.pool_size(1));
    let call = bench.session.query("select pg_sleep(60)::text", &[]);
    timeout(Duration::from_millis(100), call).await.unwrap_err();
    let next = timeout(Duration::from_secs(5), number(&bench.session, "select 1::int8"));
    assert_eq!(next.await.unwrap().unwrap(), 1);
    bench.until("query like '%pg_sleep%'", |count| count == 0).await;
}

#[tokio::test]
async fn a_dropped_call_that_is_nearly_over_keeps_its_connection() {
    let bench = bench(|config| config.pool_size(1));
    let pid = "select pg_backend_pid()::int8";
    let before = number(&bench.session, pid).await.unwrap();
    let call = bench.session.query("select pg_sleep(0.1)::text", &[]);
    timeout(Duration::from_millis(50), call).await.unwrap_err();
    assert_eq!(number(&bench.session, pid).await.unwrap(), before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_cut_at_random_moments_leave_nothing_behind() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    for mode in [StatementMode::Named, StatementMode::Unnamed] {
        let bench = bench(|config| config.statements(mode).pool_size(2));
        let callers = (0..4).map(|caller| {
            let session = bench.session.clone();
            let mut random = fastrand::Rng::with_seed(seed ^ caller);
            tokio::spawn(async move {
                for _ in 0..500 {
                    // Many different texts, so that preparations are cut as well.
                    let sql = match random.u8(..8) {
                        0 => "select pg_sleep(0.002)::text".to_owned(),
                        1 => "select g::text from generate_series(1, 2000) g".to_owned(),
                        _ => format!("select '{}'", random.u8(..40)),
                    };
                    let limit = Duration::from_micros(random.u64(..3_000));
                    if let Ok(answer) = timeout(limit, session.query(&sql, &[])).await {
                        answer.unwrap();
                    }
                }
            })
        });
        for caller in callers.collect::<Vec<_>>() {
            caller.await.unwrap();
        }
        bench.until("true", |count| count <= 2).await;
        bench.until("state <> 'idle'", |count| count == 0).await;
        assert_eq!(bench.backends("state like 'idle in transaction%'").await, 0);
        let settled = async {
            while bench.session.status().idle != bench.session.status().size {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(Duration::from_secs(10), settled).await.unwrap();
        assert!(bench.session.status().size <= 2);
        // What the server remembers is what the connection remembers, and nothing more.
        let mut held = Vec::new();
        for _ in 0..2 {
            let client = bench.session.pool.get().await.unwrap();
            let known = client.statement_cache.size();
            let sql = "select count(*) from pg_prepared_statements";
            let rows = client.query_typed(sql, &[]).await.unwrap();
            assert_eq!(usize::try_from(rows[0].get::<_, i64>(0)).unwrap(), known);
            held.push(client);
        }
        assert!(bench.backends("true").await <= 2);
    }
}

#[tokio::test]
async fn a_lost_connection_is_replaced() {
    let bench = bench(|config| config.pool_size(1));
    number(&bench.session, "select 1::int8").await.unwrap();
    let sql = "select pg_terminate_backend(pg_backend_pid())::text";
    assert_unavailable(bench.session.query(sql, &[]).await);
    assert_eq!(number(&bench.session, "select 1::int8").await.unwrap(), 1);
}

#[tokio::test]
async fn a_statement_whose_answer_changed_is_prepared_anew() {
    let bench = bench(|config| config.pool_size(1));
    let schema = format!("session_{}", process::id());
    let run = async |sql: &str| bench.watch.batch(&sql.replace("{}", &schema)).await.unwrap();
    run("create schema {}; create table {}.t (a int8); insert into {}.t values (1)").await;
    let sql = format!("select a from {schema}.t");
    bench.session.query(&sql, &[]).await.unwrap();
    run("alter table {}.t alter a type text").await;
    assert_eq!(bench.session.query(&sql, &[]).await.unwrap()[0].get::<_, &str>(0), "1");
    run("drop schema {} cascade").await;
}

#[tokio::test]
async fn a_statement_that_the_server_lost_is_sent_again() {
    for mode in [StatementMode::Auto, StatementMode::Named] {
        let bench = bench(|config| config.statements(mode).pool_size(1));
        number(&bench.session, "select 1::int8").await.unwrap();
        {
            let client = bench.session.pool.get().await.unwrap();
            client.batch_execute("deallocate all").await.unwrap();
        }
        assert_eq!(number(&bench.session, "select 1::int8").await.unwrap(), 1);
        assert_eq!(bench.session.prepares(), mode == StatementMode::Named);
    }
}

#[tokio::test]
async fn a_statement_of_another_program_with_the_same_name_is_not_run() {
    let bench = bench(|config| config.pool_size(1));
    let sql = "select $1::int8";
    let values = [Value::BigInt(Some(7))];
    bench.session.query(sql, &values).await.unwrap();
    {
        let client = bench.session.pool.get().await.unwrap();
        let statement = "select name from pg_prepared_statements";
        let name: String = client.query_typed(statement, &[]).await.unwrap()[0].get(0);
        let theirs = format!("deallocate all; prepare {name} (text, int4) as select $1 || $2");
        client.batch_execute(&theirs).await.unwrap();
    }
    let rows = bench.session.query(sql, &values).await.unwrap();
    assert_eq!(rows[0].get::<_, i64>(0), 7);
    assert!(!bench.session.prepares());
}

#[tokio::test]
async fn a_connection_that_was_closed_while_idle_is_replaced() {
    let bench = bench(|config| config.pool_size(1));
    for _ in 0..3 {
        number(&bench.session, "select 1::int8").await.unwrap();
        let kill = format!(
            "select pg_terminate_backend(pid)::text from pg_stat_activity where application_name = '{}'",
            bench.name
        );
        bench.watch.query(&kill, &[]).await.unwrap();
        bench.until("true", |count| count == 0).await;
    }
    assert_eq!(number(&bench.session, "select 1::int8").await.unwrap(), 1);
}

#[tokio::test]
async fn the_defaults_of_the_server_do_not_matter_and_those_of_the_url_do() {
    let settings = "select current_setting('transaction_isolation') || ' ' || \
                    current_setting('transaction_read_only') || ' ' || current_setting('jit')";
    let ask = async |options: &str| {
        let bench = bench(|mut config| {
            config.server.options(options);
            config.pool_size(1)
        });
        bench.session.query(settings, &[]).await.unwrap()[0].get::<_, String>(0)
    };
    assert_eq!(ask("").await, "read committed off off");
    let given = "-c default_transaction_isolation=serializable -c jit=on";
    assert_eq!(ask(given).await, "serializable off on");
}

#[tokio::test]
async fn options_that_the_server_does_not_know_are_the_callers_to_correct() {
    let bench = bench(|mut config| {
        config.server.options("-c no_such_setting=1");
        config.pool_size(1)
    });
    let Err(DriverError::Backend(error)) = number(&bench.session, "select 1::int8").await else {
        panic!("a setting that the server does not know")
    };
    assert!(error.to_string().contains("no_such_setting"), "{error}");
}

#[tokio::test]
async fn a_script_leaves_nothing_to_others() {
    let bench = bench(|config| config.pool_size(1));
    bench.session.batch("set search_path to nowhere; select 1").await.unwrap();
    let rows = bench.session.query("show search_path", &[]).await.unwrap();
    assert_ne!(rows[0].get::<_, &str>(0), "nowhere");
    let failed = bench.session.batch("begin; select 1/0; commit").await;
    assert!(matches!(failed, Err(DriverError::Backend(_))), "{failed:?}");
    bench.until("state like 'idle in transaction%'", |count| count == 0).await;
    assert_eq!(number(&bench.session, "select 1::int8").await.unwrap(), 1);
}

#[tokio::test]
async fn errors_say_what_to_do_and_repeat_no_value() {
    let bench = bench(|config| config.pool_size(1));
    let Err(DriverError::Backend(error)) = bench.session.query("select nowhere.f()", &[]).await
    else {
        panic!("a function that is not there")
    };
    assert!(error.to_string().contains("driver.migrate()"), "{error}");
    let schema = format!("session_u_{}", process::id());
    let script = format!("create schema {schema}; create table {schema}.t (a text primary key)");
    bench.session.batch(&script).await.unwrap();
    let sql = format!("insert into {schema}.t values ($1), ($1)");
    let error = bench.session.query(&sql, &[Value::Text(Some("canary"))]).await.unwrap_err();
    assert!(matches!(error, DriverError::Backend(_)), "{error:?}");
    assert!(!format!("{error:?}").contains("canary"), "{error:?}");
    bench.session.batch(&format!("drop schema {schema} cascade")).await.unwrap();
}

#[tokio::test]
async fn after_closing_every_call_says_so() {
    let bench = bench(|config| config);
    let detached = bench.session.detached(1).unwrap();
    number(&detached, "select 1::int8").await.unwrap();
    let running = bench.session.clone();
    let running =
        tokio::spawn(async move { number(&running, "select 1::int8 from pg_sleep(0.2)").await });
    bench.until("query like '%pg_sleep%'", |count| count == 1).await;
    bench.session.close();
    assert_eq!(running.await.unwrap().unwrap(), 1, "what runs may end");
    let closed = |answer| matches!(answer, Err(DriverError::Closed));
    assert!(closed(number(&bench.session, "select 1::int8").await));
    assert_eq!(number(&detached, "select 1::int8").await.unwrap(), 1, "each is closed by itself");
    detached.close();
    assert!(closed(number(&detached, "select 1::int8").await));
    assert!(closed(bench.session.batch("select 1").await.map(|()| 0)));
    assert!(closed(bench.session.connect_detached().await.map(|_| 0)));
    bench.until("true", |count| count == 0).await;
}

#[tokio::test]
async fn a_detached_connection_is_not_of_the_pool() {
    let bench = bench(|config| config.pool_size(1));
    let (client, connection) = bench.session.connect_detached().await.unwrap().unwrap();
    let connection = tokio::spawn(connection);
    client.batch_execute("listen x").await.unwrap();
    assert_eq!(bench.session.status(), PoolStatus { size: 0, idle: 0 });
    drop(client);
    connection.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_connection_over_which_nothing_can_be_written_is_not_used_again() {
    let read_only = "-c default_transaction_read_only=on";
    let bench = bench(|mut config| {
        config.server.options(read_only);
        config.pool_size(1)
    });
    assert_eq!(number(&bench.session, "select 1::int8").await.unwrap(), 1);
    assert_eq!(bench.session.status(), PoolStatus { size: 1, idle: 1 });
    let said = assert_unavailable(bench.session.query("create table t ()", &[]).await);
    assert!(said.contains("25006"), "{said}");
    assert_eq!(bench.session.status(), PoolStatus { size: 0, idle: 0 });
}

#[tokio::test]
async fn a_pool_of_the_application_is_used_and_left_open() {
    let bench = bench(|config| config.pool_size(1));
    let pool = bench.session.pool.clone();
    let limit = Duration::from_millis(300);
    let session = Session::from_pool(pool, StatementMode::Named, limit);
    assert_eq!(number(&session, "select 1::int8").await.unwrap(), 1);
    assert!(session.detached(1).is_none());
    assert!(session.connect_detached().await.unwrap().is_none());
    assert_unavailable(session.query("select pg_sleep(60)::text", &[]).await);
    bench.until("query like '%pg_sleep%'", |count| count == 0).await;
    session.close();
    assert!(matches!(number(&session, "select 1::int8").await, Err(DriverError::Closed)));
    assert_eq!(number(&bench.session, "select 1::int8").await.unwrap(), 1);
}

#[tokio::test]
async fn a_server_that_is_not_there_is_unavailable() {
    let nowhere = Config::from_url("postgres://u@%2Fnowhere/d").unwrap();
    let session = Session::open(&nowhere).unwrap();
    assert_unavailable(number(&session, "select 1::int8").await);
}
