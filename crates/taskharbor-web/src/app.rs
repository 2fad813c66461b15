//! The state behind the router: the stores, the configuration, and what requests share.

use std::{fmt, sync::Arc};

use taskharbor::{AnyDriver, Client};
use tokio::sync::{Semaphore, watch};

use crate::{
    action_log::ActionLog, config::Web, place::Places, poll::Poller, problem::Problem,
    session::Sessions, shared_answer::SharedAnswers, sweep::Sweeps, view::FlowGraphs,
};

/// What large bodies may take in memory together, in MiB.
const BODY_ROOM_MIB: usize = 1_024;
/// How many streams of wake-ups are open at once.
const MAX_WATCHES: usize = 1_000;

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
#[derive(Clone, Debug, Default)]
pub struct Stores {
    stores: Vec<Arc<Store>>,
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
        mut self,
        name: impl Into<String>,
        kind: StoreKind,
        driver: &AnyDriver,
    ) -> Result<Self, InvalidStore> {
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
        let store = Store {
            name,
            kind,
            driver: driver.clone(),
            client: Client::new(driver),
            poller: Poller::new(driver),
            sweeps: Sweeps::default(),
            graphs: FlowGraphs::default(),
        };
        self.stores.push(Arc::new(store));
        Ok(self)
    }
}

/// One store.
pub(crate) struct Store {
    pub(crate) name: String,
    pub(crate) kind: StoreKind,
    pub(crate) driver: AnyDriver,
    pub(crate) client: Client,
    pub(crate) poller: Poller,
    pub(crate) sweeps: Sweeps,
    pub(crate) graphs: FlowGraphs,
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store")
            .field("name", &self.name)
            .field("kind", &self.kind)
            .finish_non_exhaustive()
    }
}

/// What all requests share.
pub(crate) struct App {
    pub(crate) config: Web,
    pub(crate) stores: Vec<Arc<Store>>,
    pub(crate) sessions: Sessions,
    pub(crate) actions: ActionLog,
    pub(crate) answers: SharedAnswers,
    pub(crate) places: Places,
    /// One permit for each MiB of large bodies.
    pub(crate) body_room: Arc<Semaphore>,
    /// One permit for each stream of wake-ups.
    pub(crate) watches: Arc<Semaphore>,
    ending: watch::Sender<bool>,
}

impl App {
    pub(crate) fn new(stores: Stores, config: Web) -> Arc<Self> {
        let actions = ActionLog::new(config.action_file.clone(), config.on_action.clone());
        let places = Places::new(config.max_requests);
        let answers = SharedAnswers::new(config.share_answers);
        Arc::new(Self {
            config,
            stores: stores.stores,
            sessions: Sessions::default(),
            actions,
            answers,
            places,
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

    /// The store of this name; `default` is the first one.
    pub(crate) fn store(&self, name: &str) -> Result<&Arc<Store>, Problem> {
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
}
