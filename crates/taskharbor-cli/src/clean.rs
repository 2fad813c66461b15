//! Text that is safe on a terminal.
//!
//! Names, payloads and errors can come from any program. A terminal that is sent escape sequences
//! can be made to hide, to lie and on some to run something, so nothing that a terminal acts upon
//! is ever passed on as it is.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Whether a terminal may act upon this character instead of showing it: control characters of both
/// sets, those that change the direction of what follows, and those that take no room.
fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}' | '\u{2060}' | '\u{feff}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
        || matches!(c, '\u{2028}' | '\u{2029}')
}

/// The text in one line, with what is unsafe written as an escape that can be read.
pub(crate) fn line(text: &str) -> String {
    clean(text, |_| false)
}

/// The text in as many lines as it has.
pub(crate) fn lines(text: &str) -> String {
    clean(&text.replace("\r\n", "\n"), |c| matches!(c, '\n' | '\t'))
}

fn clean(text: &str, allowed: impl Fn(char) -> bool) -> String {
    let mut clean = String::with_capacity(text.len());
    for c in text.chars() {
        if is_unsafe(c) && !allowed(c) {
            clean.extend(c.escape_default());
        } else {
            clean.push(c);
        }
    }
    clean
}

/// Writes a text as the inside of a JSON string whose quotes and backslashes are taken care of
/// already.
pub(crate) fn json(text: &str, out: &mut String) {
    for c in text.chars() {
        if is_unsafe(c) {
            let mut units = [0; 2];
            out.extend(c.encode_utf16(&mut units).iter().map(|unit| format!("\\u{unit:04x}")));
        } else {
            out.push(c);
        }
    }
}

/// No wider than this many columns of a terminal; where something is missing, an ellipsis says so.
pub(crate) fn cut(text: &str, columns: usize) -> String {
    if text.width() <= columns {
        return text.to_owned();
    }
    let mut used = 0;
    let fits = text.chars().take_while(|character| {
        used += character.width().unwrap_or(0);
        used < columns
    });
    fits.chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_a_terminal_acts_upon_is_left() {
        let hostile = "a\x1b[31mred\u{9b}2J\x07\u{202e}txt\r\nb\tc\u{7f}";
        assert_eq!(line(hostile), "a\\u{1b}[31mred\\u{9b}2J\\u{7}\\u{202e}txt\\r\\nb\\tc\\u{7f}");
        assert_eq!(lines("one\r\ntwo\tthree\x1b"), "one\ntwo\tthree\\u{1b}");
        let mut out = String::new();
        json(hostile, &mut out);
        assert!(!out.contains(is_unsafe), "{out:?}");
        assert!(out.contains("\\u001b[31m") && out.contains("\\u009b2J"), "{out}");
        assert_eq!(line("Grüße, 東京 🙂"), "Grüße, 東京 🙂");
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        assert_eq!(cut("Grüße", 5), "Grüße");
        assert_eq!(cut("Grüße!", 5), "Grüß…");
        assert_eq!(cut("東京", 1), "…");
        assert_eq!(cut("東京都", 4), "東…");
        assert_eq!(cut("東京", 4), "東京");
    }
}
