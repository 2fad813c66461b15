//! Faults outside of the driver: each is a typed error, nothing is half written, and everything works again
//! without the fault.

use std::{fs, path::Path, time::Duration};

use taskharbor_core::{
    Admin, AnyDriver, Blob, Driver, DriverError, NewJob, State,
    admin::{Action, Change, Configure, Counts, Filter, List, Manage, Prune},
    driver::Enqueue,
    name::Holder,
};
use taskharbor_sqlite::{
    Config, SqliteDriver,
    rusqlite::{Connection, TransactionBehavior},
};

use crate::{
    fixture::{NOON, id, job, put, run, state, works},
    temp_dir::TempDir,
};

/// It is worth trying again, and the message says this.
fn passing(error: &DriverError, text: &str) {
    assert!(matches!(error, DriverError::Unavailable(_)), "{error:?}");
    says(error, text);
}

/// It is of no use to try again, and the message says this.
fn lasting(error: &DriverError, text: &str) {
    assert!(matches!(error, DriverError::Backend(_)), "{error:?}");
    says(error, text);
}

fn says(error: &DriverError, text: &str) {
    assert!(error.to_string().contains(text), "{error}");
}

fn holder() -> Holder {
    Holder::new("worker").unwrap()
}

async fn enqueue(
    driver: &SqliteDriver,
    jobs: impl IntoIterator<Item = NewJob>,
) -> Result<(), DriverError> {
    let sets = jobs.into_iter().map(Into::into).collect();
    driver.enqueue(Enqueue::new(sets, NOON)).await.map(drop)
}

#[tokio::test]
async fn a_full_file_takes_nothing_by_half_and_goes_on_when_there_is_room() {
    let temp = TempDir::new();
    let config = temp.config().max_bytes(400_000);
    let driver = SqliteDriver::open_with(config).await.unwrap();
    works(&driver, "first").await;
    let large = |text: String| {
        let mut job = job(&text);
        job.payload = vec![7; 10_000].into();
        job
    };
    let mut stored = Vec::new();
    let full = loop {
        let batch: Vec<String> = (0..10).map(|n| format!("{}-{n}", stored.len())).collect();
        match enqueue(&driver, batch.iter().cloned().map(large)).await {
            Ok(()) => stored.push(batch),
            Err(error) => break (error, batch),
        }
        assert!(stored.len() < 100, "it is never full");
    };
    passing(&full.0, "is full");
    for text in &full.1 {
        assert_eq!(state(&driver, text).await, None, "half of a call was stored");
    }
    assert_eq!(driver.check().await.unwrap(), []);

    let old: Vec<_> = stored.concat().iter().map(|text| id(text)).collect();
    for action in [Action::Cancel, Action::Purge] {
        let answers = driver.manage(Manage::new(old.clone(), action, NOON)).await.unwrap();
        assert!(answers.iter().all(Result::is_ok));
    }
    enqueue(&driver, full.1.iter().cloned().map(large)).await.unwrap();
    assert_eq!(driver.check().await.unwrap(), []);
}

#[tokio::test]
async fn a_full_file_keeps_room_to_record_the_outcomes_of_its_jobs() {
    let temp = TempDir::new();
    let config = temp.config().max_bytes(400_000);
    let driver = SqliteDriver::open_with(config).await.unwrap();
    let mut stored = 0;
    let full = loop {
        match enqueue(&driver, (0..10).map(|n| job(&format!("{}", stored + n)))).await {
            Ok(()) => stored += 10,
            Err(error) => break error,
        }
        assert!(stored < 10_000, "it is never full");
    };
    passing(&full, "is full but for");
    let driver = AnyDriver::new(driver);
    let output: Blob = vec![7; 4_000].into();
    for _ in 0..5 {
        let lease = Duration::from_secs(60);
        let leased = driver.reserve_job(crate::fixture::queue(), holder(), NOON, lease).await;
        driver.ack(&leased.unwrap().unwrap(), Some(output.clone()), NOON).await.unwrap();
    }
    let later = NOON.saturating_add(Duration::from_secs(100));
    let prune = Prune::new(100, later).done_before(later);
    assert_eq!(driver.prune(prune).await.unwrap(), 5);
    assert_eq!(driver.check().await.unwrap(), []);
}

#[tokio::test]
async fn a_call_that_finds_the_file_locked_for_too_long_is_told_so() {
    let temp = TempDir::new();
    let config = temp.config().busy_timeout(Duration::from_millis(30));
    let driver = SqliteDriver::open_with(config).await.unwrap();
    put(&driver, "a").await;
    let mut conn = Connection::open(temp.file()).unwrap();
    let other = conn.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
    passing(
        &enqueue(&driver, [job("b")]).await.unwrap_err(),
        "another process has the file locked",
    );
    let mine = &mut Connection::open(temp.file()).unwrap();
    mine.busy_timeout(Duration::ZERO).unwrap();
    passing(&driver.begin(mine).unwrap_err(), "another process has the file locked");
    assert_eq!(state(&driver, "a").await, Some(State::Ready), "it can still be read");
    drop(other);
    run(&driver, "a").await;
    works(&driver, "b").await;
}

