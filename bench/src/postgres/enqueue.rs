//! Storing jobs: in bulk and one by one, beside bare inserts into the same tables.

use std::{sync::Arc, time::Duration};

use taskharbor::{AnyDriver, Client};
use taskharbor_core::{Driver, JobId, driver::Enqueue};
use tokio_postgres::{Client as Sql, binary_copy::BinaryCopyInWriter, types::Type};

use super::{
    Outcome,
    server::Server,
    size::Sizes,
    store::{Clock, QUEUE, Store, json},
    usage::Usage,
};
use crate::finding::{Bound, Rounds, figure, head, per_second, rate, ratio};
use crate::{noop::Noop, stopwatch::now};

const PRODUCERS: usize = 8;

/// What the driver stores, without a thought for what may be there already.
const BARE: &str = r#"
WITH stored AS (
  INSERT INTO th_job (seq, created_at, priority, kind, key_hold, on_failure, id, queue, type, payload)
  SELECT nextval('th_seq'), $1, 0, 'w', 'p', 'h', i.*
  FROM unnest($2::text[], $3::text[], $4::text[], $5::bytea[]) AS i (id, queue, type, payload)
  RETURNING seq, priority, queue
)
INSERT INTO th_hot (seq, line_at, priority, queue) SELECT seq, $1, priority, queue FROM stored"#;
const ONE: &str = r#"
WITH stored AS (
  INSERT INTO th_job (seq, created_at, priority, kind, key_hold, on_failure, id, queue, type, payload)
  VALUES (nextval('th_seq'), $1, 0, 'w', 'p', 'h', $2, $3, 'noop', $4)
  RETURNING seq, priority, queue
)
INSERT INTO th_hot (seq, line_at, priority, queue) SELECT seq, $1, priority, queue FROM stored"#;

pub(crate) async fn run(server: &Server, sizes: &Sizes) -> Outcome {
    let store = Store::new(server, "enqueue", sizes.payload).await?;
    bulk(server, &store, sizes).await?;
    single(server, &store, sizes).await
}

async fn bulk(server: &Server, store: &Store, sizes: &Sizes) -> Outcome {
    head(&format!("enqueue: {} jobs, {} in a call", sizes.jobs, sizes.bulk));
    let mut rates = [Rounds::default(), Rounds::default(), Rounds::default()];
    let mut spent =
        [[Rounds::default(), Rounds::default()], [Rounds::default(), Rounds::default()]];
    // So that the first of them does not pay for files that are made and plans.
    store.fill(sizes.jobs / 4, sizes.bulk).await?;
    for round in 0..sizes.rounds {
        for at in 0..rates.len() {
            let at = (at + round) % rates.len();
            store.clear().await?;
            let calls = calls(store, sizes)?;
            let (before, started) = (Usage::now(server)?, now());
            match at {
                0 => through_driver(store, calls).await?,
                1 => barely(store, calls).await?,
                _ => by_copy(store, calls).await?,
            }
            rates[at].push(per_second(sizes.jobs, started.elapsed()));
            let used = Usage::now(server)?.since(before);
            if let Some(spent) = spent.get_mut(at) {
                spent[0].push(used.server);
                spent[1].push(used.client);
            }
        }
    }
    let [driver, bare, copy] = rates;
    rate("driver", &driver);
    rate("INSERT … SELECT unnest into the same tables", &bare);
    rate("binary COPY into the same tables", &copy);
    ratio("driver / bare insert", &driver.over(&bare), Bound::AtLeast(0.85));
    ratio("driver / COPY", &driver.over(&copy), Bound::None);
    for (side, spent) in ["driver", "bare insert"].into_iter().zip(&spent) {
        for (what, spent) in ["server", "client"].into_iter().zip(spent) {
            let micros = spent.median() * 1e6 / f64::from(u32::try_from(sizes.jobs)?);
            let what = format!("processor time per job, {side}, {what}");
            figure(&what, micros, " µs", 1, Bound::None);
        }
    }
    Ok(())
}

/// Made before the clock runs.
fn calls(store: &Store, sizes: &Sizes) -> Outcome<Vec<Enqueue>> {
    let starts = (0..sizes.jobs).step_by(sizes.bulk);
    starts.map(|start| store.jobs(sizes.bulk.min(sizes.jobs - start))).collect()
}

async fn through_driver(store: &Store, calls: Vec<Enqueue>) -> Outcome {
    for call in calls {
        store.driver.enqueue(call).await?;
    }
    Ok(())
}

async fn barely(store: &Store, calls: Vec<Enqueue>) -> Outcome {
    let insert = store.sql.prepare(BARE).await?;
    for call in calls {
        let jobs = || call.sets.iter().flat_map(|set| &set.jobs);
        let ids: Vec<_> = jobs().map(|job| job.id.as_str()).collect();
        let queues: Vec<_> = jobs().map(|job| job.queue.as_str()).collect();
        let types: Vec<_> = jobs().map(|job| job.job_type.as_str()).collect();
        let payloads: Vec<_> = jobs().map(|job| &*job.payload).collect();
        let at = call.now.as_micros();
        store.sql.execute(&insert, &[&at, &ids, &queues, &types, &payloads]).await?;
    }
    Ok(())
}

