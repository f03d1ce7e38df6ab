//! Which models of a family a request asks for the largest of.

use crate::error::{Invalid, in_range};
use crate::message;
use crate::wire::v1;

/// Models of the zoo that differ in one parameter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrownModel {
    /// The parameter.
    pub parameter: String,
    /// Its least value.
    pub first: u64,
    /// Its largest value.
    pub last: u64,
}

impl GrownModel {
    /// The largest value of a parameter that grows.
    pub const MAX: u64 = 65_536;
}

message! { GrownModel <= v1::GrownModel { parameter, first: or(1), last } check growing }

fn growing(grown: GrownModel) -> Result<GrownModel, Invalid> {
    if grown.parameter.is_empty() {
        return Err(Invalid::field("parameter", "is required: name what grows, for example blocks"));
    }
    in_range("last", grown.last, 1..=GrownModel::MAX)?;
    in_range("first", grown.first, 1..=grown.last)?;
    Ok(grown)
}
