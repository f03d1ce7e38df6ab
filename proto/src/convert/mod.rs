//! Messages to checked domain types (`TryFrom`, errors carry the field's path) and back (`From`).

mod constraints;
mod device;
mod environment;
mod objective;
mod observation;
mod overlap;
mod prediction;
mod stage;

use crate::error::Invalid;

pub use crate::cluster::wire::{cluster_format_from_wire, cluster_kind_to_wire, cluster_tier_to_wire};
pub use crate::measure::wire::{
    command_from_wire, failure_from_wire, ledger_from_wire, run_spec_from_wire, task_from_wire,
};
pub use crate::training::wire::recompute_from_wire;
pub use objective::{
    launcher_from_wire, memory_unit_from_wire, objective_from_wire, search_mode_from_wire, shape_from_wire,
    spanning_from_wire,
};
pub use overlap::overlap_from_wire;

/// A wire count as an unsigned number.
///
/// # Errors
/// When it is negative.
pub fn unsigned<T: TryFrom<i64>>(field: &str, value: impl Into<i64>) -> Result<T, Invalid> {
    let value = value.into();
    T::try_from(value).map_err(|_| Invalid::field(field, format!("is {value}, is out of range")))
}

/// `value`, or `default` where the wire has 0 for "not set".
pub(crate) fn or_default<T: Default + PartialEq>(value: T, default: T) -> T {
    if value == T::default() { default } else { value }
}

/// A number for the wire; those past its range are cut.
pub(crate) fn to_i32(value: impl TryInto<i32>) -> i32 {
    value.try_into().unwrap_or(i32::MAX)
}

/// A number for the wire; those past its range are cut.
pub(crate) fn to_i64(value: impl TryInto<i64>) -> i64 {
    value.try_into().unwrap_or(i64::MAX)
}
