//! [`SqliteDriver`]: the store for clients and workers.

use std::{
    fmt, io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
};

use taskharbor_core::{
    Driver, DriverError, JobId, QueueName, Timestamp,
    clock::StoreClock,
    driver::{
        Announce, Answers, DriverId, Due, DueSchedules, Enqueue, Enqueued, ExtendLeases, Extended,
        Fire, Limits, OutputPage, Outputs, Reserve, Reserved, Settle, Settled, WakeHub, Watch,
    },
    error::{FireRefused, Refusal, Rejected},
};
use tokio::sync::{oneshot, watch};

use crate::{
    Config, OpenError,
    call::{Ask, Calls, ask},
    error::Fault,
    file,
    migration::VERSION,
    queue_memory::QueueMemories,
    reader::Reader,
    room,
    store::Store,
    writer::Writer,
};

/// How many threads read. While one is busy with a long list, the other serves the rest.
const READERS: usize = 2;

/// Jobs in a file. Clones share the threads that serve it.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = std::env::temp_dir().join(format!("taskharbor-open-{}", std::process::id()));
/// # std::fs::create_dir_all(&dir)?;
/// # let path = dir.join("jobs.db");
/// use taskharbor_core::AnyDriver;
/// use taskharbor_sqlite::{Config, SqliteDriver};
///
/// let sqlite = SqliteDriver::open_with(Config::new(&path).create(true)).await?;
/// let driver = AnyDriver::new(sqlite.clone());
/// driver.migrate().await?; // creates the tables, or brings them up to date
/// // Now: Client::new(&driver) and Worker::builder(&driver), of the crate taskharbor.
///
/// // Only this driver can copy its store while it is in use.
/// let bytes = sqlite.backup(path.with_extension("backup")).await?;
/// assert!(bytes > 0);
/// # taskharbor_core::Driver::close(&driver).await?;
/// # std::fs::remove_dir_all(&dir)?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct SqliteDriver {
    pub(crate) shared: Arc<Shared>,
}

pub(crate) struct Shared {
    config: Config,
    writer: Arc<Calls>,
    reader: Arc<Calls>,
    hub: WakeHub,
    memories: QueueMemories,
    id: DriverId,
    closed: AtomicBool,
    /// Its senders are dropped when all threads have ended.
    serving: watch::Receiver<()>,
}

impl SqliteDriver {
    /// Opens the store in this file, which has to exist; use [`Config::create`] to create it.
    ///
    /// # Errors
    ///
    /// [`OpenError`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves nothing behind.
    pub async fn open(path: impl AsRef<Path>) -> Result<Self, OpenError> {
        Self::open_with(Config::new(path)).await
    }

    /// Opens the store of a URL: see [`Config::from_url`].
    ///
    /// # Errors
    ///
    /// [`OpenError`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves nothing behind.
    pub async fn connect(url: &str) -> Result<Self, OpenError> {
        Self::open_with(Config::from_url(url)?).await
    }

