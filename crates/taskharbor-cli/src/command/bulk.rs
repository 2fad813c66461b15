//! What commands that act on many jobs have in common: they say what they are about to do and to
//! which jobs, and do it only after a confirmation.

use std::{
    io::{self, BufRead, IsTerminal, Write},
    time::Duration,
};

use taskharbor::{Action, Admin, AnyDriver, Filter, JobId, List, Manage};

use crate::{
    clean,
    failure::{Exit, Failure, Outcome},
    json_output,
    screen::Screen,
    store::Url,
};

/// Jobs in one call.
const BATCH: usize = 500;

/// Whether and how to go ahead.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Ahead {
    /// Only say what would be done
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Do it without asking
    #[arg(long)]
    pub(crate) yes: bool,
}

impl Ahead {
    /// Asks for a confirmation on a terminal; without one `--yes` is required.
    pub(crate) fn confirm(self, what: &str) -> Outcome {
        if self.yes {
            return Ok(());
        }
        if !(io::stdin().is_terminal() && io::stderr().is_terminal()) {
            return Err(Failure::refused(
                "confirmation",
                format!("{what}? Pass --yes to do it, or --dry-run to look first."),
            ));
        }
        write!(io::stderr(), "{}? [y/N] ", clean::line(what))?;
        io::stderr().flush()?;
        let mut answer = String::new();
        io::stdin().lock().read_line(&mut answer)?;
        if matches!(answer.trim(), "y" | "Y" | "yes") {
            return Ok(());
        }
        Err(Failure::refused("confirmation", "nothing was done"))
    }
}

/// All jobs that match now, however many records have to be looked at.
pub(crate) async fn matching(driver: &AnyDriver, filter: &Filter) -> Outcome<Vec<JobId>> {
    let now = driver.now().await?;
    let (mut ids, mut cursor) = (Vec::new(), None);
    loop {
        let mut request = List::new(filter.clone(), taskharbor::Limits::MAX_PAGE, now);
        request.after = cursor;
        let page = driver.list(request).await?;
        ids.extend(page.items.into_iter().map(|job| job.id));
        match page.next {
            Some(next) => cursor = Some(next),
            None => return Ok(ids),
        }
    }
}

/// One action on many jobs.
pub(crate) struct Bulk<'a> {
    pub(crate) verb: &'static str,
    pub(crate) target: String,
    pub(crate) ids: Vec<JobId>,
    pub(crate) action: Action,
    /// The time between two jobs.
    pub(crate) pace: Option<Duration>,
    pub(crate) ahead: Ahead,
    pub(crate) url: &'a Url,
}

impl Bulk<'_> {
    pub(crate) async fn run(self, driver: &AnyDriver, screen: &mut Screen) -> Outcome {
        let matched = self.ids.len();
        let jobs = if matched == 1 { "job" } else { "jobs" };
        let place = clean::line(&self.url.shown());
        let what = format!("{} {matched} {jobs} {} in {place}", self.verb, self.target);
        let mut told = json_output::Bulk {
            action: self.verb,
            dry_run: self.ahead.dry_run,
            matched,
            done: 0,
            refused: 0,
        };
        if self.ahead.dry_run {
            return if screen.is_json {
                screen.document(&told)
            } else {
                screen.line(&format!("would {what}"))
            };
        }
        if matched > 0 {
            self.ahead.confirm(&what)?;
        }
        // With a pace, each call takes what a tenth of a second allows.
        let batch = self.pace.map_or(BATCH, |pace| {
            let fit = Duration::from_millis(100).as_secs_f64() / pace.as_secs_f64();
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "between 1 and BATCH"
            )]
            let fit = fit.clamp(1.0, 500.0) as usize;
            fit
        });
        let mut first_refusal = None;
        for (at, ids) in self.ids.chunks(batch).enumerate() {
            if let Some(pace) = self.pace.filter(|_| at > 0) {
                let pause = pace * u32::try_from(batch).unwrap_or(u32::MAX);
                tokio::time::sleep(pause).await;
            }
            let now = driver.now().await?;
            let answers =
                driver.manage(Manage::new(ids.to_vec(), self.action.clone(), now)).await?;
            for (id, answer) in ids.iter().zip(answers) {
                match answer {
                    Ok(_) => told.done += 1,
                    Err(denied) => {
                        told.refused += 1;
                        let refused = Failure::denied(id.as_str(), &self.action, &denied);
                        first_refusal.get_or_insert(refused.text);
                    }
                }
            }
        }
        let nothing_done = told.done == 0 && told.refused > 0;
        if screen.is_json {
            screen.document(&told)?;
            screen.flush()?;
            return if nothing_done { Err(Failure::silent(Exit::Refused)) } else { Ok(()) };
        }
        screen.line(&format!("{}: {} of {matched} {jobs}", self.verb, told.done))?;
        if let Some(text) = first_refusal {
            screen.line(&format!("{} refused; the first: {}", told.refused, clean::line(&text)))?;
        }
        screen.flush()?;
        if nothing_done { Err(Failure::silent(Exit::Refused)) } else { Ok(()) }
    }
}
