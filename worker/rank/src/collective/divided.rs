//! Tensors that replicas divide among each other: reduce-scatter of gradients, all-gather of parameters.
//!
//! Collectives need parts of equal length. A tensor that is alone in its bucket and whose length is a multiple of the number of
//! replicas is exchanged where it is. Other buckets are copied into a buffer that has the first part of every tensor, then the
//! second one of each, each part padded with zeros. See [`loadmaster_proto::training::sharding`].

use std::ops::Range;

use loadmaster_proto::training::gradient_buckets::{BUCKET_BYTES, buckets};
use loadmaster_proto::training::shard::Shard;
use loadmaster_proto::training::sharding::{part, part_length};
use tch::{TchError, Tensor};

use super::Group;
use crate::error::RankError;
use crate::tape;

/// A replica's part of a tensor, as a row of scalars in the same memory; none where it is empty.
///
/// # Errors
/// The tensor is not contiguous.
pub(crate) fn part_of(tensor: &Tensor, of: Shard) -> Result<Option<Tensor>, TchError> {
    let own = part(tensor.numel() as u64, of);
    let (start, length) = (own.start as i64, (own.end - own.start) as i64);
    if length == 0 {
        return Ok(None);
    }
    tensor.f_view([-1])?.f_narrow(0, start, length).map(Some)
}

/// The replicas that divide tensors among each other.
#[derive(Debug, Clone)]
pub(crate) struct Division {
    pub(crate) replicas: Group,
    /// Bytes of one scalar of a gradient: buckets are the same for gradients and for their parameters.
    pub(crate) gradient_bytes: u64,
}

impl Division {
    /// Gives each replica the sum over all replicas of its own part of every gradient. Other parts are undefined
    /// afterwards.
    ///
    /// # Errors
    /// Out of memory, or another replica is gone.
    pub(crate) fn reduce_scatter(&self, gradients: &[Tensor]) -> Result<(), RankError> {
        let Shard { index: own, degree } = self.replicas.own();
        self.by_bucket(gradients, |bucket| {
            bucket.fill(0..degree)?;
            self.replicas.reduce_scatter(&bucket.parts)?;
            bucket.take(own..own + 1)
        })
    }

    /// Fills in the parts of every tensor that other replicas have.
    ///
    /// # Errors
    /// Out of memory, or another replica is gone.
    pub(crate) fn all_gather(&self, tensors: &[Tensor]) -> Result<(), RankError> {
        let Shard { index: own, degree } = self.replicas.own();
        self.by_bucket(tensors, |bucket| {
            bucket.fill(own..own + 1)?;
            self.replicas.all_gather(&bucket.parts)?;
            bucket.take(0..own)?;
            bucket.take(own + 1..degree)
        })
    }

    fn by_bucket(
        &self,
        tensors: &[Tensor],
        exchange: impl Fn(&Divided<'_>) -> Result<(), RankError>,
    ) -> Result<(), RankError> {
        let _no_grad = tch::no_grad_guard();
        let degree = self.replicas.own().degree;
        let sizes: Vec<u64> =
            tensors.iter().map(|tensor| tensor.numel() as u64 * self.gradient_bytes).collect();
        for bucket in buckets(&sizes, BUCKET_BYTES) {
            exchange(&Divided::of(tensors.get(bucket.gradients).unwrap_or_default(), degree)?)?;
        }
        Ok(())
    }
}

/// The tensors of a bucket in parts of equal length.
struct Divided<'a> {
    tensors: &'a [Tensor],
    degree: u32,
    /// One for each replica.
    parts: Vec<Tensor>,
    /// True if the parts are the tensor's own memory.
    is_in_place: bool,
}

impl<'a> Divided<'a> {
    fn of(tensors: &'a [Tensor], degree: u32) -> Result<Self, RankError> {
        let length = |tensor: &Tensor| part_length(tensor.numel() as u64, degree) as i64;
        let each: i64 = tensors.iter().map(length).sum();
        let (row, is_in_place) = match tensors {
            [alone] if alone.numel() as i64 == each * i64::from(degree) => (alone.f_view([-1])?, true),
            [] => return Ok(Self { tensors, degree, parts: Vec::new(), is_in_place: true }),
            [first, ..] => {
                let _communication = tape::Communication::begin();
                let form = (first.f_kind()?, first.device());
                (Tensor::f_zeros([each * i64::from(degree)], form)?, false)
            }
        };
        let part = |index: u32| row.f_narrow(0, i64::from(index) * each, each);
        let parts = (0..degree).map(part).collect::<Result<_, TchError>>()?;
        Ok(Self { tensors, degree, parts, is_in_place })
    }

    /// Copies these replicas' parts of the tensors into the buffer.
    fn fill(&self, replicas: Range<u32>) -> Result<(), RankError> {
        self.each(replicas, |mut there, here| there.f_copy_(&here).map(drop))
    }

    /// Copies these replicas' parts from the buffer into the tensors.
    fn take(&self, replicas: Range<u32>) -> Result<(), RankError> {
        self.each(replicas, |there, mut here| here.f_copy_(&there).map(drop))
    }

    /// Acts on each replica's part of each tensor: in the buffer, and in the tensor.
    fn each(
        &self,
        replicas: Range<u32>,
        act: impl Fn(Tensor, Tensor) -> Result<(), TchError>,
    ) -> Result<(), RankError> {
        if self.is_in_place {
            return Ok(());
        }
        for (index, part) in (0..).zip(&self.parts).filter(|(index, _)| replicas.contains(index)) {
            let mut start = 0;
            for tensor in self.tensors {
                if let Some(here) = part_of(tensor, Shard { index, degree: self.degree })? {
                    act(part.f_narrow(0, start, here.numel() as i64)?, here)?;
                }
                start += part_length(tensor.numel() as u64, self.degree) as i64;
            }
        }
        Ok(())
    }
}
