//! Reading what jobs produced.

use rusqlite::params;
use taskharbor_core::{
    Blob, JobId,
    driver::{Limits, OutputEntry, OutputOf, OutputPage, OutputQuery, Outputs},
    error::Refusal,
};

use super::{Store, enqueue::place};
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
        let Some(seq) = self.find::<i64>(sql::SEQ_OF, [query.id.as_str()])? else {
            return Ok(Err(Refusal::JobNotFound));
        };
        let (inputs, total) = match query.of {
            OutputOf::Itself if query.from == 0 => (vec![Input::Of(seq)], 1),
            OutputOf::Itself => (Vec::new(), 1),
            OutputOf::Parents => (self.inputs(seq, query.from, limit)?, self.input_count(seq)?),
        };
        let (mut entries, mut bytes): (Vec<OutputEntry>, usize) = (Vec::new(), 0);
        for input in inputs {
            let entry = match input {
                Input::Of(seq) => self.output_of(seq)?,
                Input::Spent(entry) => entry,
            };
            if let OutputEntry::Done(Some(output)) = &entry {
                bytes += output.len();
            }
            if bytes > Limits::PAGE_BYTES && !entries.is_empty() {
                break;
            }
            entries.push(entry);
        }
        let end = query.from.saturating_add(entries.len());
        Ok(Ok(OutputPage::new(entries, (end < total).then_some(end))))
    }

    fn input_count(&self, child: i64) -> Result<usize, Fault> {
        let count: Option<i64> = self.find(sql::INPUT_COUNT, [child])?;
        usize::try_from(count.unwrap_or(0)).map_err(|_| Fault::damaged("a number"))
    }

    fn inputs(&self, child: i64, from: usize, limit: usize) -> Result<Vec<Input>, Fault> {
        let mut statement = self.statement(sql::INPUTS)?;
        let mut rows = statement.query(params![child, place(from), place(limit)])?;
        let mut inputs = Vec::new();
        while let Some(row) = rows.next()? {
            inputs.push(if row.get::<_, i64>(1)? == 2 {
                let (state, reason) = (ended_as(row.get(2)?)?, optional_text(row, 3)?);
                Input::Spent(OutputEntry::Failed { state, reason })
            } else {
                Input::Of(row.get(0)?)
            });
        }
        Ok(inputs)
    }

    fn output_of(&self, mut seq: i64) -> Result<OutputEntry, Fault> {
        let mut statement = self.statement(sql::OUTPUT)?;
        loop {
            let mut rows = statement.query([seq])?;
            let Some(row) = rows.next()? else { return Ok(OutputEntry::Missing) };
            if let Some(grown) = row.get::<_, Option<i64>>(2)? {
                seq = grown;
                continue;
            }
            return Ok(match row.get(0)? {
                state::DONE if row.get::<_, i64>(1)? == 1 => {
                    let join = entry::name(JobId::new(entry::text(row, 3)?))?;
                    OutputEntry::List { join, len: self.input_count(seq)? }
                }
                state::DONE => {
                    let output = row.get_ref(5)?.as_blob_or_null();
                    let output = output.map_err(|_| Fault::damaged("an output"))?;
                    OutputEntry::Done(output.map(Blob::from))
                }
                ended @ (state::DLQ | state::CANCELLED) => {
                    OutputEntry::Failed { state: ended_as(ended)?, reason: optional_text(row, 4)? }
                }
                _ => OutputEntry::Pending,
            });
        }
    }
}
