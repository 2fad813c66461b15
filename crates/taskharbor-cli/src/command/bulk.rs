//! The common part of commands that act on many jobs: they show the action and the jobs, and act only after
//! a confirmation.

use std::{
    io::{self, BufRead, IsTerminal, Write},
    time::Duration,
};

use taskharbor::{Acted, Action, AnyDriver, Client, Filter, JobSummary, State, Timestamp};

use super::{
    act, inspect,
    list::{self, Which},
};
use crate::{
    clean,
    failure::{Exit, Failure, Outcome},
    json_output,
    screen::{Screen, counted},
    store::{Missing, Url},
    value,
};

/// The most jobs that a dry run shows.
const PREVIEWED: usize = 10;

/// Whether and how to go ahead.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Ahead {
    /// Only show what would be done
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Do it without asking for confirmation
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

/// Jobs that are named, or all that match.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Jobs {
    /// The ids of the jobs
    #[arg(value_name = "ID", conflicts_with = "all")]
    ids: Vec<String>,
    /// All jobs that match
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    which: Which,
    /// Act on at most this many jobs in a time, as 50/s or 600/m
    #[arg(long, value_name = "RATE", value_parser = value::rate, requires = "all")]
    rate: Option<Duration>,
    #[command(flatten)]
    ahead: Ahead,
}

/// One action on the jobs that are named, or on all that match.
pub(crate) struct Bulk {
    pub(crate) verb: &'static str,
    pub(crate) action: Action,
    /// The state of the jobs that match; without one, every state that the action is for.
    pub(crate) state: Option<State>,
    /// Whether the command is for the DLQ alone.
    pub(crate) is_dlq: bool,
    pub(crate) jobs: Jobs,
}

impl Bulk {
    pub(crate) async fn run(self, url: &Url, screen: &mut Screen) -> Outcome {
        let Jobs { ids, all, which, ahead, .. } = &self.jobs;
        if ids.is_empty() && !all {
            return Err(Failure::usage("name jobs by their ids, or pass --all for all that match"));
        }
        if !ids.is_empty() && !(which.is_all() && (self.is_dlq || self.state.is_none())) {
            return Err(Failure::usage(
                "filters such as --queue and --type need --all: pass --all, or only ids",
            ));
        }
        let driver = url.open(Missing::Refuse).await?;
        if ids.is_empty() {
            let now = driver.now().await?;
            let mut filter = which.filter(now);
            filter.state = self.state;
            let state = match self.state {
                Some(State::Dlq) => "from the DLQ".to_owned(),
                Some(state) => format!("that are {state}"),
                None => "that match".to_owned(),
            };
            let target = format!("{state}{}", which.in_words(now));
            let (verb, action, rate, ahead) = (self.verb, self.action, self.jobs.rate, *ahead);
            let matching = Matching { verb, action, filter, target, rate, ahead, url };
            return matching.run(&driver, screen).await;
        }
        let named = self.named(&driver).await?;
        if ahead.dry_run || self.action == Action::Purge {
            let what = what(self.verb, named, "that are named", url);
            if ahead.dry_run {
                return would(self.verb, &what, named, screen);
            }
            ahead.confirm(&what)?;
        }
        act::on(&driver, ids, self.action, screen).await
    }

    /// How many jobs are named. For the DLQ, one that is not in it is refused.
    async fn named(&self, driver: &AnyDriver) -> Outcome<usize> {
        let now = driver.now().await?;
        let mut named = Vec::new();
        for text in &self.jobs.ids {
            let id = list::id(text)?;
            if self.is_dlq {
                let state = inspect::stored(driver, text, now).await?.state;
                if state != State::Dlq {
                    let text = format!("job {text} is {state}, not in the DLQ");
                    return Err(Failure::refused("wrong_state", text));
                }
            }
            if !named.contains(&id) {
                named.push(id);
            }
        }
        Ok(named.len())
    }
}

/// One action on all jobs that match.
pub(crate) struct Matching<'a> {
    pub(crate) verb: &'static str,
    pub(crate) action: Action,
    pub(crate) filter: Filter,
    /// The jobs in words.
    pub(crate) target: String,
    pub(crate) rate: Option<Duration>,
    pub(crate) ahead: Ahead,
    pub(crate) url: &'a Url,
}

impl Matching<'_> {
    pub(crate) async fn run(self, driver: &AnyDriver, screen: &mut Screen) -> Outcome {
        let client = Client::new(driver);
        let mut jobs = client.jobs(self.filter.clone());
        if let Some(pace) = self.rate {
            jobs = jobs.rate(1, pace);
        }
        let matching = jobs.preview(&self.action).await?;
        let what = what(self.verb, matching.len(), &self.target, self.url);
        if self.ahead.dry_run {
            would(self.verb, &what, matching.len(), screen)?;
            return show(&matching, driver.now().await?, screen);
        }
        if !matching.is_empty() {
            self.ahead.confirm(&what)?;
        }
        let ids = matching.into_iter().map(|job| job.id).collect();
        self.told(&jobs.act_on(ids, &self.action).await?, screen)
    }

    fn told(&self, acted: &Acted, screen: &mut Screen) -> Outcome {
        let (matched, done, refused) = (acted.matched(), acted.done, acted.refused.len());
        if screen.is_json {
            let (action, dry_run) = (self.verb, false);
            screen.document(&json_output::Bulk { action, dry_run, matched, done, refused })?;
        } else {
            screen.line(&format!("{}: {done} of {}", self.verb, counted(matched, "job")))?;
            if let Some((id, denied)) = acted.refused.first() {
                let text = Failure::denied(id.as_str(), &self.action, denied).text;
                screen.line(&format!("{refused} refused; the first: {}", clean::line(&text)))?;
            }
        }
        screen.flush()?;
        if done == 0 && refused > 0 { Err(Failure::silent(Exit::Refused)) } else { Ok(()) }
    }
}

fn what(verb: &str, count: usize, target: &str, url: &Url) -> String {
    let place = clean::line(&url.shown());
    format!("{verb} {} {target} in {place}", counted(count, "job"))
}

/// Says what would be done.
fn would(verb: &'static str, what: &str, matched: usize, screen: &mut Screen) -> Outcome {
    if screen.is_json {
        let (done, refused) = (0, 0);
        let told = json_output::Bulk { action: verb, dry_run: true, matched, done, refused };
        return screen.document(&told);
    }
    screen.line(&format!("would {what}"))
}

/// Shows the first of the jobs to people.
fn show(jobs: &[JobSummary], now: Timestamp, screen: &mut Screen) -> Outcome {
    if screen.is_json || jobs.is_empty() {
        return Ok(());
    }
    let rows = jobs.iter().take(PREVIEWED).map(|job| list::row(job, now, screen)).collect();
    list::table(rows, screen)?;
    match jobs.len().saturating_sub(PREVIEWED) {
        0 => Ok(()),
        more => screen.line(&format!("  … and {more} more")),
    }
}
