//! Everything that is stored, out of one model and into another.

use taskharbor_core::{
    DriverError, JobId,
    admin::{Cursor, ListSettings, Page},
    driver::Answers,
    error::InvalidRequest,
    export::{
        EdgeState, ExportUnit, ExportedFlow, ExportedJob, ExportedKey, ImportRefused, Imported,
    },
};

use super::{Kept, KeptFlow, Model};

impl Model {
    pub(crate) fn export(
        &self,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<ExportUnit>, DriverError> {
        ListSettings::new(limit).check()?;
        let from: usize = match after.map(|cursor| cursor.as_str().strip_prefix("export")) {
            Some(number) => number.and_then(|it| it.parse().ok()).ok_or(InvalidRequest::Cursor)?,
            None => 0,
        };
        // By serial, so that what is removed between two pages moves nothing.
        let last = u64::MAX >> 1;
        let keys = self.keys.iter().enumerate().map(|(at, key)| {
            (usize::try_from(last).unwrap_or(usize::MAX) + at, ExportUnit::key(key.clone()))
        });
        let all = self.units().into_iter().chain(keys);
        let mut left: Vec<_> = all.filter(|(number, _)| *number > from).collect();
        let next =
            (left.len() > limit).then(|| Cursor::new(format!("export{}", left[limit - 1].0)));
        left.truncate(limit);
        Ok(Page::new(left.into_iter().map(|(_, unit)| unit).collect(), next))
    }

    /// Jobs and flows, each with the serial of its first job.
    fn units(&self) -> Vec<(usize, ExportUnit)> {
        let mut units = Vec::new();
        for job in &self.jobs {
            let unit = match &job.life.flow {
                None => ExportUnit::job(job.exported()),
                Some(flow) => {
                    let mut members = self.members(flow);
                    if members.next().is_some_and(|first| first.serial != job.serial) {
                        continue;
                    }
                    let at = self.flow(flow).expect("it has members");
                    let kept = &self.flows[at];
                    let tail = self.tail(at).new.id.clone();
                    let exported =
                        ExportedFlow::new(flow.clone(), kept.name.clone(), kept.created_at, tail);
                    ExportUnit::flow(exported, self.members(flow).map(Kept::exported).collect())
                }
            };
            units.push((usize::try_from(job.serial).unwrap_or(usize::MAX), unit));
        }
        units
    }

    pub(crate) fn import(&mut self, units: Vec<ExportUnit>) -> Answers<Imported, ImportRefused> {
        let jobs = units.iter().map(|unit| unit.jobs.len().max(1)).sum();
        check_size(jobs)?;
        Ok(units.into_iter().map(|unit| self.import_unit(unit)).collect())
    }

    fn import_unit(&mut self, unit: ExportUnit) -> Result<Imported, ImportRefused> {
        unit.check(&self.limits)?;
        if let Some(key) = unit.key {
            return self.import_key(key);
        }
        let stored = unit.jobs.iter().filter(|job| self.find(&job.new.id).is_some());
        let stored: Vec<&ExportedJob> = stored.collect();
        if stored.len() == unit.jobs.len() {
            return Ok(Imported::Existing);
        }
        if let Some(first) = stored.first() {
            return Err(ImportRefused::Overlap(first.new.id.clone()));
        }
        let is_taken =
            |job: &&ExportedJob| job.holds_key && self.any_key_holder(&job.new).is_some();
        if let Some(job) = unit.jobs.iter().find(is_taken) {
            return Err(ImportRefused::KeyHeld(job.new.id.clone()));
        }
        let first = self.last_serial + 1;
        let ids: Vec<JobId> = unit.jobs.iter().map(|job| job.new.id.clone()).collect();
        // A job of the same unit, or one that was stored before.
        let serial = |model: &Self, id: &JobId| match ids.iter().zip(first..).find(|it| it.0 == id)
        {
            Some((_, serial)) => serial,
            None => model.find(id).map_or(0, |at| model.jobs[at].serial),
        };
        let mut jobs = Vec::new();
        for job in unit.jobs {
            let parents = job.new.parents.iter().map(|parent| serial(self, parent));
            jobs.push(Kept {
                serial: 0,
                parents: parents.zip(job.edges).collect(),
                expansion: job.life.expanded_into.as_ref().map(|tail| serial(self, tail)),
                new: job.new,
                created_at: job.created_at,
                life: job.life,
                holds_key: job.holds_key,
            });
        }
        let tail = unit.flow.as_ref().map_or(0, |flow| serial(self, &flow.tail));
        for mut job in jobs {
            job.serial = self.next_serial();
            self.jobs.push(job);
        }
        if let Some(ExportedFlow { id, name, created_at, .. }) = unit.flow {
            let serial = self.next_serial();
            self.flows.push(KeptFlow { serial, id, name, created_at, tail });
        }
        Ok(Imported::Stored)
    }

    fn import_key(&mut self, key: ExportedKey) -> Result<Imported, ImportRefused> {
        match self.any_holder(&key.queue, &key.key) {
            Some(holder) if holder == key.job => Ok(Imported::Existing),
            Some(_) => Err(ImportRefused::KeyHeld(key.job)),
            None => {
                self.keys.push(key);
                Ok(Imported::Stored)
            }
        }
    }
}

fn check_size(jobs: usize) -> Result<(), InvalidRequest> {
    let max = taskharbor_core::driver::Limits::MAX_FLOW_JOBS;
    if jobs > max {
        let what = "the number of jobs in one call";
        return Err(InvalidRequest::OutOfRange { what: what.into(), value: jobs, min: 0, max });
    }
    Ok(())
}

impl Kept {
    pub(crate) fn exported(&self) -> ExportedJob {
        let edges: Vec<EdgeState> = self.parents.iter().map(|(_, edge)| edge.clone()).collect();
        let (new, life) = (self.new.clone(), self.life.clone());
        ExportedJob::new(new, self.created_at, life, edges, self.holds_key)
    }
}
