//! The side of a driver that is for people, passed on as it is: tests look at the store through it,
//! whatever they do to the side for workers.

/// Passes everything of `Admin` on to a field; removing old jobs, which workers do, to a method if
/// one is named.
macro_rules! delegate_admin {
    ($driver:ty, $to:ident) => {
        impl taskharbor::Admin for $driver {
            delegate_admin! { $to:
                prune(request: taskharbor::Prune) -> Result<usize, taskharbor::DriverError>;
            }
            delegate_admin! { of_people $to }
        }
    };
    ($driver:ty, $to:ident, prune: $prune:ident) => {
        impl taskharbor::Admin for $driver {
            async fn prune(
                &self,
                request: taskharbor::Prune,
            ) -> Result<usize, taskharbor::DriverError> {
                self.$prune(request).await
            }
            delegate_admin! { of_people $to }
        }
    };
    (of_people $to:ident) => {
        delegate_admin! { $to:
            migrate() -> Result<(), taskharbor::DriverError>;
            inspect(id: taskharbor::JobId, now: taskharbor::Timestamp)
                -> Result<Option<taskharbor::JobRecord>, taskharbor::DriverError>;
            list(request: taskharbor::List)
                -> Result<taskharbor::Page<taskharbor::JobSummary>, taskharbor::DriverError>;
            counts(request: taskharbor_core::admin::Counts)
                -> Result<Vec<taskharbor::QueueCounts>, taskharbor::DriverError>;
            manage(request: taskharbor::Manage)
                -> taskharbor_core::driver::Answers<taskharbor::State, taskharbor::Denied>;
            configure(request: taskharbor_core::admin::Configure)
                -> taskharbor_core::driver::Answers<(), taskharbor::Denied>;
            settings(request: taskharbor_core::admin::ListSettings)
                -> Result<taskharbor::Page<taskharbor_core::admin::Setting>, taskharbor::DriverError>;
            flow(id: taskharbor::JobId, now: taskharbor::Timestamp)
                -> Result<Option<taskharbor::FlowRecord>, taskharbor::DriverError>;
            list_flows(request: taskharbor::ListFlows)
                -> Result<taskharbor::Page<taskharbor::FlowRecord>, taskharbor::DriverError>;
            export(after: Option<taskharbor::Cursor>, limit: usize)
                -> Result<taskharbor::Page<taskharbor_core::export::ExportUnit>, taskharbor::DriverError>;
            import(units: Vec<taskharbor_core::export::ExportUnit>)
                -> taskharbor_core::driver::Answers<
                    taskharbor_core::export::Imported,
                    taskharbor_core::export::ImportRefused,
                >;
            check() -> Result<Vec<taskharbor_core::admin::Inconsistency>, taskharbor::DriverError>;
        }
    };
    ($to:ident: $($name:ident($($argument:ident: $type:ty),*) -> $answer:ty;)*) => {
        $(async fn $name(&self, $($argument: $type),*) -> $answer {
            taskharbor::Admin::$name(&self.$to, $($argument),*).await
        })*
    };
}
