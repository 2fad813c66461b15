//! Which files are opened, and which are left alone.

use std::{collections::BTreeMap, fs, path::Path};

use rusqlite::Connection;
use taskharbor_core::{
    Admin, Driver, DriverError, State,
    admin::{Change, Configure},
};
use taskharbor_sqlite::{Config, OpenError, SqliteDriver, rusqlite};

use crate::{
    fixture::{NOON, put, state, works},
    temp_dir::TempDir,
};

/// Every file of a directory.
fn contents(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let files = fs::read_dir(dir).unwrap().map(|file| file.unwrap().path());
    files
        .map(|path| (path.file_name().unwrap().to_string_lossy().into(), fs::read(&path).unwrap()))
        .collect()
}

async fn refused(config: Config) -> OpenError {
    SqliteDriver::open_with(config).await.expect_err("it is opened")
}

#[tokio::test]
async fn a_file_that_is_not_there_is_made_only_if_that_is_asked_for() {
    let temp = TempDir::new();
    let missing = refused(Config::new(temp.file())).await;
    assert!(matches!(missing, OpenError::Missing { .. }), "{missing}");
    assert!(missing.to_string().contains("?create=true"), "{missing}");
    assert!(contents(temp.dir()).is_empty());

    let nowhere = Config::new(temp.dir().join("no/such/dir.db")).create(true);
    assert!(matches!(refused(nowhere).await, OpenError::Failed { .. }));
    assert!(contents(temp.dir()).is_empty());

    let driver = SqliteDriver::open_with(temp.config()).await.unwrap();
    works(&driver, "a").await;
}

#[tokio::test]
async fn what_was_stored_is_there_when_it_is_opened_again() {
    let temp = TempDir::new();
    let driver = SqliteDriver::open_with(temp.config()).await.unwrap();
    put(&driver, "a").await;
    driver.close().await.unwrap();
    let left: Vec<_> = contents(temp.dir()).into_keys().collect();
    assert_eq!(left, ["jobs.db"], "the last to close leaves one file");
    assert!(matches!(driver.store_time().await, Err(DriverError::Closed)));

    let driver = SqliteDriver::open(temp.file()).await.unwrap();
    assert_eq!(state(&driver, "a").await, Some(State::Ready));
    crate::fixture::run(&driver, "a").await;
}

#[tokio::test]
async fn closing_leaves_one_file_however_much_was_read() {
    let temp = TempDir::new();
    for round in 0..30 {
        let driver = SqliteDriver::open_with(temp.config()).await.unwrap();
        put(&driver, &round.to_string()).await;
        // Both threads that read have opened the file, and are still at it when it is closed.
        let reads: Vec<_> = (0..8).map(|_| driver.clone()).collect();
        let reads =
            reads.into_iter().map(|driver| tokio::spawn(async move { driver.check().await }));
        let reads: Vec<_> = reads.collect();
        tokio::task::yield_now().await;
        driver.close().await.unwrap();
        let left: Vec<_> = contents(temp.dir()).into_keys().collect();
        assert_eq!(left, ["jobs.db"], "round {round}");
        for read in reads {
            // Those that came too late are told so.
            let _ = read.await.unwrap();
        }
    }
}

#[tokio::test]
async fn so_does_one_that_is_dropped() {
    let temp = TempDir::new();
    let driver = SqliteDriver::open_with(temp.config()).await.unwrap();
    works(&driver, "a").await;
    let log = temp.dir().join("jobs.db-wal");
    assert!(log.exists());
    drop(driver);
    // Its threads end by themselves.
    while log.exists() {
        tokio::task::yield_now().await;
    }
    assert_eq!(contents(temp.dir()).into_keys().collect::<Vec<_>>(), ["jobs.db"]);
}

#[tokio::test]
async fn the_version_of_an_older_store_can_be_asked_for() {
    let temp = TempDir::new();
    let driver = SqliteDriver::open_with(temp.config()).await.unwrap();
    driver.close().await.unwrap();
    let conn = Connection::open(temp.file()).unwrap();
    conn.execute("UPDATE th_meta SET version = 0", []).unwrap();
    drop(conn);
    let driver = SqliteDriver::open(temp.file()).await.unwrap();
    assert_eq!(driver.installed_version().await.unwrap(), 0);
    let error = driver.check().await.unwrap_err();
    assert!(matches!(error, DriverError::Backend(_)), "{error}");
}

#[cfg(unix)]
#[tokio::test]
async fn only_its_owner_may_read_the_file_and_what_lies_beside_it() {
    use std::os::unix::fs::PermissionsExt;
    let temp = TempDir::new();
    let driver = SqliteDriver::open_with(temp.config()).await.unwrap();
    put(&driver, "a").await;
    let mut seen = Vec::new();
    for file in fs::read_dir(temp.dir()).unwrap() {
        let file = file.unwrap();
        let mode = file.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{:?}", file.path());
        seen.push(file.file_name().into_string().unwrap());
    }
    seen.sort();
    assert_eq!(seen, ["jobs.db", "jobs.db-shm", "jobs.db-wal"]);
}

