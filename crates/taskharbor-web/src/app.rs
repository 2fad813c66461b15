//! The state behind the router: the stores, the configuration, and what requests share.

use std::{
    fmt,
    sync::{Arc, OnceLock},
};

use taskharbor::{AnyDriver, Client};
use tokio::sync::{Semaphore, watch};

use crate::{
    action_log::ActionLog, config::Web, permit::RequestPermits, poll::Poller, problem::Problem,
    session::Sessions, shared_answer::SharedAnswers, sweep::Sweeps, view::FlowGraphs,
};

/// What large bodies may take in memory together, in MiB.
const BODY_ROOM_MIB: usize = 1_024;
/// How many streams of wake-ups are open at once.
const MAX_WATCHES: usize = 1_000;
/// How many calls that read a whole store are made at once, so that others find a connection.
const LARGE_READS: usize = 1;

/// What kind of store a store is, for people.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum StoreKind {
    /// A SQLite file.
    Sqlite,
    /// PostgreSQL.
    Postgres,
    /// In memory.
    Memory,
    /// Another TaskHarbor server.
    Http,
    /// Something else.
    #[default]
    Other,
}

/// The stores that a server shows, in their order. The first one is also known as `default`.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use taskharbor_web::{StoreKind, Stores};
///
/// # let driver = taskharbor_core::AnyDriver::new(taskharbor_memory::MemoryDriver::new());
/// let stores = Stores::new().add("main", StoreKind::Memory, &driver)?;
/// let (stores, late) = stores.add_late("archive", StoreKind::Postgres)?;
/// // The server runs, and shows `archive` as away. Then its database is there:
/// late.open(&driver);
/// # drop(stores);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Stores {
    stores: Vec<Arc<Named>>,
}

/// A store cannot be served.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidStore {
    /// The name would not fit into an address.
    #[error("invalid store name {0:?}: use 1 to 64 letters, digits, '-' and '_'")]
    Name(String),
    /// Two stores have one name.
    #[error("two stores have the name {0:?}: choose another name for one of them")]
    Duplicate(String),
}

impl Stores {
    /// No stores yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a store under a name.
    ///
    /// # Errors
    ///
    /// [`InvalidStore`] if the name is taken, or is not 1 to 64 letters, digits, `-` and `_`.
    pub fn add(
        self,
        name: impl Into<String>,
        kind: StoreKind,
        driver: &AnyDriver,
    ) -> Result<Self, InvalidStore> {
        let (stores, late) = self.add_late(name, kind)?;
        late.open(driver);
        Ok(stores)
    }

    /// Adds a store that cannot be reached yet. It is shown as away until it is opened
    /// ([`LateStore::open`]), and the other stores are served meanwhile.
    ///
    /// # Errors
    ///
    /// Those of [`Stores::add`].
    pub fn add_late(
        mut self,
        name: impl Into<String>,
        kind: StoreKind,
    ) -> Result<(Self, LateStore), InvalidStore> {
        let name = name.into();
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        if name.is_empty() || name.len() > 64 || !name.chars().all(is_plain) {
            return Err(InvalidStore::Name(name));
        }
        // The alias of the first store, and names that addresses of other things begin with.
        let is_reserved = matches!(name.as_str(), "stores" | "session")
            || (name == "default" && !self.stores.is_empty());
        if is_reserved || self.stores.iter().any(|store| store.name == name) {
            return Err(InvalidStore::Duplicate(name));
        }
        let named = Arc::new(Named {
            name,
            kind,
            poller: Poller::default(),
            sweeps: Arc::default(),
            store: OnceLock::new(),
        });
        self.stores.push(Arc::clone(&named));
        Ok((self, LateStore(named)))
    }
}

/// A store of a server that is not open yet.
#[derive(Debug)]
#[must_use = "the store is away until it is opened"]
pub struct LateStore(Arc<Named>);

impl LateStore {
    /// Serves the store from now on.
    pub fn open(self, driver: &AnyDriver) {
        let Named { name, poller, sweeps, store, .. } = &*self.0;
        poller.begin(driver);
        store.get_or_init(|| {
            Arc::new(Store {
                name: name.clone(),
                driver: driver.clone(),
                client: Client::new(driver),
                sweeps: Arc::clone(sweeps),
                graphs: FlowGraphs::default(),
                large_reads: Arc::new(Semaphore::new(LARGE_READS)),
            })
        });
    }
}

/// A store under its name, open or not yet.
pub(crate) struct Named {
    pub(crate) name: String,
    pub(crate) kind: StoreKind,
    pub(crate) poller: Poller,
    pub(crate) sweeps: Arc<Sweeps>,
    store: OnceLock<Arc<Store>>,
}

impl fmt::Debug for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Named")
            .field("name", &self.name)
            .field("kind", &self.kind)
            .finish_non_exhaustive()
    }
}

/// One store that is open.
pub(crate) struct Store {
    pub(crate) name: String,
    pub(crate) driver: AnyDriver,
    pub(crate) client: Client,
    pub(crate) sweeps: Arc<Sweeps>,
    pub(crate) graphs: FlowGraphs,
    /// Permits for calls that read everything.
    pub(crate) large_reads: Arc<Semaphore>,
}

/// What all requests share.
pub(crate) struct App {
    pub(crate) config: Web,
    pub(crate) stores: Vec<Arc<Named>>,
    pub(crate) sessions: Sessions,
    pub(crate) actions: ActionLog,
    pub(crate) answers: SharedAnswers,
    pub(crate) permits: RequestPermits,
    /// One permit for each MiB of large bodies.
    pub(crate) body_room: Arc<Semaphore>,
    /// One permit for each stream of wake-ups.
    pub(crate) watches: Arc<Semaphore>,
    ending: watch::Sender<bool>,
}

impl App {
    pub(crate) fn new(stores: Stores, config: Web) -> Arc<Self> {
        let actions = ActionLog::new(config.action_file.clone(), config.on_action.clone());
        let permits = RequestPermits::new(config.max_requests);
        let answers = SharedAnswers::new(config.share_answers);
        Arc::new(Self {
            config,
            stores: stores.stores,
            sessions: Sessions::default(),
            actions,
            answers,
            permits,
            body_room: Arc::new(Semaphore::new(BODY_ROOM_MIB)),
            watches: Arc::new(Semaphore::new(MAX_WATCHES)),
            ending: watch::Sender::new(false),
        })
    }

    /// Ends what would go on for ever, such as streams of events.
    pub(crate) fn end(&self) {
        self.ending.send_replace(true);
    }

    /// Completes when the server ends. Streams and long waits end with it.
    pub(crate) fn ended(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut ending = self.ending.subscribe();
        async move {
            // If the server is gone, it has ended as well.
            let _ = ending.wait_for(|it| *it).await;
        }
    }

    /// The store of this name, open or not; `default` is the first one.
    pub(crate) fn named(&self, name: &str) -> Result<&Arc<Named>, Problem> {
        let named = self.stores.iter().find(|store| store.name == name);
        let store = named.or_else(|| self.stores.first().filter(|_| name == "default"));
        store.ok_or_else(|| {
            Problem::not_found(
                "unknown_store",
                "no such store",
                "this server has no store of that name: GET v1/stores lists them",
            )
        })
    }

    /// The store of this name, which has to be open.
    pub(crate) fn store(&self, name: &str) -> Result<&Arc<Store>, Problem> {
        self.named(name)?.store.get().ok_or_else(|| {
            Problem::unavailable(
                "store_unavailable",
                "the store is unavailable",
                "the store has been away since the server started: try again",
            )
        })
    }
}
