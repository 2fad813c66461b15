//! Opening the file: checks of its content, and the pragmas of every connection.

use std::{
    fs::{self, OpenOptions},
    io,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use rusqlite::{Connection, OpenFlags, config::DbConfig};
use taskharbor_core::{DriverError, debug_as_display};

use crate::{
    Config, ConfigError, Synchronous,
    error::Fault,
    migration::{self, Content, Unfit, VERSION, content},
    room, statement,
};

/// The oldest SQLite that does not lose commits when two processes write and check point at once.
const OLDEST: i32 = 3_051_003;
/// How much of the file each connection keeps in memory, in KiB.
const CACHE_KIB: i64 = 16 * 1024;
/// After how many pages the log is written back into the file, at most.
const CHECKPOINT_PAGES: u64 = 2_000;
/// To what size the log is cut when it has been written back.
const LOG_BYTES: i64 = 64 * 1024 * 1024;
/// The size of a page, which SQLite chooses for new files.
const PAGE_BYTES: u64 = 4_096;
/// How many statements a connection keeps prepared: all there are, a few pragmas, and those that begin and end
/// transactions.
const STATEMENTS: usize = statement::ALL.len() + 16;

/// Why a driver was not opened.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Invalid settings.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The file does not exist.
    #[error(
        "there is no file {path:?}: check the path, or have it made with `Config::create(true)`, in a URL `?create=true`"
    )]
    Missing {
        /// The path.
        path: PathBuf,
    },
    /// The file is not a TaskHarbor store; it was not changed.
    #[error(
        "{path:?} is not a TaskHarbor store and is left as it is: choose another path, or put the store beside the tables that are there with `Config::shared(true)`, in a URL `?shared=true`"
    )]
    NotOurs {
        /// The path.
        path: PathBuf,
    },
    /// The file is empty.
    #[error(
        "{path:?} is empty: have the store made in it with `Config::create(true)`, in a URL `?create=true`"
    )]
    Empty {
        /// The path.
        path: PathBuf,
    },
    /// The store has a newer version than this program knows; it was not changed.
    #[error(
        "{path:?} holds a store of version {found}, newer than this program knows ({VERSION}): use a newer version of it"
    )]
    Newer {
        /// The path.
        path: PathBuf,
        /// The store's version.
        found: i64,
    },
    /// This program is linked with a version of SQLite that can lose commits.
    #[error(
        "SQLite {found} can lose commits when two processes write: link 3.51.3 or newer, as the feature `bundled` of rusqlite does"
    )]
    UnsafeLibrary {
        /// Its version.
        found: &'static str,
    },
    /// The file cannot be used.
    #[error("{path:?} cannot be used: {}", cause.reason())]
    Failed {
        /// The path.
        path: PathBuf,
        /// Why.
        cause: DriverError,
    },
}

debug_as_display!(OpenError);

/// A file was there when the driver was opened, and is not, or is another one.
#[derive(Debug, thiserror::Error)]
enum Gone {
    #[error(
        "the file {0:?} was moved or removed while in use: put it back, or open the driver anew"
    )]
    Store(PathBuf),
    #[error(
        "the file {0:?} was removed or replaced while in use, and commits in it may be lost: never touch it while a process has the store open, and run `taskharbor check`"
    )]
    Beside(PathBuf),
}

/// Which file a path leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity(u64, u64);

#[cfg(unix)]
pub(crate) fn identity(path: &Path) -> io::Result<Identity> {
    use std::os::unix::fs::MetadataExt;
    let file = fs::metadata(path)?;
    Ok(Identity(file.dev(), file.ino()))
}

#[cfg(not(unix))]
pub(crate) fn identity(path: &Path) -> io::Result<Identity> {
    fs::metadata(path).map(|_| Identity(0, 0))
}

/// A connection, and the file it was opened on.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) conn: Connection,
    identity: Identity,
    path: PathBuf,
}

