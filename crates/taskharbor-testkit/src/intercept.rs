//! [`Intercept`]: a driver with a [`Hook`] around every call.

use std::future::Future;

use taskharbor_core::{Admin, Driver, DriverError, driver::DriverId};

use crate::operation::{Answer, Call};

/// What happens to the calls of an [`Intercept`].
pub trait Hook<D>: Clone + Send + Sync + 'static {
    /// Does something around one call: before it, after it, or in its place.
    ///
    /// `next` makes the call. A hook may change the call and the answer, refuse the call, make it and
    /// lose its answer, or never come to an end.
    fn around(
        &self,
        call: Call,
        next: Next<'_, D>,
    ) -> impl Future<Output = Result<Answer, DriverError>> + Send;

    /// The identity of the driver, given that of the driver underneath. Defaults to that one.
    fn driver_id(&self, underneath: Option<DriverId>) -> Option<DriverId> {
        underneath
    }

    /// A handle for a thread with a runtime of its own, given that of the driver underneath. Defaults
    /// to that one with this hook around it.
    fn detached(&self, underneath: Option<D>) -> Option<(D, Self)> {
        Some((underneath?, self.clone()))
    }
}

/// Makes an intercepted call.
pub struct Next<'a, D> {
    driver: &'a D,
}

impl<D: Driver + Admin> Next<'_, D> {
    /// Makes the call.
    ///
    /// # Errors
    ///
    /// Those of the driver.
    pub async fn make(self, call: Call) -> Result<Answer, DriverError> {
        call.make(self.driver).await
    }
}

/// A driver whose calls all go through a hook. Clones share what clones of the hook share.
#[derive(Clone)]
pub struct Intercept<D, H> {
    // Dropped in this order: the connections of the driver end before what the hook keeps.
    driver: D,
    hook: H,
}

impl<D, H> Intercept<D, H> {
    /// Puts a hook around a driver.
    pub const fn new(driver: D, hook: H) -> Self {
        Self { driver, hook }
    }

    /// The driver underneath.
    pub const fn driver(&self) -> &D {
        &self.driver
    }

    /// The hook.
    pub const fn hook(&self) -> &H {
        &self.hook
    }
}

impl<D: Driver + Admin, H: Hook<D>> Intercept<D, H> {
    pub(crate) async fn call(&self, call: Call) -> Result<Answer, DriverError> {
        self.hook.around(call, Next { driver: &self.driver }).await
    }
}

/// A hook that changes nothing, and keeps something for as long as the driver is used.
#[derive(Clone)]
pub struct KeepAlive<T>(pub T);

impl<D: Driver + Admin, T: Clone + Send + Sync + 'static> Hook<D> for KeepAlive<T> {
    async fn around(&self, call: Call, next: Next<'_, D>) -> Result<Answer, DriverError> {
        next.make(call).await
    }
}
