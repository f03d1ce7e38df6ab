//! Seconds and counts human-readable: `40.0 ms`, `1.50 s`, `1 device`, `1,024 devices`.

use std::fmt;

/// Seconds that print with three significant digits or so.
///
/// ```
/// use loadmaster_proto::amounts::Seconds;
///
/// assert_eq!(Seconds(0.04).to_string(), "40.0 ms");
/// assert_eq!(Seconds(1.5).to_string(), "1.50 s");
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Seconds(pub f64);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.0;
        if !value.is_finite() {
            write!(f, "?")
        } else if value == 0.0 {
            write!(f, "0 s")
        } else if value.abs() < 0.001 {
            write!(f, "{:.1} us", value * 1e6)
        } else if value.abs() < 1.0 {
            write!(f, "{:.1} ms", value * 1e3)
        } else if value.abs() < 100.0 {
            write!(f, "{value:.2} s")
        } else {
            write!(f, "{value:.0} s")
        }
    }
}

/// A large number with its digits in groups of three.
pub fn count(value: i64) -> String {
    let digits = value.unsigned_abs().to_string();
    let mut grouped = String::with_capacity(digits.len() + digits.len() / 3 + 1);
    if value < 0 {
        grouped.push('-');
    }
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// `1 run`, `2 runs`, `1,024 devices`: of nouns that take an s.
pub fn plural(number: impl TryInto<i64>, one: &str) -> String {
    let number = number.try_into().unwrap_or(i64::MAX);
    format!("{} {one}{}", count(number), if number == 1 { "" } else { "s" })
}

// Numbers that JSON leaves out where they are one, or zero, which is what documents mean that do not state them.

pub(crate) fn one() -> f64 {
    1.0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
pub(crate) fn is_one(ratio: &f64) -> bool {
    *ratio == one()
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
pub(crate) fn is_zero(number: &f64) -> bool {
    *number == 0.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_have_digits_that_mean_something() {
        let told = [0.0, 2.5e-5, 0.0123, 1.0, 123.4, f64::NAN].map(|value| Seconds(value).to_string());
        assert_eq!(told, ["0 s", "25.0 us", "12.3 ms", "1.00 s", "123 s", "?"]);
    }

    #[test]
    fn digits_are_grouped() {
        assert_eq!(count(132_863_336), "132,863,336");
        assert_eq!(count(-1000), "-1,000");
    }

    #[test]
    fn one_thing_is_not_several() {
        assert_eq!(plural(1, "stage"), "1 stage");
        assert_eq!(
            (plural(0_usize, "stage"), plural(1_024_i32, "device")),
            ("0 stages".to_owned(), "1,024 devices".to_owned())
        );
    }
}
