//! A private pgbouncer in front of the shared server, one for all tests of the process.
//!
//! It pools transactions and knows nothing of prepared statements: after every commit a connection
//! may go to another client. Nothing is configured to help the driver.

use std::{
    collections::HashSet,
    fmt::Write,
    io::{BufRead, BufReader},
    path::Path,
    process::{self, Child, Stdio},
    sync::LazyLock,
    thread,
};

use tokio_postgres::{Client, Config, NoTls, SimpleQueryMessage, config::Host};

use crate::postgres::{account, environment, port};

/// Starts the program and ends it when our end of the input is closed, also by a signal that leaves
/// us no time for anything. Arguments: the program and its configuration.
const GUARDIAN: &str = r#"
trap '' HUP INT
"$1" "$2" </dev/null &
exec 2>/dev/null
while read -r _; do :; done
kill -9 $!
"#;

/// A pgbouncer that runs as long as this process.
pub struct Bouncer {
    url: String,
    console: Config,
    // Holds the other end of its input.
    _guardian: Child,
}

/// The one of this process, started when it is first asked for.
pub fn shared() -> &'static Bouncer {
    static SHARED: LazyLock<Bouncer> = LazyLock::new(|| start_with_settings(""));
    &SHARED
}

/// Another one, which takes start-up options and drops them.
pub fn dropping_options() -> &'static Bouncer {
    static DROPPING: LazyLock<Bouncer> =
        LazyLock::new(|| start_with_settings("ignore_startup_parameters = options\n"));
    &DROPPING
}

fn start_with_settings(more: &str) -> Bouncer {
    // Without a server at all, that is what must be said.
    let server = environment::required("TASKHARBOR_TEST_POSTGRES");
    let program = environment::optional("TASKHARBOR_PGBOUNCER").unwrap_or_else(|| {
        environment::give_up("no pgbouncer: install it, and run `cargo xtask test`")
    });
    start(more, &program, &server)
}

impl Bouncer {
    /// Leads to the shared server.
    pub fn url(&self) -> String {
        self.url.clone()
    }

    /// Whether an application has no client here any more, and each of its connections to the
    /// server (they keep the name of the client that used them last) is at rest.
    pub async fn is_done_with(&self, application: &str, backends: &[i32]) -> bool {
        let (console, connection) =
            self.console.connect(NoTls).await.expect("pgbouncer can be reached");
        let connection = tokio::spawn(connection);
        let clients = show(&console, "CLIENTS", "application_name", |_| true).await;
        let resting = show(&console, "SERVERS", "remote_pid", |state| state == "idle").await;
        drop(console);
        let _ = connection.await;
        let rests = |backend: &i32| resting.contains(&backend.to_string());
        !clients.contains(application) && backends.iter().all(rests)
    }
}

/// One column of what the console shows, of the rows in these states.
async fn show(
    console: &Client,
    what: &str,
    column: &str,
    states: impl Fn(&str) -> bool,
) -> HashSet<String> {
    let shown = console.simple_query(&format!("SHOW {what}")).await.expect("an answer");
    let rows = shown.into_iter().filter_map(|message| match message {
        SimpleQueryMessage::Row(row) if row.get("state").is_some_and(&states) => Some(row),
        _ => None,
    });
    rows.filter_map(|row| row.get(column).map(str::to_owned)).collect()
}

fn start(more: &str, program: &str, server: &str) -> Bouncer {
    let server: Config = server.parse().expect("it is a URL");
    let dir = environment::required("TASKHARBOR_PG_DIR");
    for _ in 0..port::ATTEMPTS {
        let port = port::free();
        let file = Path::new(&dir).join(format!("bouncer-{}-{port}.ini", process::id()));
        let settings = format!("{}{more}", settings(&server, port));
        account::script(r#"printf %s "$2" > "$1""#, &file, &[&settings]);
        if let Some(guardian) = start_with(program, &file) {
            let url = format!("postgres://test@127.0.0.1:{port}/test");
            let mut console: Config = url.parse().expect("it is a URL");
            console.dbname("pgbouncer");
            return Bouncer { url, console, _guardian: guardian };
        }
    }
    panic!("pgbouncer does not start, see {dir}");
}

/// Returns when it listens; nothing if it has ended instead.
fn start_with(program: &str, file: &Path) -> Option<Child> {
    let mut command = account::command("sh");
    command.args(["-c", GUARDIAN, "guardian", program]).arg(file);
    if let Some(libraries) = environment::optional("TASKHARBOR_PGBOUNCER_LIBS") {
        command.env("LD_LIBRARY_PATH", libraries);
    }
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut guardian = command.spawn().expect("a shell can be started");
    let said = guardian.stderr.take().expect("it is piped");
    let mut lines = BufReader::new(said).lines().map_while(Result::ok);
    if !lines.any(|line| line.contains("process up")) {
        let _ = guardian.wait();
        return None;
    }
    // It would stop if its output were not read.
    thread::spawn(move || lines.for_each(drop));
    Some(guardian)
}

fn settings(server: &Config, port: u16) -> String {
    let mut database = "host=".to_owned();
    match server.get_hosts().first() {
        Some(Host::Tcp(host)) => database.push_str(host),
        Some(Host::Unix(dir)) => write!(database, "{}", dir.display()).expect("it is text"),
        None => database.push_str("127.0.0.1"),
    }
    let server_port = server.get_ports().first().unwrap_or(&5432);
    let user = server.get_user().unwrap_or("postgres");
    let name = server.get_dbname().unwrap_or(user);
    write!(database, " port={server_port} dbname={name} user={user}").expect("it is text");
    if let Some(password) = server.get_password() {
        let password = String::from_utf8_lossy(password);
        write!(database, " password='{}'", password.replace('\'', "''")).expect("it is text");
    }
    format!(
        "[databases]
test = {database}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 8
max_client_conn = 1000
log_connections = 0
log_disconnections = 0
"
    )
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[tokio::test]
    async fn a_connection_serves_another_client_after_every_transaction() {
        let bouncer = shared();
        let backend = async || {
            let config: Config = bouncer.url().parse().unwrap();
            let (client, connection) = config.connect(NoTls).await.unwrap();
            tokio::spawn(connection);
            let rows = client.simple_query("SELECT pg_backend_pid()").await.unwrap();
            let pid = rows.iter().find_map(|message| match message {
                SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
                _ => None,
            });
            (pid.unwrap(), client)
        };
        let mut clients = Vec::new();
        let mut backends = HashSet::new();
        for _ in 0..20 {
            let (pid, client) = backend().await;
            backends.insert(pid);
            clients.push(client);
        }
        assert!(backends.len() < clients.len(), "{backends:?}");
    }

    #[test]
    fn a_program_ends_when_the_input_of_its_guardian_does() {
        let mut command = Command::new("sh");
        command.args(["-c", GUARDIAN, "guardian", "sleep", "600"]);
        let guardian = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        // Closes the input, and reads until every process that could print has ended.
        guardian.wait_with_output().unwrap();
    }
}
