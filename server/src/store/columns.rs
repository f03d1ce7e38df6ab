//! Columns as Postgres has them, and what records make of them: a record names a column's type with
//! `#[sqlx(try_from = "Stored<String>")]`, and what stands here does the rest.

use std::fmt::Display;

use loadmaster_proto::error::Invalid;
use loadmaster_proto::name::{
    ClusterName, CommandName, ModelName, OperationName, PlanName, ProfileName, RunName, WorkerName,
};
use sqlx::error::BoxDynError;
use sqlx::postgres::{PgTypeInfo, PgValueRef};
use sqlx::{Decode, Postgres, Type};

use super::error::{Result, StoreError};

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
        .map_err(|_| StoreError::corrupt(format!("a stored number is {value}, which it cannot be")))
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
