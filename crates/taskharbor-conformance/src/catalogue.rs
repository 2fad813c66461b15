//! Lists of cases: running them by name and making tests of them.
//!
//! Each group lists its cases at the top of its file, with the clauses they prove. One list serves
//! both purposes, and a case that is missing from it is dead code and does not compile.

use crate::{case::Case, group::GROUPS};

/// Every case of the suite.
pub fn cases() -> impl Iterator<Item = &'static Case> {
    GROUPS.iter().copied().flatten()
}

/// Makes tests of all cases for the driver that `$open`, an `async fn`, opens on an empty store.
///
/// A driver that can be opened in several ways may be content with `tests!(open, plain)` for all but
/// one of them: that leaves out the handle, which does not see how its answers came about.
#[macro_export]
macro_rules! tests {
    ($open:ident) => {
        $crate::tests!($open, plain);
        $crate::tests!($open, handle);
    };
    ($open:ident, plain) => {
        /// The driver as it is.
        mod plain {
            use super::$open as open;
            const THROUGH: $crate::Through = $crate::Through::Plain;
            $crate::__groups!();
        }
    };
    ($open:ident, handle) => {
        /// The driver behind a handle that checks its answers.
        mod handle {
            use super::$open as open;
            const THROUGH: $crate::Through = $crate::Through::Handle;
            $crate::__groups!();
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