/// What lies beside a file that is open: the log, and the memory that processes share.
const BESIDE: [&str; 2] = ["-wal", "-shm"];

/// The files that this process has open, with what lay beside each when it was first opened. SQLite
/// gives a connection what the others of the process have, also if another file is at its path by now.
static IN_USE: Mutex<Vec<InUse>> = Mutex::new(Vec::new());

#[derive(Debug)]
struct InUse {
    file: Identity,
    beside: [Option<Identity>; 2],
    connections: usize,
}

fn in_use() -> MutexGuard<'static, Vec<InUse>> {
    // Each change leaves the list whole.
    IN_USE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut beside = path.as_os_str().to_owned();
    beside.push(suffix);
    beside.into()
}

impl Opened {
    fn new(conn: Connection, identity: Identity, path: PathBuf) -> Self {
        let mut files = in_use();
        match files.iter_mut().find(|it| it.file == identity) {
            Some(file) => file.connections += 1,
            None => files.push(InUse { file: identity, beside: [None; 2], connections: 1 }),
        }
        Self { conn, identity, path }
    }

    /// Fails if the path no longer leads to the file, or to what lay beside it: SQLite would go on with
    /// files that no other process can see. The connection is then to be closed.
    pub(crate) fn check_place(&self) -> Result<(), DriverError> {
        match identity(&self.path) {
            Ok(identity) if identity == self.identity => self.check_beside(),
            _ => Err(gone(&self.path)),
        }
    }

    fn check_beside(&self) -> Result<(), DriverError> {
        let mut files = in_use();
        let Some(file) = files.iter_mut().find(|it| it.file == self.identity) else {
            return Ok(());
        };
        for (suffix, known) in BESIDE.into_iter().zip(&mut file.beside) {
            let path = beside(&self.path, suffix);
            let found = identity(&path).ok();
            match *known {
                None => *known = found,
                Some(_) if found == *known => {}
                Some(_) => {
                    drop(files);
                    self.abandon(found.is_none());
                    return Err(DriverError::unavailable(Gone::Beside(path)));
                }
            }
        }
        Ok(())
    }

    /// Prepares the connection for being closed without a trace. If nothing has taken the place of what
    /// is gone, no other process has begun to write past it, and what is in the log is saved.
    fn abandon(&self, is_removed: bool) {
        if is_removed {
            let save = "PRAGMA wal_checkpoint(FULL)";
            let _ = self.conn.query_row(save, [], |_| Ok(()));
        }
        // Otherwise the last connection would remove files that are not its own.
        let _ = self.conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true);
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        let mut files = in_use();
        if let Some(at) = files.iter().position(|it| it.file == self.identity) {
            files[at].connections -= 1;
            if files[at].connections == 0 {
                files.swap_remove(at);
            }
        }
    }
}

fn gone(path: &Path) -> DriverError {
    DriverError::unavailable(Gone::Store(path.to_owned()))
}

/// Opens the file for the first time: makes it if that is asked for, and refuses what is not ours.
pub(crate) fn first(config: &Config) -> Result<Opened, OpenError> {
    if rusqlite::version_number() < OLDEST {
        return Err(OpenError::UnsafeLibrary { found: rusqlite::version() });
    }
    let path = || config.path.clone();
    let failed = |cause: DriverError| OpenError::Failed { path: path(), cause };
    let io = |error: io::Error| failed(DriverError::unavailable(error));
    // Only looked at: to open and close the file past SQLite would give up the locks that others in
    // this process have on it.
    match fs::metadata(&config.path) {
        Ok(file) if !file.is_file() => return Err(OpenError::NotOurs { path: path() }),
        Ok(file) if file.len() == 0 && !(config.create || config.shared) => {
            return Err(OpenError::Empty { path: path() });
        }
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            if !config.create {
                return Err(OpenError::Missing { path: path() });
            }
            create(&config.path).map_err(io)?;
        }
        Err(error) => return Err(io(error)),
    }
    let fault = |fault: Fault| match fault.is_no_database() {
        true => OpenError::NotOurs { path: path() },
        false => failed(fault.into()),
    };
    let mut opened = connect(config, OpenFlags::SQLITE_OPEN_READ_WRITE).map_err(fault)?;
    let found = patiently(config, || content(&opened.conn)).map_err(fault)?;
    match found {
        Content::Store(found) => match migration::fits(found) {
            Err(Unfit::TooNew { found }) => return Err(OpenError::Newer { path: path(), found }),
            // The caller migrates it.
            Ok(()) | Err(Unfit::TooOld { .. }) => {}
        },
        Content::Foreign if !config.shared => return Err(OpenError::NotOurs { path: path() }),
        Content::Nothing if !(config.create || config.shared) => {
            return Err(OpenError::Empty { path: path() });
        }
        Content::Foreign | Content::Nothing => {
            write_ahead(&opened.conn, config).map_err(fault)?;
            patiently(config, || migration::migrate(&mut opened.conn)).map_err(fault)?;
        }
    }
    write_ahead(&opened.conn, config).map_err(fault)?;
    Ok(opened)
}

