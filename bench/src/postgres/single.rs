//! One enqueue at a time: from eight processes that share nothing but the database, with and without
//! wake-ups, with the peer, and as single inserts; and from eight tasks that share a client.

use std::{sync::Arc, time::Duration};

use taskharbor::{AnyDriver, Client};
use taskharbor_core::{Driver, QueueName};

use super::{
    Outcome,
    child::{Child, ask_all},
    layout::Layout,
    peer::{self, Peer},
    producer::{self, produce},
    server::Server,
    side::Side,
    size::Sizes,
    store::{QUEUE, Store, WakeUps},
    usage::Usage,
};
use crate::finding::{Bound, head, ratio};
use crate::stopwatch::now;

const PRODUCERS: usize = 8;
const SCHEMA: &str = "single";
/// The channel on which workers of the peer listen.
const PEER_LISTENS: &str = r#"LISTEN "jobs:insert""#;

pub(crate) async fn run(server: &Server, sizes: &Sizes) -> Outcome {
    head(&format!("single: {PRODUCERS} producers, one job at a time, for {} s", sizes.spell));
    let layout = Layout::new(server, sizes.batch, sizes.payload).await?;
    let mut layouts = Vec::new();
    for _ in 0..PRODUCERS {
        let layout = Layout::again(server, sizes.batch, sizes.payload).await?;
        layouts.push(Arc::new(layout));
    }
    let mut peer = Peer::new(server, "peer", sizes.payload).await?;
    let listener = server.connect("public").await?;
    listener.batch_execute(PEER_LISTENS).await?;
    let [mut with, mut without, mut theirs, mut plain, mut shared] =
        [Side::default(), Side::default(), Side::default(), Side::default(), Side::default()];
    for _ in 0..sizes.rounds {
        apart(server, sizes, WakeUps::On, &mut with).await?;
        apart(server, sizes, WakeUps::Off, &mut without).await?;
        peer.clear().await?;
        let children = (0..PRODUCERS).map(|_| peer::start(server, "peer"));
        let line = format!("single seconds={} payload={}", sizes.spell, sizes.payload);
        let mut children = children.collect::<Outcome<Vec<_>>>()?;
        ask_all(&mut children, &format!("single seconds=1 payload={}", sizes.payload)).await?;
        counted(server, children, &line, sizes, &mut theirs).await?;
        layout.clear().await?;
        let tasks = layouts.iter().map(|layout| plainly(Arc::clone(layout), spell(sizes)));
        in_tasks(server, tasks, sizes, &mut plain).await?;
        let store = Store::new(server, SCHEMA, sizes.payload).await?;
        let client = Client::new(&AnyDriver::new(store.driver.clone()));
        let tasks = (0..PRODUCERS).map(|_| sharing(client.clone(), sizes.payload, spell(sizes)));
        in_tasks(server, tasks, sizes, &mut shared).await?;
    }
    with.print(&format!("{PRODUCERS} processes, with wake-ups, one listener"));
    without.print(&format!("{PRODUCERS} processes, listen=off"));
    theirs.print(&format!("peer, {PRODUCERS} processes, one listener"));
    plain.print(&format!("plain layout, {PRODUCERS} connections, one insert in a commit"));
    shared.print(&format!("{PRODUCERS} tasks that share a client, and so its calls"));
    ratio("with wake-ups / listen=off", &with.rate.over(&without.rate), Bound::AtLeast(0.9));
    ratio("with wake-ups / peer", &with.rate.over(&theirs.rate), Bound::None);
    ratio("shared client / plain layout", &shared.rate.over(&plain.rate), Bound::AtLeast(1.5));
    Ok(())
}

fn spell(sizes: &Sizes) -> Duration {
    Duration::from_secs(u64::try_from(sizes.spell).unwrap_or(u64::MAX))
}

/// Processes of ours, and one more that listens.
async fn apart(server: &Server, sizes: &Sizes, wake_ups: WakeUps, side: &mut Side) -> Outcome {
    let store = Store::new(server, SCHEMA, sizes.payload).await?;
    let _watch = store.driver.watch(vec![QueueName::new(QUEUE)?]).await?;
    let children = (0..PRODUCERS).map(|_| producer::start(server, SCHEMA, wake_ups, sizes.payload));
    let mut children = children.collect::<Outcome<Vec<_>>>()?;
    // Opens connections and makes plans.
    ask_all(&mut children, "1").await?;
    counted(server, children, &sizes.spell.to_string(), sizes, side).await?;
    store.check().await
}

/// Lets processes produce, and counts.
async fn counted(
    server: &Server,
    mut children: Vec<Child>,
    line: &str,
    sizes: &Sizes,
    side: &mut Side,
) -> Outcome {
    let pids = children.iter().map(Child::pid).collect::<Outcome<Vec<_>>>()?;
    let before = Usage::of(server, &pids)?;
    let count = ask_all(&mut children, line).await?;
    let spent = Usage::of(server, &pids)?.since(before);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a process answers how many jobs it has stored"
    )]
    side.push(count as usize, spell(sizes), spent);
    Ok(())
}

async fn in_tasks<F>(
    server: &Server,
    tasks: impl Iterator<Item = F>,
    sizes: &Sizes,
    side: &mut Side,
) -> Outcome
where
    F: Future<Output = Outcome<usize>> + Send + 'static,
{
    let before = Usage::now(server)?;
    let running: Vec<_> = tasks.map(tokio::spawn).collect();
    let mut count = 0;
    for task in running {
        count += task.await??;
    }
    side.push(count, spell(sizes), Usage::now(server)?.since(before));
    Ok(())
}

async fn sharing(client: Client, payload: usize, spell: Duration) -> Outcome<usize> {
    produce(&client, payload, spell).await
}

async fn plainly(layout: Arc<Layout>, spell: Duration) -> Outcome<usize> {
    let (started, mut count) = (now(), 0);
    while started.elapsed() < spell {
        layout.fill(1, 1).await?;
        count += 1;
    }
    Ok(count)
}
