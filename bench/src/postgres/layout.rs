//! The plain layout, a wide row for each job that is updated in place, driven with batches of the
//! same size as the driver's. Its plans are as good as can be: every row is found by one look-up in
//! an index, and the status comes as a parameter where the planner would rather read all that is
//! inflight for each.

use taskharbor_core::{JobId, Timestamp};
use tokio_postgres::{Client, Statement};

use super::{
    Outcome,
    server::Server,
    store::{Clock, QUEUE, json},
};

const SCHEMA: &str = "wide";
const TABLE: &str = include_str!("layout.sql");
const ENQUEUE: &str = "
INSERT INTO th_jobs (id, type, queue, payload, created_at, due_at)
SELECT id, 'noop', $1, $3, clock_timestamp(), clock_timestamp() FROM unnest($2::text[]) AS id";
const ACK: &str = "
UPDATE th_jobs j SET status = 'done', lease_token = NULL, lease_expires_at = NULL
FROM unnest($1::text[], $2::text[]) AS x (id, token)
WHERE j.id = x.id AND j.status = $3 AND j.lease_token = x.token
  AND j.lease_expires_at > clock_timestamp()";
const NOW: &str = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint";
const PRUNE: &str = "DELETE FROM th_jobs WHERE id = ANY ($1::text[]) AND status = 'done'";

/// One connection to the layout, with its statements.
pub(crate) struct Layout {
    pub(crate) sql: Client,
    enqueue: Statement,
    reserve: Statement,
    ack: Statement,
    prune: Statement,
    clock: Clock,
    payload: Vec<u8>,
}

impl Layout {
    /// Makes the table anew.
    pub(crate) async fn new(server: &Server, batch: usize, payload: usize) -> Outcome<Self> {
        let sql = server.connect(SCHEMA).await?;
        let anew =
            format!("DROP SCHEMA IF EXISTS {SCHEMA} CASCADE; CREATE SCHEMA {SCHEMA}; {TABLE}");
        sql.batch_execute(&anew).await?;
        Self::again(server, batch, payload).await
    }

    /// Another connection to the same table.
    pub(crate) async fn again(server: &Server, batch: usize, payload: usize) -> Outcome<Self> {
        let sql = server.connect(SCHEMA).await?;
        let plans = ["enable_seqscan = off", "enable_hashjoin = off", "enable_mergejoin = off"];
        for plan in plans.into_iter().chain(["plan_cache_mode = force_generic_plan"]) {
            sql.batch_execute(&format!("SET {plan}")).await?;
        }
        let reserve = format!(
            "
WITH c AS (
  SELECT id FROM (
    SELECT id FROM th_jobs
    WHERE queue = '{QUEUE}' AND status = 'inflight' AND lease_expires_at <= now()
    ORDER BY lease_expires_at LIMIT {batch} FOR UPDATE SKIP LOCKED
  ) expired
  UNION ALL
  SELECT id FROM (
    SELECT id FROM th_jobs WHERE queue = '{QUEUE}' AND status = 'ready' AND due_at <= now()
    ORDER BY priority DESC, due_at, seq LIMIT {batch} FOR UPDATE SKIP LOCKED
  ) ready
  LIMIT {batch}
)
UPDATE th_jobs j SET status = 'inflight', lease_token = gen_random_uuid()::text,
  lease_expires_at = clock_timestamp() + interval '60 s', deliveries = deliveries + 1,
  run_at = CASE WHEN status = 'ready' THEN run_at END
FROM c WHERE j.id = c.id
RETURNING j.id, j.lease_token, j.type, j.payload, j.attempts, j.max_attempts, j.timeout_nanos"
        );
        Ok(Self {
            enqueue: sql.prepare(ENQUEUE).await?,
            reserve: sql.prepare(&reserve).await?,
            ack: sql.prepare(ACK).await?,
            prune: sql.prepare(PRUNE).await?,
            clock: Clock::start(Timestamp::from_micros(
                sql.query_one(NOW, &[]).await?.get::<_, i64>(0),
            )?),
            payload: json(payload),
            sql,
        })
    }

    pub(crate) async fn clear(&self) -> Outcome {
        Ok(self.sql.batch_execute("TRUNCATE th_jobs; CHECKPOINT").await?)
    }

    /// Stores jobs; answers their ids.
    pub(crate) async fn fill(&self, count: usize, bulk: usize) -> Outcome<Vec<String>> {
        let mut all = Vec::with_capacity(count);
        for start in (0..count).step_by(bulk) {
            let ids = JobId::generate_many(self.clock.now(), count.min(start + bulk) - start)?;
            let ids: Vec<_> = ids.iter().map(|id| id.as_str().to_owned()).collect();
            self.sql.execute(&self.enqueue, &[&QUEUE, &ids, &self.payload]).await?;
            all.extend(ids);
        }
        Ok(all)
    }

    pub(crate) async fn reserve(&self) -> Outcome<(Vec<String>, Vec<String>)> {
        let rows = self.sql.query(&self.reserve, &[]).await?;
        for row in &rows {
            // A worker reads what it gets.
            std::hint::black_box((row.get::<_, &str>(2), row.get::<_, &[u8]>(3).to_vec()));
        }
        Ok(rows.iter().map(|row| (row.get(0), row.get(1))).unzip())
    }

    pub(crate) async fn ack(&self, ids: &[String], tokens: &[String]) -> Outcome {
        let done = self.sql.execute(&self.ack, &[&ids, &tokens, &"inflight"]).await?;
        if usize::try_from(done)? < ids.len() {
            return Err("an ack was refused".into());
        }
        Ok(())
    }

    /// Reserves and acks until nothing is left.
    pub(crate) async fn drain(&self) -> Outcome<usize> {
        let mut done = 0;
        loop {
            let (ids, tokens) = self.reserve().await?;
            if ids.is_empty() {
                return Ok(done);
            }
            self.ack(&ids, &tokens).await?;
            done += ids.len();
        }
    }

    pub(crate) async fn prune(&self, ids: &[String], bulk: usize) -> Outcome {
        for ids in ids.chunks(bulk) {
            self.sql.execute(&self.prune, &[&ids]).await?;
        }
        Ok(())
    }

    pub(crate) async fn vacuum(&self) -> Outcome {
        Ok(self.sql.batch_execute("VACUUM ANALYZE th_jobs").await?)
    }
}
