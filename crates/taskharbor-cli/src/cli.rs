//! The command line: its commands, and the function that runs each.

use std::{process::ExitCode, time::Duration};

use clap::{CommandFactory, Parser, Subcommand};

use crate::{
    clean, command,
    failure::{Failure, Outcome},
    interrupt,
    json_output::{Problem, ProblemText},
    screen::Screen,
    secret, stderr,
    store::{self, Url},
};

/// How long closing the stores may take.
const CLOSING: Duration = Duration::from_secs(1);

/// Background jobs with one strict contract on every store.
///
/// Jobs are kept in the file taskharbor.db unless --url or TASKHARBOR_URL names another store.
#[derive(Debug, Parser)]
#[command(name = "taskharbor", version, arg_required_else_help = true)]
struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

/// The options of every command.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Global options")]
pub(crate) struct Global {
    /// The store: sqlite:PATH, postgres://… or http://… [default: TASKHARBOR_URL, else sqlite:taskharbor.db]
    #[arg(long, global = true, value_name = "URL")]
    url: Option<String>,
    /// Write JSON: lists as one object per line, everything else as one document
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Show times as instants instead of ages such as "2h 1m ago"
    #[arg(long, global = true)]
    exact: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    Enqueue(command::enqueue::Args),
    Worker(command::worker::Args),
    Workers(command::workers::Args),
    List(command::list::Args),
    Inspect(command::inspect::Args),
    Why(command::why::Args),
    Cancel(command::act::CancelArgs),
    Requeue(command::act::RequeueArgs),
    RunNow(command::act::RunNowArgs),
    Purge(command::act::PurgeArgs),
    Stats(command::stats::Args),
    #[command(subcommand)]
    Dlq(command::dlq::Command),
    #[command(subcommand)]
    Queue(command::queue::Command),
    #[command(subcommand)]
    Schedule(command::schedule::Command),
    #[command(subcommand)]
    Flow(command::flow::Command),
    Serve(command::serve::Args),
    #[command(subcommand)]
    Token(command::token::Command),
    #[command(subcommand)]
    Migrate(command::migrate::Command),
    Doctor(command::doctor::Args),
    Metrics(command::metrics::Args),
    Check(command::check::Args),
    Conformance(command::conformance::Args),
    Prune(command::prune::Args),
    Backup(command::backup::Args),
    Move(command::transfer::Args),
    Demo(command::demo::Args),
    /// Clean up after the worker that started this process, if that is killed
    #[command(hide = true, after_help = "Example:\n  started by `taskharbor worker`")]
    GuardWorker,
    /// Print a completion script for a shell
    #[command(
        after_help = "Example:\n  taskharbor completions bash > ~/.local/share/bash-completion/completions/taskharbor"
    )]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    Man(command::man::Args),
}

/// Does what the arguments of this process ask for; wrong ones end it with a message and 2.
pub(crate) fn run() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return refuse(&error),
    };
    if cli.global.json {
        stderr::set_json();
    }
    if matches!(cli.command, Command::GuardWorker) {
        command::worker::guardian::run();
        return ExitCode::SUCCESS;
    }
    let code = match start(cli) {
        Ok(code) => code,
        Err(failure) => report(&failure),
    };
    stderr::finish();
    code
}

/// What is wrong with the arguments, as JSON if that is what was asked for.
fn refuse(error: &clap::Error) -> ExitCode {
    if error.use_stderr() && std::env::args_os().any(|argument| argument == "--json") {
        stderr::set_json();
        return report(&Failure::usage(error.to_string().trim_end()));
    }
    let code = ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(1));
    let text = error.to_string();
    let safe = secret::scrubbed(&clean::lines(&text));
    if safe == text {
        // With colours, where they are welcome. Into a closed pipe there is nothing to be said.
        let _ = error.print();
    } else {
        stderr::write(safe.as_bytes());
    }
    code
}

fn report(failure: &Failure) -> ExitCode {
    if !failure.text.is_empty() {
        let message = secret::scrubbed(&failure.text);
        let error = ProblemText { code: failure.code, message: &message };
        stderr::note(&Problem { error }, &format!("taskharbor: {message}"));
    }
    failure.exit_code()
}

fn start(cli: Cli) -> Outcome<ExitCode> {
    let runtime = tokio::runtime::Runtime::new().map_err(|error| {
        Failure::error("runtime", format!("no runtime could be started: {error}"))
    })?;
    let code = runtime.block_on(async {
        let code = dispatch(cli).await;
        interrupt::wait_if_ending();
        // Everything is recorded. The bound on a worker's shutdown includes this.
        let _ = tokio::time::timeout(CLOSING, store::close_all()).await;
        code
    });
    interrupt::wait_if_ending();
    // What a handler has left behind does not keep the process.
    runtime.shutdown_background();
    code
}

/// Runs a command that needs no store, or returns it if it is another one.
fn without_store(command: Command, screen: &mut Screen) -> Outcome<Option<Command>> {
    match command {
        Command::Token(command) => command::token::run(command, screen)?,
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "taskharbor", &mut script);
            screen.bytes(&script)?;
        }
        Command::Man(args) => command::man::run(&args, Cli::command(), screen)?,
        other => return Ok(Some(other)),
    }
    screen.flush()?;
    Ok(None)
}

