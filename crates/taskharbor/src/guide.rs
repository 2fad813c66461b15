//! The guides, as modules without items.
//!
//! The pages are those of [the documentation site][site], whose originals are in `docs/guides` of the repository.
//!
//! [site]: https://github.com/taskharbor/taskharbor/tree/main/docs/guides
//!
//! | to learn | |
//! |---|---|
//! | [`tutorial`] | one program, from its first job to PostgreSQL and the dashboard |
//! | [`getting_started`] | a first job from the terminal and in a program, in two minutes |
//! | [`recipes`] | one page for each task: a nightly report, tenants, webhooks, a saga, and how to move from other systems |
//!
//! | to write | |
//! |---|---|
//! | [`workers`] | what a worker does with a job, every option, shutdown, outages |
//! | [`workflows`] | chains, groups, chords, handlers that return flows, failures |
//! | [`flow_json`] | flows as JSON documents |
//! | [`recurring`] | cron expressions, time zones, missed slots, backfills |
//! | [`limits`] | turns between tenants, jobs inflight, rates, holds |
//! | [`testing`] | single handlers, virtual time, real databases |
//! | [`python`] | workers and clients in Python |
//! | [`typescript`] | workers and clients in TypeScript and JavaScript |
//! | [`handlers_in_any_language`] | any executable as a handler |
//!
//! | to operate | |
//! |---|---|
//! | [`sqlite`] | a store in one file |
//! | [`postgres`] | set-up, roles, transactions, poolers, tuning, backups |
//! | [`moving_to_postgres`] | moving all jobs to another store |
//! | [`http`] | the API of the server |
//! | [`deploying`] | Kubernetes, Docker, systemd, rolling deploys |
//! | [`command_line`] | every command of `taskharbor` |
//! | [`dashboard`] | pages, roles and tokens |
//! | [`observability`] | metrics, traces, alerts |
//! | [`dlq`] | permanent failures |
//! | [`scaling`] | how many jobs one server can run, and what to do beyond that |
//!
//! | to evaluate | |
//! |---|---|
//! | [`writing_a_driver`] | from an empty crate to a driver that passes the suite |
//! | [`chaos`] | which faults are injected and which promises are checked |
//! | [`benchmarks`] | what is measured, and compared with what |

#[doc = include_str!("guide/tutorial.md")]
pub mod tutorial {}

#[doc = include_str!("guide/getting-started.md")]
pub mod getting_started {}

#[doc = include_str!("guide/workers.md")]
pub mod workers {}

#[doc = include_str!("guide/workflows.md")]
pub mod workflows {}

#[doc = include_str!("guide/flow-json.md")]
pub mod flow_json {}

#[doc = include_str!("guide/recurring.md")]
pub mod recurring {}

#[doc = include_str!("guide/limits.md")]
pub mod limits {}

#[doc = include_str!("guide/testing.md")]
pub mod testing {}

#[doc = include_str!("guide/python.md")]
pub mod python {}

#[doc = include_str!("guide/typescript.md")]
pub mod typescript {}

#[doc = include_str!("guide/handlers-in-any-language.md")]
pub mod handlers_in_any_language {}

#[doc = include_str!("guide/sqlite.md")]
pub mod sqlite {}

// Its programs are tests of `taskharbor-sqlx`.
#[cfg(not(doctest))]
#[doc = include_str!("guide/postgres.md")]
pub mod postgres {}

#[doc = include_str!("guide/moving-to-postgres.md")]
pub mod moving_to_postgres {}

#[doc = include_str!("guide/http.md")]
pub mod http {}

#[doc = include_str!("guide/deploying.md")]
pub mod deploying {}

#[doc = include_str!("guide/command-line.md")]
pub mod command_line {}

// Its programs are tests of `taskharbor-web`.
#[cfg(not(doctest))]
#[doc = include_str!("guide/dashboard.md")]
pub mod dashboard {}

// Its programs are tests of `taskharbor-prometheus`.
#[cfg(not(doctest))]
#[doc = include_str!("guide/observability.md")]
pub mod observability {}

#[doc = include_str!("guide/dlq.md")]
pub mod dlq {}

#[doc = include_str!("guide/scaling.md")]
pub mod scaling {}

// Its programs are tests of `taskharbor-memory`.
#[cfg(not(doctest))]
#[doc = include_str!("guide/writing-a-driver.md")]
pub mod writing_a_driver {}

#[doc = include_str!("guide/chaos.md")]
pub mod chaos {}

#[doc = include_str!("guide/benchmarks.md")]
pub mod benchmarks {}

/// Recipes: one page for each task, with a program, what happens when something fails, and what to watch.
pub mod recipes {
    #[doc = include_str!("guide/recipes/csv-import.md")]
    pub mod csv_import {}
    #[doc = include_str!("guide/recipes/encrypted-payloads.md")]
    pub mod encrypted_payloads {}
    #[doc = include_str!("guide/recipes/image-pipeline.md")]
    pub mod image_pipeline {}
    #[doc = include_str!("guide/recipes/migrating-from-apalis.md")]
    pub mod migrating_from_apalis {}
    #[doc = include_str!("guide/recipes/migrating-from-celery.md")]
    pub mod migrating_from_celery {}
    #[doc = include_str!("guide/recipes/migrating-from-river.md")]
    pub mod migrating_from_river {}
    #[doc = include_str!("guide/recipes/migrating-from-sidekiq.md")]
    pub mod migrating_from_sidekiq {}
    #[doc = include_str!("guide/recipes/nightly-report.md")]
    pub mod nightly_report {}
    #[doc = include_str!("guide/recipes/payload-changes.md")]
    pub mod payload_changes {}
    #[doc = include_str!("guide/recipes/python-jobs.md")]
    pub mod python_jobs {}
    #[doc = include_str!("guide/recipes/rate-limited-api.md")]
    pub mod rate_limited_api {}
    #[doc = include_str!("guide/recipes/saga.md")]
    pub mod saga {}
    #[doc = include_str!("guide/recipes/tenant-fairness.md")]
    pub mod tenant_fairness {}
    #[doc = include_str!("guide/recipes/test-recipes.md")]
    pub mod test_recipes {}
    #[doc = include_str!("guide/recipes/webhooks.md")]
    pub mod webhooks {}
}
