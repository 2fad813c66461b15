//! A server of the benchmark's own that forgets nothing: the one of the tests has `fsync` off.

use std::{
    collections::BTreeMap,
    env,
    ffi::OsStr,
    fs,
    net::TcpListener,
    path::{Path, PathBuf},
    process::{self, Command},
};

use tokio_postgres::{Client, NoTls};

use super::{Outcome, size::Sizes};

const USER: &str = "taskharbor";
/// What is told about it in the head of a run.
const SETTINGS: [&str; 9] = [
    "server_version",
    "fsync",
    "synchronous_commit",
    "full_page_writes",
    "wal_sync_method",
    "shared_buffers",
    "max_wal_size",
    "wal_compression",
    "autovacuum",
];

/// A running server; stopped and removed when it is dropped, or with the whole run.
pub(crate) struct Server {
    programs: PathBuf,
    data: PathBuf,
    account: Vec<String>,
    port: u16,
}

impl Server {
    pub(crate) fn start() -> Outcome<Self> {
        let data =
            Path::new(&variable("TASKHARBOR_PG_DIR")?).join(format!("bench-{}", process::id()));
        let programs = variable("TASKHARBOR_PG_BIN")?.into();
        let account = env::var("TASKHARBOR_PG_USER").map(|user| prefix(&user)).unwrap_or_default();
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let server = Self { programs, data, account, port };
        let mut initdb = server.program("initdb");
        initdb.args("--no-sync --locale=C --encoding=UTF8 --auth=trust".split(' '));
        run(initdb.args(["-U", USER, "-D"]).arg(&server.data))?;
        let settings = server.settings();
        let append = r#"printf %s "$2" >> "$1""#;
        let file = server.data.join("postgresql.conf");
        run(server.command("sh").args(["-c", append, "sh"]).arg(file).arg(settings))?;
        let mut start = server.program("pg_ctl");
        start.args(["start", "--silent", "-w", "-t", "60", "-D"]).arg(&server.data);
        start.arg("-l").arg(server.data.join("log")).args(["-o", &format!("-p {port}")]);
        run(&mut start)?;
        Ok(server)
    }

    /// Durable, and otherwise such that no checkpoint falls into a measurement. What
    /// `TASKHARBOR_BENCH_PG_CONF` has to say comes last, as `auto_explain` for a look at the plans.
    fn settings(&self) -> String {
        let socket = self.data.parent().unwrap_or(&self.data).display().to_string();
        format!(
            "
listen_addresses = '127.0.0.1'
unix_socket_directories = '{}'
max_connections = 500
fsync = on
synchronous_commit = on
full_page_writes = on
shared_buffers = 512MB
max_wal_size = 12GB
min_wal_size = 2GB
checkpoint_timeout = 1h
{}
",
            socket.replace('\'', "''"),
            env::var("TASKHARBOR_BENCH_PG_CONF").unwrap_or_default(),
        )
    }

    pub(crate) fn url(&self) -> String {
        format!("postgres://{USER}@127.0.0.1:{}/postgres", self.port)
    }

    /// A connection that sees the tables of this schema.
    pub(crate) async fn connect(&self, schema: &str) -> Outcome<Client> {
        let (client, connection) = tokio_postgres::connect(&self.url(), NoTls).await?;
        tokio::spawn(connection);
        client.batch_execute(&format!("SET search_path = {schema}")).await?;
        Ok(client)
    }

    /// A directory on the disk of the server.
    pub(crate) fn dir(&self) -> &Path {
        self.data.parent().unwrap_or(&self.data)
    }

    /// The process that is the parent of all others of the server.
    pub(crate) fn pid(&self) -> Outcome<u32> {
        let file = fs::read_to_string(self.data.join("postmaster.pid"))?;
        Ok(file.lines().next().ok_or("no process id")?.trim().parse()?)
    }

    /// Its version, and the settings that matter.
    pub(crate) async fn facts(&self) -> Outcome<BTreeMap<String, String>> {
        let client = self.connect("public").await?;
        let mut facts = BTreeMap::new();
        for name in SETTINGS {
            let value: String = client.query_one(&format!("SHOW {name}"), &[]).await?.get(0);
            facts.insert(name.to_owned(), value);
        }
        Ok(facts)
    }

    /// Switches full-page images on or off.
    pub(crate) async fn set_full_page_writes(&self, on: bool) -> Outcome {
        let client = self.connect("public").await?;
        let to = if on { "on" } else { "off" };
        client.batch_execute(&format!("ALTER SYSTEM SET full_page_writes = {to}")).await?;
        Ok(client.batch_execute("SELECT pg_reload_conf(); CHECKPOINT").await?)
    }

    /// Prints what the figures depend on.
    pub(crate) async fn describe(&self, sizes: &Sizes) -> Outcome {
        let facts = self.facts().await?;
        let settings: Vec<_> =
            facts.iter().map(|(name, value)| format!("{name} {value}")).collect();
        println!("PostgreSQL, a private server: {}", settings.join(", "));
        // What else the machine does is in every figure.
        if let Ok(load) = fs::read_to_string("/proc/loadavg") {
            println!("load average before the run: {}", load.trim());
        }
        let Sizes { jobs, batch, bulk, payload, rounds, .. } = sizes;
        println!(
            "{jobs} jobs, payloads of {payload} bytes, {batch} in a call to reserve and settle, {bulk} to enqueue, {rounds} rounds"
        );
        Ok(())
    }

    fn command(&self, program: impl AsRef<OsStr>) -> Command {
        under(&self.account, program)
    }

    fn program(&self, name: &str) -> Command {
        self.command(self.programs.join(name))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let mut stop = self.program("pg_ctl");
        // If this fails, the end of the run stops and removes the server.
        let _ = run(stop.args(["stop", "-w", "-m", "immediate", "-D"]).arg(&self.data));
        let _ = run(self.command("rm").arg("-rf").arg(&self.data));
    }
}

fn variable(name: &str) -> Outcome<String> {
    env::var(name).map_err(|_| "no PostgreSQL: run `cargo xtask bench postgres`".into())
}

/// What comes before a command to run it under the account of servers.
fn prefix(user: &str) -> Vec<String> {
    let group = run(Command::new("id").args(["-g", user])).unwrap_or_default();
    let lines = [
        format!("setpriv --reuid={user} --regid={} --clear-groups --", group.trim()),
        format!("runuser -u {user} --"),
    ];
    let mut prefixes = lines.iter().map(|line| line.split(' ').map(str::to_owned).collect());
    prefixes
        .find(|prefix: &Vec<String>| run(&mut under(prefix, "true")).is_ok())
        .unwrap_or_default()
}

fn under(prefix: &[String], program: impl AsRef<OsStr>) -> Command {
    let mut command = match prefix.split_first() {
        Some((tool, arguments)) => {
            let mut command = Command::new(tool);
            command.args(arguments).arg(program);
            command
        }
        None => Command::new(program),
    };
    // Not where we are: the account may not be let in there.
    command.current_dir("/");
    command
}

fn run(command: &mut Command) -> Outcome<String> {
    let output = command.output()?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{command:?}: {}\n{said}", output.status).into());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
