//! The table of contents: every case by group, with the clauses it proves.
//!
//! One list serves both for running cases by name and for making tests of them. A case that is
//! missing here is dead code and does not compile.

use crate::case::Case;

/// Every case of the suite.
pub fn cases() -> impl Iterator<Item = &'static Case> {
    CASES.iter()
}

/// Makes tests of all cases for the driver that `$open`, an `async fn`, opens on an empty store.
#[macro_export]
macro_rules! tests {
    ($open:ident) => {
        /// The driver as it is.
        mod plain {
            use super::$open;
            $crate::__cases!($crate::__tests, Plain, $open);
        }
        /// The driver behind a handle that checks its answers.
        mod handle {
            use super::$open;
            $crate::__cases!($crate::__tests, Handle, $open);
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __tests {
    ([$through:ident, $open:ident] $($group:ident { $($name:ident [$($clause:literal)+])* })*) => {
        $(mod $group {
            $(#[test]
            fn $name() {
                let through = $crate::Through::$through;
                $crate::run(stringify!($group), stringify!($name), through, super::$open);
            })*
        })*
    };
}

macro_rules! registry {
    ([] $($group:ident { $($name:ident [$($clause:literal)+])* })*) => {
        static CASES: &[Case] = &[$($(Case {
            group: stringify!($group),
            name: stringify!($name),
            clauses: &[$($clause),+],
            body: |trial| Box::pin(crate::group::$group::$name(trial)),
        }),*),*];
    };
}

/// Hands the list of all cases to the macro `$then`.
#[doc(hidden)]
#[macro_export]
macro_rules! __cases {
    ($then:path $(, $argument:tt)*) => {
        $then! {
            [$($argument),*]
            enqueue {
                a_job_without_parents_is_ready_and_due_now ["ENQ-1"]
            }
        }
    };
}

__cases!(registry);
