//! The cost of a job for the server over its whole life: log, processor time, dead rows.
//!
//! Full-page images depend on when checkpoints fall, so `full_page_writes` is off while the log is
//! measured, as the distance between two of its positions.

use std::time::Duration;

use super::{
    Outcome,
    layout::Layout,
    peer::{Peer, Setting},
    server::Server,
    size::Sizes,
    store::Store,
    usage::Usage,
};
use crate::finding::{Bound, figure, head};

const PHASES: &[&str] = &["enqueue", "reserve", "ack", "prune", "vacuum"];
/// The peer deletes a job when it is done.
const PEER_PHASES: &[&str] = &["enqueue", "run", "vacuum"];
const MOST_BYTES: f64 = 1050.0;

pub(crate) async fn run(server: &Server, sizes: &Sizes) -> Outcome {
    head(&format!("wal: {} jobs through their whole life, full_page_writes off", sizes.jobs));
    let store = Store::new(server, "wal", sizes.payload).await?;
    let layout = Layout::new(server, sizes.batch, sizes.payload).await?;
    let mut peer = Peer::new(server, "peer", sizes.payload).await?;
    set_full_page_writes(&store, "off").await?;
    let ours = of_driver(server, &store, sizes).await?;
    let theirs = of_peer(server, &mut peer, &store, sizes).await?;
    let plain = of_layout(server, &layout, &store, sizes).await?;
    set_full_page_writes(&store, "on").await?;
    ours.print("driver", PHASES, sizes, Bound::AtMost(MOST_BYTES))?;
    tables(&store, "driver, after pruning").await?;
    theirs.print("peer", PEER_PHASES, sizes, Bound::None)?;
    plain.print("plain layout", PHASES, sizes, Bound::None)?;
    Ok(())
}

/// What each phase has cost: bytes of the log, and processor time.
struct Life {
    phases: Vec<(f64, Usage)>,
    before: Usage,
}

impl Life {
    fn begin(before: Usage) -> Self {
        Self { phases: Vec::new(), before }
    }

    async fn phase(&mut self, store: &Store, now: Usage, from: &mut i64) -> Outcome {
        let position = position(store).await?;
        self.phases.push((to_f64(position - *from), now.since(self.before)));
        *from = position;
        self.before = now;
        Ok(())
    }

    fn print(&self, whose: &str, names: &[&str], sizes: &Sizes, bound: Bound) -> Outcome {
        let jobs = to_f64(i64::try_from(sizes.jobs)?);
        let total = self.phases.iter().map(|(bytes, _)| bytes).sum::<f64>() / jobs;
        figure(&format!("{whose}: log per job"), total, " B", 0, bound);
        for (phase, (bytes, _)) in names.iter().zip(&self.phases) {
            figure(&format!("  {phase}"), bytes / jobs, " B", 0, Bound::None);
        }
        let micros = |of: fn(&Usage) -> f64| {
            self.phases.iter().map(|(_, spent)| of(spent)).sum::<f64>() * 1e6 / jobs
        };
        let what = format!("{whose}: processor time per job, client");
        figure(&what, micros(|spent| spent.client), " µs", 1, Bound::None);
        let what = format!("{whose}: processor time per job, server");
        figure(&what, micros(|spent| spent.server), " µs", 1, Bound::None);
        for (phase, (_, spent)) in names.iter().zip(&self.phases) {
            figure(&format!("  {phase}"), spent.server * 1e6 / jobs, " µs", 1, Bound::None);
        }
        Ok(())
    }
}

