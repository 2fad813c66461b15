//! Passing a whole driver on to a field, for what has one and does something besides.

/// Makes a type with a driver in its field a driver.
macro_rules! delegate_driver {
    ($type:ty, $to:ident) => {
        impl taskharbor_core::Driver for $type {
            fn limits(&self) -> taskharbor_core::Limits {
                taskharbor_core::Driver::limits(&self.$to)
            }
            delegate_driver! { taskharbor_core::Driver, $to:
                enqueue(request: taskharbor_core::Enqueue)
                    -> taskharbor_core::Answers<
                        Vec<taskharbor_core::Enqueued>, taskharbor_core::Rejected>;
                reserve(request: taskharbor_core::Reserve)
                    -> Result<taskharbor_core::Reserved, taskharbor_core::DriverError>;
                extend_leases(request: taskharbor_core::ExtendLeases)
                    -> taskharbor_core::Answers<
                        taskharbor_core::Extended, taskharbor_core::Refusal>;
                settle(request: taskharbor_core::Settle)
                    -> taskharbor_core::Answers<
                        taskharbor_core::Settled, taskharbor_core::Refusal>;
                outputs(request: taskharbor_core::Outputs)
                    -> taskharbor_core::Answers<
                        taskharbor_core::OutputPage, taskharbor_core::Refusal>;
                watch(queues: Vec<taskharbor_core::QueueName>)
                    -> Result<taskharbor_core::Watch, taskharbor_core::DriverError>;
                store_time() -> Result<taskharbor_core::Timestamp, taskharbor_core::DriverError>;
                close() -> Result<(), taskharbor_core::DriverError>;
            }
        }
        impl taskharbor_core::Admin for $type {
            delegate_driver! { taskharbor_core::Admin, $to:
                migrate() -> Result<(), taskharbor_core::DriverError>;
                inspect(id: taskharbor_core::JobId, now: taskharbor_core::Timestamp)
                    -> Result<Option<taskharbor_core::JobRecord>, taskharbor_core::DriverError>;
                list(request: taskharbor_core::List)
                    -> Result<taskharbor_core::Page<taskharbor_core::JobSummary>,
                        taskharbor_core::DriverError>;
                counts(now: taskharbor_core::Timestamp)
                    -> Result<Vec<taskharbor_core::QueueCounts>, taskharbor_core::DriverError>;
                manage(request: taskharbor_core::Manage)
                    -> taskharbor_core::Answers<taskharbor_core::State, taskharbor_core::Denied>;
                pause(queue: taskharbor_core::QueueName, now: taskharbor_core::Timestamp)
                    -> Result<(), taskharbor_core::DriverError>;
                resume(queue: taskharbor_core::QueueName)
                    -> Result<(), taskharbor_core::DriverError>;
                prune(request: taskharbor_core::Prune)
                    -> Result<usize, taskharbor_core::DriverError>;
                flow(id: taskharbor_core::JobId, now: taskharbor_core::Timestamp)
                    -> Result<Option<taskharbor_core::FlowRecord>, taskharbor_core::DriverError>;
                list_flows(request: taskharbor_core::ListFlows)
                    -> Result<taskharbor_core::Page<taskharbor_core::FlowRecord>,
                        taskharbor_core::DriverError>;
                check()
                    -> Result<Vec<taskharbor_core::Inconsistency>, taskharbor_core::DriverError>;
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
