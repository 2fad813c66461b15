//! Installing and upgrading the schema: a list of steps.
//!
//! A step is a transaction of its own, or an index that is built beside the running work. `th_meta`
//! says how many steps are done, which version is whole, and the oldest program that can use the
//! schema. So any number of processes may start at once, a migration that is cut goes on where it
//! was, and programs of the version before work on and can be started again. The same steps can be
//! printed for a database that others manage.
//!
//! Each version has all its functions for itself: a name of a function in `sql/v1` gets the suffix
//! `_v1` when the text of the step is made, so that `v2` cannot change what `v1` does. The names for
//! people in [`PUBLIC`] have no version and are replaced.

mod run;

use std::{collections::BTreeSet, time::Duration};

use taskharbor_core::DriverError;

use crate::{SchemaName, answer::get, session::Session, value::Value};

pub(crate) use run::run;

/// The version of the schema that this driver works with.
pub(crate) const VERSION: i64 = 1;

/// The functions that people call. They belong to the newest version.
const PUBLIC: [&str; 13] = [
    "th_cancel",
    "th_check",
    "th_enqueue",
    "th_enqueue_bytes",
    "th_enqueue_many",
    "th_grant",
    "th_pause",
    "th_requeue",
    "th_restore_grants",
    "th_resume",
    "th_revoke",
    "th_run_now",
    "th_set_priority",
];

/// All of version 1.
const V1: [&str; 29] = [
    include_str!("sql/v1/meta.sql"),
    include_str!("sql/v1/table.sql"),
    include_str!("sql/v1/finish.sql"),
    include_str!("sql/v1/enqueue.sql"),
    include_str!("sql/v1/flow.sql"),
    include_str!("sql/v1/caller.sql"),
    include_str!("sql/v1/limit.sql"),
    include_str!("sql/v1/reserve.sql"),
    include_str!("sql/v1/lane.sql"),
    include_str!("sql/v1/turn.sql"),
    include_str!("sql/v1/settle.sql"),
    include_str!("sql/v1/expand.sql"),
    include_str!("sql/v1/manage.sql"),
    include_str!("sql/v1/worker.sql"),
    include_str!("sql/v1/schedule.sql"),
    include_str!("sql/v1/fire.sql"),
    include_str!("sql/v1/requeue.sql"),
    include_str!("sql/v1/prune.sql"),
    include_str!("sql/v1/output.sql"),
    include_str!("sql/v1/import.sql"),
    include_str!("sql/v1/check.sql"),
    include_str!("sql/v1/view.sql"),
    include_str!("sql/v1/list.sql"),
    include_str!("sql/v1/api.sql"),
    include_str!("sql/v1/operate.sql"),
    include_str!("sql/v1/comment.sql"),
    include_str!("sql/v1/comment_view.sql"),
    include_str!("sql/v1/role.sql"),
    include_str!("sql/v1/role_memory.sql"),
];

/// A part of a migration that happens whole or not at all.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    /// The version that it belongs to.
    version: i64,
    /// The oldest program that can use the schema after it, by the version that the program knows.
    min_compatible: i64,
    title: &'static str,
    work: Work,
}

#[derive(Clone, Debug)]
enum Work {
    /// Statements in one transaction. Each lock has to be there soon, or all is tried again.
    Transaction(String),
    /// An index, built outside of a transaction without stopping writers.
    #[cfg_attr(not(test), expect(dead_code, reason = "version 1 has all its indexes at once"))]
    Index { name: &'static str, definition: &'static str },
}

/// The steps from nothing to the newest version, and how patient they are.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    steps: Vec<Step>,
    /// How long a statement may wait for a lock, while writers wait behind it.
    lock_wait: Duration,
    /// How long writers have before a step is tried again.
    pause: Duration,
    /// After how long a step is given up that gets no lock.
    limit: Duration,
}

/// What is installed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Installed {
    /// Zero while nothing is installed.
    pub(crate) version: i64,
    pub(crate) min_compatible: i64,
    pub(crate) step: i64,
}

/// What functions that a caller uses run under: their own names, and plans that look rows up and are kept.
const SETTINGS: &str = "SET search_path = {schema}, pg_temp SET plan_cache_mode = force_generic_plan \
     SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off";

/// Returns the SQL that installs the newest version into a schema, or upgrades an older one.
/// Running it again changes nothing.
///
/// [`Admin::migrate`](taskharbor_core::Admin::migrate) makes the same changes. Print the SQL for a
/// database that others administer, and run it with psql outside of a transaction.
#[must_use]
pub fn migration(schema: &SchemaName) -> String {
    Plan::own().script(schema)
}

impl Installed {
    /// Reads what the schema says about itself.
    pub(crate) async fn find(session: &Session, schema: &SchemaName) -> Result<Self, DriverError> {
        let exists = "SELECT to_regclass($1) IS NOT NULL";
        let name = schema.sql("{schema}.th_meta");
        let rows = session.query(exists, &[Value::Text(Some(&name))]).await?;
        if !rows.first().map_or(Ok(false), |row| get(row, 0))? {
            return Ok(Self::default());
        }
        let sql =
            "SELECT version::bigint, min_compatible::bigint, step::bigint FROM {schema}.th_meta";
        let rows = session.query(&schema.sql(sql), &[]).await?;
        let Some(row) = rows.first() else { return Ok(Self::default()) };
        Ok(Self { version: get(row, 0)?, min_compatible: get(row, 1)?, step: get(row, 2)? })
    }
}

