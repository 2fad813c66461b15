//! Comparing the two stores of a move, unit by unit.

use std::collections::HashMap;

use taskharbor::{JobId, QueueName};
use taskharbor_core::{Timestamp, export::ExportUnit, life::Stage, name::IdempotencyKey};

use super::{Pages, side::Side};
use crate::{
    failure::{Failure, Outcome},
    interrupt::Hold,
};

/// What identifies a unit in both stores.
#[derive(PartialEq, Eq, Hash)]
enum UnitId {
    Jobs(JobId),
    Key(QueueName, IdempotencyKey),
}

impl UnitId {
    fn of(unit: &ExportUnit) -> Option<Self> {
        let job = unit.jobs.first().map(|job| Self::Jobs(job.new.id.clone()));
        let key = unit.key.as_ref();
        job.or_else(|| key.map(|key| Self::Key(key.queue.clone(), key.key.clone())))
    }
}

/// Compares everything in the source with the same in the destination; answers how many jobs.
pub(super) async fn compare(source: &Side, destination: &Side, hold: &Hold) -> Outcome<usize> {
    let (sent, arrived) = (HashMap::new(), HashMap::new());
    let mut comparison = Comparison { now: source.now().await?, jobs: 0, sent, arrived };
    let (mut here, mut there) = (Pages::new(source), Pages::new(destination));
    loop {
        let (sent, arrived) = tokio::try_join!(here.next(hold), there.next(hold))?;
        if sent.is_none() && arrived.is_none() {
            return comparison.end();
        }
        comparison.add(sent.unwrap_or_default(), arrived.unwrap_or_default())?;
    }
}

/// A comparison of two stores, page by page. Both export in the order of insertion, so mostly a unit
/// and its copy are read at the same time. Of a unit that comes alone a hash is kept.
struct Comparison {
    now: Timestamp,
    jobs: usize,
    sent: HashMap<UnitId, u64>,
    arrived: HashMap<UnitId, u64>,
}

impl Comparison {
    fn add(&mut self, sent: Vec<ExportUnit>, arrived: Vec<ExportUnit>) -> Outcome {
        let by_id = |unit: ExportUnit| Some((UnitId::of(&unit)?, comparable(unit)));
        let mut arrived: HashMap<UnitId, ExportUnit> =
            arrived.into_iter().filter_map(by_id).collect();
        for (id, unit) in sent.into_iter().filter_map(by_id) {
            self.jobs += unit.jobs.len();
            // A key that is free by now may be forgotten at any time.
            if unit.key.as_ref().is_some_and(|key| key.held_until <= self.now) {
                continue;
            }
            let is_same = match arrived.remove(&id) {
                Some(copy) => copy == unit,
                None => match self.arrived.remove(&id) {
                    Some(copy) => copy == hash(&unit),
                    None => {
                        self.sent.insert(id, hash(&unit));
                        continue;
                    }
                },
            };
            if !is_same {
                return Err(different(&id));
            }
        }
        for (id, copy) in arrived {
            match self.sent.remove(&id) {
                Some(unit) if unit != hash(&copy) => return Err(different(&id)),
                Some(_) => {}
                None => drop(self.arrived.insert(id, hash(&copy))),
            }
        }
        Ok(())
    }

    fn end(self) -> Outcome<usize> {
        self.sent.keys().next().map_or(Ok(self.jobs), |id| Err(different(id)))
    }
}

fn different(id: &UnitId) -> Failure {
    let what = match id {
        UnitId::Jobs(job) => format!("job {job}"),
        UnitId::Key(queue, key) => format!("key {key} of queue {queue}"),
    };
    let text = format!(
        "{what} is not the same in both stores: it was changed meanwhile; stop producers and workers of both stores, and compare it with `taskharbor inspect`"
    );
    Failure::error("different", text)
}

/// leases that have ended may be reclaimed in the destination.
fn comparable(mut unit: ExportUnit) -> ExportUnit {
    for job in &mut unit.jobs {
        if matches!(job.life.stage, Stage::Inflight(_)) {
            job.life.stage = Stage::Waiting;
        }
    }
    unit
}

/// A hash of everything in a unit.
fn hash(unit: &ExportUnit) -> u64 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    // The debug output has everything but the content of payloads, outputs and headers. Of tokens it
    // has enough to tell two apart.
    format!("{unit:?}").hash(&mut hasher);
    for job in &unit.jobs {
        job.new.payload[..].hash(&mut hasher);
        job.life.output.as_deref().hash(&mut hasher);
        for header in job.new.headers.iter() {
            header.hash(&mut hasher);
        }
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use taskharbor::{Admin, Client, Text};

    use super::*;

    /// Four units, and the same once more.
    async fn units() -> [Vec<ExportUnit>; 2] {
        let driver = taskharbor::connect("memory:").await.unwrap();
        let client = Client::new(&driver);
        for _ in 0..4 {
            client.enqueue_raw("work", b"{}".to_vec()).await.unwrap();
        }
        [driver.export(None, 10).await.unwrap().items, driver.export(None, 10).await.unwrap().items]
    }

    /// Compares these pages; the number of jobs that are the same.
    fn compared(
        pages: impl IntoIterator<Item = (Vec<ExportUnit>, Vec<ExportUnit>)>,
    ) -> Result<usize, &'static str> {
        let (sent, arrived) = (HashMap::new(), HashMap::new());
        let mut comparison = Comparison { now: Timestamp::EPOCH, jobs: 0, sent, arrived };
        let added = pages.into_iter().try_for_each(|(sent, arrived)| comparison.add(sent, arrived));
        added.and_then(|()| comparison.end()).map_err(|failure| failure.code)
    }

    #[tokio::test]
    async fn units_are_found_on_any_page() {
        let [sent, copies] = units().await;
        assert_eq!(compared([(sent.clone(), copies.clone())]), Ok(4));
        let (first, last) = (copies[..1].to_vec(), copies[1..].to_vec());
        assert_eq!(compared([(sent.clone(), first.clone()), (vec![], last.clone())]), Ok(4));
        assert_eq!(compared([(vec![], last), (sent, first)]), Ok(4));
    }

    #[tokio::test]
    async fn units_that_are_missing_or_changed_are_reported() {
        let [sent, mut copies] = units().await;
        assert_eq!(compared([(sent.clone(), copies[1..].to_vec())]), Err("different"));
        assert_eq!(compared([(sent[1..].to_vec(), copies.clone())]), Ok(3), "more may be there");
        copies[2].jobs[0].life.progress = Some(Text::new("half"));
        assert_eq!(compared([(sent.clone(), copies.clone())]), Err("different"));
        assert_eq!(compared([(sent.clone(), vec![]), (vec![], copies.clone())]), Err("different"));
        assert_eq!(compared([(vec![], copies), (sent, vec![])]), Err("different"));
    }
}
