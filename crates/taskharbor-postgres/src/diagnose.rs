//! The facts about the server that `doctor` reports.

use std::time::Duration;

use taskharbor_core::{DriverError, admin::Diagnosis};
use tokio_postgres::Row;

use crate::{PostgresDriver, answer::get, value::Value};

/// Dead rows are removed up to the oldest snapshot only. One that is older keeps queues from being cleaned up.
const OLD_SNAPSHOT: Duration = Duration::from_secs(15 * 60);
/// Autovacuum cleans a table up when a fifth of it is dead. With far more, it does not keep up.
const MANY_DEAD_ROWS: i64 = 500_000;

/// How many missing rights are named.
const NAMED: usize = 3;

/// What the server says about itself and about the role that asks.
#[derive(Debug)]
struct Server {
    version: String,
    role: String,
    /// Whether the role may use anything in the schema at all.
    may_enter: bool,
    may_work: bool,
    /// Which rights of a worker the role does not have.
    missing: Vec<String>,
    fsync: String,
    synchronous_commit: String,
    full_page_writes: String,
    autovacuum: String,
    dead_rows: i64,
    live_rows: i64,
    oldest_snapshot: Option<Duration>,
    connections: i64,
    max_connections: i64,
}

impl PostgresDriver {
    pub(crate) async fn diagnose_server(&self) -> Result<Vec<Diagnosis>, DriverError> {
        let schema = self.shared.schema.as_str();
        let named = [Value::Text(Some(schema))];
        // It reads the catalogs only, so it tells also what keeps the role from everything else.
        let rows = self.shared.session.query(&self.shared.statements.diagnose, &named).await?;
        let server = rows.first().map(Server::read).transpose()?;
        if let Some(closed) = server.as_ref().filter(|it| !it.may_enter) {
            return Ok(closed.diagnoses(schema));
        }
        self.shared.check_version().await?;
        let Some(server) = server else {
            let advice = "prepare it: taskharbor migrate up";
            let found = format!("schema {schema} lacks functions of TaskHarbor");
            return Ok(vec![Diagnosis::problem("schema", found, advice)]);
        };
        let mut lines = server.diagnoses(schema);
        lines.push(self.pooler());
        Ok(lines)
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

impl Server {
    fn read(row: &Row) -> Result<Self, DriverError> {
        let snapshot: Option<i64> = get(row, "oldest_snapshot")?;
        Ok(Self {
            version: get(row, "version")?,
            role: get(row, "role")?,
            may_enter: get(row, "may_enter")?,
            may_work: get(row, "may_work")?,
            missing: get(row, "missing")?,
            fsync: get(row, "fsync")?,
            synchronous_commit: get(row, "synchronous_commit")?,
            full_page_writes: get(row, "full_page_writes")?,
            autovacuum: get(row, "autovacuum")?,
            dead_rows: get(row, "dead_rows")?,
            live_rows: get(row, "live_rows")?,
            oldest_snapshot: snapshot
                .and_then(|it| u64::try_from(it).ok())
                .map(Duration::from_secs),
            connections: get(row, "connections")?,
            max_connections: get(row, "max_connections")?,
        })
    }

    fn diagnoses(&self, schema: &str) -> Vec<Diagnosis> {
        let grant = format!("SELECT {schema}.th_grant('worker', '{}')", self.role);
        if !self.may_enter {
            let found = format!("role {} may not use schema {schema}", self.role);
            let advice = format!("let its owner grant the role a part: {grant}");
            return vec![Diagnosis::problem("schema", found, advice)];
        }
        let found = format!("schema {schema} on PostgreSQL {}", self.version);
        vec![
            Diagnosis::fine("schema", found),
            self.rights(&grant),
            self.durability(),
            self.vacuum(),
            self.snapshot(),
            self.connections(),
        ]
    }

    fn rights(&self, grant: &str) -> Diagnosis {
        let role = &self.role;
        if !self.may_work {
            let found = format!("role {role} may not reserve jobs");
            let advice = format!("if it is to run jobs: {grant}");
            return Diagnosis::warning("rights", found, advice);
        }
        if self.missing.is_empty() {
            return Diagnosis::fine("rights", format!("role {role} may do all that a worker does"));
        }
        let named = self.missing.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>();
        let rest = match self.missing.len().saturating_sub(NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let found = format!("role {role} may reserve jobs, but not use {}{rest}", named.join(", "));
        Diagnosis::problem("rights", found, format!("grant them as the owner: {grant}"))
    }

    fn durability(&self) -> Diagnosis {
        let Self { fsync, synchronous_commit, full_page_writes, .. } = self;
        let found = format!(
            "fsync {fsync}, synchronous_commit {synchronous_commit}, full_page_writes {full_page_writes}"
        );
        if fsync == "off" || full_page_writes == "off" {
            let advice =
                "a crash of the machine can destroy the database: turn it on in postgresql.conf";
            return Diagnosis::problem("durability", found, advice);
        }
        if synchronous_commit == "off" {
            let advice = "jobs of the last second are lost if the server crashes: SET synchronous_commit = on";
            return Diagnosis::warning("durability", found, advice);
        }
        Diagnosis::fine("durability", found)
    }

    fn vacuum(&self) -> Diagnosis {
        let Self { autovacuum, dead_rows, live_rows, .. } = self;
        let found =
            format!("autovacuum {autovacuum}, {dead_rows} dead rows beside {live_rows} live ones");
        if autovacuum == "off" {
            let advice = "without it reserving gets slower and the tables grow: ALTER SYSTEM SET autovacuum = on";
            return Diagnosis::problem("vacuum", found, advice);
        }
        if *dead_rows > MANY_DEAD_ROWS && dead_rows > live_rows {
            let advice = "autovacuum does not keep up: look for an old snapshot, raise autovacuum_vacuum_cost_limit";
            return Diagnosis::warning("vacuum", found, advice);
        }
        Diagnosis::fine("vacuum", found)
    }

    fn snapshot(&self) -> Diagnosis {
        let Some(age) = self.oldest_snapshot else {
            return Diagnosis::fine("oldest snapshot", "none is seen by this role");
        };
        let found = format!("{} s", age.as_secs());
        if age < OLD_SNAPSHOT {
            return Diagnosis::fine("oldest snapshot", found);
        }
        let advice = "dead rows pile up behind it: end the transaction (pg_stat_activity, xact_start), and set \
                      idle_in_transaction_session_timeout";
        Diagnosis::warning("oldest snapshot", found, advice)
    }

    fn connections(&self) -> Diagnosis {
        let (used, max) = (self.connections, self.max_connections);
        let found = format!("{used} of {max} are used");
        if used * 10 < max * 9 {
            return Diagnosis::fine("connections", found);
        }
        let advice = "new workers will be refused: raise max_connections, or make pools smaller";
        Diagnosis::warning("connections", found, advice)
    }
}

#[cfg(test)]
mod tests {
    use taskharbor_core::admin::DiagnosisLevel::{self, Fine, Problem, Warning};

    use super::*;

    fn server() -> Server {
        let on = || "on".to_owned();
        Server {
            version: "15.4".to_owned(),
            role: "app".to_owned(),
            may_enter: true,
            may_work: true,
            missing: Vec::new(),
            fsync: on(),
            synchronous_commit: on(),
            full_page_writes: on(),
            autovacuum: on(),
            dead_rows: 10,
            live_rows: 20,
            oldest_snapshot: Some(Duration::from_secs(1)),
            connections: 10,
            max_connections: 100,
        }
    }

    /// What is expected of a fault: its line, its level, words of its advice, and the fault.
    type Case = (&'static str, DiagnosisLevel, &'static str, Box<dyn FnOnce(&mut Server)>);

    /// The lines that are not fine after this change.
    fn ill(change: impl FnOnce(&mut Server)) -> Vec<(String, DiagnosisLevel, String)> {
        let mut server = server();
        change(&mut server);
        let lines = server.diagnoses("jobs").into_iter().filter(|it| it.level > Fine);
        lines.map(|it| (it.what.to_string(), it.level, it.advice.unwrap())).collect()
    }

    #[test]
    fn a_server_that_is_well_has_fine_lines() {
        assert_eq!(ill(|_| ()), []);
        assert_eq!(server().diagnoses("jobs").len(), 6);
    }

    #[test]
    fn each_fault_is_one_line_with_what_to_do() {
        let off = || "off".to_owned();
        let many = |count| (0..count).map(|n| format!("th_{n}")).collect();
        let cases: [Case; 11] = [
            ("schema", Problem, "th_grant('worker', 'app')", Box::new(|it| it.may_enter = false)),
            ("rights", Warning, "th_grant('worker', 'app')", Box::new(|it| it.may_work = false)),
            (
                "rights",
                Problem,
                "th_grant('worker', 'app')",
                Box::new(move |it| it.missing = many(5)),
            ),
            ("durability", Problem, "postgresql.conf", Box::new(move |it| it.fsync = off())),
            (
                "durability",
                Problem,
                "postgresql.conf",
                Box::new(move |it| it.full_page_writes = off()),
            ),
            (
                "durability",
                Warning,
                "SET synchronous_commit",
                Box::new(move |it| it.synchronous_commit = off()),
            ),
            ("vacuum", Problem, "SET autovacuum", Box::new(move |it| it.autovacuum = off())),
            (
                "vacuum",
                Warning,
                "autovacuum_vacuum_cost_limit",
                Box::new(|it| it.dead_rows = MANY_DEAD_ROWS + 1),
            ),
            (
                "oldest snapshot",
                Warning,
                "pg_stat_activity",
                Box::new(|it| it.oldest_snapshot = Some(OLD_SNAPSHOT)),
            ),
            ("connections", Warning, "max_connections", Box::new(|it| it.connections = 90)),
            ("connections", Warning, "max_connections", Box::new(|it| it.connections = 101)),
        ];
        for (what, level, advice, change) in cases {
            let found = ill(change);
            assert_eq!(found.len(), 1, "{found:?}");
            assert_eq!((&*found[0].0, found[0].1), (what, level), "{found:?}");
            assert!(found[0].2.contains(advice), "{found:?}");
        }
    }

    #[test]
    fn the_first_missing_rights_are_named() {
        let mut server = server();
        server.missing =
            ["th_evict_v1", "th_fire_v1", "th_live", "th_worker"].map(str::to_owned).into();
        let rights = server.rights("grant");
        let found =
            "role app may reserve jobs, but not use th_evict_v1, th_fire_v1, th_live and 1 more";
        assert_eq!(rights.found, found);
    }
}