impl Step {
    /// Statements in one transaction.
    fn transaction(version: i64, title: &'static str, sql: impl Into<String>) -> Self {
        Self { version, min_compatible: 1, title, work: Work::Transaction(sql.into()) }
    }

    /// What runs in the transaction that counts the step.
    fn body(&self) -> String {
        match &self.work {
            Work::Transaction(sql) => sql.clone(),
            Work::Index { name, .. } => {
                include_str!("sql/index_check.sql").replace("{index}", name)
            }
        }
    }

    /// Queries whose answers are commands, to be run outside of a transaction before the body.
    fn queries(&self) -> Vec<String> {
        match &self.work {
            Work::Transaction(_) => Vec::new(),
            Work::Index { name, definition } => vec![
                include_str!("sql/index_leftover.sql").replace("{index}", name),
                include_str!("sql/index_build.sql").replace("{definition}", definition),
            ],
        }
    }
}

impl Plan {
    /// The steps of this program.
    pub(crate) fn own() -> Self {
        let all = V1.join("\n");
        let all = versioned(&(all.clone() + &comments(&all)), 1);
        Self {
            steps: vec![Step::transaction(1, "tables, functions and views", all)],
            lock_wait: Duration::from_secs(1),
            pause: Duration::from_secs(2),
            limit: Duration::from_secs(600),
        }
    }

    /// The version that is installed after the last step.
    fn newest(&self) -> i64 {
        self.steps.last().map_or(0, |step| step.version)
    }

    /// The steps with their numbers, from 1.
    fn numbered(&self) -> impl Iterator<Item = (i64, &Step)> {
        (1..).zip(&self.steps)
    }

    /// The queries and the block of a step.
    fn texts(&self, schema: &SchemaName, number: i64, step: &Step) -> (Vec<String>, String) {
        let mut following = self.numbered().skip_while(|(it, _)| *it <= number);
        let is_last = following.all(|(_, it)| it.version != step.version);
        let last = if is_last {
            "UPDATE {schema}.th_meta SET version = {version};\n  PERFORM {schema}.th_restore_grants();"
        } else {
            ""
        };
        let fill = |text: &str| {
            let text = text
                .replace("{last}", last)
                .replace("{body}", &step.body())
                .replace("{settings}", SETTINGS)
                .replace("{title}", step.title)
                .replace("{number}", &number.to_string())
                .replace("{version}", &step.version.to_string())
                .replace("{min_compatible}", &step.min_compatible.to_string())
                .replace("{newest}", &self.newest().to_string())
                .replace("{lock_wait}", &format!("{}ms", self.lock_wait.as_millis()))
                .replace("{channel}", &schema.channel())
                .replace("{name}", schema.as_str());
            schema.sql(&text)
        };
        let queries = step.queries().iter().map(|query| fill(query)).collect();
        (queries, fill(include_str!("sql/migration.sql")))
    }

    /// All steps, for psql.
    fn script(&self, schema: &SchemaName) -> String {
        let mut script = format!(
            "-- Installs TaskHarbor into the schema {}, or brings it up to date. Safe to run again.\n",
            schema.quoted()
        );
        for (number, step) in self.numbered() {
            let (queries, block) = self.texts(schema, number, step);
            for query in queries {
                script += &format!("{}\n\\gexec\n", query.trim_end());
            }
            script += &block;
        }
        script
    }
}

/// The SQL of a version in which the name of every function ends in the version, except those in
/// [`PUBLIC`].
fn versioned(sql: &str, version: i64) -> String {
    let suffix = format!("_v{version}");
    let created = sql.split("CREATE FUNCTION ").skip(1);
    let names = created.map(|rest| rest.split(|it| !is_word(it)).next().unwrap_or_default());
    let helpers: BTreeSet<&str> =
        names.filter(|name| !name.ends_with(&suffix) && !PUBLIC.contains(name)).collect();
    let mut text = String::with_capacity(sql.len() + sql.len() / 20);
    for piece in sql.split_inclusive(|it| !is_word(it)) {
        let word = piece.trim_end_matches(|it| !is_word(it));
        text += word;
        if helpers.contains(word) {
            text += &suffix;
        }
        text += &piece[word.len()..];
    }
    text
}

/// Statements that give each function, type and view the comment that stands before it. `\df+` and `\dT+` show it.
fn comments(sql: &str) -> String {
    let mut comments = String::new();
    let mut before: Vec<&str> = Vec::new();
    for line in sql.lines() {
        if let Some(text) = line.strip_prefix("--") {
            before.push(text.trim());
            continue;
        }
        let created = line.strip_prefix("CREATE ").and_then(|rest| rest.split_once(' '));
        if let Some((kind @ ("FUNCTION" | "TYPE" | "VIEW"), rest)) = created
            && !before.is_empty()
        {
            let name = rest.split(|it| !is_word(it)).next().unwrap_or_default();
            let text = before.join("\n").replace('\'', "''");
            comments += &format!("COMMENT ON {kind} {name} IS '{text}';\n");
        }
        before.clear();
    }
    comments
}

fn is_word(character: char) -> bool {
    character.is_ascii_alphanumeric() || character == '_'
}

#[cfg(test)]
mod tests;
