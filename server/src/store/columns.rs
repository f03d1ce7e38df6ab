//! Columns as Postgres has them, and what records make of them: a record names a column's type with
//! `#[sqlx(try_from = "Stored<String>")]`, and the conversions here do the rest.
//!
//! * Times: `timestamptz` is [`jiff::Timestamp`] at the store's edge.
//! * JSON and text: Postgres stores any character but NUL. Large contents are read and written beside the calls.

use std::fmt::Display;

use jiff::Timestamp;
use loadmaster_proto::error::Invalid;
use loadmaster_proto::name::{
    ClusterName, CommandName, ModelName, OperationName, PlanName, ProfileName, RunName, WorkerName,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use sqlx::encode::IsNull;
use sqlx::error::BoxDynError;
use sqlx::postgres::types::Oid;
use sqlx::postgres::{PgArgumentBuffer, PgTypeInfo, PgValueFormat, PgValueRef};
use sqlx::{Decode, Encode, Postgres, Type};

use super::error::{Result, StoreError};
use crate::background::BackgroundThreads;

/// A column that was not checked yet. A type of our own, so that names, which belong to another crate, can be made of
/// it.
#[derive(Debug)]
pub(super) struct Stored<T>(pub(super) T);

impl<T: Type<Postgres>> Type<Postgres> for Stored<T> {
    fn type_info() -> PgTypeInfo {
        T::type_info()
    }

    fn compatible(of: &PgTypeInfo) -> bool {
        T::compatible(of)
    }
}

impl<'r, T: Decode<'r, Postgres>> Decode<'r, Postgres> for Stored<T> {
    fn decode(value: PgValueRef<'r>) -> Result<Self, BoxDynError> {
        T::decode(value).map(Self)
    }
}

/// A stored name; anything else than a valid one means that the row is damaged.
pub(super) fn name<N>(name: Result<N, Invalid>) -> Result<N> {
    name.map_err(|invalid| StoreError::corrupt(format!("a stored name is not valid: {invalid}")))
}

/// A stored count or size.
pub(super) fn unsigned<S: Copy + Display, U: TryFrom<S>>(value: S) -> Result<U> {
    U::try_from(value)
        .map_err(|_| StoreError::corrupt(format!("a stored number is {value}, which is out of range")))
}

/// Names are stored by their last part: one, one or none, or many of them.
macro_rules! names {
    ($($name:ident: $read:expr;)+) => {$(
        impl TryFrom<Stored<String>> for $name {
            type Error = StoreError;

            fn try_from(Stored(id): Stored<String>) -> Result<Self> {
                name(($read)(id))
            }
        }

        impl TryFrom<Stored<Option<String>>> for Option<$name> {
            type Error = StoreError;

            fn try_from(Stored(id): Stored<Option<String>>) -> Result<Self> {
                id.map(|id| $name::try_from(Stored(id))).transpose()
            }
        }

        impl TryFrom<Stored<Vec<String>>> for Vec<$name> {
            type Error = StoreError;

            fn try_from(Stored(ids): Stored<Vec<String>>) -> Result<Self> {
                ids.into_iter().map(|id| $name::try_from(Stored(id))).collect()
            }
        }
    )+};
}

names! {
    ClusterName: ClusterName::from_id;
    CommandName: |id: String| CommandName::parse("command", id);
    ModelName: ModelName::from_id;
    OperationName: OperationName::from_id;
    PlanName: PlanName::from_id;
    ProfileName: ProfileName::from_id;
    RunName: RunName::from_id;
    WorkerName: WorkerName::from_id;
}

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

/// What stands in for a NUL.
const REPLACEMENT: &str = "\u{fffd}";

/// `text` without NULs and with at most `limit` bytes. For what workers send: the last words of a
/// crashed rank may be anything, and must not make its report impossible to store.
pub(super) fn clean(text: &str, limit: usize) -> String {
    let end = text.floor_char_boundary(limit);
    let text = text.get(..end).unwrap_or_default();
    text.replace('\0', REPLACEMENT)
}

/// The document for a value, without NULs.
pub(super) fn document(value: &impl Serialize) -> Result<Value> {
    let mut document =
        serde_json::to_value(value).map_err(|error| StoreError::Internal(error.to_string()))?;
    clean_document(&mut document);
    Ok(document)
}

fn clean_document(value: &mut Value) {
    match value {
        Value::String(text) if text.contains('\0') => *text = text.replace('\0', REPLACEMENT),
        Value::Array(items) => items.iter_mut().for_each(clean_document),
        Value::Object(fields) => fields.values_mut().for_each(clean_document),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// What is stored under a name.
pub(super) fn read<T: DeserializeOwned>(name: &impl Display, text: &str) -> Result<T> {
    serde_json::from_str(text).map_err(|error| StoreError::corrupt(format!("{name} cannot be read: {error}")))
}

/// Reads or writes a large content beside the calls: heartbeats must not wait for it.
///
/// # Errors
/// Those of the work.
pub(super) async fn beside<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    match BackgroundThreads::shared().spawn(work).await {
        Ok(done) => done,
        Err(error) => Err(StoreError::Internal(format!("stored content cannot be coded: {error}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_between_characters() {
        assert_eq!(clean("aä\0b", 2), "a");
        assert_eq!(clean("aä\0b", 100), "aä\u{fffd}b");
    }

    #[test]
    fn documents_hold_no_nul() {
        let value = document(&vec![Some("x\0"), None]).unwrap();
        assert_eq!(value.to_string(), "[\"x\u{fffd}\",null]");
    }
}
