//! A PostgreSQL server of a test's own, to be stopped, broken and started again.

use std::{
    path::{Path, PathBuf},
    process::{self, Command},
    sync::{
        LazyLock,
        atomic::{AtomicUsize, Ordering},
    },
};

use crate::postgres::{account, environment, port};

/// The user who owns all databases.
const USER: &str = "taskharbor";

/// A data directory as `initdb` leaves it; copying it is much faster than making another.
static TEMPLATE: LazyLock<PathBuf> = LazyLock::new(|| {
    let data = home().join(format!("template-{}", process::id()));
    let mut initdb = program("initdb");
    initdb.args("--no-sync --locale=C --encoding=UTF8 --auth=trust".split(' '));
    account::run(initdb.args(["-U", USER, "-D"]).arg(&data));
    data
});

/// The directory for the servers of tests. The end of the run stops and removes every server in it that
/// its test has not stopped.
pub fn home() -> PathBuf {
    environment::required("TASKHARBOR_PG_DIR").into()
}

fn program(name: &str) -> Command {
    account::command(Path::new(&environment::required("TASKHARBOR_PG_BIN")).join(name))
}

/// How a server that is stopped treats the clients that are connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Ends their transactions and leaves everything in order.
    Fast,
    /// As if the power had failed.
    Immediate,
}

/// A running server; stopped and removed when it is dropped.
pub struct Server {
    data: PathBuf,
    port: u16,
}

impl Server {
    /// A new server with no data.
    pub fn start() -> Self {
        Self::start_with("")
    }

    /// A new server with these lines in its configuration.
    pub fn start_with(settings: &str) -> Self {
        static NUMBER: AtomicUsize = AtomicUsize::new(1);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let data = home().join(format!("server-{}-{number}", process::id()));
        let template = TEMPLATE.display().to_string();
        let settings = format!("{}{settings}\n", base_settings());
        let copy = r#"cp -Rp "$2" "$1"; printf %s "$3" >> "$1/postgresql.conf""#;
        account::script(copy, &data, &[&template, &settings]);
        let mut server = Self { data, port: port::free() };
        for _ in 1..port::ATTEMPTS {
            if server.try_start().is_ok() {
                return server;
            }
            // Another process may have taken the port first.
            server.port = port::free();
        }
        server.start_again();
        server
    }

    /// How to reach it, also after it was started again.
    pub fn url(&self) -> String {
        format!("postgres://{USER}@127.0.0.1:{}/postgres", self.port)
    }

    /// Where it listens.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Stops the server, so that no client can connect any more.
    pub fn stop(&self, stop: Stop) {
        let mode = match stop {
            Stop::Fast => "fast",
            Stop::Immediate => "immediate",
        };
        account::run(self.pg_ctl("stop").args(["-m", mode]));
    }

    /// Starts it after it was stopped, and returns when it answers.
    pub fn start_again(&self) {
        self.try_start().unwrap_or_else(|failure| panic!("{failure}"));
    }

    /// Stops and starts it, cutting all connections.
    pub fn restart(&self, stop: Stop) {
        self.stop(stop);
        self.start_again();
    }

    /// Restarts it as a standby: it answers, but nothing can be written.
    pub fn demote(&self) {
        self.stop(Stop::Fast);
        account::script(r#": > "$1/standby.signal""#, &self.data, &[]);
        self.start_again();
    }

    /// Makes a primary of a standby without cutting a connection.
    pub fn promote(&self) {
        account::run(&mut self.pg_ctl("promote"));
    }

    fn pg_ctl(&self, action: &str) -> Command {
        let mut command = program("pg_ctl");
        command.args([action, "--silent", "-w", "-t", "60", "-D"]).arg(&self.data);
        command
    }

    fn try_start(&self) -> Result<(), String> {
        let log = self.data.join("log");
        let mut start = self.pg_ctl("start");
        start.arg("-l").arg(&log).args(["-o", &format!("-p {}", self.port)]);
        account::attempt(&mut start).map(drop).map_err(|failure| {
            let said = account::attempt(account::command("tail").arg("-n20").arg(log));
            format!("{failure}{}", said.unwrap_or_default())
        })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have been stopped already.
        let _ = account::attempt(self.pg_ctl("stop").args(["-m", "immediate"]));
        let _ = account::attempt(account::command("rm").arg("-rf").arg(&self.data));
    }
}

/// `fsync` is off because it only protects against a power failure. Commits survive all other faults.
fn base_settings() -> String {
    format!(
        "
listen_addresses = '127.0.0.1'
unix_socket_directories = '{}'
max_connections = 50
shared_buffers = 16MB
fsync = off
",
        home().display().to_string().replace('\'', "''")
    )
}

#[cfg(test)]
mod tests {
    use tokio_postgres::{Client, NoTls};

    use super::*;

    async fn connect(server: &Server) -> Client {
        let (client, connection) = tokio_postgres::connect(&server.url(), NoTls).await.unwrap();
        tokio::spawn(connection);
        client
    }

    async fn rows(client: &Client) -> i64 {
        client.query_one("SELECT count(*) FROM t", &[]).await.unwrap().get(0)
    }

    #[tokio::test]
    async fn a_server_keeps_what_was_committed_when_it_is_cut_down() {
        let server = Server::start();
        let client = connect(&server).await;
        client.batch_execute("CREATE TABLE t (); INSERT INTO t DEFAULT VALUES").await.unwrap();
        server.stop(Stop::Immediate);
        assert!(client.query("SELECT", &[]).await.is_err());
        assert!(tokio_postgres::connect(&server.url(), NoTls).await.is_err());
        server.start_again();
        assert_eq!(rows(&connect(&server).await).await, 1);
        server.restart(Stop::Fast);
        assert_eq!(rows(&connect(&server).await).await, 1);
    }

    #[tokio::test]
    async fn a_standby_can_be_read_and_written_to_once_it_is_promoted() {
        let server = Server::start();
        connect(&server).await.batch_execute("CREATE TABLE t ()").await.unwrap();
        server.demote();
        let client = connect(&server).await;
        assert_eq!(rows(&client).await, 0);
        let write = "INSERT INTO t DEFAULT VALUES";
        let refused = client.batch_execute(write).await.unwrap_err();
        assert_eq!(refused.code().unwrap().code(), "25006", "read_only_sql_transaction");
        server.promote();
        client.batch_execute(write).await.unwrap();
        assert_eq!(rows(&client).await, 1);
    }

    #[test]
    fn nothing_is_left_of_a_server() {
        let server = Server::start();
        let data = server.data.clone();
        assert!(data.exists());
        drop(server);
        assert!(!data.exists());
    }
}
