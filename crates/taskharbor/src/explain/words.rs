//! Counts and times in words.

use std::time::Duration;

use taskharbor_core::Timestamp;

/// This many of them.
#[must_use]
pub fn counted(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

/// How long ago, or in how long.
#[must_use]
pub fn relative(at: Timestamp, now: Timestamp) -> String {
    if at > now {
        format!("in {}", span(at.since(now)))
    } else {
        format!("{} ago", span(now.since(at)))
    }
}

/// A time span in its two largest units.
#[must_use]
pub fn span(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60);
    match () {
        () if days > 0 => format!("{days}d {hours}h"),
        () if hours > 0 => format!("{hours}h {minutes}m"),
        () if minutes > 0 => format!("{minutes}m {}s", seconds % 60),
        () if seconds > 0 => format!("{seconds}s"),
        () => format!("{}ms", duration.as_millis()),
    }
}

/// A number of jobs, with a sign behind it if counting stopped there.
#[must_use]
pub fn capped(count: usize, at_most: Option<usize>) -> String {
    match at_most {
        Some(at_most) if count >= at_most => format!("{count}+"),
        _ => count.to_string(),
    }
}

/// At most this many characters of a text; where something is missing, an ellipsis says so.
#[must_use]
pub fn cut(text: &str, characters: usize) -> String {
    match text.char_indices().nth(characters) {
        None => text.to_owned(),
        Some(_) => text.chars().take(characters.saturating_sub(1)).chain(['…']).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_told_as_people_do() {
        let at = |seconds: i64| Timestamp::from_micros(seconds * 1_000_000).unwrap();
        for (then, text) in [
            (at(1_000_000), "0ms ago"),
            (at(999_990), "10s ago"),
            (at(1_000_090), "in 1m 30s"),
            (at(992_700), "2h 1m ago"),
            (at(1_000_000 + 90_061), "in 1d 1h"),
        ] {
            assert_eq!(relative(then, at(1_000_000)), text);
        }
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        assert_eq!(cut("Grüße", 5), "Grüße");
        assert_eq!(cut("Grüße!", 5), "Grüß…");
        assert_eq!(cut("東京", 1), "…");
    }
}
