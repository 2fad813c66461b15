//! Storing jobs in bulk: through the client, through the driver alone, with the peer, and as plain
//! inserts into the plain layout.

use taskharbor::{AnyDriver, Client};
use taskharbor_core::{Driver, driver::Enqueue};

use super::{
    Outcome, layout::Layout, peer::Peer, server::Server, side::Side, size::Sizes, store::Store,
    usage::Usage,
};
use crate::finding::{Bound, head, ratio};
use crate::{noop::Noop, stopwatch::now};

pub(crate) async fn run(server: &Server, sizes: &Sizes) -> Outcome {
    let (jobs, bulk) = (sizes.jobs, sizes.bulk);
    head(&format!("bulk: {jobs} jobs are stored, {bulk} in a call"));
    let layout = Layout::new(server, sizes.batch, sizes.payload).await?;
    let mut peer = Peer::new(server, "peer", sizes.payload).await?;
    let [mut client, mut driver, mut theirs, mut plain] =
        [Side::default(), Side::default(), Side::default(), Side::default()];
    for round in 0..sizes.rounds {
        for at in 0..4 {
            match (at + round) % 4 {
                0 => through_client(server, sizes, &mut client).await?,
                1 => through_driver(server, sizes, &mut driver).await?,
                2 => {
                    peer.clear().await?;
                    let before = peer.usage(server)?;
                    let took = peer.fill(jobs, bulk).await?;
                    theirs.push(jobs, took, peer.usage(server)?.since(before));
                }
                _ => {
                    layout.clear().await?;
                    let (before, started) = (Usage::now(server)?, now());
                    layout.fill(jobs, bulk).await?;
                    plain.push(jobs, started.elapsed(), Usage::now(server)?.since(before));
                }
            }
        }
    }
    client.print("client");
    driver.print("driver alone, calls made beforehand");
    theirs.print("peer, add_jobs");
    plain.print("INSERT … SELECT unnest into the plain layout");
    ratio("client / driver", &client.rate.over(&driver.rate), Bound::AtLeast(0.9));
    ratio("client / peer", &client.rate.over(&theirs.rate), Bound::None);
    ratio("driver / plain layout", &driver.rate.over(&plain.rate), Bound::None);
    Ok(())
}

/// A new store whose connection is open and has its plans.
async fn warm(server: &Server, sizes: &Sizes) -> Outcome<Store> {
    let store = Store::new(server, "bulk", sizes.payload).await?;
    store.fill(sizes.bulk, sizes.bulk).await?;
    Ok(store)
}

async fn through_client(server: &Server, sizes: &Sizes, side: &mut Side) -> Outcome {
    let store = warm(server, sizes).await?;
    let client = Client::new(&AnyDriver::new(store.driver.clone()));
    let (before, started) = (Usage::now(server)?, now());
    for start in (0..sizes.jobs).step_by(sizes.bulk) {
        let count = sizes.bulk.min(sizes.jobs - start);
        client.enqueue_many((0..count).map(|_| Noop::of_length(sizes.payload))).await?;
    }
    side.push(sizes.jobs, started.elapsed(), Usage::now(server)?.since(before));
    store.check().await
}

async fn through_driver(server: &Server, sizes: &Sizes, side: &mut Side) -> Outcome {
    let store = warm(server, sizes).await?;
    let starts = (0..sizes.jobs).step_by(sizes.bulk);
    let calls = starts.map(|start| store.jobs(sizes.bulk.min(sizes.jobs - start)));
    let calls = calls.collect::<Outcome<Vec<Enqueue>>>()?;
    let (before, started) = (Usage::now(server)?, now());
    for call in calls {
        store.driver.enqueue(call).await?;
    }
    side.push(sizes.jobs, started.elapsed(), Usage::now(server)?.since(before));
    store.check().await
}
