//! Reads: they change nothing, and fail for no reason.

use taskharbor_core::{
    Admin, Driver, State,
    admin::{Counts, Filter, List, ListSettings, StateCounts},
    driver::{OutputQuery, Outputs},
    flow::ListFlows,
};

use super::{Begun, Session};
use crate::Outcome;

/// How many reads go by before the whole store is checked while others work.
const CHECK_EVERY: u16 = 200;

impl Session {
    pub(super) async fn read(&mut self) -> Outcome {
        let begun = self.begin();
        let call = match self.random.u16(..CHECK_EVERY) {
            0 => self.read_check().await?,
            1..=3 => self.read_export().await?,
            4 => self.read_migrate().await?,
            5..=60 => self.read_jobs(begun).await?,
            61..=120 => self.read_lists(begun).await?,
            _ => self.read_outputs(begun).await?,
        };
        self.end(begun, call, []);
        Ok(())
    }

    /// No call of another session may be seen half done.
    async fn read_check(&mut self) -> Outcome<&'static str> {
        match self.handle.driver.check().await?.first() {
            None => Ok("check"),
            Some(problem) => Err(format!("inconsistent while others work: {problem}").into()),
        }
    }

    async fn read_export(&mut self) -> Outcome<&'static str> {
        self.handle.driver.export(None, 50).await?;
        Ok("export")
    }

    async fn read_migrate(&mut self) -> Outcome<&'static str> {
        self.handle.driver.migrate().await?;
        Ok("migrate")
    }

    async fn read_jobs(&mut self, begun: Begun) -> Outcome<&'static str> {
        for id in self.some_jobs() {
            let record = self.handle.driver.inspect(id.clone(), begun.now).await?;
            let other = record.filter(|record| record.job.id != id);
            if let Some(record) = other {
                return Err(format!("{id} was asked for and {} answered", record.job.id).into());
            }
        }
        Ok("inspect")
    }

    async fn read_lists(&mut self, begun: Begun) -> Outcome<&'static str> {
        let driver = &self.handle.driver;
        let state = State::ALL[self.random.usize(..State::ALL.len())];
        let list = List::new(Filter::all().state(state), self.random.usize(1..100), begun.now);
        match self.random.u8(..6) {
            0..=1 => {
                let counts = driver.counts(Counts::new(begun.now)).await?;
                let total: StateCounts = counts.into_iter().map(|of| of.states).sum();
                let live = State::ALL.iter().filter(|state| !state.is_terminal());
                self.world.set_live(live.map(|state| total.get(*state)).sum());
            }
            2 => drop(driver.list_flows(ListFlows::new(20, begun.now)).await?),
            3 => drop(driver.settings(ListSettings::new(10)).await?),
            4 => drop(driver.list(list.newest_first()).await?),
            _ => drop(driver.list(list).await?),
        }
        Ok("list")
    }

    async fn read_outputs(&mut self, begun: Begun) -> Outcome<&'static str> {
        let mut queries = Vec::new();
        for id in self.some_jobs() {
            queries.push(match self.random.u8(..3) {
                0 => OutputQuery::of(id),
                1 => OutputQuery::parents_of(id),
                _ => OutputQuery::input_of(id),
            });
        }
        self.handle.driver.outputs(Outputs::new(queries, 20)).await?;
        self.handle.driver.store_time().await?;
        for flow in self.some_flows() {
            self.handle.driver.flow(flow, begun.now).await?;
        }
        Ok("outputs")
    }
}
