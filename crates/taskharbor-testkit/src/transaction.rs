//! Jobs in the application's own transactions, whichever library it opens them with: a suite over
//! [`Library`], which the tests of each bridge run with `transaction_tests!`.

#![allow(missing_docs, reason = "the name of a case is a sentence")]

pub mod ack;
mod app;
pub mod conflict;
pub mod stress;
pub mod wake_up;
pub mod within;

use std::{error::Error, future::Future};

use taskharbor::Transaction;
use taskharbor_postgres::PostgresDriver;

/// Why something that a client library was asked for did not happen.
pub type Failure = Box<dyn Error + Send + Sync>;

/// A client library for PostgreSQL, as an application uses it.
pub trait Library: Send + Sync + 'static {
    /// Connections.
    type Pool: Clone + Send + Sync + 'static;
    /// One of them.
    type Db: Send + 'static;
    /// A transaction on it.
    type Open<'a>: Send;

    /// Connections to a server, known to it by the name of the application.
    fn pool(url: &str, application: &str, schema: &str, size: usize) -> Self::Pool;

    /// Takes a connection.
    fn connect(pool: &Self::Pool) -> impl Future<Output = Result<Self::Db, Failure>> + Send;

    /// Opens a transaction.
    fn begin(db: &mut Self::Db) -> impl Future<Output = Result<Self::Open<'_>, Failure>> + Send;

    /// The transaction as TaskHarbor takes it.
    fn tx<'a>(pg: &PostgresDriver, open: &'a mut Self::Open<'_>) -> impl Transaction + 'a;

    /// Runs a statement; answers how many rows it touched.
    fn execute(
        open: &mut Self::Open<'_>,
        sql: &str,
    ) -> impl Future<Output = Result<u64, Failure>> + Send;

    /// Commits.
    fn commit(open: Self::Open<'_>) -> impl Future<Output = Result<(), Failure>> + Send;

    /// Rolls back.
    fn rollback(open: Self::Open<'_>) -> impl Future<Output = Result<(), Failure>> + Send;
}

/// The suite as tests, with this [`Library`].
#[macro_export]
macro_rules! transaction_tests {
    ($library:ty) => {
        $crate::transaction_tests! { $library:
            ack {
                the_effect_and_the_ack_are_seen_together
                a_job_whose_transaction_is_rolled_back_is_tried_again_and_takes_effect_once
                a_handler_that_fails_between_ack_and_commit_takes_effect_once
                a_handler_that_panics_between_ack_and_commit_takes_effect_once
                a_worker_that_has_lost_its_lease_is_refused
                a_transaction_of_another_driver_is_refused
                a_caller_that_waits_for_a_member_of_a_flow_goes_on_at_the_commit
                a_transaction_that_is_kept_open_delays_no_other_call
                a_transaction_that_outlives_its_handler_delays_no_other_call
            }
            conflict {
                a_job_that_is_there_already_does_not_break_the_transaction
                the_second_with_a_key_waits_and_is_the_same_job_if_the_first_commits
                the_second_with_a_key_waits_and_is_new_if_the_first_is_rolled_back
                at_repeatable_read_what_was_stored_since_it_began_is_a_conflict_to_be_tried_again
                an_error_of_the_server_says_nothing_of_what_was_enqueued
            }
            wake_up {
                listeners_are_woken_by_the_commit_and_not_before
                listeners_are_not_woken_if_notifications_are_off
                a_worker_elsewhere_runs_the_job_once_the_transaction_commits
                a_worker_without_wake_ups_finds_the_job_by_polling
            }
            stress [flavor = "multi_thread"] {
                every_transfer_happens_exactly_once_despite_faults
            }
            within {
                a_job_is_there_when_the_transaction_commits_and_not_before
                a_job_is_not_there_when_the_transaction_is_rolled_back_or_dropped
                many_jobs_raw_ones_and_flows_go_into_one_transaction
                the_jobs_and_what_the_application_writes_are_one
                a_transaction_of_another_driver_is_refused_and_stays_as_it_was
            }
        }
    };
    ($library:ty: $($module:ident $([$($flavor:tt)*])? { $($case:ident)* })*) => {
        $(mod $module {
            use super::*;

            $crate::transaction_tests! {
                @ $library, $module, [tokio::test $(($($flavor)*))?] $($case)*
            }
        })*
    };
    (@ $library:ty, $module:ident, $test:tt $($case:ident)*) => {
        $(# $test
        async fn $case() {
            $crate::transaction::$module::$case::<$library>().await;
        })*
    };
}

#[cfg(test)]
mod tests {
    /// The names after `before`, up to what is no part of a name.
    fn names<'a>(text: &'a str, before: &str) -> Vec<&'a str> {
        let starts = text.split(before).skip(1);
        starts
            .filter_map(|rest| rest.split(|c: char| !c.is_alphanumeric() && c != '_').next())
            .collect()
    }

    #[test]
    fn every_case_is_listed() {
        let list = include_str!("transaction.rs");
        let files = [
            include_str!("transaction/ack.rs"),
            include_str!("transaction/conflict.rs"),
            include_str!("transaction/wake_up.rs"),
            include_str!("transaction/stress.rs"),
            include_str!("transaction/within.rs"),
        ];
        for case in files.iter().flat_map(|file| names(file, "pub async fn ")) {
            assert!(list.contains(&format!(" {case}\n")), "{case} is in no list");
        }
    }
}
