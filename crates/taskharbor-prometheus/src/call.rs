//! Metrics of calls to the store, and of leases.

use std::{sync::OnceLock, time::Duration};

use prometheus_client::{
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};
use taskharbor::{DriverError, LossReason, Operation};

use crate::{
    job::Buckets,
    label::{Labels, OTHER, labels},
};

/// From half a millisecond to the 30 s after which a call counts as failed.
const SECONDS: [f64; 15] =
    [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];
const ITEMS: [f64; 13] =
    [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1_000.0, 2_000.0, 5_000.0, 10_000.0];

/// The kinds of errors. The last one stands for kinds that this version does not know.
const KINDS: [&str; 6] =
    ["unavailable", "backend", "closed", "invalid", "contract_violation", OTHER];

fn kind_of(error: &DriverError) -> usize {
    match error {
        DriverError::Unavailable(_) => 0,
        DriverError::Backend(_) => 1,
        DriverError::Closed => 2,
        DriverError::Invalid(_) | DriverError::InvalidLeaseDuration => 3,
        DriverError::ContractViolation(_) => 4,
        _ => 5,
    }
}

/// How a lease is lost. The last one stands for reasons that this version does not know.
const LOSSES: [&str; 7] =
    ["refused", "unreachable", "stalled", "closed", "overdue", "unrecordable", OTHER];

fn loss_of(why: &LossReason) -> usize {
    match why {
        LossReason::Refused(_) => 0,
        LossReason::Unreachable => 1,
        LossReason::Stalled => 2,
        LossReason::Closed => 3,
        LossReason::Overdue => 4,
        LossReason::Unrecordable => 5,
        _ => 6,
    }
}

pub(crate) struct Calls {
    seconds: Family<Labels, Histogram, Buckets>,
    items: Family<Labels, Histogram, Buckets>,
    errors: Family<Labels, Counter>,
    leases_lost: Family<Labels, Counter>,
    leases_extended: Counter,
    /// One for each of [`LOSSES`]. They are shown at zero, so that the first loss is an increase.
    losses: [Counter; LOSSES.len()],
    up: Gauge,
    /// One for each operation, in the order of [`Operation::ALL`].
    operations: Vec<OnceLock<Call>>,
}

struct Call {
    seconds: Histogram,
    items: Histogram,
    errors: [Counter; KINDS.len()],
}

impl Calls {
    pub(crate) fn new() -> Self {
        let up = Gauge::default();
        // Nothing is known against the store yet.
        up.set(1);
        let leases_lost = Family::<Labels, Counter>::default();
        let losses = LOSSES.map(|why| leases_lost.get_or_create_owned(&labels([("why", why)])));
        Self {
            seconds: Family::new_with_constructor(Buckets(&SECONDS)),
            items: Family::new_with_constructor(Buckets(&ITEMS)),
            errors: Family::default(),
            leases_lost,
            leases_extended: Counter::default(),
            losses,
            up,
            operations: Operation::ALL.iter().map(|_| OnceLock::new()).collect(),
        }
    }

    pub(crate) fn register(&self, registry: &mut Registry) {
        let help = "Leases that were lost before the outcome of the job was recorded";
        registry.register("taskharbor_leases_lost", help, self.leases_lost.clone());
        let help = "Extensions of leases of jobs";
        registry.register("taskharbor_lease_extend", help, self.leases_extended.clone());
        let help = "How long calls to the store took";
        registry.register("taskharbor_store_call_seconds", help, self.seconds.clone());
        let help = "How many jobs or other items a call to the store carried";
        registry.register("taskharbor_store_call_items", help, self.items.clone());
        let help = "Calls to the store that failed as a whole";
        registry.register("taskharbor_store_errors", help, self.errors.clone());
        let help = "Whether the workers of this process can reach the store";
        registry.register("taskharbor_store_up", help, self.up.clone());
    }

    fn of(&self, operation: Operation) -> Option<&Call> {
        let at = Operation::ALL.iter().position(|it| *it == operation)?;
        let make = || {
            let name = operation.as_str();
            let own = labels([("operation", name)]);
            Call {
                seconds: self.seconds.get_or_create_owned(&own),
                items: self.items.get_or_create_owned(&own),
                errors: KINDS.map(|kind| {
                    let labels = labels([("operation", name), ("kind", kind)]);
                    self.errors.get_or_create_owned(&labels)
                }),
            }
        };
        Some(self.operations.get(at)?.get_or_init(make))
    }

    #[expect(clippy::cast_precision_loss, reason = "no call carries 2^52 items")]
    pub(crate) fn called(
        &self,
        operation: Operation,
        items: usize,
        took: Duration,
        error: Option<&DriverError>,
    ) {
        let Some(call) = self.of(operation) else { return };
        call.seconds.observe(took.as_secs_f64());
        call.items.observe(items as f64);
        if let Some(error) = error {
            call.errors[kind_of(error)].inc();
        }
    }

    pub(crate) fn lease_lost(&self, why: &LossReason) {
        self.losses[loss_of(why)].inc();
    }

    pub(crate) fn lease_extended(&self) {
        self.leases_extended.inc();
    }

    pub(crate) fn set_up(&self, is_up: bool) {
        self.up.set(i64::from(is_up));
    }
}
