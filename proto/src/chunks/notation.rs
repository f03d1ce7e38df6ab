//! Chunk sizes as people write them.

use std::fmt;
use std::str::FromStr;

use super::MEBI;
use crate::bytes::Bytes;

/// A chunk size in either unit.
///
/// ```
/// use loadmaster_proto::bytes::Bytes;
/// use loadmaster_proto::chunks::ChunkSize;
///
/// assert_eq!("480M".parse(), Ok(ChunkSize::Elements(480 << 20)));
/// assert_eq!("503316480".parse(), Ok(ChunkSize::Elements(480 << 20)));
/// assert_eq!("960MiB".parse(), Ok(ChunkSize::Bytes(Bytes(960 << 20))));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChunkSize {
    /// Elements, of every list.
    Elements(u64),
    /// Bytes of a chunk of parameters.
    Bytes(Bytes),
}

/// A text that is no chunk size.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no chunk size: write elements, for example 480M (M is 2^20, as the paper counts) or 503316480, or the \
     bytes of a chunk of parameters with their unit, for example 960MiB"
)]
pub struct ParseChunkSizeError(String);

impl FromStr for ChunkSize {
    type Err = ParseChunkSizeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = || ParseChunkSizeError(text.to_owned());
        let trimmed = text.trim();
        let (number, unit) = trimmed.strip_suffix('M').map_or((trimmed, 1), |number| (number, MEBI));
        if let Ok(number) = number.parse::<u64>() {
            return number.checked_mul(unit).map(Self::Elements).ok_or_else(error);
        }
        // Without the B of bytes it might be either.
        match trimmed.ends_with(['B', 'b']) {
            true => trimmed.parse().map(Self::Bytes).map_err(|_| error()),
            false => Err(error()),
        }
    }
}

/// Elements in the paper's unit, with as many digits as it takes to tell sizes apart: `192.0508M`.
pub fn mebi(elements: u64) -> impl fmt::Display {
    fmt::from_fn(move |f| {
        if elements < MEBI {
            write!(f, "{elements}")
        } else if elements.is_multiple_of(MEBI) {
            write!(f, "{}M", elements / MEBI)
        } else {
            write!(f, "{:.4}M", elements as f64 / MEBI as f64)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_says_its_unit() {
        for wrong in ["", "M", "-1M", "480m", "1.5M", "480G", "480K", "99999999999999M", "B", "1 parsec"] {
            assert!(wrong.parse::<ChunkSize>().is_err(), "{wrong:?}");
        }
        assert_eq!("480".parse(), Ok(ChunkSize::Elements(480)));
        assert_eq!(" 1.5GiB ".parse(), Ok(ChunkSize::Bytes(Bytes(3 << 29))));
    }

    #[test]
    fn sizes_are_told_apart() {
        assert_eq!(mebi(480 << 20).to_string(), "480M");
        assert_eq!(mebi(201_379_840).to_string(), "192.0508M");
        assert_eq!(mebi(31).to_string(), "31");
    }
}
