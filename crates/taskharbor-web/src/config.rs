//! [`Web`]: the settings of a server.

use std::{fmt, path::PathBuf, sync::Arc, time::Duration};

use crate::{access::Access, action_log::ActionRecord, token::TokenFile};

/// Configures the [`router`](crate::router).
///
/// The access of callers comes from one of three sources:
///
/// - [`Web::new`]: the application that mounts the router says who its callers are, with an [`Access`] in
///   the extensions of each request. A request without one is refused.
/// - [`Web::tokens`]: callers bring a token, browsers sign in with it.
/// - [`Web::anonymous`]: all callers have one access.
///
/// ```
/// use taskharbor_web::{Access, Role, Web};
///
/// // For a server on a laptop: every caller may do everything.
/// let mine = Web::new().anonymous(Access::new("me", Role::Admin).with_payloads());
///
/// // For an application that mounts the pages, and logs what its users do.
/// let shop = Web::new()
///     .allow_host("shop.example.com")
///     .on_action(|action| println!("{action:?}"));
/// # drop((mine, shop));
/// ```
#[derive(Clone)]
pub struct Web {
    pub(crate) callers: Callers,
    pub(crate) hosts: Option<Vec<String>>,
    pub(crate) max_requests: usize,
    pub(crate) share_answers: Duration,
    pub(crate) action_file: Option<PathBuf>,
    pub(crate) on_action: Option<OnAction>,
    pub(crate) any_clock: bool,
}

/// What an application does after each action.
pub(crate) type OnAction = Arc<dyn Fn(&ActionRecord) + Send + Sync>;

/// Where the access of a caller comes from, if the request does not carry one from the application.
#[derive(Clone, Debug)]
pub(crate) enum Callers {
    Embedded,
    Anonymous(Access),
    Tokens(TokenFile),
}

impl Default for Web {
    fn default() -> Self {
        Self::new()
    }
}

impl Web {
    /// The application that mounts the router says who its callers are: see [`Access`].
    #[must_use]
    pub const fn new() -> Self {
        Self {
            callers: Callers::Embedded,
            hosts: None,
            max_requests: 1_000,
            share_answers: Duration::from_secs(1),
            action_file: None,
            on_action: None,
            any_clock: false,
        }
    }

    /// Takes the tokens in this file, and lets browsers sign in with them.
    #[must_use]
    pub fn tokens(mut self, file: TokenFile) -> Self {
        self.callers = Callers::Tokens(file);
        self
    }

    /// Gives this access to all callers: for a server that only its user can reach.
    #[must_use]
    pub fn anonymous(mut self, access: Access) -> Self {
        self.callers = Callers::Anonymous(access);
        self
    }

    /// Answers only requests for this host and for other hosts that are allowed: `localhost`,
    /// `jobs.example.com`, `[::1]`, with or without a port. A web page can make a browser send requests
    /// to any address under the page's own host name, and this refuses them. A program that brings a token
    /// ([`Web::tokens`]) is answered under any name. Defaults to all hosts for an application that mounts
    /// the router, and to loopback names and the bound address under [`serve`](crate::serve).
    #[must_use]
    pub fn allow_host(mut self, host: impl Into<String>) -> Self {
        self.hosts.get_or_insert_default().push(host.into());
        self
    }

    /// How many requests are answered at once, and how many others may wait for jobs; more are refused with
    /// 503. Defaults to 1,000.
    #[must_use]
    pub const fn max_requests(mut self, requests: usize) -> Self {
        self.max_requests = requests;
        self
    }

    /// Keeps answers in memory for this long and reuses them for equal requests, so that many browsers on one
    /// page cost the store no more than one browser. A change through this server is visible at once.
    /// Defaults to 1 s; zero asks the store each time.
    #[must_use]
    pub const fn share_answers(mut self, time: Duration) -> Self {
        self.share_answers = time;
        self
    }

    /// Appends every action to this file, one line of JSON each. Defaults to none: the last 1,000
    /// actions are kept in memory.
    #[must_use]
    pub fn action_log(mut self, file: impl Into<PathBuf>) -> Self {
        self.action_file = Some(file.into());
        self
    }

    /// Calls this after every action, before its request is answered. It must not block.
    #[must_use]
    pub fn on_action(mut self, hook: impl Fn(&ActionRecord) + Send + Sync + 'static) -> Self {
        self.on_action = Some(Arc::new(hook));
        self
    }

    /// Accepts every `now` of a driver, however far it is from the store's clock: for tests with their own
    /// clock. Defaults to refusing one that is off by more than 5 s.
    #[must_use]
    pub const fn any_clock(mut self) -> Self {
        self.any_clock = true;
        self
    }
}

impl fmt::Debug for Web {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Web")
            .field("callers", &self.callers)
            .field("hosts", &self.hosts)
            .field("action_file", &self.action_file)
            .finish_non_exhaustive()
    }
}