#[tokio::test]
async fn what_is_not_ours_is_refused_and_untouched() {
    let text: fn(&Path) = |path| fs::write(path, "dear diary, today was").unwrap();
    let short: fn(&Path) = |path| fs::write(path, "SQLite").unwrap();
    let plain: fn(&Path) = |path| {
        let conn = Connection::open(path).unwrap();
        conn.execute_batch("CREATE TABLE diary (day TEXT); INSERT INTO diary VALUES ('monday')")
            .unwrap();
    };
    let wal: fn(&Path) = |path| {
        let conn = Connection::open(path).unwrap();
        conn.execute_batch("PRAGMA journal_mode = WAL; CREATE TABLE th_job (day TEXT)").unwrap();
    };
    let meta: fn(&Path) = |path| {
        let conn = Connection::open(path).unwrap();
        conn.execute_batch("CREATE TABLE th_meta (version TEXT)").unwrap();
    };
    for (name, make) in
        [("text", text), ("short", short), ("plain", plain), ("wal", wal), ("meta", meta)]
    {
        let temp = TempDir::new();
        make(&temp.file());
        let before = contents(temp.dir());
        for config in [Config::new(temp.file()), temp.config()] {
            let error = refused(config).await;
            assert!(matches!(error, OpenError::NotOurs { .. }), "{name}: {error}");
        }
        assert_eq!(contents(temp.dir()), before, "{name}");
    }
    let temp = TempDir::new();
    let error = refused(Config::new(temp.dir()).create(true)).await;
    assert!(matches!(error, OpenError::NotOurs { .. }), "a directory: {error}");
}

#[tokio::test]
async fn an_empty_file_becomes_a_store_only_if_that_is_asked_for() {
    let temp = TempDir::new();
    fs::write(temp.file(), "").unwrap();
    let error = refused(Config::new(temp.file())).await;
    assert!(matches!(error, OpenError::Empty { .. }), "{error}");
    assert_eq!(fs::read(temp.file()).unwrap(), b"");
    works(&SqliteDriver::open_with(temp.config()).await.unwrap(), "a").await;
}

#[tokio::test]
async fn a_store_can_be_put_beside_the_tables_of_an_application() {
    let temp = TempDir::new();
    let conn = Connection::open(temp.file()).unwrap();
    conn.execute_batch(
        "PRAGMA application_id = 7; PRAGMA user_version = 42; CREATE TABLE orders (number INTEGER)",
    )
    .unwrap();
    let driver = SqliteDriver::open_with(Config::new(temp.file()).shared(true)).await.unwrap();
    works(&driver, "a").await;
    let pragma = |name: &str| conn.query_row(name, [], |row| row.get::<_, i64>(0)).unwrap();
    assert_eq!((pragma("PRAGMA application_id"), pragma("PRAGMA user_version")), (7, 42));
    // From then on it is ours too.
    driver.close().await.unwrap();
    works(&SqliteDriver::open(temp.file()).await.unwrap(), "b").await;
}

#[tokio::test]
async fn a_file_of_a_newer_version_is_refused_and_untouched() {
    let temp = TempDir::new();
    let driver = SqliteDriver::open_with(temp.config()).await.unwrap();
    let conn = Connection::open(temp.file()).unwrap();
    conn.execute("UPDATE th_meta SET version = 99", []).unwrap();

    // A driver that has it open stops too.
    let DriverError::Backend(error) = driver.check().await.unwrap_err() else {
        panic!("not lasting")
    };
    assert!(error.to_string().contains("version 99, newer than this program knows"), "{error}");
    let resume = Configure::new(vec![Change::ResumeQueue(crate::fixture::queue())], NOON);
    for error in [driver.migrate().await.unwrap_err(), driver.configure(resume).await.unwrap_err()]
    {
        assert!(matches!(error, DriverError::Backend(_)), "{error:?}");
    }
    driver.close().await.unwrap();
    drop(conn);
    let before = contents(temp.dir());
    let error = refused(Config::new(temp.file())).await;
    assert!(matches!(error, OpenError::Newer { found: 99, .. }), "{error}");
    let error = error.to_string();
    assert!(error.contains("newer than this program knows (1): use a newer version"), "{error}");
    assert_eq!(contents(temp.dir()), before);
}

#[tokio::test]
async fn a_store_of_an_older_version_is_opened_and_says_what_to_do() {
    let temp = TempDir::new();
    SqliteDriver::open_with(temp.config()).await.unwrap().close().await.unwrap();
    let conn = Connection::open(temp.file()).unwrap();
    conn.execute("UPDATE th_meta SET version = 0", []).unwrap();
    let driver = SqliteDriver::open(temp.file()).await.unwrap();
    let DriverError::Backend(error) = driver.check().await.unwrap_err() else {
        panic!("not lasting")
    };
    assert!(error.to_string().contains("`driver.migrate()`"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn many_may_make_one_file_at_the_same_time() {
    for _ in 0..10 {
        let temp = TempDir::new();
        let tasks: Vec<_> =
            (0..8).map(|_| tokio::spawn(SqliteDriver::open_with(temp.config()))).collect();
        for (number, task) in tasks.into_iter().enumerate() {
            let driver = task.await.unwrap().unwrap();
            driver.migrate().await.unwrap();
            put(&driver, &number.to_string()).await;
        }
        let driver = SqliteDriver::open(temp.file()).await.unwrap();
        assert_eq!(driver.check().await.unwrap(), []);
    }
}
