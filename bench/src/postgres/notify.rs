//! What it costs producers to notify other processes of work. Each producer has a driver of its own,
//! as in a process of its own.

use std::{sync::Arc, time::Duration};

use taskharbor_core::{Driver, QueueName};
use taskharbor_postgres::PostgresDriver;

use super::{
    Outcome,
    enqueue::counted,
    server::Server,
    size::Sizes,
    store::{Hints, QUEUE, Store, open},
};
use crate::finding::{Bound, Rounds, head, rate, ratio};
use crate::stopwatch::now;

const PRODUCERS: usize = 8;

pub(crate) async fn run(server: &Server, sizes: &Sizes) -> Outcome {
    head(&format!("notify: {PRODUCERS} producers, one job in a call to the driver, one listener"));
    let spell = Duration::from_secs(u64::try_from(sizes.spell)?);
    let store = Arc::new(Store::new(server, "notify", sizes.payload).await?);
    let listener = open(server, "notify", Hints::On).await?;
    let _watch = listener.watch(vec![QueueName::new(QUEUE)?]).await?;
    let (mut notifying, mut silent) = (Vec::new(), Vec::new());
    for _ in 0..PRODUCERS {
        notifying.push(open(server, "notify", Hints::On).await?);
        silent.push(open(server, "notify", Hints::Off).await?);
    }
    let (mut with, mut without) = (Rounds::default(), Rounds::default());
    for _ in 0..sizes.rounds {
        for (drivers, rounds) in [(&notifying, &mut with), (&silent, &mut without)] {
            store.clear().await?;
            let one = |driver: &PostgresDriver| produce(Arc::clone(&store), driver.clone(), spell);
            rounds.push(counted(drivers.iter().map(one), spell).await?);
        }
    }
    rate("with wake-ups", &with);
    rate("without", &without);
    ratio("with / without", &with.over(&without), Bound::AtLeast(0.9));
    Ok(())
}

async fn produce(store: Arc<Store>, driver: PostgresDriver, spell: Duration) -> Outcome<usize> {
    let (started, mut count) = (now(), 0);
    while started.elapsed() < spell {
        driver.enqueue(store.jobs(1)?).await?;
        count += 1;
    }
    Ok(count)
}
