//! Panics that are part of the show and are not reported on the terminal.
//!
//! A worker records a panic as a failed attempt, but before that the process reports it, in the middle
//! of the display. Only panics inside [`silenced`] are not reported.

use std::{cell::Cell, panic};

thread_local! {
    static IS_SILENT: Cell<bool> = const { Cell::new(false) };
}

/// From now on panics inside [`silenced`] are not reported.
pub(crate) fn install() {
    let report = panic::take_hook();
    panic::set_hook(Box::new(move |panic| {
        if !IS_SILENT.get() {
            report(panic);
        }
    }));
}

/// Runs this; if it panics, nothing is said about it here.
pub(crate) fn silenced<T>(run: impl FnOnce() -> T) -> T {
    let _guard = Silence::begin();
    run()
}

/// Ends the silence when it is dropped.
struct Silence;

impl Silence {
    fn begin() -> Self {
        IS_SILENT.set(true);
        Self
    }
}

impl Drop for Silence {
    fn drop(&mut self) {
        IS_SILENT.set(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    thread_local! {
        /// Of this thread alone: the hook is one for all, and other tests may panic meanwhile.
        static REPORTS: Cell<usize> = const { Cell::new(0) };
    }

    #[test]
    fn a_panic_is_reported_unless_it_is_silenced() {
        let standard = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            REPORTS.set(REPORTS.get() + 1);
            standard(panic);
        }));
        install();
        assert!(panic::catch_unwind(|| silenced(|| panic!("part of the show"))).is_err());
        assert_eq!(REPORTS.get(), 0);
        assert!(panic::catch_unwind(|| panic!("a mistake")).is_err());
        assert_eq!(REPORTS.get(), 1);
        assert_eq!(silenced(|| 7), 7);
    }
}
