//! Writing JSON that is safe on a terminal and stays on one line.

use std::io;

use serde::Serialize;
use serde_json::{Serializer, ser::Formatter};

use crate::clean;

/// A value as JSON: without spaces, and with nothing in it that a terminal acts upon.
pub(crate) fn text(value: &impl Serialize) -> serde_json::Result<String> {
    let mut bytes = Vec::new();
    value.serialize(&mut Serializer::with_formatter(&mut bytes, Safe))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Compact JSON in which unsafe characters are escaped, also in what was JSON before.
struct Safe;

impl Formatter for Safe {
    fn write_string_fragment<W: ?Sized + io::Write>(
        &mut self,
        writer: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        let mut safe = String::with_capacity(fragment.len());
        clean::json(fragment, &mut safe);
        writer.write_all(safe.as_bytes())
    }

    fn write_raw_fragment<W: ?Sized + io::Write>(
        &mut self,
        writer: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        writer.write_all(compact(fragment).as_bytes())
    }
}

/// JSON without the spaces between its parts.
fn compact(json: &str) -> String {
    let mut compact = String::with_capacity(json.len());
    let (mut inside, mut escaped) = (false, false);
    for c in json.chars() {
        if !inside && matches!(c, ' ' | '\t' | '\r' | '\n') {
            continue;
        }
        clean::json(c.encode_utf8(&mut [0; 4]), &mut compact);
        if escaped {
            escaped = false;
        } else if c == '"' {
            inside = !inside;
        } else {
            escaped = inside && c == '\\';
        }
    }
    compact
}

#[cfg(test)]
mod tests {
    use serde_json::value::RawValue;

    use super::*;

    #[test]
    fn strings_lose_nothing_and_do_no_harm() {
        let hostile = "\x1b[2J \u{9b}31m \u{202e} \"quoted\" \\ \n é 🙂 \u{7f}";
        let json = text(&hostile).unwrap();
        assert!(!json.contains(|c: char| c.is_control() || c == '\u{202e}'), "{json:?}");
        assert_eq!(serde_json::from_str::<String>(&json).unwrap(), hostile);
    }

    #[test]
    fn what_was_json_before_keeps_its_meaning_in_one_line() {
        let raw =
            "{\n  \"a b\" : [ 1.10, 12345678901234567890123 ],\t\"c\\\" d\\\\\" : \"\u{9b} x\"\n}";
        let json = text(&RawValue::from_string(raw.to_owned()).unwrap()).unwrap();
        assert_eq!(json, "{\"a b\":[1.10,12345678901234567890123],\"c\\\" d\\\\\":\"\\u009b x\"}");
    }
}