    /// Opens the store. A store of an older version is not an error here: call
    /// [`Admin::migrate`](taskharbor_core::Admin::migrate) next.
    ///
    /// # Errors
    ///
    /// [`OpenError`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves nothing behind, except the file if it was created.
    pub async fn open_with(mut config: Config) -> Result<Self, OpenError> {
        let given = config.path.clone();
        let failed = |error: io::Error| OpenError::Failed {
            path: given.clone(),
            cause: DriverError::unavailable(error),
        };
        // So that it stays the same file when the process changes its directory.
        config.path = std::path::absolute(&config.path).map_err(failed)?;
        let (writer, reader) = (Arc::new(Calls::new()), Arc::new(Calls::new()));
        let (hub, (alive, serving)) = (WakeHub::new(), watch::channel(()));
        let memories = QueueMemories::default();
        let (tell, told) = oneshot::channel();
        // Held by the threads that read, for as long as they have the file open.
        let (reading, read) = mpsc::channel::<()>();
        let serve = {
            let (config, hub, memories) = (config.clone(), hub.clone(), memories.clone());
            let calls = [Arc::clone(&writer), Arc::clone(&reader)];
            move || match file::first(&config) {
                Ok(opened) => {
                    if tell.send(Ok(())).is_ok() {
                        Writer::new(config, opened, calls, hub, memories).run(&read);
                    }
                }
                Err(error) => drop(tell.send(Err(error))),
            }
        };
        spawn("taskharbor-writer", &writer, &alive, serve).map_err(failed)?;
        let gone = || failed(io::Error::other("the thread that serves the file has ended"));
        told.await.unwrap_or_else(|_| Err(gone()))?;
        for _ in 0..READERS {
            let serving = Reader::new(config.clone(), Arc::clone(&reader));
            let reading = reading.clone();
            let serve = move || {
                serving.run();
                drop(reading);
            };
            spawn("taskharbor-reader", &reader, &alive, serve).map_err(failed)?;
        }
        let shared = Shared {
            config,
            writer,
            reader,
            hub,
            memories,
            id: DriverId::new(),
            closed: AtomicBool::new(false),
            serving,
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// The version of the store that this driver works with.
    pub const VERSION: i64 = VERSION;

    /// The version of the store that is in the file.
    ///
    /// # Errors
    ///
    /// [`DriverError::Unavailable`], [`DriverError::Backend`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn installed_version(&self) -> Result<i64, DriverError> {
        self.check_open()?;
        let asked = Ask { weight: 1, needs_version: false };
        ask(&self.shared.reader, asked, |store| store.version()).await
    }

    /// Copies a consistent snapshot of the store to a new file while the store is in use, with the
    /// same permissions and without a WAL file. Returns the size of the copy.
    ///
    /// # Errors
    ///
    /// [`DriverError::Unavailable`]; [`DriverError::Backend`] if the new file exists already or
    /// cannot be created.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the copy is still finished.
    pub async fn backup(&self, to: impl AsRef<Path>) -> Result<u64, DriverError> {
        self.check_open()?;
        let (config, to) = (self.shared.config.clone(), to.as_ref().to_owned());
        let (tell, told) = oneshot::channel();
        let copy = move || drop(tell.send(file::copy(&config, &to)));
        let thread = thread::Builder::new().name("taskharbor-backup".to_owned());
        thread.spawn(copy).map_err(DriverError::unavailable)?;
        let ended = || DriverError::backend("the thread that copies the file has ended");
        told.await.unwrap_or_else(|_| Err(ended()))
    }

    /// The file in which the jobs are.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.shared.config.path.clone()
    }

    pub(crate) fn check_open(&self) -> Result<(), DriverError> {
        // CLO-1, REF-5: before anything else is looked at.
        if self.shared.closed.load(Ordering::Acquire) { Err(DriverError::Closed) } else { Ok(()) }
    }

    /// These jobs may have ended.
    pub(crate) fn wake_jobs(&self, ids: &[JobId]) {
        // WAK-2
        self.shared.hub.wake_jobs(ids);
    }

    pub(crate) fn identity(&self) -> DriverId {
        self.shared.id
    }

    pub(crate) fn config(&self) -> &Config {
        &self.shared.config
    }

    pub(crate) async fn write<T: Send + 'static>(
        &self,
        asked: Ask,
        work: impl FnOnce(&mut Store<'_>) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, DriverError> {
        ask(&self.shared.writer, asked, work).await
    }

    pub(crate) async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Store<'_>) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, DriverError> {
        ask(&self.shared.reader, Ask::about(1), work).await
    }
}

/// Starts a thread that serves a mailbox. When it ends, even by a panic, the mailbox is abandoned.
fn spawn(
    name: &str,
    calls: &Arc<Calls>,
    alive: &watch::Sender<()>,
    serve: impl FnOnce() + Send + 'static,
) -> io::Result<()> {
    let serving = Serving { calls: Arc::clone(calls), _alive: alive.clone() };
    let serve = move || {
        serve();
        drop(serving);
    };
    thread::Builder::new().name(name.to_owned()).spawn(serve).map(drop)
}

struct Serving {
    calls: Arc<Calls>,
    _alive: watch::Sender<()>,
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.calls.abandon();
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.writer.close();
        self.reader.close();
    }
}

impl fmt::Debug for SqliteDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteDriver").field("path", &self.shared.config.path).finish()
    }
}

impl Driver for SqliteDriver {
    fn limits(&self) -> Limits {
        self.shared.config.limits
    }

    fn driver_id(&self) -> Option<DriverId> {
        Some(self.shared.id)
    }

