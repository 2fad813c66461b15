//! The cases, one file per group of clauses.

use crate::case::Case;

/// Lists the cases of a group, each with the clauses it proves; those under `flows` need a driver
/// that keeps flows.
///
/// Makes `CASES` of them, and a macro with the name of the group that makes tests of them where it
/// is called.
macro_rules! group {
    ($group:ident { $($job:ident [$($of_job:literal)+])* }
     flows { $($flow:ident [$($of_flow:literal)+])* }) => {
        pub(crate) static CASES: &[$crate::case::Case] = &[
            $($crate::case::Case {
                group: stringify!($group),
                name: stringify!($job),
                clauses: &[$($of_job),+],
                level: $crate::case::Level::Jobs,
                body: |under_test| Box::pin($job(under_test)),
            },)*
            $($crate::case::Case {
                group: stringify!($group),
                name: stringify!($flow),
                clauses: &[$($of_flow),+],
                level: $crate::case::Level::Flows,
                body: |under_test| Box::pin($flow(under_test)),
            },)*
        ];

        #[doc(hidden)]
        #[macro_export]
        macro_rules! $group {
            (jobs) => {
                $crate::__tests_of!($group $($job)*);
            };
            (flows) => {
                $crate::__tests_of!($group $($job)* $($flow)*);
            };
        }
    };
}

mod admin;
mod call;
mod cancel;
mod close;
mod dropped;
mod due_time;
mod edge;
mod edge_race;
mod enqueue;
mod evict;
mod evict_flow;
mod evict_race;
mod expansion;
mod expansion_refused;
mod export;
mod export_flow;
mod extend;
mod failure_job;
mod failure_job_admin;
mod failure_job_set;
mod field;
mod flow_again;
mod flow_level;
mod flow_mass;
mod flow_shape;
mod flow_state;
mod hold;
mod idempotency;
mod idle;
mod import;
mod input;
mod inspect;
mod join;
mod key_hold;
mod lane;
mod lane_turn;
mod lanes_listed;
mod lease;
mod limit;
mod limit_owner;
mod limit_place;
mod limit_race;
mod limit_wake;
mod list;
mod model;
mod name;
mod next_due;
mod order;
mod output;
mod output_join;
mod pause;
mod payload;
mod policy;
mod policy_mix;
mod prune;
mod prune_flow;
mod race;
mod rate;
mod refusal;
mod release_note;
mod requeue;
mod reserve;
mod schedule;
mod schedule_change;
mod schedule_fire;
mod schedule_flow;
mod schedule_owner;
mod schedule_refused;
mod settle;
mod terminal;
mod text;
mod watch;
mod worker;

macro_rules! groups {
    ($($group:ident;)*) => {
        /// The cases of all groups.
        pub(crate) static GROUPS: &[&[Case]] = &[$($group::CASES),*];

        #[doc(hidden)]
        #[macro_export]
        macro_rules! __groups {
            ($level:ident) => {
                $($crate::$group!($level);)*
            };
        }
    };
}

groups! {
    enqueue;
    field;
    idempotency;
    key_hold;
    due_time;
    order;
    reserve;
    next_due;
    lease;
    extend;
    settle;
    release_note;
    terminal;
    refusal;
    payload;
    name;
    text;
    close;
    edge;
    join;
    flow_again;
    edge_race;
    flow_level;
    flow_shape;
    flow_state;
    output;
    output_join;
    input;
    expansion;
    expansion_refused;
    policy;
    policy_mix;
    failure_job;
    failure_job_set;
    failure_job_admin;
    pause;
    lane;
    lane_turn;
    limit;
    limit_place;
    limit_owner;
    rate;
    hold;
    idle;
    lanes_listed;
    limit_wake;
    limit_race;
    schedule;
    schedule_fire;
    schedule_refused;
    schedule_flow;
    schedule_change;
    schedule_owner;
    cancel;
    requeue;
    inspect;
    list;
    admin;
    worker;
    evict;
    evict_flow;
    evict_race;
    prune;
    prune_flow;
    export;
    import;
    export_flow;
    watch;
    call;
    dropped;
    model;
    race;
    flow_mass;
}
