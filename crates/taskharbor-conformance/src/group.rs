//! The cases, one file per group of clauses.

use crate::case::Case;

/// Lists the cases of a group, each with the clauses it proves.
///
/// Makes `CASES` of them, and a macro with the name of the group that makes tests of them where it
/// is called.
macro_rules! group {
    ($group:ident { $($name:ident [$($clause:literal)+])* }) => {
        pub(crate) static CASES: &[$crate::case::Case] = &[$($crate::case::Case {
            group: stringify!($group),
            name: stringify!($name),
            clauses: &[$($clause),+],
            body: |trial| Box::pin($name(trial)),
        }),*];

        #[doc(hidden)]
        #[macro_export]
        macro_rules! $group {
            () => {
                $crate::__tests_of!($group $($name)*);
            };
        }
    };
}

mod admin;
mod call;
mod cancel;
mod close;
mod dropped;
mod edge;
mod edge_race;
mod enqueue;
mod expansion;
mod expansion_refused;
mod extend;
mod field;
mod flow_again;
mod flow_mass;
mod flow_shape;
mod flow_state;
mod idempotency;
mod inspect;
mod join;
mod lease;
mod model;
mod name;
mod next_due;
mod order;
mod output;
mod pause;
mod payload;
mod policy;
mod policy_mix;
mod prune;
mod prune_flow;
mod race;
mod refusal;
mod requeue;
mod reserve;
mod schedule;
mod settle;
mod terminal;
mod text;
mod watch;

macro_rules! groups {
    ($($group:ident;)*) => {
        /// The cases of all groups.
        pub(crate) static GROUPS: &[&[Case]] = &[$($group::CASES),*];

        #[doc(hidden)]
        #[macro_export]
        macro_rules! __groups {
            () => {
                $($crate::$group!();)*
            };
        }
    };
}

groups! {
    enqueue;
    field;
    idempotency;
    schedule;
    order;
    reserve;
    next_due;
    lease;
    extend;
    settle;
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
    flow_shape;
    flow_state;
    output;
    expansion;
    expansion_refused;
    policy;
    policy_mix;
    pause;
    cancel;
    requeue;
    inspect;
    admin;
    prune;
    prune_flow;
    watch;
    call;
    dropped;
    model;
    race;
    flow_mass;
}
