//! Whether bytes stay within a capacity.

use super::prediction::Interval;
use crate::bytes::Bytes;
use crate::wire::v1;

/// Whether predicted bytes stay within a capacity; later ones are worse.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// Nobody asked: no capacity was given.
    NotAsked,
    /// With the margin.
    Fits,
    /// Uncertain: the predicted bytes do, the upper end of their interval does not.
    FitsWithoutMargin,
    /// Uncertain: the predicted bytes do, and they have no interval.
    Uncertain,
    /// Not even the predicted bytes do.
    DoesNotFit,
}

impl Verdict {
    /// That of predicted bytes, which are expected within an interval, on a device that allows so many; none where nobody
    /// said.
    ///
    /// ```
    /// use loadmaster_proto::bytes::Bytes;
    /// use loadmaster_proto::plan::prediction::Interval;
    /// use loadmaster_proto::plan::verdict::Verdict;
    ///
    /// let bytes = Bytes(100);
    /// let interval = Some(Interval::around(bytes, 0.1));
    /// assert_eq!(Verdict::of(bytes, interval, Some(Bytes(110))), Verdict::Fits);
    /// assert_eq!(Verdict::of(bytes, interval, Some(Bytes(109))), Verdict::FitsWithoutMargin);
    /// assert_eq!(Verdict::of(bytes, None, Some(Bytes(100))), Verdict::Uncertain);
    /// assert_eq!(Verdict::of(bytes, interval, Some(Bytes(99))), Verdict::DoesNotFit);
    /// assert_eq!(Verdict::of(bytes, interval, None), Verdict::NotAsked);
    /// ```
    pub fn of(bytes: Bytes, interval: Option<Interval>, capacity: Option<Bytes>) -> Self {
        let Some(capacity) = capacity else { return Self::NotAsked };
        if bytes > capacity {
            return Self::DoesNotFit;
        }
        match interval {
            Some(interval) if interval.high <= capacity => Self::Fits,
            Some(_) => Self::FitsWithoutMargin,
            None => Self::Uncertain,
        }
    }
}

impl From<Verdict> for v1::Verdict {
    fn from(verdict: Verdict) -> Self {
        match verdict {
            Verdict::NotAsked => Self::Unspecified,
            Verdict::Fits => Self::Fits,
            Verdict::FitsWithoutMargin => Self::FitsWithoutMargin,
            Verdict::Uncertain => Self::Uncertain,
            Verdict::DoesNotFit => Self::DoesNotFit,
        }
    }
}
