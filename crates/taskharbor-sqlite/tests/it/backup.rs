//! A copy of a store that is in use.

use std::fs;

use taskharbor_core::{Admin, Driver, State, admin::Counts};
use taskharbor_sqlite::SqliteDriver;

use crate::{
    fixture::{NOON, put, run, state},
    temp_dir::TempDir,
};

#[tokio::test]
async fn a_backup_is_a_store_of_its_own_with_the_same_permissions() {
    let temp = TempDir::new();
    let driver = SqliteDriver::open_with(temp.config()).await.unwrap();
    put(&driver, "a").await;
    run(&driver, "a").await;
    put(&driver, "b").await;
    let copy = temp.dir().join("copy.db");
    let bytes = driver.backup(&copy).await.unwrap();
    assert_eq!(bytes, fs::metadata(&copy).unwrap().len());
    put(&driver, "c").await;
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(fs::metadata(&copy).unwrap().permissions().mode() & 0o777, 0o600);
    }
    let copied = SqliteDriver::open(&copy).await.unwrap();
    assert_eq!(state(&copied, "a").await, Some(State::Done));
    assert_eq!(state(&copied, "b").await, Some(State::Ready));
    assert_eq!(state(&copied, "c").await, None);
    assert_eq!(copied.check().await.unwrap(), []);
    assert_eq!(copied.counts(Counts::new(NOON)).await.unwrap().len(), 1);
    copied.close().await.unwrap();
}

#[tokio::test]
async fn a_backup_replaces_no_file() {
    let temp = TempDir::new();
    let driver = SqliteDriver::open_with(temp.config()).await.unwrap();
    let copy = temp.dir().join("copy.db");
    fs::write(&copy, "precious").unwrap();
    driver.backup(&copy).await.unwrap_err();
    driver.backup(temp.dir().join("nowhere/copy.db")).await.unwrap_err();
    assert_eq!(fs::read_to_string(&copy).unwrap(), "precious");
}
