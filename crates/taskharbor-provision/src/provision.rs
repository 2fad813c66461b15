//! All that a command with tests needs, provided before it starts.

use std::env;
use std::ffi::OsString;
use std::process::Command;

use crate::shell::announce;
use crate::{Bouncer, Browser, Error, Options, Stage, Variable, Version};

/// What a command needs, until this is dropped.
#[derive(Debug)]
pub struct Provision {
    stage: Stage,
    url: OsString,
    /// Or why there is none, and what to install.
    bouncer: Result<Bouncer, Error>,
    /// As the bouncer, if the command runs tests.
    browser: Option<Result<Browser, Error>>,
}

impl Provision {
    /// A PostgreSQL server, and pgbouncer if possible.
    ///
    /// # Errors
    ///
    /// There is no server, and none can be started.
    pub fn new(options: Options) -> Result<Self, Error> {
        let stage = Stage::set(options)?;
        let given = env::var_os("TASKHARBOR_TEST_POSTGRES").filter(|url| !url.is_empty());
        let url = match (given, options.version) {
            (Some(url), Version::Usual) => url,
            _ => stage.start_server()?.into(),
        };
        Ok(Self { bouncer: stage.bouncer(), stage, url, browser: None })
    }

    /// As [`new`](Self::new), and a browser if possible.
    ///
    /// # Errors
    ///
    /// There is no server, and none can be started.
    pub fn for_tests(options: Options) -> Result<Self, Error> {
        Ok(Self { browser: Some(Browser::find(options.installing)), ..Self::new(options)? })
    }

    /// Why parts could not be provided.
    fn missing(&self) -> impl Iterator<Item = &Error> {
        let browser = self.browser.as_ref().and_then(|browser| browser.as_ref().err());
        self.bouncer.as_ref().err().into_iter().chain(browser)
    }

    /// Fails unless everything was provided, so that every test can run.
    ///
    /// # Errors
    ///
    /// Something is missing.
    pub fn complete(self) -> Result<Self, Error> {
        let missing = self.missing().next().cloned();
        missing.map_or(Ok(self), Err)
    }

    /// Prints what is missing. The tests that were chosen may not need it.
    pub fn warn(&self) {
        for missing in self.missing() {
            announce(&format!("WARNING: {missing}; tests that need it fail"));
        }
    }

    /// Sets the variables of everything that was provided for a command, and unsets the others.
    pub fn pass_on(&self, command: &mut Command) {
        let url: Variable = ("TASKHARBOR_TEST_POSTGRES", Some(self.url.clone()));
        let bouncer = self.bouncer.as_ref().map_or(Bouncer::UNSET, Bouncer::variables);
        let browser = self.browser.as_ref();
        let browser = browser.map(|it| it.as_ref().map_or(Browser::UNSET, Browser::variables));
        let variables = [url].into_iter().chain(self.stage.variables()).chain(bouncer);
        for (name, value) in variables.chain(browser.into_iter().flatten()) {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
    }
}