async fn of_driver(server: &Server, store: &Store, sizes: &Sizes) -> Outcome<Life> {
    let (mut life, mut at) = (Life::begin(Usage::now(server)?), position(store).await?);
    store.fill(sizes.jobs, sizes.bulk).await?;
    life.phase(store, Usage::now(server)?, &mut at).await?;
    let mut held = Vec::new();
    loop {
        match store.reserve(sizes.batch).await? {
            jobs if jobs.is_empty() => break,
            jobs => held.push(jobs),
        }
    }
    life.phase(store, Usage::now(server)?, &mut at).await?;
    for jobs in held {
        store.ack(jobs).await?;
    }
    life.phase(store, Usage::now(server)?, &mut at).await?;
    tables(store, "driver, before pruning").await?;
    store.prune(sizes.bulk).await?;
    life.phase(store, Usage::now(server)?, &mut at).await?;
    store.vacuum().await?;
    life.phase(store, Usage::now(server)?, &mut at).await?;
    store.check().await?;
    Ok(life)
}

async fn of_peer(server: &Server, peer: &mut Peer, store: &Store, sizes: &Sizes) -> Outcome<Life> {
    let (mut life, mut at) = (Life::begin(peer.usage(server)?), position(store).await?);
    peer.fill(sizes.jobs, sizes.bulk).await?;
    life.phase(store, peer.usage(server)?, &mut at).await?;
    peer.drain(Setting::BEST, sizes.jobs, Duration::ZERO).await?;
    life.phase(store, peer.usage(server)?, &mut at).await?;
    peer.vacuum().await?;
    life.phase(store, peer.usage(server)?, &mut at).await?;
    Ok(life)
}

async fn of_layout(
    server: &Server,
    layout: &Layout,
    store: &Store,
    sizes: &Sizes,
) -> Outcome<Life> {
    let (mut life, mut at) = (Life::begin(Usage::now(server)?), position(store).await?);
    let ids = layout.fill(sizes.jobs, sizes.bulk).await?;
    life.phase(store, Usage::now(server)?, &mut at).await?;
    let mut held = Vec::new();
    loop {
        match layout.reserve().await? {
            (ids, _) if ids.is_empty() => break,
            jobs => held.push(jobs),
        }
    }
    life.phase(store, Usage::now(server)?, &mut at).await?;
    for (ids, tokens) in held {
        layout.ack(&ids, &tokens).await?;
    }
    life.phase(store, Usage::now(server)?, &mut at).await?;
    layout.prune(&ids, sizes.bulk).await?;
    life.phase(store, Usage::now(server)?, &mut at).await?;
    layout.vacuum().await?;
    life.phase(store, Usage::now(server)?, &mut at).await?;
    Ok(life)
}

/// Switches full-page images on or off.
pub(crate) async fn set_full_page_writes(store: &Store, to: &str) -> Outcome {
    let set = format!("ALTER SYSTEM SET full_page_writes = {to}");
    store.sql.batch_execute(&set).await?;
    Ok(store.sql.batch_execute("SELECT pg_reload_conf(); CHECKPOINT").await?)
}

/// Where the log is now, in bytes.
pub(crate) async fn position(store: &Store) -> Outcome<i64> {
    let sql = "SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint";
    Ok(store.sql.query_one(sql, &[]).await?.get(0))
}

/// Dead rows and how many updates left the indexes alone, of tables that were written to.
async fn tables(store: &Store, whose: &str) -> Outcome {
    // Sessions report what they did when they have been idle for a while.
    tokio::time::sleep(Duration::from_millis(1_200)).await;
    let sql = "
        SELECT relname::text, n_live_tup, n_dead_tup, n_tup_upd, n_tup_hot_upd,
          pg_total_relation_size(relid) / 1024
        FROM pg_stat_user_tables
        WHERE schemaname = current_schema() AND n_tup_ins > 100 ORDER BY relname";
    for row in store.sql.query(sql, &[]).await? {
        let name: &str = row.get(0);
        let [live, dead, updates, hot, size] = [1, 2, 3, 4, 5].map(|at| row.get::<_, i64>(at));
        let share = if updates == 0 { 100 } else { hot * 100 / updates };
        println!(
            "  {whose}: {name:<9} {live} rows, {dead} dead, {updates} updates of which {share} % HOT, {size} KiB"
        );
    }
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "an average needs no more than 52 bits")]
pub(crate) fn to_f64(number: i64) -> f64 {
    number as f64
}
