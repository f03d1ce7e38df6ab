//! Times between Postgres and this program: `timestamptz` is [`jiff::Timestamp`] at the store's edge.

use jiff::Timestamp;
use sqlx::encode::IsNull;
use sqlx::error::BoxDynError;
use sqlx::postgres::types::Oid;
use sqlx::postgres::{PgArgumentBuffer, PgTypeInfo, PgValueFormat, PgValueRef};
use sqlx::{Decode, Encode, Postgres, Type};

use super::columns::Stored;

/// Microseconds from 1970, where our times start, to 2000, where Postgres's do.
const POSTGRES_EPOCH: i64 = 946_684_800_000_000;
/// `timestamptz` has this number in every Postgres.
const TIMESTAMPTZ: Oid = Oid(1184);

/// A time in a query or a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Time(pub(super) Timestamp);

impl From<Time> for Timestamp {
    fn from(Time(time): Time) -> Self {
        time
    }
}

impl From<Stored<Option<Time>>> for Option<Timestamp> {
    fn from(Stored(time): Stored<Option<Time>>) -> Self {
        time.map(Timestamp::from)
    }
}

impl Type<Postgres> for Time {
    fn type_info() -> PgTypeInfo {
        PgTypeInfo::with_oid(TIMESTAMPTZ)
    }
}

impl Encode<'_, Postgres> for Time {
    fn encode_by_ref(&self, buffer: &mut PgArgumentBuffer) -> Result<IsNull, BoxDynError> {
        let microseconds = self.0.as_microsecond() - POSTGRES_EPOCH;
        buffer.extend_from_slice(&microseconds.to_be_bytes());
        Ok(IsNull::No)
    }
}

impl Decode<'_, Postgres> for Time {
    fn decode(value: PgValueRef<'_>) -> Result<Self, BoxDynError> {
        match value.format() {
            PgValueFormat::Binary => {
                let microseconds = i64::from_be_bytes(value.as_bytes()?.try_into()?);
                let since_1970 = microseconds.checked_add(POSTGRES_EPOCH).ok_or("time out of range")?;
                Ok(Self(Timestamp::from_microsecond(since_1970)?))
            }
            // Only statements without parameters answer in text.
            PgValueFormat::Text => Ok(Self(value.as_str()?.parse()?)),
        }
    }
}
