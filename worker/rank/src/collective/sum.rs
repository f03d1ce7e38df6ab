//! Reductions of bytes of tensors in host memory.

use tch::Kind;

use super::Reduction;
use crate::error::RankError;

/// Reduces `other` into `values`, element by element; both are of this number format and equally long.
///
/// Each step rounds to the format, as NCCL does.
pub(super) fn reduce(
    kind: Kind,
    reduction: Reduction,
    values: &mut [u8],
    other: &[u8],
) -> Result<(), RankError> {
    match kind {
        Kind::Float => each(values, other, |a, b| {
            pick(reduction, f32::from_ne_bytes(a), f32::from_ne_bytes(b)).to_ne_bytes()
        }),
        Kind::Double => each(values, other, |a, b| match reduction {
            Reduction::Sum => (f64::from_ne_bytes(a) + f64::from_ne_bytes(b)).to_ne_bytes(),
            Reduction::Max => f64::from_ne_bytes(a).max(f64::from_ne_bytes(b)).to_ne_bytes(),
        }),
        Kind::BFloat16 => each(values, other, |a, b| {
            round(pick(reduction, widen(u16::from_ne_bytes(a)), widen(u16::from_ne_bytes(b)))).to_ne_bytes()
        }),
        other => return Err(RankError::Other(format!("tensors of {other:?} cannot be summed"))),
    }
    Ok(())
}

fn each<const WIDTH: usize>(
    values: &mut [u8],
    other: &[u8],
    reduce: impl Fn([u8; WIDTH], [u8; WIDTH]) -> [u8; WIDTH],
) {
    let (values, _) = values.as_chunks_mut::<WIDTH>();
    let (other, _) = other.as_chunks::<WIDTH>();
    for (value, other) in values.iter_mut().zip(other) {
        *value = reduce(*value, *other);
    }
}

fn pick(reduction: Reduction, a: f32, b: f32) -> f32 {
    match reduction {
        Reduction::Sum => a + b,
        Reduction::Max => a.max(b),
    }
}

/// A bfloat16 is the upper half of an f32.
fn widen(half: u16) -> f32 {
    f32::from_bits(u32::from(half) << 16)
}

/// The nearest bfloat16; the even one of two that are equally near.
fn round(value: f32) -> u16 {
    let bits = value.to_bits();
    if value.is_nan() {
        // What is cut off may be all that makes it one.
        return (bits >> 16) as u16 | 0x40;
    }
    let carry = 0x7fff + ((bits >> 16) & 1);
    (bits.wrapping_add(carry) >> 16) as u16
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tch::{Device, Tensor};

    use super::*;

    fn bytes(values: &[f32], kind: Kind) -> Vec<u8> {
        let tensor = Tensor::from_slice(values).to_kind(kind);
        let mut bytes = vec![0; values.len() * kind.elt_size_in_bytes()];
        tensor.f_copy_data_u8(&mut bytes, values.len()).unwrap();
        bytes
    }

    proptest! {
        /// The same bits as libtorch's own sum and maximum of two tensors, in every number format.
        #[test]
        fn reductions_are_libtorchs(pairs in proptest::collection::vec((-1e30_f32..1e30, -10_f32..10.0), 1..40)) {
            let (a, b): (Vec<f32>, Vec<f32>) = pairs.into_iter().unzip();
            for kind in [Kind::Float, Kind::BFloat16, Kind::Double] {
                let [x, y] = [&a, &b].map(|values| Tensor::from_slice(values).to_kind(kind));
                for (reduction, expected) in [(Reduction::Sum, &x + &y), (Reduction::Max, x.maximum(&y))] {
                    let mut reduced = bytes(&a, kind);
                    reduce(kind, reduction, &mut reduced, &bytes(&b, kind)).unwrap();
                    let reduced = Tensor::from_data_size(&reduced, &[a.len() as i64], kind);
                    prop_assert!(reduced.equal(&expected.to_device(Device::Cpu)), "{kind:?} {reduction:?}");
                }
            }
        }
    }

    #[test]
    fn rounding_keeps_what_is_no_number() {
        assert!(widen(round(f32::NAN)).is_nan());
        assert!(widen(round(f32::from_bits(0x7f80_0001))).is_nan());
        assert_eq!(widen(round(f32::INFINITY)), f32::INFINITY);
        assert_eq!(widen(round(f32::MAX)), f32::INFINITY);
    }

    #[test]
    fn formats_that_nobody_adds_up_are_refused() {
        assert!(reduce(Kind::Int64, Reduction::Sum, &mut [0; 8], &[0; 8]).is_err());
    }
}
