//! A process that enqueues one job at a time, as one of many web servers does: it shares nothing with
//! the others but the database.

use std::{
    env,
    io::{BufRead, Write},
    time::Duration,
};

use taskharbor::{AnyDriver, Client};

use super::{
    Outcome,
    child::Child,
    server::Server,
    store::{WakeUps, open_at},
};
use crate::{noop::Noop, stopwatch::now, worker::runtime};

/// Starts such a process.
pub(crate) fn start(
    server: &Server,
    schema: &str,
    wake_ups: WakeUps,
    payload: usize,
) -> Outcome<Child> {
    let program = env::current_exe()?;
    let wake_ups = if wake_ups == WakeUps::On { "on" } else { "off" };
    let arguments = ["producer", &server.url(), schema, wake_ups, &payload.to_string()];
    Child::start(program.as_os_str(), &arguments)
}

/// Is such a process: each line is a number of seconds, answered with how many jobs were stored in them.
pub(crate) fn run(arguments: &[&str]) -> Outcome {
    let [url, schema, wake_ups, payload] = *arguments else {
        return Err("usage: producer <url> <schema> <on|off> <payload>".into());
    };
    let wake_ups = if wake_ups == "on" { WakeUps::On } else { WakeUps::Off };
    let payload: usize = payload.parse()?;
    let runtime = runtime()?;
    let driver = runtime.block_on(open_at(url, schema, wake_ups))?;
    let client = Client::new(&AnyDriver::new(driver));
    for line in std::io::stdin().lock().lines() {
        let spell = Duration::from_secs(line?.trim().parse()?);
        let client = client.clone();
        let produced = runtime.spawn(async move { produce(&client, payload, spell).await });
        let answer = match runtime.block_on(produced)? {
            Ok(count) => format!("ok {count}"),
            Err(error) => format!("error {error}"),
        };
        let mut out = std::io::stdout().lock();
        writeln!(out, "{answer}")?;
        out.flush()?;
    }
    Ok(())
}

/// Enqueues one job after another; answers how many.
pub(crate) async fn produce(client: &Client, payload: usize, spell: Duration) -> Outcome<usize> {
    let (started, mut count) = (now(), 0);
    while started.elapsed() < spell {
        client.enqueue(Noop::of_length(payload)).await?;
        count += 1;
    }
    Ok(count)
}
