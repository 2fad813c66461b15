//! [`Start`]: a flow about to be started, which is awaited.

use std::{
    fmt,
    future::{Future, IntoFuture},
    pin::Pin,
};

use taskharbor_core::{
    Timestamp,
    driver::OpenTransaction,
    error::Rejected,
    job::{JobSet, KeyHold},
    name::{FlowName, IdempotencyKey},
};

use super::{
    enqueue::one,
    within::{Where, Within},
};
use crate::{Client, EnqueueError, Flow, Handle, InvalidJob, codec::Format};

/// A flow about to be started. Nothing happens until it is awaited.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use serde::{Deserialize, Serialize};
/// # use taskharbor::{Client, Flow, Job};
/// # #[derive(Serialize, Deserialize, Job)]
/// # #[job(type = "order:pay", output = u64)]
/// # struct Pay { order: u64 }
/// # #[derive(Serialize, Deserialize, Job)]
/// # #[job(type = "order:ship", input = u64)]
/// # struct Ship;
/// # let driver = taskharbor::connect("memory:").await?;
/// # let client = Client::new(&driver);
/// let steps = Flow::first(Pay { order: 42 }).then(Ship);
/// let order = client.start(steps).name("order").idempotency_key("order:42").await?;
/// println!("{}", order.tree(100).await?);
/// # Ok(())
/// # }
/// ```
///
/// # Cancel safety
///
/// As [`EnqueueBuilder`](crate::EnqueueBuilder).
#[must_use = "nothing is started until this is awaited"]
pub struct Start<'a, O> {
    client: &'a Client,
    flow: Flow<O>,
    format: Option<Format>,
    name: Option<String>,
    key: Option<String>,
    key_hold: Option<KeyHold>,
    within: Option<Within<'a>>,
}

impl<'a, O> Start<'a, O> {
    pub(super) const fn new(client: &'a Client, flow: Flow<O>) -> Self {
        Self { client, flow, format: None, name: None, key: None, key_hold: None, within: None }
    }

    /// The format in which its jobs are written already, if that is not the client's.
    pub(super) fn format(mut self, format: Format) -> Self {
        self.format = Some(format);
        self
    }

    /// The name of the flow in lists and diagrams. Defaults to none.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Prevents duplicates: while a flow holds this key, starting returns that flow and stores
    /// nothing. The key belongs to the queue of the flow's last step, or to
    /// [`Options::DEFAULT_QUEUE`](crate::Options) if that step is a group. Jobs of that queue share
    /// its keys. Defaults to the key of the last step's options, or none.
    pub fn idempotency_key(mut self, key: impl fmt::Display) -> Self {
        self.key = Some(key.to_string());
        self
    }

    /// How long the key is held. Defaults to [`KeyHold::UntilPruned`].
    pub fn key_hold(mut self, hold: KeyHold) -> Self {
        self.key_hold = Some(hold);
        self
    }

    /// Starts it in this open transaction, as [`EnqueueBuilder::within`](crate::EnqueueBuilder::within) does.
    pub fn within<M>(mut self, transaction: impl OpenTransaction<M, Transaction: 'a>) -> Self {
        self.within = Some(Within::new(transaction, self.client.store().driver()));
        self
    }

    fn draft(self, now: Timestamp) -> Result<JobSet, InvalidJob> {
        let format = self.format.as_ref().unwrap_or_else(|| self.client.format());
        let mut jobs = self.flow.into_jobs(format, now)?;
        if let Some(tail) = jobs.last_mut() {
            if let Some(key) = self.key {
                tail.idempotency_key = Some(IdempotencyKey::new(key)?);
            }
            if tail.idempotency_key.is_some() {
                tail.key_hold = self.key_hold.unwrap_or(tail.key_hold);
            }
        }
        Ok(match self.name {
            Some(name) => JobSet::named_flow(FlowName::new(name)?, jobs),
            None => JobSet::flow(jobs),
        })
    }

    async fn send(mut self) -> Result<Handle<O>, EnqueueError> {
        let client = self.client;
        let within = self.within.take();
        if !client.store().limits().has_flows() {
            return Err(Rejected::FlowsNotSupported.into());
        }
        let now = client.now(Where::of(within.as_ref())).await?;
        let is_ours = self.format.is_none();
        let handle = one(client.send(self.draft(now)?, now, within).await?)?;
        Ok(if is_ours { handle } else { handle.written_otherwise() })
    }
}

impl<'a, O: 'a> IntoFuture for Start<'a, O> {
    type Output = Result<Handle<O>, EnqueueError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'a>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.send())
    }
}

impl<O> fmt::Debug for Start<'_, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Start").field("flow", &self.flow).finish_non_exhaustive()
    }
}
