//! The dashboard and `doctor` on a large store: how soon a page is there, what the server costs, and what
//! it asks of the store.

mod program;
mod request;

use std::{path::Path, time::Duration};

use taskharbor_testkit::browser::{Browser, Page};
use tokio::time::sleep;

use super::{Outcome, server::Server, size::Sizes, store::Store, usage::Usage};
use crate::{
    finding::{Bound, Rounds, figure, finding, head},
    stopwatch::now,
};
use program::{Program, doctor};
use request::{get, listen};

/// Browsers that look at the overview at the same time.
const BROWSERS: usize = 20;
/// How long they look.
const LOOKING: Duration = Duration::from_secs(30);
/// How often each address is asked for.
const ASKED: usize = 20;
/// What the pages ask for when they are opened.
const LISTS: [&str; 7] = [
    "jobs?order=newest&limit=50",
    "jobs?order=oldest&limit=50",
    "jobs?order=newest&limit=50&state=ready",
    "jobs?order=newest&limit=50&state=done",
    "jobs?order=newest&limit=50&type=none",
    "flows",
    "schedules",
];

pub(crate) async fn run(server: &Server, sizes: &Sizes) -> Outcome {
    let (waiting, finished) = (sizes.backlog, sizes.finished);
    head(&format!("dashboard: {waiting} jobs waiting, {finished} finished"));
    let store = Store::new(server, "dashboard", sizes.payload).await?;
    for done in (0..finished).step_by(waiting) {
        store.fill(waiting.min(finished - done), sizes.bulk).await?;
        store.drain(sizes.bulk).await?;
    }
    store.fill(waiting, sizes.bulk).await?;
    store.vacuum().await?;
    let url = format!("{}?schema=dashboard", server.url());
    let program = Program::serve(&url).await?;
    paint(server, sizes, &program).await?;
    for list in LISTS {
        let mut times = Rounds::default();
        for _ in 0..ASKED {
            let asked = now();
            get(program.address, &format!("/v1/main/{list}")).await?;
            times.push(asked.elapsed().as_secs_f64() * 1e3);
        }
        finding(&format!("GET {list}"), &times, "ms", 1, Bound::AtMost(100.0));
    }
    look(server, &program, &store).await?;
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
    finding("the queues are shown", &shown, "ms", 0, Bound::None);
    Ok(())
}

async fn first_paint(page: &Page) -> f64 {
    let entry = "performance.getEntriesByName('first-contentful-paint')[0]";
    page.wait_for(entry).await;
    page.eval(&format!("{entry}.startTime")).await.as_f64().unwrap_or(f64::NAN)
}

/// What the server and the store do while many browsers look.
async fn look(server: &Server, program: &Program, store: &Store) -> Outcome {
    let mut streams = Vec::new();
    for _ in 0..BROWSERS {
        streams.push(listen(program.address, "/v1/main/events").await?);
    }
    // Autovacuum and parallel workers have transactions of their own. The first questions are asked at once,
    // and a session that has become idle tells within ten seconds what it did before.
    for setting in ["autovacuum = off", "max_parallel_workers_per_gather = 0"] {
        store.sql.batch_execute(&format!("ALTER SYSTEM SET {setting}")).await?;
    }
    store.sql.batch_execute("SELECT pg_reload_conf()").await?;
    sleep(Duration::from_secs(15)).await;
    let before = (Usage::of(server, &[program.id()])?, calls(store).await?, now());
    sleep(LOOKING).await;
    let after = (Usage::of(server, &[program.id()])?, calls(store).await?);
    let seconds = before.2.elapsed().as_secs_f64();
    let spent = after.0.since(before.0);
    let share = spent.client / seconds * 100.0;
    figure(&format!("{BROWSERS} browsers: server, of a core"), share, "%", 2, Bound::AtMost(2.0));
    // A call is a statement, and mostly a look whether its connection still lives.
    let asked = (after.1 - before.1) / seconds;
    figure("statements, two for a call", asked, "/s", 2, Bound::AtMost(2.2));
    store.sql.batch_execute("ALTER SYSTEM RESET ALL").await?;
    store.sql.batch_execute("SELECT pg_reload_conf()").await?;
    figure("PostgreSQL, of a core", spent.server / seconds * 100.0, "%", 2, Bound::None);
    let mut events = 0;
    for stream in streams {
        events += stream.end().await;
    }
    if events < BROWSERS {
        return Err(format!("{BROWSERS} browsers heard {events} events").into());
    }
    Ok(())
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
