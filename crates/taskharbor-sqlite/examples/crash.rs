//! Kills a process that enqueues and works, again and again, and checks that nothing which was
//! acknowledged is lost or done twice: `cargo xtask crash sqlite rounds=200 seed=7`.
#![allow(clippy::print_stdout, reason = "talking to the terminal is what this program is for")]

#[path = "../tests/crash/mod.rs"]
mod crash;

use std::{path::PathBuf, process::Command};

use crash::Outcome;

const CHILD: &str = "TASKHARBOR_CRASH_CHILD";

#[tokio::main]
async fn main() -> Outcome {
    if let Some(dir) = std::env::var_os(CHILD) {
        return crash::child(&PathBuf::from(dir)).await;
    }
    let (mut rounds, mut seed) = (200, fastrand::u64(..));
    for setting in std::env::args().skip(1) {
        let number = setting.split_once('=').and_then(|(_, value)| value.parse().ok());
        match (setting.split_once('='), number) {
            (Some(("rounds", _)), Some(number)) => rounds = usize::try_from(number)?,
            (Some(("seed", _)), Some(number)) => seed = number,
            _ => return Err(format!("{setting:?} is not understood: rounds=N seed=N").into()),
        }
    }
    println!("{rounds} rounds, seed={seed}");
    let dir = std::env::temp_dir().join(format!("taskharbor-crash-{}", std::process::id()));
    std::fs::create_dir_all(&dir)?;
    let command = || {
        let mut command = Command::new(std::env::current_exe()?);
        command.env(CHILD, &dir);
        Ok(command)
    };
    let mut random = fastrand::Rng::with_seed(seed);
    // What is found wrong can be looked at: the directory is removed only if nothing is.
    let told = format!("seed={seed}, see {}", dir.display());
    let outcome = crash::rounds(dir.clone(), rounds, &mut random, command).await;
    let tally = outcome.map_err(|error| format!("{error} ({told})"))?;
    std::fs::remove_dir_all(&dir)?;
    let crash::Tally { enqueued, done, left } = tally;
    println!(
        "{rounds} kills: {enqueued} enqueues and {done} acks were acknowledged, none lost, none undone"
    );
    println!("{left} jobs were left for the next worker");
    Ok(())
}
