//! graphile_worker on a schema of its own, in a process of its own: `bench/peers/graphile_worker`.

use std::{env, ffi::OsString, time::Duration};

use tokio_postgres::Client;

use super::{Outcome, child::Child, server::Server, usage::Usage};

/// The variable in which `cargo xtask bench postgres` passes the path of the program.
const PROGRAM: &str = "TASKHARBOR_BENCH_PEER";
/// No command takes longer, unless it hangs.
const LIMIT_S: usize = 500;

/// How its worker is set up: as its program has it (`bench/peers/graphile_worker`).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Setting {
    is_best: bool,
    handlers: Option<usize>,
}

impl Setting {
    /// As it comes: as many handlers as processors, one fetch and one completion for each job.
    pub(crate) const DEFAULT: Self = Self { is_best: false, handlers: None };
    /// The fastest that was found for jobs that do nothing.
    pub(crate) const BEST: Self = Self { is_best: true, handlers: None };

    pub(crate) const fn with_concurrency(self, handlers: usize) -> Self {
        Self { handlers: Some(handlers), ..self }
    }

    fn line(self, jobs: usize, work: Duration) -> String {
        let (best, work) = (u8::from(self.is_best), work.as_millis());
        let handlers = self.handlers.map(|it| format!(" handlers={it}")).unwrap_or_default();
        format!("drain jobs={jobs} best={best} all=1 limit={LIMIT_S} work={work}{handlers}")
    }
}

/// The peer, ready for commands.
pub(crate) struct Peer {
    child: Child,
    sql: Client,
    schema: String,
    payload: usize,
}

impl Peer {
    /// Makes the schema anew.
    pub(crate) async fn new(server: &Server, schema: &str, payload: usize) -> Outcome<Self> {
        let child = start(server, schema)?;
        let sql = server.connect(schema).await?;
        let mut peer = Self { child, sql, schema: schema.to_owned(), payload };
        peer.clear().await?;
        Ok(peer)
    }

    /// Makes the schema anew.
    pub(crate) async fn clear(&mut self) -> Outcome {
        let drop = format!("DROP SCHEMA IF EXISTS {} CASCADE; CHECKPOINT", self.schema);
        self.sql.batch_execute(&drop).await?;
        self.child.ask("migrate").await?;
        Ok(())
    }

    /// Stores jobs in bulk.
    pub(crate) async fn fill(&mut self, jobs: usize, bulk: usize) -> Outcome<Duration> {
        let line = format!("fill jobs={jobs} bulk={bulk} payload={} limit={LIMIT_S}", self.payload);
        Ok(Duration::from_secs_f64(self.child.ask(&line).await?))
    }

    /// Runs this many jobs; over when the last of them is recorded.
    pub(crate) async fn drain(
        &mut self,
        setting: Setting,
        jobs: usize,
        work: Duration,
    ) -> Outcome<Duration> {
        Ok(Duration::from_secs_f64(self.child.ask(&setting.line(jobs, work)).await?))
    }

    /// As autovacuum would have.
    pub(crate) async fn vacuum(&self) -> Outcome {
        vacuum(&self.sql, &self.schema).await
    }

    pub(crate) fn usage(&self, server: &Server) -> Outcome<Usage> {
        Usage::of(server, &[self.child.pid()?])
    }
}

/// A process of the peer.
pub(crate) fn start(server: &Server, schema: &str) -> Outcome<Child> {
    let program: OsString =
        env::var_os(PROGRAM).ok_or("no peer: run `cargo xtask bench postgres`")?;
    Child::start(&program, &[&server.url(), schema])
}

/// Vacuums all tables of a schema.
pub(crate) async fn vacuum(sql: &Client, schema: &str) -> Outcome {
    let tables = "SELECT coalesce(string_agg(format('%I.%I', schemaname, tablename), ', '), '')
        FROM pg_tables WHERE schemaname = $1";
    let tables: String = sql.query_one(tables, &[&schema]).await?.get(0);
    Ok(sql.batch_execute(&format!("VACUUM ANALYZE {tables}")).await?)
}
