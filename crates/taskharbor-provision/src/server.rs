//! A private server in the directory of a run: made, started and ready to answer.
//!
//! It trusts every user of this machine and loses its data on a crash, which is what tests want
//! and nothing else should. `synchronous_commit` stays on: switched off it would change what a
//! commit means, whereas `fsync` only changes what a power failure does.

use std::fs::{self, File};
use std::io::{self, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;

use crate::Error;
use crate::account::Account;
use crate::binary::Binaries;
use crate::run::Run;
use crate::shell::{announce, cannot, output};

/// The user who owns all databases.
const USER: &str = "taskharbor";

/// How many ports are tried if other processes take them first.
const PORT_ATTEMPTS: usize = 5;

/// Starts a server and returns its URL. It is stopped at the end of the run.
pub(crate) fn start(run: &Run, binaries: &Binaries, account: &Account) -> Result<String, Error> {
    let data = run.dir().join("data");
    make(&data, run.dir(), binaries, account)?;
    let log = run.dir().join("log");
    for _ in 0..PORT_ATTEMPTS {
        let port = free_port().map_err(|error| Error::new(format!("no port: {error}")))?;
        let Err(error) = start_on(port, &data, &log, binaries, account) else {
            let (version, dir) = (binaries.version(), binaries.dir().display());
            announce(&format!("PostgreSQL {version} from {dir}"));
            return Ok(format!("postgres://{USER}@{}:{port}/postgres", Ipv4Addr::LOCALHOST));
        };
        let said = fs::read_to_string(&log).unwrap_or_default();
        if !port_was_taken(&said) {
            // It is about to be removed together with everything else.
            announce(said.trim_end());
            return Err(error);
        }
    }
    let message = format!("{PORT_ATTEMPTS} free ports in a row were taken at once: try again");
    Err(Error::new(message))
}

/// Makes the data directory of a server whose socket will be in `socket_dir`.
fn make(
    data: &Path,
    socket_dir: &Path,
    binaries: &Binaries,
    account: &Account,
) -> Result<(), Error> {
    let mut initdb = account.command(binaries.program("initdb"));
    initdb.args("--no-sync --locale=C --encoding=UTF8 --auth=trust".split(' '));
    output(initdb.args(["-U", USER, "-D"]).arg(data).current_dir("/"))?;
    let file = data.join("postgresql.conf");
    let open = File::options().append(true).open(&file);
    let written = open.and_then(|mut file| file.write_all(settings(socket_dir).as_bytes()));
    written.map_err(|error| cannot("write", &file, &error))
}

/// Returns when the server answers, or an error if it does not answer within a minute.
fn start_on(
    port: u16,
    data: &Path,
    log: &Path,
    binaries: &Binaries,
    account: &Account,
) -> Result<(), Error> {
    // A log of its own for each attempt, or the last one's excuse would count for the next.
    if log.exists() {
        fs::remove_file(log).map_err(|error| cannot("remove", log, &error))?;
    }
    let mut pg_ctl = account.command(binaries.program("pg_ctl"));
    pg_ctl.args(["start", "--silent", "-w", "-t", "60", "-D"]).arg(data).arg("-l").arg(log);
    pg_ctl.args(["-o", &format!("-p {port}")]).current_dir("/");
    output(&mut pg_ctl).map(drop)
}

/// A port that is free now. Another process may take it before the server does: rare, and noticed.
fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

fn port_was_taken(log: &str) -> bool {
    log.contains("Address already in use") || log.contains("could not create any TCP/IP sockets")
}

/// What is not as `initdb` leaves it. Many tests run at once, each with a pool of connections; and
/// checkpoints in the middle of a run would only make it slower.
fn settings(socket_dir: &Path) -> String {
    let socket_dir = socket_dir.display().to_string().replace('\'', "''");
    format!(
        "
listen_addresses = '{}'
unix_socket_directories = '{socket_dir}'
max_connections = 300
shared_buffers = 128MB
fsync = off
max_wal_size = 4GB
checkpoint_timeout = 1h
",
        Ipv4Addr::LOCALHOST
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_taken_port_is_told_from_other_troubles() {
        let taken = "LOG:  could not bind IPv4 address \"127.0.0.1\": Address already in use\n\
                     FATAL:  could not create any TCP/IP sockets\n";
        assert!(port_was_taken(taken));
        assert!(!port_was_taken("FATAL:  could not map anonymous shared memory"));
        assert!(!port_was_taken(""));
    }

    #[test]
    fn a_free_port_can_be_taken() {
        let port = free_port().unwrap();
        assert!(TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok());
    }

    #[test]
    fn a_quote_in_a_path_does_not_end_the_setting() {
        let settings = settings(Path::new("/it's/run-1-1"));
        assert!(settings.contains("\nunix_socket_directories = '/it''s/run-1-1'\n"));
        assert!(settings.contains("\nfsync = off\n"));
        assert!(!settings.contains("synchronous_commit"));
    }
}
