//! An error with its causes as one line.

use std::error::Error;

/// The error and its causes, separated by colons, each once: many errors repeat their cause in their
/// own message.
#[must_use]
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let next = error.to_string();
        if !text.ends_with(&next) {
            text = format!("{text}: {next}");
        }
        cause = error.source();
    }
    text
}

/// Makes `Debug` show the same text as `Display`, for errors that a program may return from `main`.
#[doc(hidden)]
#[macro_export]
macro_rules! debug_as_display {
    ($($error:ty),+ $(,)?) => {$(
        impl ::std::fmt::Debug for $error {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                ::std::fmt::Display::fmt(self, f)
            }
        }
    )+};
}

#[cfg(test)]
mod tests {
    use std::io;

    use crate::DriverError;

    #[derive(Debug, thiserror::Error)]
    #[error("the disk is full: free some space")]
    struct Full(#[source] io::Error);

    #[test]
    fn display_and_debug_show_every_cause_once() {
        for error in [
            DriverError::unavailable(Full(io::Error::other("no space left"))),
            DriverError::backend(Full(io::Error::other("no space left"))),
        ] {
            let text = error.to_string();
            assert!(text.ends_with(": the disk is full: free some space: no space left"), "{text}");
            assert_eq!(format!("{error:?}"), text);
            assert!(std::error::Error::source(&error).is_none(), "{text}");
        }
    }

    #[test]
    fn what_main_prints_of_a_refused_name_is_its_message() {
        let refused = crate::QueueName::new("").unwrap_err();
        assert_eq!(format!("{refused:?}"), refused.to_string());
    }
}
