//! `taskharbor` as people start it.

use std::{fs, net::SocketAddr, process::Stdio};

use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, Command},
};

use super::{super::Outcome, program_path};

/// `taskharbor serve`, until it is dropped.
pub(super) struct Program {
    pub(super) address: SocketAddr,
    child: Child,
}

impl Program {
    pub(super) async fn serve(url: &str) -> Outcome<Self> {
        let mut command = Command::new(program_path()?);
        command.args(["serve", "--bind", "127.0.0.1:0", "--url"]).arg(format!("main={url}"));
        command.stdout(Stdio::piped()).stdin(Stdio::null()).kill_on_drop(true);
        let mut child = command.spawn()?;
        let stdout = child.stdout.take().ok_or("no standard output")?;
        let mut lines = BufReader::new(stdout).lines();
        while let Some(line) = lines.next_line().await? {
            let address = line.split("http://").nth(1).and_then(|rest| rest.split('/').next());
            if let Some(address) = address.and_then(|it| it.trim().parse().ok()) {
                return Ok(Self { address, child });
            }
        }
        Err("`taskharbor serve` did not say where it listens".into())
    }

    pub(super) fn id(&self) -> u32 {
        self.child.id().unwrap_or_default()
    }

    /// What it keeps in memory, in MB.
    pub(super) fn resident_mb(&self) -> Outcome<f64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kb: f64 = line.ok_or("no VmRSS")?.trim().trim_end_matches("kB").trim().parse()?;
        Ok(kb / 1024.0)
    }
}

/// Runs `taskharbor doctor` once. What it finds is not what is measured.
pub(super) async fn doctor(url: &str) -> Outcome {
    let output = Command::new(program_path()?).args(["doctor", "--url", url]).output().await?;
    if output.stdout.is_empty() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("`taskharbor doctor` says nothing but {said}").into());
    }
    Ok(())
}
