//! Reading the outputs of jobs.

use rusqlite::{Row, params};
use taskharbor_core::{
    Blob, JobId,
    driver::{JoinList, Limits, OutputEntry, OutputOf, OutputPage, OutputQuery, Outputs},
    error::Refusal,
    job::JobKind,
};

use super::{Store, enqueue::place, graph::edge};
use crate::{
    entry::{self, ended_as, optional_text, state},
    error::Fault,
    statement as sql,
};

/// What a reader reads of one parent.
enum Input {
    Of(i64),
    Spent(OutputEntry),
}

/// What a job produced, and the job: the one asked for, or its expansion.
struct Found {
    seq: i64,
    entry: OutputEntry,
}

impl Store<'_> {
    pub(crate) fn outputs(
        &self,
        request: &Outputs,
    ) -> Result<Vec<Result<OutputPage, Refusal>>, Fault> {
        request.items.iter().map(|query| self.output_page(query, request.limit)).collect()
    }

    fn output_page(
        &self,
        query: &OutputQuery,
        limit: usize,
    ) -> Result<Result<OutputPage, Refusal>, Fault> {
        // OUT-5
        let Some(seq) = self.seq_of(&query.id)? else {
            return Ok(Err(Refusal::JobNotFound));
        };
        let join = match query.of {
            OutputOf::Input => self.only_join_of(seq)?,
            OutputOf::Itself | OutputOf::Parents => None,
        };
        let (inputs, total) = match (query.of, &join) {
            (OutputOf::Itself, _) if query.from == 0 => (vec![Input::Of(seq)], 1),
            (OutputOf::Itself, _) => (Vec::new(), 1),
            (_, Some((join, list))) => (self.inputs(*join, query.from, limit)?, list.len),
            (_, None) => (self.inputs(seq, query.from, limit)?, self.input_count(seq)?),
        };
        let (mut entries, mut bytes): (Vec<OutputEntry>, usize) = (Vec::new(), 0);
        for input in inputs {
            let entry = self.read_input(input)?.entry;
            if let OutputEntry::Done(Some(output)) = &entry {
                bytes += output.len();
            }
            // OUT-4
            if bytes > Limits::PAGE_BYTES && !entries.is_empty() {
                break;
            }
            entries.push(entry);
        }
        let end = query.from.saturating_add(entries.len());
        let page = OutputPage::new(entries, (end < total).then_some(end));
        Ok(Ok(match join {
            Some((_, list)) => page.of_join(list),
            None => page,
        }))
    }

    /// The join that is done and is all that a job waits for.
    fn only_join_of(&self, seq: i64) -> Result<Option<(i64, JoinList)>, Fault> {
        let mut inputs = self.inputs(seq, 0, 2)?.into_iter();
        let (Some(only), None) = (inputs.next(), inputs.next()) else { return Ok(None) };
        let Found { seq, entry } = self.read_input(only)?;
        // OUT-6
        Ok(match entry {
            OutputEntry::List(list) => Some((seq, list)),
            _ => None,
        })
    }

    fn read_input(&self, input: Input) -> Result<Found, Fault> {
        match input {
            Input::Of(seq) => self.output_of(seq),
            Input::Spent(entry) => Ok(Found { seq: 0, entry }),
        }
    }

    fn input_count(&self, dependant: i64) -> Result<usize, Fault> {
        let count: Option<i64> = self.find(sql::INPUT_COUNT, [dependant])?;
        usize::try_from(count.unwrap_or(0)).map_err(|_| Fault::damaged("a number"))
    }

    fn inputs(&self, dependant: i64, from: usize, limit: usize) -> Result<Vec<Input>, Fault> {
        let mut statement = self.statement(sql::INPUTS)?;
        let mut rows = statement.query(params![dependant, place(from), place(limit)])?;
        let mut inputs = Vec::new();
        while let Some(row) = rows.next()? {
            // OUT-1
            inputs.push(if row.get::<_, i64>(1)? == edge::SPENT {
                let (state, reason) = (ended_as(row.get(2)?)?, optional_text(row, 3)?);
                Input::Spent(OutputEntry::Failed { state, reason })
            } else {
                Input::Of(row.get(0)?)
            });
        }
        Ok(inputs)
    }

    fn output_of(&self, mut seq: i64) -> Result<Found, Fault> {
        let mut statement = self.statement(sql::OUTPUT)?;
        loop {
            let mut rows = statement.query([seq])?;
            let Some(row) = rows.next()? else {
                return Ok(Found { seq, entry: OutputEntry::Missing });
            };
            // OUT-3
            if let Some(expanded) = row.get::<_, Option<i64>>(2)? {
                seq = expanded;
                continue;
            }
            return Ok(Found { seq, entry: self.read_output(seq, row)? });
        }
    }

    fn read_output(&self, seq: i64, row: &Row<'_>) -> Result<OutputEntry, Fault> {
        let (kind, _) = entry::kind(row.get(1)?)?;
        Ok(match (row.get(0)?, kind) {
            // OUT-2
            (state::DONE, JobKind::Join(reading)) => {
                let join = entry::name(JobId::new(entry::text(row, 3)?))?;
                OutputEntry::List(JoinList::new(join, self.input_count(seq)?, reading))
            }
            (state::DONE, JobKind::Work) => {
                let output = row.get_ref(5)?.as_blob_or_null();
                let output = output.map_err(|_| Fault::damaged("an output"))?;
                OutputEntry::Done(output.map(Blob::from))
            }
            (ended @ (state::DLQ | state::CANCELLED), _) => {
                OutputEntry::Failed { state: ended_as(ended)?, reason: optional_text(row, 4)? }
            }
            _ => OutputEntry::Pending,
        })
    }
}
