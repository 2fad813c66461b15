//! Declaring the limits of a worker's service.
//!
//! They are declared before the worker reserves its first job, so that no job is granted over a limit
//! that the worker itself has brought. A store that fails this call and answers others must not keep
//! the worker from its jobs: after a few tries the worker reserves them, and the call is repeated
//! meanwhile.

use taskharbor_core::{
    Admin, DriverError,
    admin::{Change, Configure, LimitsDeclaration},
};
use tokio::time::{Instant, sleep};

use super::{
    outage::Part,
    shared::{Phase, Shared},
};
use crate::{Event, Operation};

/// How often the call is made before the first job is reserved: for about three seconds.
const TRIES: u32 = 5;

/// A declaration, until the store has answered it.
pub(super) struct Declaring<'a> {
    shared: &'a Shared,
    declaration: Option<LimitsDeclaration>,
    failures: u32,
}

impl<'a> Declaring<'a> {
    pub(super) fn new(shared: &'a Shared) -> Self {
        let declaration = shared.limits.lock().ok().and_then(|mut it| it.take());
        Self { shared, declaration, failures: 0 }
    }

    /// Declares them, unless the store fails again and again or the worker shuts down.
    pub(super) async fn begin(&mut self) {
        let shared = self.shared;
        let _note = self.declaration.is_some().then(|| shared.health.declaring(Instant::now()));
        let declared = async {
            while self.declare().await.is_err() && self.failures < TRIES {
                sleep(shared.backoff(self.failures)).await;
            }
        };
        tokio::select! {
            biased;
            () = shared.reached(Phase::Quiet) => {}
            () = declared => {}
        }
    }

    /// Goes on until the store has answered, or the worker reserves nothing more.
    pub(super) async fn finish(mut self) {
        let shared = self.shared;
        let declared = async {
            while self.declaration.is_some() {
                sleep(shared.backoff(self.failures)).await;
                // The call itself reports a failure.
                let _ = self.declare().await;
            }
        };
        tokio::select! {
            biased;
            () = shared.reached(Phase::Quiet) => {}
            () = declared => {}
        }
    }

    async fn declare(&mut self) -> Result<(), DriverError> {
        let Some(declaration) = &self.declaration else { return Ok(()) };
        let change = Change::DeclareLimits(declaration.clone());
        let request = Configure::new(vec![change], self.shared.now());
        let call = self.shared.driver.configure(request);
        let part = Part::Scheduler;
        match self.shared.call_or_recover(part, Operation::Configure, 1, call).await {
            Ok(answers) => {
                if let Some(Err(denied)) = answers.first() {
                    let owner = declaration.owner.as_str();
                    self.shared.tell(&Event::LimitsDenied { owner, denied });
                }
                self.declaration = None;
                Ok(())
            }
            Err(error) => {
                self.failures = self.failures.saturating_add(1);
                Err(error)
            }
        }
    }
}