/// Two copies in a transaction for each call. The numbers are taken beforehand, off the clock.
async fn by_copy(store: &Store, calls: Vec<Enqueue>) -> Outcome {
    let small = [Type::INT8, Type::INT8, Type::INT2, Type::TEXT];
    let wide = [
        [Type::INT8, Type::INT8, Type::INT2, Type::CHAR, Type::CHAR, Type::CHAR].as_slice(),
        [Type::TEXT, Type::TEXT, Type::TEXT, Type::BYTEA].as_slice(),
    ]
    .concat();
    let mut seq: i64 = store.sql.query_one("SELECT nextval('th_seq')", &[]).await?.get(0);
    for call in calls {
        let (first, at) = (seq + 1, call.now.as_micros());
        store.sql.batch_execute("BEGIN").await?;
        let into = "COPY th_job (seq, created_at, priority, kind, key_hold, on_failure, id, queue, type, payload) FROM STDIN BINARY";
        let writer = BinaryCopyInWriter::new(store.sql.copy_in(into).await?, &wide);
        let mut writer = Box::pin(writer);
        for job in call.sets.iter().flat_map(|set| &set.jobs) {
            seq += 1;
            let (id, queue, kind) = (job.id.as_str(), job.queue.as_str(), job.job_type.as_str());
            let (w, p, h) = (0x77_i8, 0x70_i8, 0x68_i8);
            let payload = &*job.payload;
            writer
                .as_mut()
                .write(&[&seq, &at, &0_i16, &w, &p, &h, &id, &queue, &kind, &payload])
                .await?;
        }
        writer.as_mut().finish().await?;
        let into = "COPY th_hot (seq, line_at, priority, queue) FROM STDIN BINARY";
        let writer = BinaryCopyInWriter::new(store.sql.copy_in(into).await?, &small);
        let mut writer = Box::pin(writer);
        for seq in first..=seq {
            writer.as_mut().write(&[&seq, &at, &0_i16, &QUEUE]).await?;
        }
        writer.as_mut().finish().await?;
        store.sql.batch_execute("COMMIT").await?;
    }
    store.sql.execute("SELECT setval('th_seq', $1)", &[&seq]).await?;
    Ok(())
}

async fn single(server: &Server, store: &Store, sizes: &Sizes) -> Outcome {
    head(&format!("enqueue: {PRODUCERS} producers, one job at a time"));
    let spell = Duration::from_secs(u64::try_from(sizes.spell)?);
    let driver = AnyDriver::new(store.driver.clone());
    let mut connections = Vec::new();
    for _ in 0..PRODUCERS {
        connections.push(Arc::new(server.connect("enqueue").await?));
    }
    let (mut client, mut bare) = (Rounds::default(), Rounds::default());
    for _ in 0..sizes.rounds {
        store.clear().await?;
        let producer = Client::new(&driver);
        let pad = "x".repeat(sizes.payload.saturating_sub(10));
        let producers = (0..PRODUCERS).map(|_| with_client(producer.clone(), pad.clone(), spell));
        client.push(counted(producers, spell).await?);
        store.clear().await?;
        let payload = json(sizes.payload);
        let one = |sql: &Arc<Sql>| one_by_one(Arc::clone(sql), store.clock, payload.clone(), spell);
        bare.push(counted(connections.iter().map(one), spell).await?);
    }
    store.check().await?;
    rate("client, whose producers share calls", &client);
    rate("one insert for each commit on 8 connections", &bare);
    ratio("client / bare inserts", &client.over(&bare), Bound::AtLeast(1.5));
    Ok(())
}

async fn with_client(client: Client, pad: String, spell: Duration) -> Outcome<usize> {
    let (started, mut count) = (now(), 0);
    while started.elapsed() < spell {
        client.enqueue(Noop { pad: pad.clone() }).await?;
        count += 1;
    }
    Ok(count)
}

async fn one_by_one(
    sql: Arc<Sql>,
    clock: Clock,
    payload: Vec<u8>,
    spell: Duration,
) -> Outcome<usize> {
    let insert = sql.prepare(ONE).await?;
    let (started, mut count) = (now(), 0);
    while started.elapsed() < spell {
        let at = clock.now();
        let id = JobId::generate(at)?;
        sql.execute(&insert, &[&at.as_micros(), &id.as_str(), &QUEUE, &payload]).await?;
        count += 1;
    }
    Ok(count)
}

/// Jobs per second of all producers, each in a task of its own.
pub(crate) async fn counted<F>(producers: impl Iterator<Item = F>, spell: Duration) -> Outcome<f64>
where
    F: Future<Output = Outcome<usize>> + Send + 'static,
{
    let running: Vec<_> = producers.map(tokio::spawn).collect();
    let mut count = 0;
    for producer in running {
        count += producer.await??;
    }
    Ok(per_second(count, spell))
}
