//! Installing the tables, and upgrading those of an older version.
//!
//! The version is in a table of ours and not in `PRAGMA user_version`, which belongs to the
//! application if the file is its own: tools that migrate its tables count there.

use rusqlite::{Connection, OptionalExtension, TransactionBehavior};
use taskharbor_core::DriverError;

use crate::{error::Fault, statement as sql};

/// What leads to each version from the one before.
const STEPS: &[&str] = &[include_str!("sql/v1.sql")];

/// The version that this program works with.
pub(crate) const VERSION: i64 = STEPS.len() as i64;

/// What marks a file that we made, for tools that tell files apart: "THar".
const APPLICATION_ID: i64 = 0x5448_6172;

/// Returns the SQL that installs the store into a database without one, for other tools.
#[must_use]
pub fn migration() -> String {
    let mut sql = format!("BEGIN IMMEDIATE;\nPRAGMA application_id = {APPLICATION_ID};\n\n");
    for (version, step) in (1..=VERSION).zip(STEPS) {
        sql += &format!("{}\n\nUPDATE th_meta SET version = {version};\n\n", step.trim_end());
    }
    sql + "COMMIT;\n"
}

/// What a database is to us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// It has no tables.
    Nothing,
    /// It has tables, none of them ours.
    Foreign,
    /// It holds a store of this version.
    Store(i64),
}

/// The store in the file is not one that this program works with.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unfit {
    #[error(
        "the store is of version {found}, older than this program needs ({VERSION}): run `taskharbor migrate up`, or `driver.migrate()`"
    )]
    TooOld { found: i64 },
    #[error(
        "the store is of version {found}, newer than this program knows ({VERSION}): use a newer version of it"
    )]
    TooNew { found: i64 },
}

/// What the database holds. Reads and writes nothing else.
pub(crate) fn content(conn: &Connection) -> Result<Content, Fault> {
    let tables: i64 = conn.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    if tables == 0 {
        return Ok(Content::Nothing);
    }
    let ours =
        "SELECT count(*) FROM pragma_table_info('th_meta') WHERE name IN ('one', 'version', 'seq')";
    if conn.query_row(ours, [], |row| row.get::<_, i64>(0))? != 3 {
        return Ok(Content::Foreign);
    }
    let version = conn.query_row(sql::VERSION, [], |row| row.get(0)).optional()?;
    Ok(version.map_or(Content::Foreign, Content::Store))
}

/// Fails unless the store is of our version, as it is inside the transaction that is open.
pub(crate) fn check_version(conn: &Connection) -> Result<(), Fault> {
    let found: i64 = conn.prepare_cached(sql::VERSION)?.query_row([], |row| row.get(0))?;
    fits(found).map_err(|unfit| DriverError::backend(unfit).into())
}

pub(crate) fn fits(found: i64) -> Result<(), Unfit> {
    match found {
        VERSION => Ok(()),
        found if found < VERSION => Err(Unfit::TooOld { found }),
        found => Err(Unfit::TooNew { found }),
    }
}

/// Brings the database from what it holds to our version, whole or not at all. Others may do the
/// same at the same time.
pub(crate) fn migrate(conn: &mut Connection) -> Result<(), Fault> {
    let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
    bring_up(&tx)?;
    Ok(tx.commit()?)
}

/// As [`migrate`], inside a transaction that is open for writing.
pub(crate) fn bring_up(conn: &Connection) -> Result<(), Fault> {
    bring_through(conn, STEPS)
}

fn bring_through(conn: &Connection, steps: &[&str]) -> Result<(), Fault> {
    let content = content(conn)?;
    let found = match content {
        Content::Store(found) => found,
        Content::Nothing | Content::Foreign => 0,
    };
    let known = i64::try_from(steps.len()).unwrap_or(i64::MAX);
    if found > known {
        return Err(DriverError::backend(Unfit::TooNew { found }).into());
    }
    for (version, step) in (1_i64..).zip(steps).filter(|(version, _)| *version > found) {
        conn.execute_batch(step)?;
        conn.execute("UPDATE th_meta SET version = ?1", [version])?;
    }
    if content == Content::Nothing {
        conn.pragma_update(None, "application_id", APPLICATION_ID)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn migrate_through(conn: &mut Connection, steps: &[&str]) -> Result<(), Fault> {
        let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
        bring_through(&tx, steps)?;
        Ok(tx.commit()?)
    }

    fn version(conn: &Connection) -> Content {
        content(conn).unwrap()
    }

    #[test]
    fn steps_lead_from_any_version_to_the_newest() {
        let next = "ALTER TABLE th_job ADD COLUMN tenant TEXT";
        let steps = [STEPS[0], next];
        let mut conn = Connection::open_in_memory().unwrap();
        assert_eq!(version(&conn), Content::Nothing);
        migrate_through(&mut conn, &steps[..1]).unwrap();
        assert_eq!(version(&conn), Content::Store(1));
        migrate_through(&mut conn, &steps).unwrap();
        assert_eq!(version(&conn), Content::Store(2));
        migrate_through(&mut conn, &steps).unwrap();
        conn.prepare("SELECT tenant FROM th_job").unwrap();
        let refused = DriverError::from(migrate_through(&mut conn, &steps[..1]).unwrap_err());
        let DriverError::Backend(source) = refused else { panic!("{refused}") };
        assert!(source.to_string().contains("use a newer version"), "{source}");
    }

    #[test]
    fn what_is_printed_installs_a_store() {
        let conn = Connection::open_in_memory().unwrap();
        conn.execute_batch(&migration()).unwrap();
        assert_eq!(version(&conn), Content::Store(VERSION));
        check_version(&conn).unwrap();
    }

    #[test]
    fn a_step_that_fails_leaves_everything_as_it_was() {
        let mut conn = Connection::open_in_memory().unwrap();
        migrate(&mut conn).unwrap();
        let steps = [STEPS[0], "CREATE TABLE th_new (a INTEGER) STRICT; CREATE TABLE th_job (a)"];
        migrate_through(&mut conn, &steps).unwrap_err();
        assert_eq!(version(&conn), Content::Store(1));
        conn.prepare("SELECT * FROM th_new").unwrap_err();
        assert!(conn.is_autocommit());
    }
}
