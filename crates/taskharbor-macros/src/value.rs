//! The value after a key: read, and checked against the bounds that every store keeps.
//!
//! The bounds are those of `taskharbor-core`, written out here: a macro that depended on the core
//! would make every build wait for it. A reader says what is wrong in words; [`parse`] adds the key
//! in front and points at the whole value.

use proc_macro2::{Ident, TokenStream, TokenTree};
use syn::{Lit, LitStr, Path, Token, Type, parse::ParseStream};

const MAX_NAME_BYTES: usize = 255;
const MAX_ATTEMPTS: u32 = i32::MAX.unsigned_abs();
const MAX_TIMEOUT_NANOS: u64 = i64::MAX.unsigned_abs();

/// A value, or how the sentence that begins with its key goes on.
type Read<T> = Result<T, String>;

/// Reads the value of `key`; if it is refused, the error covers all that was read of it.
pub(crate) fn parse<'a, T>(
    key: &Ident,
    input: ParseStream<'a>,
    read: impl FnOnce(ParseStream<'a>) -> Read<T>,
) -> syn::Result<T> {
    let start = input.cursor();
    read(input).map_err(|problem| {
        syn::Error::new_range(start..input.cursor(), format!("`{key}` {problem}"))
    })
}

/// What is stored by name: a type or a queue.
pub(crate) fn name(input: ParseStream<'_>) -> Read<LitStr> {
    let literal = text(input).ok_or("takes a name, written out in quotes")?;
    let name = literal.value();
    if name.is_empty() {
        Err("is empty: give it at least one visible character".to_owned())
    } else if name.len() > MAX_NAME_BYTES {
        let bytes = name.len();
        Err(format!("is {bytes} bytes long: shorten it to {MAX_NAME_BYTES} or fewer"))
    } else if let Some((at, _)) = name.char_indices().find(|(_, c)| c.is_control()) {
        Err(format!("has a control character at byte {at}: remove it"))
    } else if name.trim().is_empty() {
        Err("is blank: give it at least one visible character".to_owned())
    } else {
        Ok(literal)
    }
}

pub(crate) fn max_attempts(input: ParseStream<'_>) -> Read<u32> {
    let number = whole(input, "u32").ok_or("takes a whole number, such as 5")?;
    match number.parse() {
        Ok(0) => Err(format!("is zero: a job runs at least once, so choose 1 to {MAX_ATTEMPTS}")),
        Ok(attempts) if attempts <= MAX_ATTEMPTS => Ok(attempts),
        _ => Err(format!("is out of range: choose 1 to {MAX_ATTEMPTS}")),
    }
}

pub(crate) fn priority(input: ParseStream<'_>) -> Read<i16> {
    let number = whole(input, "i16").ok_or("takes a whole number, such as 3 or -3")?;
    let (min, max) = (i16::MIN, i16::MAX);
    number.parse().map_err(|_| format!("is out of range: choose {min} to {max}"))
}

/// A span of time, in nanoseconds.
pub(crate) fn timeout(input: ParseStream<'_>) -> Read<u64> {
    let literal = text(input).ok_or("takes a time in quotes, such as \"30s\"")?;
    let time = literal.value();
    let (digits, unit_nanos) = amount_and_unit(&time).ok_or(
        "is not a time: write a whole number and its unit, which is ms, s, m or h, such as \"30s\"",
    )?;
    // A number that does not fit its type is a time all the same, only far too long.
    let nanos = digits.parse::<u64>().ok().and_then(|amount| amount.checked_mul(unit_nanos));
    match nanos {
        Some(0) => Err("is zero: leave it out for none, or choose 1ms or more".to_owned()),
        Some(nanos) if nanos <= MAX_TIMEOUT_NANOS => Ok(nanos),
        _ => Err("is too long: leave it out for none, or choose 292 years or less".to_owned()),
    }
}

/// The name of a field.
pub(crate) fn field(input: ParseStream<'_>) -> Read<LitStr> {
    text(input)
        .ok_or_else(|| "takes the name of a field in quotes, such as \"account_id\"".to_owned())
}

pub(crate) fn data_type(input: ParseStream<'_>) -> Read<Type> {
    input.parse().map_err(|_| "takes a type without quotes, such as Vec<u8>".to_owned())
}

/// An expression, up to the next comma. What is wrong with it the compiler says where it stands.
pub(crate) fn expression(input: ParseStream<'_>) -> Read<TokenStream> {
    let mut tokens = Vec::new();
    while !input.is_empty() && !input.peek(Token![,]) {
        tokens.extend(input.parse::<TokenTree>());
    }
    if tokens.is_empty() {
        return Err("takes an expression, such as Exponential::new()".to_owned());
    }
    Ok(tokens.into_iter().collect())
}

/// A path, bare or in quotes.
pub(crate) fn path(input: ParseStream<'_>) -> Read<Path> {
    let path = if input.peek(LitStr) {
        input.parse().and_then(|text: LitStr| text.parse_with(Path::parse_mod_style))
    } else {
        input.call(Path::parse_mod_style)
    };
    path.map_err(|_| "takes a path, such as my_crate::taskharbor".to_owned())
}

fn amount_and_unit(time: &str) -> Option<(&str, u64)> {
    let (digits, unit) = time.split_at(time.find(|c: char| !c.is_ascii_digit())?);
    let unit_nanos = match unit {
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        _ => return None,
    };
    (!digits.is_empty()).then_some((digits, unit_nanos))
}

