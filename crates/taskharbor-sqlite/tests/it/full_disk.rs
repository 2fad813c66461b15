//! A disk that is full: a small one, mounted for a child process alone.

use std::{fs, path::Path, process::Command, time::Duration};

use taskharbor_core::{
    Admin, AnyDriver, Blob, Driver, DriverError, NewJob,
    admin::{Counts, Prune},
    driver::{Enqueue, Leased},
    name::Holder,
};
use taskharbor_sqlite::{Config, SqliteDriver};

use crate::{
    fixture::{LEASE, NOON, job, queue},
    process::{child, told},
    temp_dir::TempDir,
};

/// Large enough for the whole reserve. Most of it is taken by a file of another program.
const DISK_BYTES: usize = 160 * 1024 * 1024;
const TAKEN_BYTES: usize = 130 * 1024 * 1024;

#[test]
fn a_full_disk_leaves_room_for_acks_and_pruning_and_loses_nothing() {
    on_a_disk(DISK_BYTES, "full_disk::a_child_on_a_small_disk");
}

#[test]
fn the_reserve_of_a_tiny_disk_is_enough_for_the_log() {
    on_a_disk(8 * 1024 * 1024, "full_disk::a_child_on_a_tiny_disk");
}

/// The mount ends with the child. Users other than root may do this in a namespace of their own.
fn on_a_disk(bytes: usize, child_name: &str) {
    let temp = TempDir::new();
    let dir = temp.dir().to_str().unwrap();
    let on_the_disk = child(child_name, dir);
    let mount = format!("mount -t tmpfs -o size={bytes} tmpfs \"$0\" && exec \"$@\"");
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--mount", "sh", "-c", &mount, dir]);
    command.arg(on_the_disk.get_program()).args(on_the_disk.get_args());
    command.envs(on_the_disk.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let output = command.output().expect("install unshare, of util-linux");
    let [said, why] = [&output.stdout, &output.stderr].map(|it| String::from_utf8_lossy(it));
    assert!(output.status.success(), "a child could not mount a disk, or failed: {said}{why}");
    assert!(said.contains("nothing was lost"), "{said}");
}

/// How many jobs are acked while the disk is full.
const ACKED: usize = 1_500;

fn large(text: &str) -> NewJob {
    let mut job = job(text);
    job.payload = vec![7; 4_000].into();
    job
}

async fn enqueue_ten(driver: &AnyDriver, stored: usize) -> Result<(), DriverError> {
    let jobs = (stored..stored + 10).map(|n| large(&n.to_string()).into());
    driver.enqueue(Enqueue::new(jobs.collect(), NOON)).await.map(drop)
}

/// Enqueues until that is refused; answers how many jobs are stored.
async fn fill(driver: &AnyDriver) -> usize {
    for stored in (0..).step_by(10) {
        if let Err(error) = enqueue_ten(driver, stored).await {
            assert!(matches!(error, DriverError::Unavailable(_)), "{error:?}");
            assert!(error.to_string().contains("is full but for"), "{error}");
            return stored;
        }
        assert!(stored < (DISK_BYTES - TAKEN_BYTES) / 4_000, "it is never full");
    }
    unreachable!("a range without an end")
}

async fn take(driver: &AnyDriver) -> Leased {
    let holder = Holder::new("worker").unwrap();
    driver.reserve_job(queue(), holder, NOON, LEASE).await.unwrap().expect("a job")
}

/// Not a test by itself.
#[tokio::test]
async fn a_child_on_a_small_disk() {
    let Some(dir) = told() else { return };
    fs::write(Path::new(&dir).join("taken"), vec![0; TAKEN_BYTES]).unwrap();
    let path = Path::new(&dir).join("jobs.db");
    let sqlite = SqliteDriver::open_with(Config::new(&path).create(true)).await.unwrap();
    let driver = AnyDriver::new(sqlite.clone());
    let stored = fill(&driver).await;
    assert!(stored > ACKED, "{stored}");

    // What is kept back is enough for outcomes, and for pruning.
    let output: Blob = vec![7; 1_000].into();
    for _ in 0..ACKED {
        driver.ack(&take(&driver).await, Some(output.clone()), NOON).await.unwrap();
    }

    // Another program takes all that is left. The log has room of its own for a few outputs.
    let ballast = Path::new(&dir).join("ballast");
    fs::write(&ballast, vec![0; DISK_BYTES]).unwrap_err();
    let (mut acked, large_output): (usize, Blob) = (ACKED, vec![7; 1_000_000].into());
    let (held, refused) = loop {
        let leased = take(&driver).await;
        match driver.ack(&leased, Some(large_output.clone()), NOON).await {
            Ok(_) => acked += 1,
            Err(error) => break (leased, error),
        }
        assert!(acked < ACKED + 30, "it is never full");
    };
    assert!(refused.to_string().contains("is full"), "{refused}");
    fs::remove_file(&ballast).unwrap();
    driver.ack(&held, Some(output), NOON).await.unwrap();
    assert_eq!(driver.check().await.unwrap(), []);

    let later = NOON.saturating_add(Duration::from_secs(100));
    let prune = || driver.prune(Prune::new(1_000, later).done_before(later));
    assert_eq!(prune().await.unwrap() + prune().await.unwrap(), acked + 1);
    enqueue_ten(&driver, stored).await.unwrap();
    let count = Counts::new(NOON);
    assert_eq!(driver.counts(count).await.unwrap()[0].states.ready, stored - acked - 1 + 10);
    sqlite.close().await.unwrap();
    println!("nothing was lost");
}

/// Not a test by itself.
#[tokio::test]
async fn a_child_on_a_tiny_disk() {
    let Some(dir) = told() else { return };
    let path = Path::new(&dir).join("jobs.db");
    let sqlite = SqliteDriver::open_with(Config::new(&path).create(true)).await.unwrap();
    let driver = AnyDriver::new(sqlite.clone());
    let stored = fill(&driver).await;
    // Each takes some pages of the log, and all of them together more than the disk has.
    for _ in 0..stored {
        driver.ack(&take(&driver).await, None, NOON).await.unwrap();
    }
    let later = NOON.saturating_add(Duration::from_secs(100));
    let prune = || driver.prune(Prune::new(100, later).done_before(later));
    let mut pruned = 0;
    while pruned < stored {
        pruned += prune().await.unwrap();
    }
    enqueue_ten(&driver, stored).await.unwrap();
    assert_eq!(driver.check().await.unwrap(), []);
    sqlite.close().await.unwrap();
    println!("nothing was lost");
}
