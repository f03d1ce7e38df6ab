//! Numbers that JSON leaves out where they are one, or zero, which is what documents mean that were written before there were any.

pub(crate) fn one() -> f64 {
    1.0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
pub(crate) fn is_one(ratio: &f64) -> bool {
    *ratio == one()
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
pub(crate) fn is_zero(number: &f64) -> bool {
    *number == 0.0
}