async fn dispatch(Cli { global, command }: Cli) -> Outcome<ExitCode> {
    let mut screen = Screen::new(global.json, global.exact);
    let url = || Url::find(global.url.clone());
    let Some(command) = without_store(command, &mut screen)? else {
        return Ok(ExitCode::SUCCESS);
    };
    match command {
        // These deal with signals themselves.
        Command::Worker(args) => return command::worker::run(args, &url()?, global.json).await,
        Command::Serve(args) => return command::serve::run(args, &mut screen).await,
        Command::Doctor(_) => {
            interrupt::listen()?;
            return command::doctor::run(&url()?, &mut screen).await;
        }
        Command::Demo(args) => {
            drop(screen);
            return command::demo::run(args).await;
        }
        _ => {}
    }
    let url = url()?;
    // It has something to clear away when it is interrupted, and never reads.
    let is_tidy = matches!(command, Command::Conformance(_));
    let run = async {
        match command {
            Command::Enqueue(args) => command::enqueue::run(args, &url, &mut screen).await,
            Command::Workers(args) => command::workers::run(args, &url, &mut screen).await,
            Command::List(args) => command::list::run(args, &url, &mut screen).await,
            Command::Inspect(args) => command::inspect::run(&args, &url, &mut screen).await,
            Command::Why(args) => command::why::run(&args, &url, &mut screen).await,
            Command::Cancel(args) => command::act::cancel(args, &url, &mut screen).await,
            Command::Requeue(args) => command::act::requeue(args, &url, &mut screen).await,
            Command::RunNow(args) => command::act::run_now(args, &url, &mut screen).await,
            Command::Purge(args) => command::act::purge(args, &url, &mut screen).await,
            Command::Stats(args) => command::stats::run(&args, &url, &mut screen).await,
            Command::Dlq(command) => command::dlq::run(command, &url, &mut screen).await,
            Command::Queue(command) => command::queue::run(command, &url, &mut screen).await,
            Command::Schedule(command) => command::schedule::run(command, &url, &mut screen).await,
            Command::Flow(command) => command::flow::run(command, &url, &mut screen).await,
            Command::Migrate(command) => command::migrate::run(&command, &url, &mut screen).await,
            Command::Metrics(args) => command::metrics::run(&args, &url, &mut screen).await,
            Command::Check(_) => command::check::run(&url, &mut screen).await,
            Command::Prune(args) => command::prune::run(&args, &url, &mut screen).await,
            Command::Backup(args) => command::backup::run(&args, &url, &mut screen).await,
            Command::Move(args) => command::transfer::run(args, &mut screen).await,
            Command::Conformance(args) => command::conformance::run(&args, &url, &mut screen).await,
            Command::Worker(_)
            | Command::Serve(_)
            | Command::Token(_)
            | Command::Doctor(_)
            | Command::Demo(_)
            | Command::GuardWorker
            | Command::Completions { .. }
            | Command::Man(_) => Ok(()),
        }
    };
    if is_tidy {
        tokio::select! {
            biased;
            exit = interrupt::asked_to_end() => return Err(Failure::silent(exit?)),
            ended = run => ended?,
        }
    } else {
        interrupt::listen()?;
        run.await?;
    }
    screen.flush()?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::*;

    #[test]
    fn the_command_line_contradicts_itself_nowhere() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_has_an_example() {
        fn look(command: &clap::Command, path: &str) {
            let path = format!("{path} {}", command.get_name());
            if command.has_subcommands() {
                command.get_subcommands().for_each(|command| look(command, &path));
            } else {
                let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
                assert!(help.contains("Example"), "{path} has no example");
            }
        }
        Cli::command().get_subcommands().for_each(|command| look(command, ""));
    }

    #[test]
    fn every_command_has_a_manual_page_with_its_name_and_synopsis() {
        fn look(command: &clap::Command, path: &str, dir: &Path, pages: &mut usize) {
            let name = path.replace(' ', "-");
            let page = fs::read_to_string(dir.join(format!("{name}.1"))).unwrap();
            // Hyphens are escaped, so that they stay hyphens on paper.
            let escaped = name.replace('-', "\\-");
            let about = command.get_about().unwrap().to_string();
            let title = about.split(' ').next().unwrap();
            assert!(page.contains(&format!(".SH NAME\n{escaped} \\- {title}")), "{page}");
            let words = path.replace('-', "\\-");
            assert!(page.contains(&format!(".SH SYNOPSIS\n\\fB{words}\\fR")), "{page}");
            *pages += 1;
            for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
                look(below, &format!("{path} {}", below.get_name()), dir, pages);
            }
        }
        let dir = std::env::temp_dir().join(format!("taskharbor-man-{}", std::process::id()));
        let written = command::man::write(Cli::command(), &dir).unwrap();
        let mut pages = 0;
        look(&Cli::command(), "taskharbor", &dir, &mut pages);
        assert!(pages > 40, "{pages}");
        assert_eq!((written, fs::read_dir(&dir).unwrap().count()), (pages, pages));
        fs::remove_dir_all(&dir).unwrap();
    }
}
