//! The fields of messages as what they mean: conversions that all messages share.
//!
//! | a message has | it means |
//! |---|---|
//! | a signed count | an unsigned one; what is negative is refused, what is too large to send is cut |
//! | 0, or an empty text, without presence | none, where the field of the domain is an [`Option`] |
//! | a number of an enum, or a word | a [`choice`](mod@crate::choice) |
//! | a duration | its seconds, or the duration itself where it is 0 or more |
//! | a list | each entry, refused by its place: `[3]` |

use std::time::Duration;

use crate::bytes::Bytes;
use crate::choice::{TextChoice, WireChoice};
use crate::error::Invalid;
use crate::name::CommandName;

/// What the field of a message, or a message, means.
pub trait FromWire<W>: Sized {
    /// Checked.
    ///
    /// # Errors
    /// What is wrong with it; paths begin below the field.
    fn from_wire(wire: W) -> Result<Self, Invalid>;
}

/// What is sent as the field of a message, or as a message.
pub trait ToWire<W> {
    /// As it is sent.
    fn to_wire(&self) -> W;
}

/// The field `name` of a message.
///
/// # Errors
/// What is wrong with it; paths begin with its name.
pub fn field<T: FromWire<W>, W>(name: &str, wire: W) -> Result<T, Invalid> {
    T::from_wire(wire).map_err(|invalid| invalid.of_field(name))
}

/// What is sent as it is; texts and numbers without presence may say nothing.
macro_rules! same {
    ($($type:ty),+) => {$(
        impl FromWire<$type> for $type {
            fn from_wire(wire: $type) -> Result<Self, Invalid> {
                Ok(wire)
            }
        }

        impl ToWire<$type> for $type {
            fn to_wire(&self) -> $type {
                self.clone()
            }
        }

        impl FromWire<$type> for Option<$type> {
            fn from_wire(wire: $type) -> Result<Self, Invalid> {
                Ok(Some(wire).filter(|wire| *wire != <$type>::default()))
            }
        }

        impl ToWire<$type> for Option<$type> {
            fn to_wire(&self) -> $type {
                self.clone().unwrap_or_default()
            }
        }
    )+};
}

same!(bool, String, f64, i64, u32);

/// Counts that are sent in another type.
macro_rules! counts {
    ($($type:ty as $wire:ty),+ $(,)?) => {$(
        impl FromWire<$wire> for $type {
            fn from_wire(wire: $wire) -> Result<Self, Invalid> {
                wire.try_into().map_err(|_| invalid!("", "{wire} is out of range"))
            }
        }

        impl ToWire<$wire> for $type {
            fn to_wire(&self) -> $wire {
                (*self).try_into().unwrap_or(<$wire>::MAX)
            }
        }

        impl FromWire<$wire> for Option<$type> {
            fn from_wire(wire: $wire) -> Result<Self, Invalid> {
                if wire == 0 { Ok(None) } else { <$type>::from_wire(wire).map(Some) }
            }
        }

        impl ToWire<$wire> for Option<$type> {
            fn to_wire(&self) -> $wire {
                self.as_ref().map_or(0, ToWire::to_wire)
            }
        }
    )+};
}

counts!(u32 as i32, usize as i32, u64 as i64, u32 as i64, u64 as i32, usize as i64);

/// Sizes of models are signed, and sent as fewer bits.
impl FromWire<i32> for i64 {
    fn from_wire(wire: i32) -> Result<Self, Invalid> {
        Ok(wire.into())
    }
}

impl ToWire<i32> for i64 {
    fn to_wire(&self) -> i32 {
        (*self).try_into().unwrap_or(i32::MAX)
    }
}

impl FromWire<i32> for Option<i64> {
    fn from_wire(wire: i32) -> Result<Self, Invalid> {
        Ok(Some(wire.into()).filter(|&wire| wire != 0))
    }
}

impl ToWire<i32> for Option<i64> {
    fn to_wire(&self) -> i32 {
        self.as_ref().map_or(0, ToWire::to_wire)
    }
}

