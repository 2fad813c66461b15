//! Tests of steps against a server: a made-up version 2 over version 1, under load and blocked.

use std::{
    collections::BTreeSet,
    process,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use taskharbor_core::{
    Admin, Driver, JobId, JobType, NewJob, QueueName, Timestamp,
    driver::{Demand, Enqueue, Reserve, Settle, Settlement, Transition},
    name::Holder,
};
use taskharbor_testkit::environment;
use tokio::{
    task::{JoinHandle, JoinSet},
    time::{Instant, timeout},
};
use tokio_postgres::{Client, NoTls};

use super::*;
use crate::{Config, PostgresDriver};

fn url() -> String {
    environment::required("TASKHARBOR_TEST_POSTGRES")
}

/// A schema that does not exist yet.
fn blank() -> Config {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let name = format!("th_step_{}_{number}", process::id());
    Config::from_url(&url()).unwrap().schema(SchemaName::new(name).unwrap())
}

async fn client() -> Client {
    let (client, connection) = tokio_postgres::connect(&url(), NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

impl Plan {
    /// What a program of version 2 would do: a table grows, an index is built, a function is added.
    fn with_version_2() -> Self {
        let mut plan = Self::own();
        plan.pause = Duration::from_millis(50);
        let index = Work::Index {
            name: "th_job_made_up",
            definition: "CREATE INDEX CONCURRENTLY IF NOT EXISTS th_job_made_up ON {schema}.th_job (created_at)",
        };
        let title = "an index";
        let function = "CREATE FUNCTION th_made_up() RETURNS int LANGUAGE sql AS 'SELECT 2';
            CREATE FUNCTION th_helped() RETURNS int LANGUAGE plpgsql AS 'BEGIN RETURN th_made_up(); END';
            REVOKE ALL ON FUNCTION th_made_up(), th_helped() FROM PUBLIC;\n";
        plan.steps.extend([
            Step::transaction(2, "a column", "ALTER TABLE th_job ADD COLUMN made_up int;\n"),
            Step { version: 2, min_compatible: 1, title, work: index },
            Step::transaction(2, "functions", versioned(function, 2)),
        ]);
        plan
    }

    /// A version 3 that takes away what version 1 needs.
    fn with_version_3() -> Self {
        let mut plan = Self::with_version_2();
        let drop = "DROP FUNCTION th_made_up_v2();\n";
        plan.steps.push(Step { min_compatible: 2, ..Step::transaction(3, "less", drop) });
        plan
    }
}

/// The message of an error and of all that caused it.
fn words(error: &dyn std::error::Error) -> String {
    let source = error.source().map(|source| format!(": {}", words(source)));
    format!("{error}{}", source.unwrap_or_default())
}

fn noon() -> Timestamp {
    Timestamp::from_micros(1_794_744_000_000_000).unwrap()
}

/// Stores, reserves and acks one job, as a program does that knows version 1.
async fn work_once(driver: &PostgresDriver, number: usize) {
    let (id, queue) = (JobId::new(format!("job-{number}")).unwrap(), QueueName::new("q").unwrap());
    let job = NewJob::new(id, queue.clone(), JobType::new("work").unwrap(), b"x".as_slice());
    driver.enqueue(Enqueue::new(vec![job.into()], noon())).await.unwrap()[0].clone().unwrap();
    let holder = Holder::new("old").unwrap();
    let lease = Duration::from_secs(60);
    let reserve = Reserve::new(vec![Demand::new(queue, 1)], holder, noon(), lease);
    let granted = driver.reserve(reserve).await.unwrap();
    let ack = |id, token| Settlement::new(id, token, Transition::Ack { output: None });
    let items = granted.jobs.iter().map(|it| ack(it.job.id.clone(), it.lease.token)).collect();
    for answer in driver.settle(Settle::new(items, noon())).await.unwrap() {
        answer.unwrap();
    }
}

/// A program that works until it is told to stop; returns the longest time that one round took.
struct Load {
    stop: Arc<AtomicBool>,
    rounds: Arc<AtomicUsize>,
    task: JoinHandle<Duration>,
}

impl Load {
    fn start(driver: PostgresDriver) -> Self {
        let (stop, rounds) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let (stopped, counted) = (Arc::clone(&stop), Arc::clone(&rounds));
        let task = tokio::spawn(async move {
            let mut longest = Duration::ZERO;
            while !stopped.load(Ordering::SeqCst) {
                let start = Instant::now();
                work_once(&driver, counted.fetch_add(1, Ordering::SeqCst)).await;
                longest = longest.max(start.elapsed());
            }
            longest
        });
        Self { stop, rounds, task }
    }

    /// Waits until this many more rounds have begun.
    async fn go_on(&self, rounds: usize) {
        let wanted = self.rounds.load(Ordering::SeqCst) + rounds;
        let wait = async {
            while self.rounds.load(Ordering::SeqCst) < wanted {
                tokio::task::yield_now().await;
            }
        };
        timeout(Duration::from_secs(60), wait).await.expect("the load goes on");
    }

    async fn end(self) -> Duration {
        self.stop.store(true, Ordering::SeqCst);
        self.task.await.unwrap()
    }
}

async fn migrate(driver: &PostgresDriver, plan: &Plan) -> Result<(), DriverError> {
    run(&driver.shared.session, driver.schema(), plan).await
}

async fn installed(driver: &PostgresDriver) -> (i64, i64, i64) {
    let found = Installed::find(&driver.shared.session, driver.schema()).await.unwrap();
    (found.version, found.min_compatible, found.step)
}

async fn has_valid_index(client: &Client, schema: &SchemaName) -> bool {
    let sql = format!(
        "SELECT FROM pg_index WHERE indexrelid = to_regclass('{schema}.th_job_made_up') AND indisvalid"
    );
    !client.query(&sql, &[]).await.unwrap().is_empty()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_old_program_works_while_the_schema_is_upgraded_and_can_be_started_after_it() {
    let config = blank();
    let old = PostgresDriver::open(config.clone()).await.unwrap();
    old.migrate().await.unwrap();
    assert_eq!(installed(&old).await, (1, 1, 1));
    let load = Load::start(old.clone());
    load.go_on(20).await;
    let new = PostgresDriver::open(config.clone()).await.unwrap();
    migrate(&new, &Plan::with_version_2()).await.unwrap();
    load.go_on(20).await;
    assert_eq!(installed(&new).await, (2, 1, 4));
    assert!(has_valid_index(&client().await, new.schema()).await);
    // The program of version 1 is rolled back to: it starts, migrates nothing and works.
    let restarted = PostgresDriver::open(config.clone()).await.unwrap();
    restarted.migrate().await.unwrap();
    work_once(&restarted, 1_000_000).await;
    assert_eq!(installed(&restarted).await, (2, 1, 4));
    load.end().await;
    assert_eq!(restarted.check().await.unwrap(), []);
    // A version that takes something away says so, and programs that need it do not start.
    migrate(&new, &Plan::with_version_3()).await.unwrap();
    let refused = words(&PostgresDriver::open(config).await.unwrap_err());
    let expected = "of version 3 and needs a program that knows version 2, newer than this program \
                    knows (1): use a newer version";
    assert!(refused.contains(expected), "{refused}");
    let refused = words(&new.migrate().await.unwrap_err());
    assert!(refused.contains(expected), "{refused}");
    old.uninstall().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_that_a_long_reader_blocks_lets_writers_go_on() {
    let config = blank();
    let driver = PostgresDriver::open(config.clone()).await.unwrap();
    driver.migrate().await.unwrap();
    let mut reader = client().await;
    let open = reader.transaction().await.unwrap();
    open.batch_execute(&format!("SELECT FROM {}.th_job", driver.schema())).await.unwrap();
    let mut plan = Plan::with_version_2();
    plan.lock_wait = Duration::from_millis(300);
    let load = Load::start(driver.clone());
    let upgraded = PostgresDriver::open(config).await.unwrap();
    let upgrade = tokio::spawn(async move { migrate(&upgraded, &plan).await });
    // The step has waited for its lock and given up more than once.
    let watch = client().await;
    let waiting = format!(
        "SELECT FROM pg_locks l JOIN pg_class c ON c.oid = l.relation WHERE NOT l.granted \
         AND c.relnamespace = '{}'::regnamespace AND l.mode = 'AccessExclusiveLock'",
        driver.schema()
    );
    for is_waiting in [true, false, true, false, true, false] {
        let wait = async {
            while watch.query(&waiting, &[]).await.unwrap().is_empty() == is_waiting {
                tokio::task::yield_now().await;
            }
        };
        timeout(Duration::from_secs(30), wait).await.expect("the step is tried again");
    }
    load.go_on(5).await;
    assert!(!upgrade.is_finished(), "the reader is still there");
    open.rollback().await.unwrap();
    upgrade.await.unwrap().unwrap();
    let longest = load.end().await;
    println!("the longest round of the load took {longest:?}");
    // Three statements may have met the waiting step once each; without a limit they would have
    // waited for the reader.
    assert!(longest < Duration::from_secs(5), "{longest:?}");
    assert_eq!(installed(&driver).await, (2, 1, 4));
    driver.uninstall().await.unwrap();
}

#[tokio::test]
async fn a_step_that_gets_no_lock_names_what_to_look_at() {
    let driver = PostgresDriver::open(blank()).await.unwrap();
    driver.migrate().await.unwrap();
    let mut reader = client().await;
    let open = reader.transaction().await.unwrap();
    open.batch_execute(&format!("SELECT FROM {}.th_job", driver.schema())).await.unwrap();
    let mut plan = Plan::with_version_2();
    (plan.lock_wait, plan.limit) = (Duration::from_millis(10), Duration::ZERO);
    let stuck = migrate(&driver, &plan).await.unwrap_err();
    assert!(matches!(stuck, DriverError::Unavailable(_)), "{stuck:?}");
    let said = words(&stuck);
    assert!(said.contains("step 2 of the migration got no lock"), "{said}");
    assert_eq!(installed(&driver).await, (1, 1, 1));
    open.rollback().await.unwrap();
    driver.uninstall().await.unwrap();
}

#[tokio::test]
async fn an_index_whose_building_was_cut_is_built_anew() {
    let driver = PostgresDriver::open(blank()).await.unwrap();
    driver.migrate().await.unwrap();
    work_once(&driver, 1).await;
    work_once(&driver, 2).await;
    let client = client().await;
    // All jobs of the test are created at the same time, so this leaves an invalid index.
    let cut = format!(
        "CREATE UNIQUE INDEX CONCURRENTLY th_job_made_up ON {}.th_job (created_at)",
        driver.schema()
    );
    client.batch_execute(&cut).await.unwrap_err();
    assert!(!has_valid_index(&client, driver.schema()).await);
    migrate(&driver, &Plan::with_version_2()).await.unwrap();
    assert!(has_valid_index(&client, driver.schema()).await);
    driver.uninstall().await.unwrap();
}

#[tokio::test]
async fn processes_that_upgrade_at_once_do_each_step_once() {
    let config = blank();
    let mut starts = JoinSet::new();
    for _ in 0..4 {
        let config = config.clone();
        starts.spawn(async move {
            let driver = PostgresDriver::open(config).await.unwrap();
            migrate(&driver, &Plan::with_version_2()).await.unwrap();
            driver
        });
    }
    let drivers = starts.join_all().await;
    assert_eq!(installed(&drivers[0]).await, (2, 1, 4));
    assert!(has_valid_index(&client().await, drivers[0].schema()).await);
    work_once(&drivers[0], 1).await;
    drivers[0].uninstall().await.unwrap();
}

#[tokio::test]
async fn what_was_granted_is_granted_again_for_what_an_upgrade_adds() {
    let driver = PostgresDriver::open(blank()).await.unwrap();
    driver.migrate().await.unwrap();
    let (client, schema) = (client().await, driver.schema().clone());
    let role = format!("th_step_role_{}", process::id());
    let gone = format!("th_step_gone_{}", process::id());
    client.batch_execute(&format!("CREATE ROLE {role}; CREATE ROLE {gone}")).await.unwrap();
    let grant = format!(
        "SELECT {schema}.th_grant('worker', '{role}'), {schema}.th_grant('viewer', '{gone}')"
    );
    client.batch_execute(&grant).await.unwrap();
    client.batch_execute(&format!("DROP OWNED BY {gone}; DROP ROLE {gone}")).await.unwrap();
    migrate(&driver, &Plan::with_version_2()).await.unwrap();
    let may = format!(
        "SELECT has_function_privilege('{role}', '{schema}.th_helped_v2()', 'EXECUTE'),
            has_function_privilege('public', '{schema}.th_helped_v2()', 'EXECUTE'),
            has_function_privilege('{role}', '{schema}.th_grant(text, text)', 'EXECUTE'),
            has_function_privilege('{role}', '{schema}.th_revoke(text)', 'EXECUTE')"
    );
    let row = client.query_one(&may, &[]).await.unwrap();
    let may: Vec<bool> = (0..4).map(|it| row.get(it)).collect();
    assert_eq!(may, [true, false, false, false]);
    // What is taken back is not granted again.
    client.batch_execute(&format!("SELECT {schema}.th_revoke('{role}')")).await.unwrap();
    client.batch_execute(&format!("SELECT {schema}.th_restore_grants()")).await.unwrap();
    // A role can only be dropped if it has no privilege left.
    client.batch_execute(&format!("DROP ROLE {role}")).await.unwrap();
    driver.uninstall().await.unwrap();
}

#[tokio::test]
async fn the_printed_steps_upgrade_and_can_be_run_again() {
    let driver = PostgresDriver::open(blank()).await.unwrap();
    let script = Plan::with_version_2().script(driver.schema());
    assert!(script.is_ascii());
    let client = client().await;
    for _ in 0..2 {
        // What psql does with it: each query before `\gexec` answers commands to run.
        for part in script.split_inclusive("\\gexec\n") {
            let Some(part) = part.strip_suffix("\\gexec\n") else {
                client.batch_execute(part).await.unwrap();
                continue;
            };
            let (blocks, query) =
                part.split_at(part.rfind("END $taskharbor$;").map_or(0, |it| it + 17));
            client.batch_execute(blocks).await.unwrap();
            for row in client.query(query, &[]).await.unwrap() {
                client.batch_execute(row.get(0)).await.unwrap();
            }
        }
        assert_eq!(installed(&driver).await, (2, 1, 4));
    }
    driver.uninstall().await.unwrap();
}

#[tokio::test]
async fn every_function_ends_in_its_version_or_is_for_people() {
    let driver = PostgresDriver::open(blank()).await.unwrap();
    driver.migrate().await.unwrap();
    let sql = format!(
        "SELECT proname::text FROM pg_proc WHERE pronamespace = '{}'::regnamespace",
        driver.schema()
    );
    let rows = client().await.query(&sql, &[]).await.unwrap();
    let names: BTreeSet<String> = rows.iter().map(|row| row.get(0)).collect();
    let (versioned, public): (Vec<&str>, Vec<&str>) =
        names.iter().map(String::as_str).partition(|name| name.ends_with("_v1"));
    assert_eq!(public, PUBLIC);
    assert!(versioned.len() > 30, "{versioned:?}");
    driver.uninstall().await.unwrap();
}

#[test]
fn only_whole_names_of_functions_get_the_version() {
    let sql = "CREATE FUNCTION th_a(x int) AS $$ SELECT th_a.x, th_ab, 'th_a', th_b_v1(th_a(1)) $$;\n\
               CREATE FUNCTION th_b_v1(); CREATE FUNCTION th_check() AS 'th_a';";
    let expected = "CREATE FUNCTION th_a_v1(x int) AS $$ SELECT th_a_v1.x, th_ab, 'th_a_v1', th_b_v1(th_a_v1(1)) $$;\n\
               CREATE FUNCTION th_b_v1(); CREATE FUNCTION th_check() AS 'th_a_v1';";
    assert_eq!(versioned(sql, 1), expected);
}

#[test]
fn no_function_has_the_name_of_something_that_all_versions_share() {
    let sql = V1.join("\n");
    let created = |kind: &str| -> BTreeSet<String> {
        let start = format!("CREATE {kind} ");
        let starts = sql.split(&start).skip(1);
        starts.map(|rest| rest.split(|it| !is_word(it)).next().unwrap().to_owned()).collect()
    };
    let functions = created("FUNCTION");
    let twice: Vec<_> =
        functions.iter().filter(|it| functions.contains(&format!("{it}_v1"))).collect();
    assert!(
        twice.iter().all(|it| PUBLIC.contains(&it.as_str())),
        "both would get one name: {twice:?}"
    );
    for kind in ["TABLE", "VIEW", "SEQUENCE", "TYPE", "INDEX", "UNIQUE INDEX", "DOMAIN"] {
        let both: Vec<_> = created(kind).intersection(&functions).cloned().collect();
        assert!(both.is_empty(), "{kind}: {both:?}");
    }
}