    async fn enqueue(&self, request: Enqueue) -> Answers<Vec<Enqueued>, Rejected> {
        self.check_open()?;
        // ENQ-6
        request.check()?;
        let jobs = request.sets.iter().map(|set| set.jobs.len()).sum();
        let config = self.shared.config.clone();
        let work = move |store: &mut Store<'_>| {
            room::check(store.conn(), &config)?;
            store.enqueue(&request)
        };
        self.write(Ask::about(jobs), work).await
    }

    async fn reserve(&self, request: Reserve) -> Result<Reserved, DriverError> {
        self.check_open()?;
        // TIM-3, RES-6
        let expires_at = request.check()?;
        let jobs = request.demands.iter().map(|demand| demand.limit).sum();
        let memories = self.shared.memories.clone();
        let work =
            move |store: &mut Store<'_>| store.reserve(&request, expires_at, &mut memories.lock());
        self.write(Ask::about(jobs), work).await
    }

    async fn extend_leases(&self, request: ExtendLeases) -> Answers<Extended, Refusal> {
        self.check_open()?;
        // TIM-3, REF-4
        let expires_at = request.check()?;
        let jobs = request.items.len();
        self.write(Ask::about(jobs), move |store| store.extend(&request, expires_at)).await
    }

    async fn settle(&self, request: Settle) -> Answers<Settled, Refusal> {
        self.check_open()?;
        // REF-4
        request.check()?;
        let added: usize = request.items.iter().map(|item| item.transition.expansion_jobs()).sum();
        let jobs = request.items.len() + added;
        let ids: Vec<_> = request.items.iter().map(|item| item.id.clone()).collect();
        let memories = self.shared.memories.clone();
        let work = move |store: &mut Store<'_>| {
            let answers = store.settle(&request)?;
            store.wake_starved(&memories.lock());
            Ok(answers)
        };
        let answers = self.write(Ask::about(jobs), work).await?;
        self.wake_jobs(&ids);
        Ok(answers)
    }

    async fn outputs(&self, request: Outputs) -> Answers<OutputPage, Refusal> {
        self.check_open()?;
        request.check()?;
        self.read(move |store| store.outputs(&request)).await
    }

    async fn due_schedules(&self, request: DueSchedules) -> Result<Due, DriverError> {
        self.check_open()?;
        request.check()?;
        self.read(move |store| store.due_schedules(&request)).await
    }

    async fn fire(&self, request: Fire) -> Answers<Vec<Enqueued>, FireRefused> {
        self.check_open()?;
        // SCH-17
        request.check()?;
        let slots = request.items.iter().flat_map(|item| &item.slots);
        let jobs: usize = slots.map(|slot| slot.set.jobs.len()).sum();
        let config = self.shared.config.clone();
        let work = move |store: &mut Store<'_>| {
            room::check(store.conn(), &config)?;
            store.fire(&request)
        };
        self.write(Ask::about(jobs), work).await
    }

    async fn announce(&self, request: Announce) -> Result<(), DriverError> {
        self.check_open()?;
        let expires_at = request.check()?;
        self.write(Ask::about(1), move |store| store.announce(&request, expires_at)).await
    }

    async fn watch(&self, queues: Vec<QueueName>) -> Result<Watch, DriverError> {
        self.check_open()?;
        let watch = self.shared.hub.watch(queues);
        // The thread has to look around from now on.
        self.shared.writer.nudge();
        Ok(watch)
    }

    async fn watch_job(&self, id: JobId) -> Result<Watch, DriverError> {
        self.check_open()?;
        let watch = self.shared.hub.watch_job(id);
        self.shared.writer.nudge();
        Ok(watch)
    }

    async fn store_time(&self) -> Result<Timestamp, DriverError> {
        self.check_open()?;
        // STO-1: as it is, also if it was set back.
        Ok(StoreClock::wall_time())
    }

    async fn close(&self) -> Result<(), DriverError> {
        let shared = &self.shared;
        shared.closed.store(true, Ordering::Release);
        shared.hub.close();
        shared.writer.close();
        shared.reader.close();
        // Until the file is closed too.
        let mut serving = shared.serving.clone();
        while serving.changed().await.is_ok() {}
        Ok(())
    }
}
