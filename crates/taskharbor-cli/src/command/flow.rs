//! `taskharbor flow`: flows, jobs that wait for each other.

use std::{fs, io::Read};

use taskharbor::{
    Action, Admin, AnyDriver, Client, Cursor, Filter, FlowName, FlowRecord, FlowTree, ListFlows,
    State, Timestamp, flow_json,
};
use taskharbor_core::flow::FlowState;

use super::{
    act::{self, How},
    bulk::{Ahead, Matching},
    enqueue,
    list::{id, more},
};
use crate::{
    clean,
    failure::{Exit, Failure, Outcome},
    json_output,
    screen::Screen,
    stderr::tell,
    store::{Missing, Url},
    table::{Align, Cell},
    terminal::Tone,
};

/// Start, show, cancel and requeue flows
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    Start(StartArgs),
    List(ListArgs),
    Inspect(InspectArgs),
    Graph(GraphArgs),
    Cancel(CancelArgs),
    Requeue(RequeueArgs),
}

/// Start a flow from a JSON document
///
/// The document is a file, or standard input (-). The command prints the id of the flow. If the
/// document has an error, nothing is stored. The format:
/// https://github.com/taskharbor/taskharbor/blob/main/docs/guides/flow-json.md
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  taskharbor flow start album.json
  echo '{\"flow\": {\"chain\": [{\"type\": \"a\"}, {\"type\": \"b\"}]}}' | taskharbor flow start - --wait")]
pub(crate) struct StartArgs {
    /// The file, or -
    file: String,
    /// Wait for the flow and print its output
    #[arg(long)]
    wait: bool,
}

/// Print a diagram of a flow, for Mermaid or Graphviz
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  taskharbor flow graph ID
  taskharbor flow graph ID --format dot | dot -Tsvg > flow.svg")]
pub(crate) struct GraphArgs {
    /// The id of the flow
    id: String,
    /// The language
    #[arg(long, value_enum, default_value_t = Format::Mermaid)]
    format: Format,
    /// Show at most this many of its jobs
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    limit: u32,
}

/// The language of a diagram.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Format {
    Mermaid,
    Dot,
}

/// Show flows, oldest first
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  taskharbor flow list --state blocked")]
pub(crate) struct ListArgs {
    /// Only flows in this state: running, blocked, done, failed or cancelled
    #[arg(long, value_name = "STATE", value_parser = flow_state)]
    state: Option<FlowState>,
    /// Only flows with this name
    #[arg(long, value_name = "NAME")]
    name: Option<FlowName>,
    /// Show the newest flows first
    #[arg(long)]
    newest: bool,
    /// Show at most this many flows
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1000))]
    limit: u32,
    /// Continue after the page that gave this cursor; repeat the other options
    #[arg(long, value_name = "CURSOR")]
    cursor: Option<String>,
}

/// Show a flow and its jobs
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  taskharbor flow inspect 01919b6e-8f6a-7c3e-b1a4-0d6f5a3e9c11")]
pub(crate) struct InspectArgs {
    /// The id of the flow
    id: String,
    /// Show at most this many of its jobs
    #[arg(long, value_name = "N", default_value_t = 200)]
    limit: u32,
}

/// Cancel the jobs of a flow that have not started, and ask the workers of running ones to stop
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  taskharbor flow cancel 01919b6e-8f6a-7c3e-b1a4-0d6f5a3e9c11")]
pub(crate) struct CancelArgs {
    /// The ids of the flows
    #[arg(required = true, value_name = "ID")]
    ids: Vec<String>,
}

/// Requeue all dead-lettered jobs of a flow, so that the flow continues
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  taskharbor flow requeue 01919b6e-8f6a-7c3e-b1a4-0d6f5a3e9c11 --yes"
)]
pub(crate) struct RequeueArgs {
    /// The id of the flow
    id: String,
    #[command(flatten)]
    how: How,
    #[command(flatten)]
    ahead: Ahead,
}

fn flow_state(text: &str) -> Result<FlowState, String> {
    let all = [
        FlowState::Running,
        FlowState::Blocked,
        FlowState::Done,
        FlowState::Failed,
        FlowState::Cancelled,
    ];
    all.into_iter().find(|state| json_output::flow_state(*state) == text).ok_or_else(|| {
        let known = all.map(json_output::flow_state).join(", ");
        format!("unknown state {text:?}: choose {known}")
    })
}

pub(crate) async fn run(command: Command, url: &Url, screen: &mut Screen) -> Outcome {
    if let Command::Start(args) = command {
        return start(&args, url, screen).await;
    }
    let driver = url.open(Missing::Refuse).await?;
    let now = driver.now().await?;
    match command {
        Command::Start(_) => Ok(()),
        Command::Graph(args) => {
            let tree = tree(&driver, &args.id, args.limit, now).await?;
            let picture = match args.format {
                Format::Mermaid => tree.mermaid(),
                Format::Dot => tree.graphviz(),
            };
            screen.line(clean::lines(&picture).trim_end())?;
            tell_left_out(&tree, screen)
        }
        Command::List(args) => show_list(args, &driver, now, screen).await,
        Command::Inspect(args) => inspect(&args, &driver, now, screen).await,
        Command::Cancel(args) => act::on(&driver, &args.ids, Action::CancelFlow, screen).await,
        Command::Requeue(args) => {
            let flow = find(&driver, &args.id, now).await?;
            let filter = Filter::all().flow(flow.id.clone()).state(State::Dlq);
            let action = Action::Requeue(args.how.request());
            let target = format!("of flow {}", clean::line(flow.id.as_str()));
            let (verb, ahead) = ("requeue", args.ahead);
            Matching { verb, action, filter, target, rate: None, ahead, url }
                .run(&driver, screen)
                .await
        }
    }
}

