//! Whether transfers overlap computing; a wire value of 0 is none.

use crate::error::Invalid;
use crate::training::overlap::Overlap;
use crate::wire::v1;

impl From<Overlap> for v1::Transfers {
    fn from(overlap: Overlap) -> Self {
        match overlap {
            Overlap::Computing => Self::Overlapping,
            Overlap::Nothing => Self::Blocking,
        }
    }
}

/// Whether a device computes while it exchanges with its neighbours.
///
/// # Errors
/// The number is unknown.
pub fn overlap_from_wire(field: &str, wire: i32) -> Result<Option<Overlap>, Invalid> {
    match v1::Transfers::try_from(wire) {
        Ok(v1::Transfers::Unspecified) => Ok(None),
        Ok(v1::Transfers::Overlapping) => Ok(Some(Overlap::Computing)),
        Ok(v1::Transfers::Blocking) => Ok(Some(Overlap::Nothing)),
        Err(_) => Err(Invalid::field(field, format!("{wire} is unknown"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is asked for comes back as it was told; what is not said is nothing, and what is unknown is refused.
    #[test]
    fn both_ways_survive_the_wire() {
        for overlap in [Overlap::Computing, Overlap::Nothing] {
            let wire = v1::Transfers::from(overlap).into();
            assert_eq!(overlap_from_wire("transfers", wire), Ok(Some(overlap)));
        }
        assert_eq!(overlap_from_wire("transfers", 0), Ok(None));
        assert!(overlap_from_wire("transfers", 3).unwrap_err().to_string().contains("transfers"));
    }
}
