//! The outputs that jobs read of each other.

use taskharbor_core::{
    JobId, State, Timestamp,
    driver::{Answers, JoinList, Limits, OutputEntry, OutputOf, OutputPage, OutputQuery, Outputs},
    error::Refusal,
    export::EdgeState,
    job::JobKind,
};

use super::Model;

impl Model {
    pub(crate) fn outputs(&self, request: &Outputs) -> Answers<OutputPage, Refusal> {
        request.check()?;
        Ok(request.items.iter().map(|query| self.read(query, request.limit)).collect())
    }

    fn read(&self, query: &OutputQuery, limit: usize) -> Result<OutputPage, Refusal> {
        let at = self.find(&query.id).ok_or(Refusal::JobNotFound)?;
        let parents = match query.of {
            OutputOf::Itself => {
                let job = &self.jobs[at];
                return Ok(page(vec![self.output(job.serial, &job.new.id)], query.from, limit));
            }
            OutputOf::Parents | OutputOf::Input => self.inputs(at),
        };
        if query.of == OutputOf::Input
            && let [OutputEntry::List(join)] = parents.as_slice()
            && let Some(of_join) = self.find(&join.join)
        {
            return Ok(page(self.inputs(of_join), query.from, limit).of_join(join.clone()));
        }
        Ok(page(parents, query.from, limit))
    }

    fn inputs(&self, at: usize) -> Vec<OutputEntry> {
        let job = &self.jobs[at];
        let input = |(parent, (serial, edge)): (&JobId, &(u64, EdgeState))| match edge {
            EdgeState::Open | EdgeState::Closed => self.output(*serial, parent),
            EdgeState::Spent { state, reason } => {
                OutputEntry::Failed { state: *state, reason: reason.clone() }
            }
        };
        job.new.parents.iter().zip(&job.parents).map(input).collect()
    }

    /// The output of a job by its serial, or by its id if it was imported and that was not known.
    fn output(&self, serial: u64, id: &JobId) -> OutputEntry {
        let found = if serial == 0 { self.find(id) } else { self.by_serial(serial) };
        let Some(at) = found else { return OutputEntry::Missing };
        let job = &self.jobs[at];
        if let (Some(next), Some(id)) = (job.expansion, &job.life.expanded_into) {
            return self.output(next, id);
        }
        match (job.life.state(Timestamp::MAX), job.new.kind) {
            (State::Done, JobKind::Join(reading)) => {
                let list = JoinList::new(job.new.id.clone(), job.parents.len(), reading);
                OutputEntry::List(list)
            }
            (State::Done, JobKind::Work) => OutputEntry::Done(job.life.output.clone()),
            (state @ (State::Dlq | State::Cancelled), _) => {
                OutputEntry::Failed { state, reason: job.life.reason.clone() }
            }
            _ => OutputEntry::Pending,
        }
    }
}

fn page(all: Vec<OutputEntry>, from: usize, limit: usize) -> OutputPage {
    let total = all.len();
    let mut bytes = 0;
    let mut entries: Vec<OutputEntry> = Vec::new();
    for entry in all.into_iter().skip(from).take(limit) {
        if let OutputEntry::Done(Some(output)) = &entry {
            bytes += output.len();
        }
        if bytes > Limits::PAGE_BYTES && !entries.is_empty() {
            break;
        }
        entries.push(entry);
    }
    let end = from.saturating_add(entries.len());
    OutputPage::new(entries, (end < total).then_some(end))
}