/// Writes nonsense over everything but the first pages.
fn damage(path: &Path) {
    let mut bytes = fs::read(path).unwrap();
    for byte in bytes.iter_mut().skip(48 * 4_096) {
        *byte = 0xab;
    }
    fs::write(path, bytes).unwrap();
}

#[tokio::test]
async fn a_damaged_file_is_recognised_and_one_put_in_its_place_is_used() {
    let temp = TempDir::new();
    let driver = SqliteDriver::open_with(temp.config()).await.unwrap();
    enqueue(&driver, (0..2_000).map(|number| job(&number.to_string()))).await.unwrap();
    driver.close().await.unwrap();
    let backup = temp.dir().join("backup.db");
    fs::copy(temp.file(), &backup).unwrap();
    damage(&temp.file());

    let driver = SqliteDriver::open(temp.file()).await.unwrap();
    lasting(
        &driver
            .configure(Configure::new(vec![Change::ResumeQueue(crate::fixture::queue())], NOON))
            .await
            .err()
            .unwrap_or_else(|| DriverError::backend("the file is damaged: not met by this one")),
        "the file is damaged",
    );
    lasting(&enqueue(&driver, [job("new")]).await.unwrap_err(), "the file is damaged");
    let list = List::new(Filter::all(), 1_000, NOON);
    lasting(&driver.list(list).await.unwrap_err(), "the file is damaged");

    for beside in ["jobs.db-wal", "jobs.db-shm"] {
        let _ = fs::remove_file(temp.dir().join(beside));
    }
    fs::rename(&backup, temp.file()).unwrap();
    run(&driver, "0").await;
    enqueue(&driver, [job("new")]).await.unwrap();
    assert_eq!(driver.counts(Counts::new(NOON)).await.unwrap()[0].states.total(), 2_001);
    assert_eq!(driver.check().await.unwrap(), []);
}

#[tokio::test]
async fn nothing_is_written_into_a_file_that_is_not_there_any_more() {
    let temp = TempDir::new();
    let home = temp.dir().join("home");
    fs::create_dir(&home).unwrap();
    let driver =
        SqliteDriver::open_with(Config::new(home.join("jobs.db")).create(true)).await.unwrap();
    put(&driver, "a").await;
    let mut watch = driver.watch(vec![crate::fixture::queue()]).await.unwrap();
    let away = temp.dir().join("away");
    fs::rename(&home, &away).unwrap();
    for _ in 0..2 {
        passing(&enqueue(&driver, [job("b")]).await.unwrap_err(), "was moved or removed");
        passing(&driver.counts(Counts::new(NOON)).await.unwrap_err(), "was moved or removed");
    }
    assert!(!home.exists(), "it is not made anew");
    // Watches say that no wake-up reaches them.
    while watch.can_wake() {
        assert!(watch.woken().await.is_some());
    }
    fs::rename(&away, &home).unwrap();
    run(&driver, "a").await;
    works(&driver, "b").await;
    assert!(watch.woken().await.is_some());
    assert!(watch.can_wake());

    fs::remove_dir_all(&home).unwrap();
    passing(&enqueue(&driver, [job("c")]).await.unwrap_err(), "was moved or removed");
    fs::create_dir(&home).unwrap();
    fs::write(home.join("jobs.db"), "").unwrap();
    passing(&enqueue(&driver, [job("c")]).await.unwrap_err(), "was moved or removed");
}

#[cfg(unix)]
mod beside {
    use super::*;
    use crate::process::{child, told};

    fn remove(temp: &TempDir, names: &[&str]) {
        for name in names {
            fs::remove_file(temp.dir().join(name)).unwrap();
        }
    }

    /// Enqueues as soon as the driver has noticed that files are gone, and opened them anew.
    async fn enqueue_when_open(driver: &SqliteDriver, text: &str) {
        while let Err(error) = enqueue(driver, [job(text)]).await {
            passing(&error, "was removed or replaced while in use");
            tokio::task::yield_now().await;
        }
    }

