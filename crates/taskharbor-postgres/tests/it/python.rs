//! The guide's program in Python, run with psycopg as its reader would run it.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::{Command, Output},
    time::Duration,
};

use taskharbor_core::{
    Driver, QueueName,
    driver::{Demand, Reserve},
    name::Holder,
};

use crate::guide::Example;

/// What the program needs beside Python itself.
const PSYCOPG: &str = "psycopg[binary]==3.3.8";

/// Python with psycopg, or why there is none.
fn python() -> Result<PathBuf, String> {
    let home = Path::new(env!("CARGO_TARGET_TMPDIR")).join("psycopg-3.3.8");
    let (python, ready) = (home.join("bin/python"), home.join("ready"));
    if !ready.exists() {
        let venv = run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&home));
        venv.map_err(|error| format!("`python3 -m venv` cannot be run: {error}"))?;
        let install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", PSYCOPG];
        let installed = run(Command::new(&python).args(install));
        installed.map_err(|error| format!("{PSYCOPG} cannot be installed: {error}"))?;
        fs::write(&ready, "").map_err(|error| error.to_string())?;
    }
    Ok(python)
}

fn run(command: &mut Command) -> io::Result<Output> {
    let output = command.output()?;
    match output.status.success() {
        true => Ok(output),
        false => Err(io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned())),
    }
}

#[tokio::test]
async fn the_program_of_the_guide_enqueues_what_a_driver_reserves() {
    let python = python().unwrap_or_else(|reason| {
        panic!("the guide's Python cannot be tested: {reason}; install Python 3 with venv and pip")
    });
    let example = Example::new().await;
    let program = example.text("python");
    let ran =
        Command::new(python).args(["-c", &program]).env("DATABASE_URL", &example.url).output();
    let ran = ran.unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let said = String::from_utf8(ran.stdout).unwrap();
    let id = said.trim_end().strip_suffix(" is new").unwrap();

    let (driver, now) = (&example.driver, example.driver.store_time().await.unwrap());
    let demands = vec![Demand::new(QueueName::new("mail").unwrap(), 2)];
    let reserve = |now| {
        let holder = Holder::new("test").unwrap();
        Reserve::new(demands.clone(), holder, now, Duration::from_secs(60))
    };
    let early = driver.reserve(reserve(now)).await.unwrap();
    assert!(early.jobs.is_empty() && early.next_due.is_some());
    let later = now.saturating_add(Duration::from_secs(600));
    let reserved = driver.reserve(reserve(later)).await.unwrap();
    let [leased] = &reserved.jobs[..] else { panic!("{reserved:?}") };
    let job = &leased.job;
    assert_eq!((job.id.as_str(), job.job_type.as_str()), (id, "order:confirm"));
    let payload: serde_json::Value = serde_json::from_slice(&job.payload).unwrap();
    assert_eq!(payload, serde_json::json!({"order": 1, "customer": "Ada"}));
    assert_eq!(job.run_at, early.next_due);
    assert_eq!((job.priority, job.max_attempts), (5, Some(3)));
    assert_eq!(job.timeout, Some(Duration::from_secs(30)));
    assert_eq!(job.idempotency_key.as_ref().unwrap().as_str(), "confirm-1");
    assert_eq!((job.headers.len(), job.headers.get("tenant")), (1, Some("blue")));
    let order = "SELECT customer FROM orders WHERE id = 1";
    assert_eq!(example.sql.query_one(order, &[]).await.unwrap().get::<_, &str>(0), "Ada");
}
