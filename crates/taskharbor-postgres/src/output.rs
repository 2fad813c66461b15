//! Reading the outputs of jobs: the parameters that are sent, and the answers.

use taskharbor_core::{
    DriverError, State,
    driver::{Answers, JoinList, Limits, OutputEntry, OutputOf, OutputPage, Outputs},
    error::Refusal,
    job::JobKind,
};
use tokio_postgres::Row;

use crate::{
    PostgresDriver,
    answer::{self, get},
    record,
    value::Value,
};

impl PostgresDriver {
    pub(crate) async fn read_outputs(&self, request: Outputs) -> Answers<OutputPage, Refusal> {
        request.check()?;
        let number = |number: usize| i64::try_from(number).ok();
        let values = [
            Value::Texts(request.items.iter().map(|item| Some(item.id.as_str())).collect()),
            Value::Texts(request.items.iter().map(|item| Some(source(item.of))).collect()),
            Value::BigInts(request.items.iter().map(|item| number(item.from)).collect()),
            Value::BigInt(number(request.limit)),
            Value::BigInt(number(Limits::PAGE_BYTES)),
        ];
        let rows = self.query(&self.shared.statements.outputs, &values).await?;
        let mut pages: Vec<Option<Result<OutputPage, Refusal>>> = vec![None; request.items.len()];
        for row in &rows {
            let at: usize = answer::number(get::<i64>(row, "item")? - 1)?;
            let Some(page) = pages.get_mut(at) else { continue };
            match page.get_or_insert_with(|| Ok(OutputPage::new(Vec::new(), None))) {
                Ok(_) if get::<Option<&str>>(row, "kind")? == Some("not_found") => {
                    *page = Some(Err(Refusal::JobNotFound));
                }
                Ok(page) => read(row, request.items[at].from, page)?,
                Err(_) => {}
            }
        }
        let unanswered = || answer::unknown("page", "none");
        pages.into_iter().map(|page| page.ok_or_else(unanswered)).collect()
    }
}

fn source(of: OutputOf) -> &'static str {
    match of {
        OutputOf::Itself => "itself",
        OutputOf::Parents => "parents",
        OutputOf::Input => "input",
    }
}

/// Adds what a row tells to its page, which starts at this entry.
fn read(row: &Row, start: usize, page: &mut OutputPage) -> Result<(), DriverError> {
    page.join = join_list(row, ["list_id", "list_len", "list_reading"])?;
    match get::<Option<Vec<&[u8]>>>(row, "outputs")? {
        Some(outputs) => page
            .entries
            .extend(outputs.into_iter().map(|it| OutputEntry::Done(answer::blob(Some(it))))),
        None => page.entries.extend(entry(row)?),
    }
    let end = start.saturating_add(page.entries.len());
    let total: usize = answer::number(get(row, "total")?)?;
    page.next = (end < total).then_some(end);
    Ok(())
}

/// A join in three columns: its id, length and reading.
fn join_list(row: &Row, columns: [&str; 3]) -> Result<Option<JoinList>, DriverError> {
    let [id, len, reading] = columns;
    let Some(id) = get::<Option<&str>>(row, id)? else { return Ok(None) };
    let len = answer::count(get(row, len)?)?;
    let (kind, _) = record::kind(get(row, reading)?)?;
    match kind {
        JobKind::Join(reading) => Ok(Some(JoinList::new(answer::id(id)?, len, reading))),
        JobKind::Work => Ok(None),
    }
}

/// The entry that a row holds, if it does.
fn entry(row: &Row) -> Result<Option<OutputEntry>, DriverError> {
    let failed = |state| -> Result<_, DriverError> {
        Ok(OutputEntry::Failed { state, reason: answer::text(get(row, "reason")?) })
    };
    let Some(kind) = get::<Option<&str>>(row, "kind")? else { return Ok(None) };
    Ok(Some(match kind {
        "list" => {
            let list = join_list(row, ["join_id", "join_len", "reading"])?
                .ok_or_else(|| answer::unknown("join", "none"))?;
            OutputEntry::List(list)
        }
        "done" => OutputEntry::Done(answer::blob(get(row, "output")?)),
        "dlq" => failed(State::Dlq)?,
        "cancelled" => failed(State::Cancelled)?,
        "pending" => OutputEntry::Pending,
        "missing" => OutputEntry::Missing,
        other => return Err(answer::unknown("entry", other)),
    }))
}