    /// What another process finds or does.
    fn other_process(temp: &TempDir, what: &str) {
        let told = format!("{what} {}", temp.file().display());
        let output = child("fault::beside::a_child_that_uses_the_file", &told).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success() && said.contains("it was so"), "{what}: {said}");
    }

    /// Not a test by itself.
    #[tokio::test]
    async fn a_child_that_uses_the_file() {
        let Some(told) = told() else { return };
        let (what, path) = told.split_once(' ').unwrap();
        let driver = SqliteDriver::open(path).await.unwrap();
        match what {
            "finds" => {
                assert_eq!(state(&driver, "a").await, Some(State::Ready));
                assert_eq!(state(&driver, "b").await, Some(State::Ready));
            }
            _ => enqueue(&driver, [job("elsewhere")]).await.unwrap(),
        }
        driver.close().await.unwrap();
        println!("it was so");
    }

    #[tokio::test]
    async fn nothing_is_stored_in_a_log_that_no_other_process_can_see() {
        for names in [&["jobs.db-wal", "jobs.db-shm"][..], &["jobs.db-wal"], &["jobs.db-shm"]] {
            let temp = TempDir::new();
            let driver = SqliteDriver::open_with(temp.config()).await.unwrap();
            put(&driver, "a").await;
            assert_eq!(state(&driver, "a").await, Some(State::Ready));
            remove(&temp, names);
            enqueue_when_open(&driver, "b").await;
            other_process(&temp, "finds");
            assert_eq!(driver.check().await.unwrap(), []);
        }
    }

    #[tokio::test]
    async fn a_log_that_another_process_has_made_anew_is_used() {
        let temp = TempDir::new();
        let driver = SqliteDriver::open_with(temp.config()).await.unwrap();
        put(&driver, "a").await;
        driver.close().await.unwrap();
        let driver = SqliteDriver::open_with(temp.config()).await.unwrap();
        assert_eq!(state(&driver, "a").await, Some(State::Ready));
        remove(&temp, &["jobs.db-wal", "jobs.db-shm"]);
        other_process(&temp, "enqueues");
        enqueue_when_open(&driver, "b").await;
        for text in ["a", "b", "elsewhere"] {
            assert_eq!(state(&driver, text).await, Some(State::Ready), "{text}");
        }
        driver.close().await.unwrap();
        let driver = SqliteDriver::open_with(temp.config()).await.unwrap();
        assert_eq!(driver.check().await.unwrap(), []);
        assert_eq!(driver.counts(Counts::new(NOON)).await.unwrap()[0].states.total(), 3);
    }
}

#[cfg(unix)]
mod permission {
    use std::os::unix::{fs::PermissionsExt, process::CommandExt};

    use super::*;
    use crate::process::{child, told};

    /// The id of the account without privileges.
    const UNPRIVILEGED: u32 = 65_534;

    fn allow(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    /// Nothing is read-only to root, so another user tries it.
    #[test]
    fn a_file_that_may_not_be_written_is_read_and_can_be_written_when_it_may() {
        let temp = TempDir::new();
        allow(temp.dir(), 0o777);
        let program = temp.dir().join("program");
        fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
        allow(&program, 0o755);
        let as_usual =
            child("fault::permission::a_child_that_is_not_root", temp.dir().to_str().unwrap());
        let mut command = std::process::Command::new(&program);
        command.args(as_usual.get_args());
        command.envs(as_usual.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command.current_dir(temp.dir());
        let is_root = fs::metadata(temp.dir()).unwrap().permissions().mode() != 0
            && std::os::unix::fs::MetadataExt::uid(&fs::metadata(temp.dir()).unwrap()) == 0;
        if is_root {
            command.uid(UNPRIVILEGED).gid(UNPRIVILEGED);
        }
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
        assert!(said.contains("it was written again"), "{said}");
    }

    /// Whether the file still cannot be written.
    async fn take_again(driver: &SqliteDriver) -> bool {
        tokio::task::yield_now().await;
        match enqueue(driver, [job("again")]).await {
            Ok(()) => false,
            Err(error) => {
                passing(&error, "cannot be written");
                true
            }
        }
    }

    /// Not a test by itself.
    #[tokio::test]
    async fn a_child_that_is_not_root() {
        let Some(dir) = told() else { return };
        let path = Path::new(&dir).join("jobs.db");
        let driver = SqliteDriver::open_with(Config::new(&path).create(true)).await.unwrap();
        put(&driver, "a").await;
        driver.close().await.unwrap();
        allow(&path, 0o400);
        let driver = SqliteDriver::open(&path).await.unwrap();
        assert_eq!(state(&driver, "a").await, Some(State::Ready));
        passing(&enqueue(&driver, [job("b")]).await.unwrap_err(), "cannot be written");
        assert_eq!(state(&driver, "b").await, None);
        allow(&path, 0o600);
        // What this process remembers of the file is gone when all have closed it.
        while take_again(&driver).await {}
        run(&driver, "a").await;
        run(&driver, "again").await;
        works(&driver, "b").await;
        println!("it was written again");

        // Where a process has the file open, the next one to open it may be lent what it has.
        driver.close().await.unwrap();
        allow(&path, 0o000);
        let unreadable = SqliteDriver::open(&path).await.unwrap_err();
        assert!(unreadable.to_string().contains("cannot be used"), "{unreadable}");
        allow(&path, 0o600);
    }
}