/// Opens the file again, for writing: it has to be there, and ours.
pub(crate) fn again(config: &Config) -> Result<Opened, DriverError> {
    #[cfg(unix)]
    give_log_its_mode(&config.path);
    let opened = connect(config, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    must_be_store(&opened)?;
    write_ahead(&opened.conn, config).map_err(DriverError::from)?;
    opened.check_place()?;
    Ok(opened)
}

/// Opens the file for reading alone.
pub(crate) fn reader(config: &Config) -> Result<Opened, DriverError> {
    let open = || {
        let opened = connect(config, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
        must_be_store(&opened)?;
        opened.check_place()?;
        Ok(opened)
    };
    // It may go while it is being opened, and SQLite does not say that.
    open().map_err(|error| if config.path.exists() { error } else { gone(&config.path) })
}

/// Copies the store as it is at one moment into a new file with the same permissions; returns its size.
pub(crate) fn copy(config: &Config, to: &Path) -> Result<u64, DriverError> {
    let opened = reader(config)?;
    let permissions = fs::metadata(&config.path).map_err(DriverError::unavailable)?.permissions();
    create_new(to).map_err(DriverError::backend)?;
    let copied = || -> Result<u64, DriverError> {
        fs::set_permissions(to, permissions).map_err(DriverError::backend)?;
        let target = to.to_str().ok_or_else(|| DriverError::backend("the path is not UTF-8"))?;
        opened.conn.execute("VACUUM INTO ?1", [target]).map_err(Fault::from)?;
        let file = fs::File::open(to).map_err(DriverError::unavailable)?;
        file.sync_all().map_err(DriverError::unavailable)?;
        Ok(file.metadata().map_err(DriverError::unavailable)?.len())
    };
    copied().inspect_err(|_| {
        // What was made of it is no copy.
        let _ = fs::remove_file(to);
    })
}

fn must_be_store(opened: &Opened) -> Result<(), DriverError> {
    match content(&opened.conn).map_err(DriverError::from)? {
        Content::Store(_) => Ok(()),
        Content::Nothing | Content::Foreign => Err(gone(&opened.path)),
    }
}

fn connect(config: &Config, flags: OpenFlags) -> Result<Opened, Fault> {
    let path = &config.path;
    let identity = identity(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => gone(path),
        _ => DriverError::unavailable(error),
    })?;
    let conn = Connection::open_with_flags(path, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX);
    let opened = Opened::new(conn?, identity, path.clone());
    settle_in(&opened.conn, config)?;
    Ok(opened)
}

/// What a connection is told before it has looked at the file. Changes nothing there.
fn settle_in(conn: &Connection, config: &Config) -> Result<(), Fault> {
    conn.busy_timeout(config.busy_timeout)?;
    conn.set_prepared_statement_cache_capacity(STATEMENTS);
    // Otherwise plans depend on the values of parameters, and whenever those are cleared, as they are
    // after each use, SQLite prepares most statements anew.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    conn.pragma_update(None, "trusted_schema", "OFF")?;
    conn.pragma_update(None, "cell_size_check", "ON")?;
    conn.pragma_update(None, "temp_store", "MEMORY")?;
    conn.pragma_update(None, "cache_size", -CACHE_KIB)?;
    Ok(())
}

/// What a connection that writes is told about the log.
fn write_ahead(conn: &Connection, config: &Config) -> Result<(), Fault> {
    let mode: String = patiently(config, || {
        Ok(conn.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))?)
    })?;
    if mode != "wal" {
        let problem = "the file system does not support the write-ahead log: use a local disk";
        return Err(DriverError::backend(problem).into());
    }
    let synchronous = match config.synchronous {
        Synchronous::Full => "FULL",
        Synchronous::Normal => "NORMAL",
    };
    conn.pragma_update(None, "synchronous", synchronous)?;
    let pages = CHECKPOINT_PAGES.min(room::log_bytes(config) / PAGE_BYTES).max(1);
    conn.query_row(&format!("PRAGMA wal_autocheckpoint = {pages}"), [], |_| Ok(()))?;
    if let Some(bytes) = config.max_bytes {
        let pages = (bytes / PAGE_BYTES).max(1);
        conn.query_row(&format!("PRAGMA max_page_count = {pages}"), [], |_| Ok(()))?;
    }
    conn.query_row(&format!("PRAGMA journal_size_limit = {LOG_BYTES}"), [], |_| Ok(()))?;
    Ok(())
}

