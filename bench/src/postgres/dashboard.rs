//! The dashboard and `doctor` on a large store: how soon a page is there, what the server costs, and what
//! it asks of the store.

mod program;
mod request;
mod stock;

use std::{net::SocketAddr, path::Path, time::Duration};

use taskharbor_testkit::browser::{Browser, Page};
use tokio::{task::JoinSet, time::sleep};

use super::{Outcome, server::Server, size::Sizes, store::Store, usage::Usage};
use crate::{
    finding::{Bound, Rounds, figure, finding, head},
    stopwatch::now,
};
use program::{Program, doctor};
use request::{get, listen};

/// Browsers that look at one page at the same time.
const BROWSERS: u32 = 20;
/// How long they look.
const LOOKED: Duration = Duration::from_secs(30);
/// How often each address is asked for.
const ASKED: usize = 10;
/// For longer than this the server keeps no answer, so that each question reaches the store.
const KEPT: Duration = Duration::from_millis(1_050);
/// The list that the page of jobs shows, and how often the page asks for it.
const JOBS: &str = "/v1/main/jobs?order=newest&limit=50";
const JOBS_EVERY: Duration = Duration::from_secs(3);
/// What the pages ask for when they are opened.
const LISTS: [&str; 11] = [
    "jobs?order=newest&limit=50",
    "jobs?order=oldest&limit=50",
    "jobs?order=newest&limit=50&state=ready",
    "jobs?order=newest&limit=50&state=done",
    "jobs?order=newest&limit=50&state=dlq",
    "jobs?order=newest&limit=50&type=none",
    "dlq/groups",
    "flows?limit=50",
    "schedules",
    "workers",
    "queues/lanes/lanes",
];

/// Which page browsers look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Looking {
    /// It gets everything by events.
    Overview,
    /// It also asks for a list.
    Jobs,
}

pub(crate) async fn run(server: &Server, sizes: &Sizes) -> Outcome {
    let (waiting, finished) = (sizes.backlog, sizes.finished);
    head(&format!("dashboard: {waiting} jobs waiting, {finished} finished"));
    let store = Store::new(server, "dashboard", sizes.payload).await?;
    for done in (0..finished).step_by(waiting) {
        store.fill(waiting.min(finished - done), sizes.bulk).await?;
        store.drain(sizes.bulk).await?;
    }
    store.fill(waiting, sizes.bulk).await?;
    stock::fill(&store).await?;
    store.vacuum().await?;
    let url = format!("{}?schema=dashboard", server.url());
    let program = Program::serve(&url).await?;
    paint(server, sizes, &program).await?;
    for list in LISTS {
        let mut times = Rounds::default();
        for _ in 0..ASKED {
            sleep(KEPT).await;
            let asked = now();
            get(program.address, &format!("/v1/main/{list}")).await?;
            times.push(asked.elapsed().as_secs_f64() * 1e3);
        }
        finding(&format!("GET {list}"), &times, "ms", 1, Bound::AtMost(100.0));
    }
    look(server, &program, &store, Looking::Overview).await?;
    look(server, &program, &store, Looking::Jobs).await?;
    figure("resident memory", program.resident_mb()?, "MB", 1, Bound::AtMost(30.0));
    let asked = now();
    doctor(&url).await?;
    let took = asked.elapsed().as_secs_f64();
    figure("taskharbor doctor", took, "s", 2, Bound::AtMost(2.0));
    drop(program);
    Ok(store.sql.batch_execute("DROP SCHEMA dashboard CASCADE").await?)
}

/// How soon the overview is there, in a browser that has not seen the pages before.
async fn paint(server: &Server, sizes: &Sizes, program: &Program) -> Outcome {
    let browser = Browser::start(server.dir()).await;
    let (mut painted, mut shown) = (Rounds::default(), Rounds::default());
    for _ in 0..sizes.rounds.max(3) {
        let page = browser.page().await;
        let opened = now();
        page.open(&format!("http://{}/", program.address)).await;
        page.wait_for("document.querySelector('td[data-label=Ready]')").await;
        shown.push(opened.elapsed().as_secs_f64() * 1e3);
        painted.push(first_paint(&page).await);
    }
    finding("first paint", &painted, "ms", 0, Bound::AtMost(1_000.0));
    finding("the queues are shown", &shown, "ms", 0, Bound::AtMost(1_000.0));
    Ok(())
}

