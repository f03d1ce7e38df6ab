//! In which unit peaks of different devices are compared.

use loadmaster_proto::bytes::Bytes;

/// How peaks are compared, and capped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Unit {
    #[default]
    Bytes,
    /// As the part of its device's capacity that a stage takes: what counts where devices differ.
    Share,
}

impl Unit {
    /// A whole device, in parts: shares are whole numbers of them, rounded up, so that they compare exactly. So many
    /// that a float holds their number, and that no byte of a device is less than one.
    pub const WHOLE: u64 = 1 << 50;

    /// What a peak comes to on a device of this capacity.
    pub fn of(self, bytes: u64, capacity: Bytes) -> u64 {
        match self {
            Self::Bytes => bytes,
            Self::Share if bytes == 0 => 0,
            Self::Share if capacity.0 == 0 => u64::MAX,
            Self::Share => {
                let parts = (u128::from(bytes) * u128::from(Self::WHOLE)).div_ceil(u128::from(capacity.0));
                u64::try_from(parts).unwrap_or(u64::MAX)
            }
        }
    }

    /// The most bytes that come to at most this on a device of this capacity.
    pub fn most_bytes(self, most: u64, capacity: Bytes) -> u64 {
        match self {
            Self::Bytes => most,
            Self::Share => {
                let bytes = u128::from(most) * u128::from(capacity.0) / u128::from(Self::WHOLE);
                u64::try_from(bytes).unwrap_or(u64::MAX)
            }
        }
    }
}