/// Does this again while others have the file, for as long as one waits for them. SQLite waits by itself,
/// but not where two that wait for each other would wait for ever: so when several make a file anew.
fn patiently<T>(config: &Config, mut work: impl FnMut() -> Result<T, Fault>) -> Result<T, Fault> {
    let (mut waited, mut wait) = (Duration::ZERO, Duration::from_millis(1));
    loop {
        match work() {
            Err(fault) if fault.is_busy() && waited < config.busy_timeout => {
                std::thread::park_timeout(wait);
                waited += wait;
                wait = (wait * 2).min(Duration::from_millis(20));
            }
            outcome => return outcome,
        }
    }
}

/// What lies beside the file has its mode. If it was made while the file could not be written, it
/// cannot be either, and stays so when the file can be again.
#[cfg(unix)]
fn give_log_its_mode(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    let Ok(file) = fs::metadata(path) else { return };
    for suffix in BESIDE {
        let beside = beside(path, suffix);
        let differs = fs::metadata(&beside)
            .is_ok_and(|it| it.permissions().mode() != file.permissions().mode());
        if differs {
            // If it is not ours to change, what SQLite says about it is told.
            let _ = fs::set_permissions(&beside, file.permissions());
        }
    }
}

/// Makes an empty file that its owner alone may read; the log beside it gets the same mode. Another
/// process may have made it meanwhile.
fn create(path: &Path) -> io::Result<()> {
    match create_new(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

fn create_new(path: &Path) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path).map(drop)
}

#[cfg(test)]
mod tests {
    use rusqlite::StatementStatus;

    use super::*;

    #[test]
    fn statements_are_prepared_once() {
        let mut conn = Connection::open_in_memory().unwrap();
        settle_in(&conn, &Config::new("unused")).unwrap();
        migration::migrate(&mut conn).unwrap();
        for (name, _, sql) in statement::ALL {
            let mut prepared = conn.prepare(sql).unwrap();
            for value in 0..3 {
                prepared.clear_bindings();
                for parameter in 1..=prepared.parameter_count() {
                    prepared.raw_bind_parameter(parameter, value).unwrap();
                }
                // Whether it finds anything, or breaks a rule of a table, does not matter.
                let _ = prepared.raw_query().next();
            }
            assert_eq!(prepared.get_status(StatementStatus::RePrepare), 0, "{name}");
        }
    }
}