async fn first_paint(page: &Page) -> f64 {
    let entry = "performance.getEntriesByName('first-contentful-paint')[0]";
    page.wait_for(entry).await;
    page.eval(&format!("{entry}.startTime")).await.as_f64().unwrap_or(f64::NAN)
}

/// What the server and the store do while many browsers look.
async fn look(server: &Server, program: &Program, store: &Store, looking: Looking) -> Outcome {
    let mut streams = Vec::new();
    let mut lists = JoinSet::new();
    for number in 0..BROWSERS {
        streams.push(listen(program.address, "/v1/main/events").await?);
        if looking == Looking::Jobs {
            // People open pages at different times.
            lists.spawn(ask_again(program.address, JOBS_EVERY / BROWSERS * number));
        }
    }
    // Autovacuum and parallel workers have transactions of their own. The first questions are asked at once,
    // and a session that has become idle tells within ten seconds what it did before.
    for setting in ["autovacuum = off", "max_parallel_workers_per_gather = 0"] {
        store.sql.batch_execute(&format!("ALTER SYSTEM SET {setting}")).await?;
    }
    store.sql.batch_execute("SELECT pg_reload_conf()").await?;
    sleep(Duration::from_secs(15)).await;
    let before = (Usage::of(server, &[program.id()])?, calls(store).await?, now());
    sleep(LOOKED).await;
    let after = (Usage::of(server, &[program.id()])?, calls(store).await?);
    let seconds = before.2.elapsed().as_secs_f64();
    let spent = after.0.since(before.0);
    let share = spent.client / seconds * 100.0;
    // The bounds are those of the overview. A list costs the server and the store more.
    let (page, of_core, of_statements) = match looking {
        Looking::Overview => ("overview", Bound::AtMost(2.0), Bound::AtMost(2.2)),
        Looking::Jobs => ("jobs", Bound::None, Bound::None),
    };
    let name = format!("{BROWSERS} browsers, {page}: server, of a core");
    figure(&name, share, "%", 2, of_core);
    // A call is a statement, and mostly a look whether its connection still lives.
    let asked = (after.1 - before.1) / seconds;
    let name = format!("{BROWSERS} browsers, {page}: statements, two for a call");
    figure(&name, asked, "/s", 2, of_statements);
    store.sql.batch_execute("ALTER SYSTEM RESET ALL").await?;
    store.sql.batch_execute("SELECT pg_reload_conf()").await?;
    figure("PostgreSQL, of a core", spent.server / seconds * 100.0, "%", 2, Bound::None);
    if let Some(ended) = lists.try_join_next() {
        return ended?;
    }
    let mut events = 0;
    for stream in streams {
        events += stream.end().await;
    }
    if events < usize::try_from(BROWSERS)? {
        return Err(format!("{BROWSERS} browsers heard {events} events").into());
    }
    Ok(())
}

/// Asks for the list of jobs as its page does, until it fails.
async fn ask_again(address: SocketAddr, after: Duration) -> Outcome {
    sleep(after).await;
    loop {
        get(address, JOBS).await?;
        sleep(JOBS_EVERY).await;
    }
}

/// The transactions of the server so far.
async fn calls(store: &Store) -> Outcome<f64> {
    let sql = "SELECT pg_stat_clear_snapshot(), xact_commit::float8 FROM pg_stat_database WHERE datname = current_database()";
    Ok(store.sql.query_one(sql, &[]).await?.get(1))
}

/// Where the program that serves is, as `cargo xtask bench` says.
fn program_path() -> Outcome<std::path::PathBuf> {
    let path = std::env::var_os("TASKHARBOR_BENCH_PROGRAM")
        .ok_or("no program: run `cargo xtask bench postgres dashboard`")?;
    Ok(Path::new(&path).to_owned())
}