impl FromWire<i64> for Bytes {
    fn from_wire(wire: i64) -> Result<Self, Invalid> {
        FromWire::from_wire(wire).map(Self)
    }
}

impl ToWire<i64> for Bytes {
    fn to_wire(&self) -> i64 {
        self.0.to_wire()
    }
}

impl FromWire<i64> for Option<Bytes> {
    fn from_wire(wire: i64) -> Result<Self, Invalid> {
        let bytes: Option<u64> = FromWire::from_wire(wire)?;
        Ok(bytes.map(Bytes))
    }
}

impl ToWire<i64> for Option<Bytes> {
    fn to_wire(&self) -> i64 {
        self.map_or(0, |bytes| bytes.0.to_wire())
    }
}

/// A duration of 0 or more.
impl FromWire<prost_types::Duration> for Duration {
    fn from_wire(wire: prost_types::Duration) -> Result<Self, Invalid> {
        // The conversion of the type itself overflows at the most negative seconds.
        match (u64::try_from(wire.seconds), u32::try_from(wire.nanos)) {
            (Ok(seconds), Ok(nanos @ 0..1_000_000_000)) => Ok(Self::new(seconds, nanos)),
            _ => Err(Invalid::field("", "is negative or not a valid duration. Use 0 seconds or more")),
        }
    }
}

/// Seconds of a duration.
impl FromWire<prost_types::Duration> for f64 {
    fn from_wire(wire: prost_types::Duration) -> Result<Self, Invalid> {
        let prost_types::Duration { seconds, nanos } = wire;
        let is_of_one_sign = seconds == 0 || nanos == 0 || (seconds < 0) == (nanos < 0);
        if nanos.unsigned_abs() >= 1_000_000_000 || !is_of_one_sign {
            return Err(invalid!("", "{seconds} seconds and {nanos} nanoseconds are not a valid duration"));
        }
        Ok(seconds as Self + Self::from(nanos) / 1e9)
    }
}

impl ToWire<prost_types::Duration> for f64 {
    fn to_wire(&self) -> prost_types::Duration {
        let duration = std::time::Duration::try_from_secs_f64(*self).unwrap_or_default();
        duration.try_into().unwrap_or(prost_types::Duration { seconds: i64::MAX, nanos: 0 })
    }
}

impl FromWire<String> for Option<CommandName> {
    fn from_wire(wire: String) -> Result<Self, Invalid> {
        if wire.is_empty() { Ok(None) } else { CommandName::parse("", wire).map(Some) }
    }
}

impl ToWire<String> for Option<CommandName> {
    fn to_wire(&self) -> String {
        self.as_ref().map(ToString::to_string).unwrap_or_default()
    }
}

impl<T: WireChoice> FromWire<i32> for T {
    fn from_wire(wire: i32) -> Result<Self, Invalid> {
        T::of_number(wire)?.ok_or_else(|| T::refused(wire))
    }
}

impl<T: WireChoice> ToWire<i32> for T {
    fn to_wire(&self) -> i32 {
        self.number()
    }
}

impl<T: WireChoice> FromWire<i32> for Option<T> {
    fn from_wire(wire: i32) -> Result<Self, Invalid> {
        T::of_number(wire)
    }
}

impl<T: WireChoice> ToWire<i32> for Option<T> {
    fn to_wire(&self) -> i32 {
        self.map_or(0, T::number)
    }
}

impl<T: TextChoice> FromWire<String> for Option<T> {
    fn from_wire(wire: String) -> Result<Self, Invalid> {
        if wire.is_empty() {
            return Ok(None);
        }
        T::parse(&wire).map(Some).map_err(|why| Invalid::field("", why.to_string()))
    }
}

impl<T: TextChoice> ToWire<String> for Option<T> {
    fn to_wire(&self) -> String {
        self.map_or_else(String::new, |choice| choice.word().to_owned())
    }
}

