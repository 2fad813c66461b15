//! What the driver finds out about its server for people.

use std::time::Duration;

use taskharbor_core::{DriverError, admin::Diagnosis};
use tokio_postgres::Row;

use crate::{PostgresDriver, answer::get, value::Value};

/// Dead rows are removed up to the oldest snapshot only. One that is older keeps queues from being cleaned up.
const OLD_SNAPSHOT: Duration = Duration::from_secs(15 * 60);
/// Autovacuum cleans a table up when a fifth of it is dead. With far more, it does not keep up.
const MANY_DEAD_ROWS: i64 = 500_000;

impl PostgresDriver {
    pub(crate) async fn diagnose_server(&self) -> Result<Vec<Diagnosis>, DriverError> {
        let schema = [Value::Text(Some(self.shared.schema.as_str()))];
        let rows = self.query(&self.shared.statements.diagnose, &schema).await?;
        let Some(row) = rows.first() else {
            let advice = "prepare it: taskharbor migrate up";
            return Ok(vec![Diagnosis::problem("schema", "the functions are missing", advice)]);
        };
        Ok(vec![
            schema_of(row, self.shared.schema.as_str())?,
            durability(row)?,
            vacuum(row)?,
            snapshot(row)?,
            connections(row)?,
            self.pooler(),
        ])
    }

    fn pooler(&self) -> Diagnosis {
        if self.shared.session.prepares() {
            return Diagnosis::fine("pooler", "none in transaction mode: statements are prepared");
        }
        let found = "statements are sent unnamed, as through a pooler in transaction mode";
        let advice = "workers are faster past the pooler, and get wake-ups there: give them the server's own port";
        Diagnosis::warning("pooler", found, advice)
    }
}

fn schema_of(row: &Row, schema: &str) -> Result<Diagnosis, DriverError> {
    let version: String = get(row, "version")?;
    let found = format!("schema {schema} on PostgreSQL {version}");
    if get(row, "may_work")? {
        return Ok(Diagnosis::fine("schema", found));
    }
    let advice = format!("if this role is to run jobs: SELECT {schema}.th_grant('worker', 'ROLE')");
    Ok(Diagnosis::warning("schema", format!("{found}; this role may not reserve jobs"), advice))
}

fn durability(row: &Row) -> Result<Diagnosis, DriverError> {
    let setting = |name: &str| get::<String>(row, name);
    let (fsync, commit) = (setting("fsync")?, setting("synchronous_commit")?);
    let pages = setting("full_page_writes")?;
    let found = format!("fsync {fsync}, synchronous_commit {commit}, full_page_writes {pages}");
    if fsync == "off" || pages == "off" {
        let advice =
            "a crash of the machine can destroy the database: turn it on in postgresql.conf";
        return Ok(Diagnosis::problem("durability", found, advice));
    }
    if commit == "off" {
        let advice =
            "jobs of the last second are lost if the server crashes: SET synchronous_commit = on";
        return Ok(Diagnosis::warning("durability", found, advice));
    }
    Ok(Diagnosis::fine("durability", found))
}

fn vacuum(row: &Row) -> Result<Diagnosis, DriverError> {
    let (dead, live): (i64, i64) = (get(row, "dead_rows")?, get(row, "live_rows")?);
    let autovacuum: String = get(row, "autovacuum")?;
    let found = format!("autovacuum {autovacuum}, {dead} dead rows beside {live} live ones");
    if autovacuum == "off" {
        let advice = "without it reserving gets slower and the tables grow: ALTER SYSTEM SET autovacuum = on";
        return Ok(Diagnosis::problem("vacuum", found, advice));
    }
    if dead > MANY_DEAD_ROWS && dead > live {
        let advice = "autovacuum does not keep up: look for an old snapshot, raise autovacuum_vacuum_cost_limit";
        return Ok(Diagnosis::warning("vacuum", found, advice));
    }
    Ok(Diagnosis::fine("vacuum", found))
}

fn snapshot(row: &Row) -> Result<Diagnosis, DriverError> {
    let seconds: Option<i64> = get(row, "oldest_snapshot")?;
    let age = seconds.and_then(|it| u64::try_from(it).ok()).map(Duration::from_secs);
    let Some(age) = age else {
        return Ok(Diagnosis::fine("oldest snapshot", "none is seen by this role"));
    };
    let found = format!("{} s", age.as_secs());
    if age < OLD_SNAPSHOT {
        return Ok(Diagnosis::fine("oldest snapshot", found));
    }
    let advice = "dead rows pile up behind it: end the transaction (pg_stat_activity, xact_start), and set \
                  idle_in_transaction_session_timeout";
    Ok(Diagnosis::warning("oldest snapshot", found, advice))
}

fn connections(row: &Row) -> Result<Diagnosis, DriverError> {
    let (used, max): (i64, i64) = (get(row, "connections")?, get(row, "max_connections")?);
    let found = format!("{used} of {max} are used");
    if used * 10 < max * 9 {
        return Ok(Diagnosis::fine("connections", found));
    }
    let advice = "new workers will be refused: raise max_connections, or make pools smaller";
    Ok(Diagnosis::warning("connections", found, advice))
}
