//! What the segments of a stage work with in a pass.

use std::ops::RangeInclusive;

use loadmaster_proto::model::Loss;
use tch::{Kind, Reduction, Tensor};

use crate::collective::vocabulary;
use crate::data::Data;
use crate::error::RankError;
use crate::layers::{Layer, Split};
use crate::timing::Times;

/// One micro-batch of one iteration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct MicroBatch {
    /// Iteration, from 0.
    pub iteration: u32,
    /// Index within the iteration.
    pub index: u32,
    /// What the stage's steps call it: its index, but under PipeDream, where they begin again with every micro-batch that is
    /// in flight.
    pub in_steps: u32,
}

/// What segments work with.
pub(super) struct Passes<'a> {
    pub(super) layers: &'a [Layer],
    pub(super) data: &'a Data,
    pub(super) times: &'a mut Times,
    pub(super) seed: u64,
    pub(super) loss_edge: usize,
    pub(super) loss_parts: f64,
    pub(super) replica: u32,
}

impl<'a> Passes<'a> {
    /// The layers of a segment.
    pub(super) fn layers_of(&self, range: &RangeInclusive<usize>) -> &'a [Layer] {
        let first = self.layers.first().map_or(0, Layer::index);
        self.layers.get(range.start() - first..=range.end() - first).unwrap_or_default()
    }

    /// Mean cross-entropy over the last axis, which may be split, or mean square of the difference, divided
    /// by the number of passes that add up to the model's.
    pub(super) fn loss(
        &mut self,
        micro_batch: MicroBatch,
        outputs: Vec<Tensor>,
        split: Option<&Split>,
    ) -> Result<Tensor, RankError> {
        let Some(logits) = outputs.into_iter().next() else {
            return Err(RankError::Other("the last layer yields nothing to compare".to_owned()));
        };
        // They are copied to the device, which the host waits for.
        self.times.let_go();
        let targets = self.data.targets(micro_batch.iteration, micro_batch.index)?;
        if self.data.loss() == Loss::MeanSquare {
            let targets = targets.f_to_kind(Kind::Float)?;
            let loss = logits.f_to_kind(Kind::Float)?.f_mse_loss(&targets, Reduction::Mean)?;
            return Ok(loss.f_div_scalar(self.loss_parts)?);
        }
        let classes = logits.size().last().copied().unwrap_or_default();
        // In fp32 whatever the precision: a sum over a vocabulary needs it.
        let logits = logits.f_reshape([-1, classes])?.f_to_kind(Kind::Float)?;
        let targets = targets.f_reshape([-1])?;
        let loss = match split {
            Some(Split { group, extent }) => vocabulary::cross_entropy(group, &logits, &targets, *extent)?,
            None => logits.f_cross_entropy_loss(&targets, None::<&Tensor>, Reduction::Mean, -100, 0.0)?,
        };
        Ok(loss.f_div_scalar(self.loss_parts)?)
    }
}