impl<T: FromWire<W>, W> FromWire<Option<W>> for Option<T> {
    fn from_wire(wire: Option<W>) -> Result<Self, Invalid> {
        wire.map(T::from_wire).transpose()
    }
}

impl<T: ToWire<W>, W> ToWire<Option<W>> for Option<T> {
    fn to_wire(&self) -> Option<W> {
        self.as_ref().map(T::to_wire)
    }
}

impl<T: FromWire<W>, W> FromWire<Vec<W>> for Vec<T> {
    fn from_wire(wire: Vec<W>) -> Result<Self, Invalid> {
        let entries = wire.into_iter().enumerate();
        entries.map(|(index, entry)| T::from_wire(entry).map_err(|invalid| invalid.of_entry(index))).collect()
    }
}

impl<T: ToWire<W>, W> ToWire<Vec<W>> for Vec<T> {
    fn to_wire(&self) -> Vec<W> {
        self.iter().map(T::to_wire).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accounting::Accounting;
    use crate::training::stage::{Partitioning, StageConfig};
    use crate::training::{RecomputePolicy, Schedule};
    use crate::wire::v1;

    fn path<T: FromWire<W> + std::fmt::Debug, W>(wire: W) -> String {
        field::<T, W>("field", wire).unwrap_err().to_string()
    }

    /// An entry of a list follows its name in brackets, and what is inside of it follows a dot.
    #[test]
    fn what_is_wrong_is_named_by_its_path() {
        assert_eq!(path::<u32, _>(-1), "field: -1 is out of range");
        assert_eq!(path::<Vec<u32>, _>(vec![1, -5]), "field[1]: -5 is out of range");
        let stage = |first_layer| v1::StageConfig { first_layer, ..(&StageConfig::single(0, 3)).into() };
        let wrong = v1::PipelineLayout { stages: vec![stage(0), stage(-2)] };
        assert_eq!(path::<Partitioning, _>(wrong), "field.stages[1].first_layer: -2 is out of range");
    }

    /// Zero says nothing: none where that is possible, else refused.
    #[test]
    fn nothing_is_none_or_refused() {
        assert_eq!(field::<Option<u32>, _>("field", 0), Ok(None));
        assert_eq!(field::<Option<String>, _>("field", String::new()), Ok(None));
        assert_eq!(field::<Option<Schedule>, _>("field", 0), Ok(None));
        assert_eq!(
            path::<Vec<Schedule>, _>(vec![1, 0]),
            "field[1]: 0 is not a known value. If the client is newer than the planner, update the planner"
        );
        assert_eq!(
            path::<RecomputePolicy, _>(9),
            "field: 9 is not a known value. If the client is newer than the planner, update the planner"
        );
        assert_eq!(
            path::<Accounting, _>(0),
            "field: is not a memory accounting. Use allocated, reserved, device or host"
        );
        assert_eq!(
            path::<Option<Accounting>, _>(9),
            "field: is not a memory accounting. Use allocated, reserved, device or host"
        );
    }

    /// What is too large to send is cut, as it always was; it never wraps around.
    #[test]
    fn what_is_too_large_is_cut() {
        let counts: (i32, i64) = (u64::MAX.to_wire(), Bytes(u64::MAX).0.to_wire());
        assert_eq!(counts, (i32::MAX, i64::MAX));
    }

    #[test]
    fn a_negative_duration_is_rejected() {
        let read = |seconds, nanos| Duration::from_wire(prost_types::Duration { seconds, nanos });
        assert_eq!(read(0, 0), Ok(Duration::ZERO));
        assert_eq!(read(2, 500_000_000), Ok(Duration::from_millis(2_500)));
        assert_eq!(read(i64::MAX, 0), Ok(Duration::from_secs(i64::MAX.unsigned_abs())));
        for (seconds, nanos) in [(-1, 0), (0, -1), (i64::MIN, i32::MIN), (0, 1_000_000_000)] {
            assert!(read(seconds, nanos).is_err(), "{seconds} {nanos}");
        }
    }
}