/// A string literal; a suffix would be an error later, far from here.
fn text(input: ParseStream<'_>) -> Option<LitStr> {
    match input.parse() {
        Ok(Lit::Str(text)) if text.suffix().is_empty() => Some(text),
        _ => None,
    }
}

/// The decimal digits of a whole number and its sign, if its suffix, if any, is that of its type.
fn whole(input: ParseStream<'_>, suffix: &str) -> Option<String> {
    match input.parse() {
        Ok(Lit::Int(number)) if ["", suffix].contains(&number.suffix()) => {
            Some(number.base10_digits().to_owned())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proc_macro2::Span;
    use syn::parse::Parser;

    use super::*;

    /// Reads `source` as the value of the key `it`.
    fn read<T>(source: &str, read: impl FnOnce(ParseStream<'_>) -> Read<T>) -> Result<T, String> {
        let key = Ident::new("it", Span::call_site());
        let value = |input: ParseStream<'_>| parse(&key, input, read);
        value.parse_str(source).map_err(|error| error.to_string())
    }

    #[test]
    fn names_are_bounded_in_bytes_and_must_be_visible() {
        let (longest, too_long) = ("é".repeat(127) + "x", "é".repeat(128));
        for good in ["mail", " Mail ", &longest] {
            assert_eq!(read(&format!("{good:?}"), name).map(|name| name.value()).unwrap(), good);
        }
        for (source, problem) in [
            ("\"\"", "is empty: give it at least one visible character"),
            ("\" \u{2003}\"", "is blank: give it at least one visible character"),
            (&format!("{too_long:?}"), "is 256 bytes long: shorten it to 255 or fewer"),
            (r#""a\0b""#, "has a control character at byte 1: remove it"),
            (r#""é\n""#, "has a control character at byte 2: remove it"),
            ("mail", "takes a name, written out in quotes"),
            ("b\"mail\"", "takes a name, written out in quotes"),
            ("\"mail\"s", "takes a name, written out in quotes"),
        ] {
            assert_eq!(read(source, name).err(), Some(format!("`it` {problem}")), "{source}");
        }
    }

    #[test]
    fn attempts_are_at_least_one_and_fit_every_store() {
        for (source, attempts) in [("1", 1), ("0x10", 16), ("5u32", 5), ("2_147_483_647", i32::MAX)]
        {
            assert_eq!(read(source, max_attempts), Ok(attempts.unsigned_abs()), "{source}");
        }
        for (source, problem) in [
            ("0", "is zero: a job runs at least once, so choose 1 to 2147483647"),
            ("-1", "is out of range: choose 1 to 2147483647"),
            ("2147483648", "is out of range: choose 1 to 2147483647"),
            ("99999999999999999999", "is out of range: choose 1 to 2147483647"),
            ("\"5\"", "takes a whole number, such as 5"),
            ("5.0", "takes a whole number, such as 5"),
            ("5k", "takes a whole number, such as 5"),
            ("MANY", "takes a whole number, such as 5"),
        ] {
            assert_eq!(read(source, max_attempts), Err(format!("`it` {problem}")), "{source}");
        }
    }

    #[test]
    fn priorities_may_be_negative_and_fit_sixteen_bits() {
        for (source, rank) in [("0", 0), ("-3", -3), ("-32768", i16::MIN), ("32767i16", i16::MAX)] {
            assert_eq!(read(source, priority), Ok(rank), "{source}");
        }
        for source in ["-32769", "32768", "99999999999999999999"] {
            let problem = "`it` is out of range: choose -32768 to 32767".to_owned();
            assert_eq!(read(source, priority), Err(problem), "{source}");
        }
        for source in ["high", "1.5", "- -3", "3u8"] {
            let problem = "`it` takes a whole number, such as 3 or -3".to_owned();
            assert_eq!(read(source, priority).map(drop), Err(problem), "{source}");
        }
    }

    #[test]
    fn timeouts_are_a_whole_number_and_a_unit() {
        for (time, nanos) in [
            ("1ms", 1_000_000),
            ("30s", 30_000_000_000),
            ("5m", 300_000_000_000),
            ("2h", 7_200_000_000_000),
            ("9223372036s", 9_223_372_036_000_000_000),
        ] {
            assert_eq!(read(&format!("{time:?}"), timeout), Ok(nanos), "{time}");
        }
        let not_a_time = "is not a time: write a whole number and its unit, which is ms, s, m or \
                          h, such as \"30s\"";
        let too_long = "is too long: leave it out for none, or choose 292 years or less";
        let zero = "is zero: leave it out for none, or choose 1ms or more";
        for (problem, times) in [
            (not_a_time, vec!["", "30", "s", "-1s", "1.5h", "30 s", " 30s", "1h30m", "30S", "1d"]),
            (too_long, vec!["9223372037s", "18446744073709551615h", "99999999999999999999ms"]),
            (zero, vec!["0s", "000ms"]),
        ] {
            for time in times {
                let found = read(&format!("{time:?}"), timeout);
                assert_eq!(found, Err(format!("`it` {problem}")), "{time}");
            }
        }
        let unquoted = "`it` takes a time in quotes, such as \"30s\"";
        assert_eq!(read("30s", timeout), Err(unquoted.to_owned()));
    }
}
