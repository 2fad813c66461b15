//! `taskharbor dlq groups`: dead-lettered jobs in groups of one cause.

use taskharbor::{AnyDriver, Client, DlqGroup, Timestamp};

use super::super::list::Which;
use crate::{
    clean,
    failure::Outcome,
    json_output,
    screen::{Screen, counted},
    stderr::{note, tell},
    table::{Align, Cell},
    terminal::Tone,
};

/// Show dead-lettered jobs in groups with the same cause
///
/// Errors are compared by their first lines, without numbers, ids, paths, addresses and quoted
/// text.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  taskharbor dlq groups --queue mail
  taskharbor dlq groups --finished-since 1d --json | jq -r '[.count, .pattern] | @tsv'")]
pub(crate) struct GroupsArgs {
    #[command(flatten)]
    which: Which,
    /// Read at most this many jobs, the newest first
    #[arg(long, value_name = "N", default_value_t = 5_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    look_at: u32,
}

pub(super) async fn run(args: GroupsArgs, driver: &AnyDriver, screen: &mut Screen) -> Outcome {
    let now = driver.now().await?;
    let look_at = usize::try_from(args.look_at).unwrap_or(usize::MAX);
    let found = Client::new(driver).dlq().groups(args.which.filter(now), look_at).await?;
    if screen.is_json {
        for group in &found.groups {
            screen.document(&json_output::DlqGroup::of(group))?;
        }
    } else if found.groups.is_empty() {
        tell("no dead-lettered jobs");
    } else {
        let names = ["JOBS", "FINGERPRINT", "LAST", "TYPES", "ERROR"];
        let mut columns = vec![Align::Left; names.len()];
        columns[0] = Align::Right;
        let rows = found.groups.iter().map(|group| row(group, now, screen)).collect();
        screen.table(&names, &columns, rows)?;
    }
    if !found.is_complete {
        screen.flush()?;
        let looked_at = found.looked_at;
        let text = format!(
            "there are more: these are the groups of the newest {}; look at more with --look-at",
            counted(looked_at, "job")
        );
        note(&json_output::LookedAt { looked_at_jobs: looked_at }, &text);
    }
    Ok(())
}

fn row(group: &DlqGroup, now: Timestamp, screen: &Screen) -> Vec<Cell> {
    let types: Vec<_> = group.types.iter().map(|it| clean::line(it)).collect();
    let error = match group.fingerprint.pattern() {
        "" => "(no error)".to_owned(),
        pattern => clean::line(pattern),
    };
    vec![
        Cell::count(Tone::Bad, group.count),
        Cell::new(Tone::Faint, group.fingerprint.to_string()),
        Cell::plain(screen.time(group.last_at, now)),
        Cell::plain(clean::cut(&types.join(","), 32)),
        Cell::plain(clean::cut(&error, 80)),
    ]
}
