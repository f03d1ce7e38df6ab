//! Byte counts human-readable: `2GiB`, `512MiB`, `1.21 GiB`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

const UNITS: [(&str, u64); 5] =
    [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];

/// A number of bytes that prints with a binary unit.
///
/// ```
/// use loadmaster_proto::bytes::Bytes;
///
/// let bytes: Bytes = "1.5GiB".parse()?;
/// assert_eq!(bytes, Bytes(3 << 29));
/// assert_eq!(bytes.to_string(), "1.50 GiB");
/// # Ok::<(), loadmaster_proto::bytes::ParseBytesError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Bytes(pub u64);

impl Bytes {
    /// From a wire value; negative counts become 0.
    pub fn from_wire(bytes: i64) -> Self {
        Self(u64::try_from(bytes).unwrap_or(0))
    }

    /// To a wire value; counts past 8 EiB are cut.
    pub fn to_wire(self) -> i64 {
        i64::try_from(self.0).unwrap_or(i64::MAX)
    }

    /// As an option takes them, without rounding: in the largest unit that divides them.
    pub fn exact(self) -> String {
        let units = [("GiB", 30), ("MiB", 20), ("KiB", 10)];
        let whole = units.iter().find(|(_, shift)| self.0 > 0 && self.0.is_multiple_of(1_u64 << shift));
        whole.map_or_else(|| format!("{}B", self.0), |(unit, shift)| format!("{}{unit}", self.0 >> shift))
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, size) = UNITS.into_iter().find(|&(_, size)| self.0 >= size).unwrap_or(("B", 1));
        let text = if size == 1 {
            format!("{} B", self.0)
        } else {
            format!("{:.2} {unit}", self.0 as f64 / size as f64)
        };
        f.pad(&text)
    }
}

/// A text that is not a number of bytes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a byte count. Use a number with a unit, for example {example}")]
pub struct ParseBytesError {
    text: String,
    example: String,
}

impl FromStr for Bytes {
    type Err = ParseBytesError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let trimmed = text.trim();
        let is_number = trimmed.parse::<u64>().is_ok();
        let error = || ParseBytesError {
            text: text.to_owned(),
            example: if is_number { format!("{trimmed}GiB") } else { "2GiB, 512MiB or 4096B".to_owned() },
        };
        let digits = trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(trimmed.len());
        let (number, unit) = trimmed.split_at(digits);
        let size = match unit.trim().to_ascii_lowercase().as_str() {
            "" if number.parse() == Ok(0_u64) => 1,
            "b" => 1,
            "k" | "kib" => 1 << 10,
            "m" | "mib" => 1 << 20,
            "g" | "gib" => 1 << 30,
            "t" | "tib" => 1_u64 << 40,
            "kb" => 1_000,
            "mb" => 1_000_000,
            "gb" => 1_000_000_000,
            "tb" => 1_000_000_000_000,
            _ => return Err(error()),
        };
        if let Ok(whole) = number.parse::<u64>() {
            return whole.checked_mul(size).map(Self).ok_or_else(error);
        }
        let bytes = number.parse::<f64>().map_err(|_| error())? * size as f64;
        if bytes.is_finite() && bytes >= 0.0 && bytes < u64::MAX as f64 {
            Ok(Self(bytes.round() as u64))
        } else {
            Err(error())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_binary_unless_written_decimal() {
        assert_eq!("2GiB".parse(), Ok(Bytes(2 << 30)));
        assert_eq!("2g".parse(), Ok(Bytes(2 << 30)));
        assert_eq!("1.5 MiB".parse(), Ok(Bytes(3 << 19)));
        assert_eq!("3MB".parse(), Ok(Bytes(3_000_000)));
        assert_eq!("17B".parse(), Ok(Bytes(17)));
        assert_eq!("0".parse(), Ok(Bytes(0)));
    }

    #[test]
    fn nonsense_is_refused() {
        for text in ["", "GiB", "-1", "1..2MiB", "5 parsecs", "99999999999TiB", "80", "1.5"] {
            assert!(text.parse::<Bytes>().is_err(), "{text:?}");
        }
        assert!("80".parse::<Bytes>().unwrap_err().to_string().ends_with("for example 80GiB"));
    }

    /// Nothing is rounded, so that a user who types the text requests the same number of bytes.
    #[test]
    fn what_is_written_exactly_is_read_as_it_was() {
        for (bytes, text) in
            [(0, "0B"), (1_000, "1000B"), (3 << 10, "3KiB"), (5 << 19, "2560KiB"), (2 << 30, "2GiB")]
        {
            assert_eq!(Bytes(bytes).exact(), text);
            assert_eq!(text.parse(), Ok(Bytes(bytes)));
        }
    }

    #[test]
    fn prints_the_largest_fitting_unit() {
        assert_eq!(Bytes(1023).to_string(), "1023 B");
        assert_eq!(Bytes(1536).to_string(), "1.50 KiB");
        assert_eq!(Bytes(3 << 30).to_string(), "3.00 GiB");
    }
}