async fn find(driver: &AnyDriver, text: &str, now: Timestamp) -> Outcome<FlowRecord> {
    let flow = driver.flow(id(text)?, now).await?;
    flow.ok_or_else(|| Failure::not_found(format!("no flow {text} is stored")))
}

async fn show_list(
    args: ListArgs,
    driver: &AnyDriver,
    now: Timestamp,
    screen: &mut Screen,
) -> Outcome {
    let mut request = ListFlows::new(usize::try_from(args.limit).unwrap_or(1), now);
    request.state = args.state;
    request.name = args.name;
    request.after = args.cursor.map(Cursor::new);
    if args.newest {
        request = request.newest_first();
    }
    let page = driver.list_flows(request).await?;
    if screen.is_json {
        for flow in &page.items {
            screen.document(&json_output::Flow::of(flow))?;
        }
    } else if page.items.is_empty() {
        tell("no flows");
    } else {
        let rows = page.items.iter().map(|flow| row(flow, now, screen)).collect();
        screen.table(&HEADINGS, &COLUMNS, rows)?;
    }
    if let Some(next) = page.next {
        screen.flush()?;
        more(&next, None);
    }
    Ok(())
}

const HEADINGS: [&str; 7] = ["ID", "NAME", "STATE", "JOBS", "DONE", "DLQ", "STARTED"];
const COLUMNS: [Align; 7] =
    [Align::Left, Align::Left, Align::Left, Align::Right, Align::Right, Align::Right, Align::Left];

const fn tone(state: FlowState) -> Tone {
    match state {
        FlowState::Running => Tone::Strong,
        FlowState::Done => Tone::Good,
        FlowState::Failed => Tone::Bad,
        _ => Tone::Warning,
    }
}

fn row(flow: &FlowRecord, now: Timestamp, screen: &Screen) -> Vec<Cell> {
    let name = flow.name.as_ref().map_or("-", |name| name.as_str());
    vec![
        Cell::plain(clean::line(flow.id.as_str())),
        Cell::plain(clean::cut(&clean::line(name), 32)),
        Cell::new(tone(flow.state), json_output::flow_state(flow.state)),
        Cell::plain(flow.members.total().to_string()),
        Cell::count(Tone::Good, flow.members.done),
        Cell::count(Tone::Bad, flow.members.dlq),
        Cell::plain(screen.time(flow.created_at, now)),
    ]
}

async fn tree(driver: &AnyDriver, text: &str, limit: u32, now: Timestamp) -> Outcome<FlowTree> {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let tree = FlowTree::read(driver, &id(text)?, now, limit).await?;
    tree.ok_or_else(|| Failure::not_found(format!("no flow {text} is stored")))
}

async fn inspect(
    args: &InspectArgs,
    driver: &AnyDriver,
    now: Timestamp,
    screen: &mut Screen,
) -> Outcome {
    let tree = tree(driver, &args.id, args.limit, now).await?;
    if screen.is_json {
        return screen.document(&json_output::FlowWhole::of(&tree));
    }
    let head = vec![row(&tree.flow, now, screen)];
    screen.table(&HEADINGS, &COLUMNS, head)?;
    screen.line("")?;
    screen.line(clean::lines(&tree.to_string()).trim_end())?;
    tell_left_out(&tree, screen)
}

fn tell_left_out(tree: &FlowTree, screen: &mut Screen) -> Outcome {
    if !tree.is_complete {
        let (shown, all) = (tree.members.len(), tree.flow.members.total());
        screen.flush()?;
        tell(&format!("{} of {all} jobs are left out: pass a greater --limit", all - shown));
    }
    Ok(())
}

async fn start(args: &StartArgs, url: &Url, screen: &mut Screen) -> Outcome {
    let mut text = Vec::new();
    if args.file == "-" {
        std::io::stdin().lock().read_to_end(&mut text)?;
    } else {
        text = fs::read(&args.file).map_err(|error| {
            Failure::new(
                Exit::Usage,
                "unreadable",
                format!("{} cannot be read: {error}", args.file),
            )
        })?;
    }
    let document = flow_json::parse(&text)
        .map_err(|error| Failure::new(Exit::Usage, "invalid_flow", error.to_string()))?;
    let driver = url.open(Missing::Refuse).await?;
    let handle = Client::new(&driver).start_document(document).await?;
    let (id, existed) = (handle.id().as_str(), !handle.is_new());
    if !args.wait {
        return enqueue::stored(id, existed, screen);
    }
    enqueue::wait(&handle, existed, screen).await
}
