//! Lists of cases: running them by name and making tests of them.
//!
//! Each group lists its cases at the top of its file, with the clauses they prove. One list serves
//! both purposes, and a case that is missing from it is dead code and does not compile.

use crate::{case::Case, group::GROUPS};

/// Every case of the suite.
pub fn cases() -> impl Iterator<Item = &'static Case> {
    GROUPS.iter().copied().flatten()
}

/// Makes a test of every case for the driver that `$open`, an `async fn`, opens on an empty store.
///
/// - `tests!(open)`: all cases.
/// - `tests!(open, level = jobs)`: the cases about single jobs, for a driver whose
///   [`Limits`](taskharbor_core::driver::Limits) say that it keeps no flows.
/// - `tests!(open, also = handle)`: every case twice, on the driver as it is and behind an
///   [`AnyDriver`](taskharbor_core::AnyDriver) that checks the shape of its answers. The handle does
///   not depend on the driver, so that one driver of a workspace is enough for this.
#[macro_export]
macro_rules! tests {
    ($open:ident) => {
        $crate::__tests!($open, plain, Plain, flows);
    };
    ($open:ident, level = $level:ident) => {
        $crate::__tests!($open, plain, Plain, $level);
    };
    ($open:ident, also = handle) => {
        $crate::__tests!($open, plain, Plain, flows);
        $crate::__tests!($open, handle, Handle, flows);
    };
    ($open:ident, level = $level:ident, also = handle) => {
        $crate::__tests!($open, plain, Plain, $level);
        $crate::__tests!($open, handle, Handle, $level);
    };
}

/// Makes a module of tests that reach the driver in one way.
#[doc(hidden)]
#[macro_export]
macro_rules! __tests {
    ($open:ident, $module:ident, $through:ident, $level:ident) => {
        mod $module {
            use super::$open as open;
            const THROUGH: $crate::Through = $crate::Through::$through;
            $crate::__groups!($level);
        }
    };
}

/// Makes tests of the cases of one group; `open` and `THROUGH` are where `tests!` put them.
#[doc(hidden)]
#[macro_export]
macro_rules! __tests_of {
    ($group:ident $($name:ident)*) => {
        mod $group {
            $(#[test]
            fn $name() {
                let (group, name) = (stringify!($group), stringify!($name));
                $crate::run(group, name, super::THROUGH, super::open);
            })*
        }
    };
}
