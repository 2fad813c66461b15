//! Panics that are part of the show and are not reported on the terminal.
//!
//! A worker makes one failed attempt of a panic, but before that the process reports it, in the
//! middle of the display. Only what runs inside [`hushed`] is spared that; any other panic is
//! reported as ever.

use std::{cell::Cell, panic};

thread_local! {
    static IS_HUSHED: Cell<bool> = const { Cell::new(false) };
}

/// From now on panics inside [`hushed`] are not reported.
pub(crate) fn install() {
    let report = panic::take_hook();
    panic::set_hook(Box::new(move |panic| {
        if !IS_HUSHED.get() {
            report(panic);
        }
    }));
}

/// Runs this; if it panics, nothing is said about it here.
pub(crate) fn hushed<T>(run: impl FnOnce() -> T) -> T {
    let _guard = Hush::begin();
    run()
}

/// Ends the hush when it goes, however that comes about.
struct Hush;

impl Hush {
    fn begin() -> Self {
        IS_HUSHED.set(true);
        Self
    }
}

impl Drop for Hush {
    fn drop(&mut self) {
        IS_HUSHED.set(false);
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
    fn only_what_is_hushed_goes_unreported() {
        let standard = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            REPORTS.set(REPORTS.get() + 1);
            standard(panic);
        }));
        install();
        assert!(panic::catch_unwind(|| hushed(|| panic!("part of the show"))).is_err());
        assert_eq!(REPORTS.get(), 0);
        assert!(panic::catch_unwind(|| panic!("a mistake")).is_err());
        assert_eq!(REPORTS.get(), 1);
        assert_eq!(hushed(|| 7), 7);
    }
}
