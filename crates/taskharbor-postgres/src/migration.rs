//! Installing the schema and bringing it up to date.
//!
//! Everything happens in one block of SQL that looks at what is installed, under a lock that ends
//! with it. So any number of processes may start at once, a call that is cut leaves all or nothing,
//! and the same text can be printed for those whose database is managed by others. Functions carry
//! their version in their name, and those of the version before stay, so that older programs work
//! on while newer ones start.

use crate::SchemaName;

/// The version of the schema that this driver works with.
pub(crate) const VERSION: i64 = 1;

/// What each version adds to the one before.
const STEPS: [&[&str]; 1] = [&[
    include_str!("sql/v1/meta.sql"),
    include_str!("sql/v1/table.sql"),
    include_str!("sql/v1/finish.sql"),
    include_str!("sql/v1/enqueue.sql"),
    include_str!("sql/v1/flow.sql"),
    include_str!("sql/v1/reserve.sql"),
    include_str!("sql/v1/settle.sql"),
    include_str!("sql/v1/expand.sql"),
    include_str!("sql/v1/manage.sql"),
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
    include_str!("sql/v1/role.sql"),
]];

/// What functions that a caller uses run under: their own names, and plans that look rows up and are kept.
const SETTINGS: &str = "SET search_path = {schema}, pg_temp SET plan_cache_mode = force_generic_plan \
     SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off";

/// The SQL that installs the newest version into a schema, or brings an older one up to date.
/// Running it again changes nothing.
///
/// The driver runs it in [`Admin::migrate`](taskharbor_core::Admin::migrate); print it where
/// somebody else has to.
#[must_use]
pub fn migration(schema: &SchemaName) -> String {
    let mut steps = String::new();
    for (number, parts) in (1..).zip(STEPS) {
        let text = parts.join("\n").replace("{channel}", &schema.channel());
        let text = text.replace("{settings}", SETTINGS);
        steps += &format!(
            "IF v_version < {number} THEN EXECUTE $step$\n{text}$step$;\nUPDATE {{schema}}.th_meta SET version = {number};\nEND IF;\n"
        );
    }
    let frame = include_str!("sql/migration.sql");
    let frame = frame.replace("{steps}", &steps).replace("{newest}", &VERSION.to_string());
    schema.sql(&frame.replace("{name}", schema.as_str()))
}
