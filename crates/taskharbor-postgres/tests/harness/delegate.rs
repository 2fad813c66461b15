//! Passing a whole driver on to a field, for what has one and does something besides.

/// Makes a type with a driver in its field a driver.
macro_rules! delegate_driver {
    ($type:ty, $to:ident) => {
        impl taskharbor_core::Driver for $type {
            fn limits(&self) -> taskharbor_core::driver::Limits {
                taskharbor_core::Driver::limits(&self.$to)
            }
            delegate_driver! { taskharbor_core::Driver, $to:
                enqueue(request: taskharbor_core::driver::Enqueue)
                    -> taskharbor_core::driver::Answers<
                        Vec<taskharbor_core::driver::Enqueued>, taskharbor_core::error::Rejected>;
                reserve(request: taskharbor_core::driver::Reserve)
                    -> Result<taskharbor_core::driver::Reserved, taskharbor_core::DriverError>;
                extend_leases(request: taskharbor_core::driver::ExtendLeases)
                    -> taskharbor_core::driver::Answers<
                        taskharbor_core::driver::Extended, taskharbor_core::error::Refusal>;
                settle(request: taskharbor_core::driver::Settle)
                    -> taskharbor_core::driver::Answers<
                        taskharbor_core::driver::Settled, taskharbor_core::error::Refusal>;
                outputs(request: taskharbor_core::driver::Outputs)
                    -> taskharbor_core::driver::Answers<
                        taskharbor_core::driver::OutputPage, taskharbor_core::error::Refusal>;
                watch(queues: Vec<taskharbor_core::QueueName>)
                    -> Result<taskharbor_core::driver::Watch, taskharbor_core::DriverError>;
                store_time() -> Result<taskharbor_core::Timestamp, taskharbor_core::DriverError>;
                close() -> Result<(), taskharbor_core::DriverError>;
            }
        }
        impl taskharbor_core::Admin for $type {
            delegate_driver! { taskharbor_core::Admin, $to:
                migrate() -> Result<(), taskharbor_core::DriverError>;
                inspect(id: taskharbor_core::JobId, now: taskharbor_core::Timestamp)
                    -> Result<Option<taskharbor_core::job::JobRecord>, taskharbor_core::DriverError>;
                list(request: taskharbor_core::admin::List)
                    -> Result<taskharbor_core::admin::Page<taskharbor_core::job::JobSummary>,
                        taskharbor_core::DriverError>;
                counts(now: taskharbor_core::Timestamp)
                    -> Result<Vec<taskharbor_core::admin::QueueCounts>, taskharbor_core::DriverError>;
                manage(request: taskharbor_core::admin::Manage)
                    -> taskharbor_core::driver::Answers<taskharbor_core::State, taskharbor_core::error::Denied>;
                pause(queue: taskharbor_core::QueueName, now: taskharbor_core::Timestamp)
                    -> Result<(), taskharbor_core::DriverError>;
                resume(queue: taskharbor_core::QueueName)
                    -> Result<(), taskharbor_core::DriverError>;
                prune(request: taskharbor_core::admin::Prune)
                    -> Result<usize, taskharbor_core::DriverError>;
                flow(id: taskharbor_core::JobId, now: taskharbor_core::Timestamp)
                    -> Result<Option<taskharbor_core::flow::FlowRecord>, taskharbor_core::DriverError>;
                list_flows(request: taskharbor_core::flow::ListFlows)
                    -> Result<taskharbor_core::admin::Page<taskharbor_core::flow::FlowRecord>,
                        taskharbor_core::DriverError>;
                check()
                    -> Result<Vec<taskharbor_core::admin::Inconsistency>, taskharbor_core::DriverError>;
            }
        }
    };
    ($trait:path, $to:ident:
        $($name:ident($($argument:ident: $type:ty),*) -> $answer:ty;)*
    ) => {
        $(async fn $name(&self, $($argument: $type),*) -> $answer {
            <_ as $trait>::$name(&self.$to, $($argument),*).await
        })*
    };
}
