//! The operations of a driver as values: [`Call`], [`Answer`], and [`Op`], their names.
//!
//! One list holds the operations of both traits. Everything that needs all of them is made from it.

use taskharbor_core::{
    Admin, Driver, DriverError, JobId, QueueName, State, Timestamp,
    admin::{
        Configure, Counts, Cursor, Diagnosis, Evict, Evicted, Inconsistency, LaneStatus, List,
        ListLanes, ListSettings, ListWorkers, Manage, Page, Prune, QueueCounts, Setting,
        WorkerRecord,
    },
    driver::{
        Announce, Due, DueSchedules, Enqueue, Enqueued, ExtendLeases, Extended, Fire, OutputPage,
        Outputs, Reserve, Reserved, Settle, Settled, Watch,
    },
    error::{Denied, FireRefused, Refusal, Rejected},
    export::{ExportUnit, ImportRefused, Imported},
    flow::{FlowRecord, ListFlows},
    job::{JobRecord, JobSummary},
};

/// Passes the operations of both traits to another macro: the name of each, the name of its variant,
/// its arguments, and what it answers unless the whole call fails.
macro_rules! operations {
    ($made:ident) => {
        $made! {
            Driver {
                enqueue Enqueue(request: Enqueue) -> Vec<Result<Vec<Enqueued>, Rejected>>;
                reserve Reserve(request: Reserve) -> Reserved;
                extend_leases ExtendLeases(request: ExtendLeases) -> Vec<Result<Extended, Refusal>>;
                settle Settle(request: Settle) -> Vec<Result<Settled, Refusal>>;
                outputs Outputs(request: Outputs) -> Vec<Result<OutputPage, Refusal>>;
                due_schedules DueSchedules(request: DueSchedules) -> Due;
                fire Fire(request: Fire) -> Vec<Result<Vec<Enqueued>, FireRefused>>;
                announce Announce(request: Announce) -> ();
                watch Watch(queues: Vec<QueueName>) -> Watch;
                watch_job WatchJob(id: JobId) -> Watch;
                store_time StoreTime() -> Timestamp;
                close Close() -> ();
            }
            Admin {
                migrate Migrate() -> ();
                inspect Inspect(id: JobId, now: Timestamp) -> Option<JobRecord>;
                list List(request: List) -> Page<JobSummary>;
                counts Counts(request: Counts) -> Vec<QueueCounts>;
                manage Manage(request: Manage) -> Vec<Result<State, Denied>>;
                configure Configure(request: Configure) -> Vec<Result<(), Denied>>;
                settings Settings(request: ListSettings) -> Page<Setting>;
                lanes Lanes(request: ListLanes) -> Page<LaneStatus>;
                workers Workers(request: ListWorkers) -> Page<WorkerRecord>;
                evict Evict(request: Evict) -> Evicted;
                prune Prune(request: Prune) -> usize;
                flow Flow(id: JobId, now: Timestamp) -> Option<FlowRecord>;
                list_flows ListFlows(request: ListFlows) -> Page<FlowRecord>;
                export Export(after: Option<Cursor>, limit: usize) -> Page<ExportUnit>;
                import Import(units: Vec<ExportUnit>) -> Vec<Result<Imported, ImportRefused>>;
                diagnose Diagnose() -> Vec<Diagnosis>;
                check Check() -> Vec<Inconsistency>;
            }
        }
    };
}

macro_rules! made_of_operations {
    ($($trait:ident { $(
        $name:ident $variant:ident($($argument:ident: $type:ty),*) -> $answer:ty;
    )* })*) => {
        /// The name of an operation.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[allow(missing_docs, reason = "the operations of the traits")]
        pub enum Op {
            $($($variant,)*)*
        }

        impl Op {
            /// As the method is called.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $($(Self::$variant => stringify!($name),)*)*
                }
            }
        }

        /// One call of a driver, with its arguments.
        #[derive(Clone, Debug)]
        #[allow(missing_docs, reason = "the operations of the traits, and their arguments")]
        #[expect(clippy::large_enum_variant, reason = "a call lives for a moment")]
        pub enum Call {
            $($($variant { $($argument: $type),* },)*)*
        }

        impl Call {
            /// Which operation is called.
            #[must_use]
            pub const fn op(&self) -> Op {
                match self {
                    $($(Self::$variant { .. } => Op::$variant,)*)*
                }
            }

            /// Makes the call.
            ///
            /// # Errors
            ///
            /// Those of the driver.
            pub async fn make<D: Driver + Admin>(self, driver: &D) -> Result<Answer, DriverError> {
                match self {
                    $($(Self::$variant { $($argument),* } => {
                        <D as $trait>::$name(driver, $($argument),*).await.map(Answer::$variant)
                    })*)*
                }
            }
        }

        /// What a driver answers.
        #[allow(missing_docs, reason = "the operations of the traits")]
        #[expect(clippy::large_enum_variant, reason = "an answer lives for a moment")]
        pub enum Answer {
            $($($variant($answer),)*)*
        }

        impl Answer {
            /// Which operation it answers.
            #[must_use]
            pub const fn op(&self) -> Op {
                match self {
                    $($(Self::$variant(..) => Op::$variant,)*)*
                }
            }
        }

        /// A driver as its intercepted calls.
        mod driver {
            use super::*;
            use crate::intercept::{Hook, Intercept};

            operations!(implement);
        }
    };
}

/// Makes `Intercept` a driver: every operation becomes a [`Call`] that its hook is shown.
macro_rules! implement {
    ($driver:ident { $($driver_operations:tt)* } $admin:ident { $($admin_operations:tt)* }) => {
        impl<D: Driver + Admin, H: Hook<D>> Driver for Intercept<D, H> {
            fn limits(&self) -> taskharbor_core::driver::Limits {
                self.driver().limits()
            }

            fn driver_id(&self) -> Option<taskharbor_core::driver::DriverId> {
                self.hook().driver_id(self.driver().driver_id())
            }

            fn detached_handle(&self) -> Option<Self> {
                let (driver, hook) = self.hook().detached(self.driver().detached_handle())?;
                Some(Self::new(driver, hook))
            }

            pass_to_hook! { $($driver_operations)* }
        }

        impl<D: Driver + Admin, H: Hook<D>> Admin for Intercept<D, H> {
            pass_to_hook! { $($admin_operations)* }
        }
    };
}

macro_rules! pass_to_hook {
    ($($name:ident $variant:ident($($argument:ident: $type:ty),*) -> $answer:ty;)*) => {
        $(async fn $name(&self, $($argument: $type),*) -> Result<$answer, DriverError> {
            match self.call(Call::$variant { $($argument),* }).await? {
                Answer::$variant(answer) => Ok(answer),
                other => panic!("the hook answers {:?} to {:?}", other.op(), Op::$variant),
            }
        })*
    };
}

operations!(made_of_operations);
