//! One layer at one setting, read from the rows of a table.
//!
//! Passes that a profiler saw waiting.
//! A pass over fewer samples does no more work than one over more, so it takes no longer. A table lists it as
//! longer where layers were timed one by one and the device waited for the host between short kernels, or
//! where the first run of a layer was counted. Such noise only ever adds, so the shorter figure is the better
//! one: seconds are read as the least of all rows of the same degree with as many samples or more.

use std::sync::Arc;

use loadmaster_proto::profile::document::{BytesRow, LayerRows, TimesRow};
use loadmaster_proto::training::stage::StageConfig;

use super::TablePredictor;
use super::cells::{Scales, TableCell, read};
use crate::{Exchange, LayerCost, Origin, PredictionError, Share, StageSeconds};

/// Times a transformer block's shards sum an activation in each direction: after attention and after the
/// MLP (Megatron-LM).
const EXCHANGES: u32 = 2;

/// A layer on one device.
#[derive(Debug, Clone, Copy)]
pub(super) struct LayerLevel {
    pub(super) parameters: u64,
    /// What replicas sum of its parameters.
    pub(super) gradients: u64,
    pub(super) activation: u64,
    pub(super) transient: u64,
    pub(super) input: u64,
    pub(super) output: u64,
    /// How the bytes were read.
    pub(super) origin: Origin,
    /// Passes and update, and how they were read.
    pub(super) seconds: Option<(StageSeconds, Origin)>,
    /// What its shards sum in each direction, apart from the seconds.
    exchange: Exchange,
}

impl LayerLevel {
    /// What it costs besides the bytes of a peak.
    pub(super) fn cost(&self) -> Option<LayerCost> {
        let (seconds, origin) = self.seconds?;
        Some(LayerCost {
            seconds,
            exchange: self.exchange,
            gradient_bytes: self.gradients,
            output_bytes: self.output,
            origin,
        })
    }
}

impl TablePredictor {
    /// All layers at a setting; none for those that the rows do not reach.
    pub(super) fn levels(&self, share: Share) -> Arc<Vec<Option<LayerLevel>>> {
        let levels = self.read.get(share, || {
            let mut levels: Vec<Option<LayerLevel>> = Vec::with_capacity(self.layers);
            for (index, rows) in self.rows.layers.iter().enumerate() {
                for layer in rows.first_layer..=rows.last_layer {
                    // Beyond the second of its group a layer has the neighbours that the one before has.
                    let like = levels.last().copied().filter(|_| layer > rows.first_layer + 1);
                    levels.push(like.unwrap_or_else(|| self.level(index, layer, share).ok()));
                }
            }
            Ok::<_, std::convert::Infallible>(levels)
        });
        let Ok(levels) = levels;
        levels
    }

    /// The layers of a stage at a setting.
    ///
    /// # Errors
    /// The first that the rows do not reach, or that is none of the model's.
    pub(super) fn levels_of(
        &self,
        stage: &StageConfig,
        share: Share,
    ) -> Result<Vec<LayerLevel>, PredictionError> {
        self.check_sequence(stage)?;
        let levels = self.levels(share);
        let StageConfig { first_layer: first, last_layer: last, .. } = *stage;
        let no_such = || PredictionError::NoSuchStage { first, last, layers: self.layers };
        let all = levels.get(first..=last).filter(|levels| !levels.is_empty()).ok_or_else(no_such)?;
        (first..)
            .zip(all)
            .map(|(layer, level)| level.ok_or_else(|| self.gap(layer, share).unwrap_or_else(no_such)))
            .collect()
    }

    /// Why [`TablePredictor::levels`] has none for a layer.
    fn gap(&self, layer: usize, share: Share) -> Option<PredictionError> {
        let rows = &self.rows.layers;
        let index = rows.iter().position(|rows| (rows.first_layer..=rows.last_layer).contains(&layer))?;
        self.level(index, layer, share).err()
    }

    fn level(&self, index: usize, layer: usize, share: Share) -> Result<LayerLevel, PredictionError> {
        let lacks = |field: &str| self.lacks(layer, field, share);
        let rows = self.rows.layers.get(index).ok_or_else(|| lacks("rows"))?;
        let mut origin = Origin::Imported;
        let mut bytes = |rows: &LayerRows, field: fn(&BytesRow) -> Option<u64>, scales| {
            // A float holds up to 8 PiB exactly, which no device has.
            let cells = rows.bytes.iter().filter_map(|row| {
                let (micro_batch_size, tensor_degree) = (row.micro_batch_size, row.tensor_degree);
                Some(TableCell { micro_batch_size, tensor_degree, value: field(row)? as f64 })
            });
            let cells: Vec<TableCell> = cells.collect();
            let (value, read_as) = read(&cells, scales, share.micro_batch_size, share.tensor_degree)?;
            origin = origin.max(read_as);
            Some(value.round() as u64)
        };
        let parameters =
            bytes(rows, |row| row.parameter_bytes, Scales::Never).ok_or_else(|| lacks("parameter_bytes"))?;
        let activation = bytes(rows, |row| row.activation_bytes, Scales::WithSamples)
            .ok_or_else(|| lacks("activation_bytes"))?;
        let transient = bytes(rows, |row| row.transient_bytes, Scales::WithSamples).unwrap_or(activation);
        let output =
            bytes(rows, |row| row.output_bytes, Scales::WithSamples).ok_or_else(|| lacks("output_bytes"))?;
        let before = if layer > rows.first_layer {
            Some(rows)
        } else {
            index.checked_sub(1).and_then(|before| self.rows.layers.get(before))
        };
        let input = bytes(rows, |row| row.input_bytes, Scales::WithSamples)
            .or_else(|| bytes(before?, |row| row.output_bytes, Scales::WithSamples))
            .ok_or_else(|| lacks("input_bytes"))?;
        let exchange = if self.rows.times_without_collectives == Some(true) && share.tensor_degree > 1 {
            let exchanged = bytes(rows, |row| row.exchanged_bytes, Scales::WithSamples);
            // Of shards that divide the sequence each has a part of what all of them exchange.
            let whole = if self.rows.sequence_parallel == Some(true) { share.tensor_degree } else { 1 };
            let bytes = exchanged.unwrap_or_else(|| {
                output.saturating_mul(u64::from(EXCHANGES)).saturating_mul(u64::from(whole))
            });
            Exchange { count: EXCHANGES, bytes }
        } else {
            Exchange::default()
        };
        let seconds = seconds(rows, share).map(|(seconds, origin)| (self.of_one(seconds), origin));
        let gradients = parameters.saturating_mul(self.gradient_ratio);
        Ok(LayerLevel {
            parameters,
            gradients,
            activation,
            transient,
            input,
            output,
            origin,
            seconds,
            exchange,
        })
    }

    /// Seconds of a layer as it passes once, and of an update of all its parameters.
    fn of_one(&self, listed: StageSeconds) -> StageSeconds {
        let again = if self.rows.recomputes() { listed.forward } else { 0.0 };
        let shards = f64::from(self.rows.optimizer_shards.unwrap_or(1));
        StageSeconds { backward: (listed.backward - again).max(0.0), step: listed.step * shards, ..listed }
    }

    fn lacks(&self, layer: usize, field: &str, at: Share) -> PredictionError {
        let name = self.names.get(layer).map_or("", String::as_str);
        PredictionError::NotProfiled(format!(
            "the layer table has no {field} of layer {layer} ({name}) for tensor-parallel size {} at micro-batch size {}. Add \
             {field} to a row with this tensor-parallel size, or to rows with two other tensor-parallel sizes",
            at.tensor_degree, at.micro_batch_size
        ))
    }
}

/// The seconds of a group's rows.
fn times(rows: &LayerRows, field: fn(&TimesRow) -> Option<f64>) -> Vec<TableCell> {
    let cells = rows.times.iter().filter_map(|row| {
        let (micro_batch_size, tensor_degree) = (row.micro_batch_size, row.tensor_degree);
        Some(TableCell { micro_batch_size, tensor_degree, value: field(row)? })
    });
    cells.collect()
}

/// Passes of a micro-batch.
const PASSES: [fn(&TimesRow) -> Option<f64>; 2] =
    [|row| Some(row.forward_seconds), |row| Some(row.backward_seconds)];

/// Passes and update of each layer of a group; none where its times do not reach.
fn seconds(rows: &LayerRows, share: Share) -> Option<(StageSeconds, Origin)> {
    let at = |cells: &[TableCell], scales: Scales| {
        read(cells, scales, share.micro_batch_size, share.tensor_degree)
    };
    let [forward, backward] = PASSES.map(|field| {
        let mut cells = times(rows, field);
        without_waiting(&mut cells);
        at(&cells, Scales::WithSamplesFromSmallest)
    });
    let ((forward, origin), (backward, _)) = (forward?, backward?);
    // A table without optimizer times still contains times of the passes.
    let step = at(&times(rows, |row| row.update_seconds), Scales::Never).map_or(0.0, |(step, _)| step);
    Some((StageSeconds { forward, backward, step }, origin))
}

/// Whether a pass of the group is listed as longer than the same over more samples.
pub(super) fn waits(rows: &LayerRows) -> bool {
    PASSES.into_iter().any(|field| without_waiting(&mut times(rows, field)))
}

/// Shortens what takes longer than the same over more samples; whether there was any.
fn without_waiting(cells: &mut [TableCell]) -> bool {
    cells.sort_by_key(|cell| (cell.tensor_degree, std::cmp::Reverse(cell.micro_batch_size)));
    let mut is_shortened = false;
    let mut larger: Option<TableCell> = None;
    for cell in cells {
        if let Some(larger) = larger.filter(|larger| larger.tensor_degree == cell.tensor_degree)
            && larger.value < cell.value
        {
            cell.value = larger.value;
            is_shortened = true;
        }
        larger = Some(*cell);
    }
    is_shortened
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_cells() -> impl Strategy<Value = Vec<TableCell>> {
        let rows = proptest::collection::btree_map((1_u32..9, 1_u32..4), 0.0..10.0_f64, 1..12);
        rows.prop_map(|rows| {
            rows.into_iter()
                .map(|((micro_batch_size, tensor_degree), value)| TableCell {
                    micro_batch_size,
                    tensor_degree,
                    value,
                })
                .collect()
        })
    }

    proptest! {
        /// By its definition, cell by cell: the least of the same degree with as many samples or more.
        #[test]
        fn fewer_samples_never_take_longer(cells in any_cells()) {
            let mut read = cells.clone();
            let is_shortened = without_waiting(&mut read);
            for cell in &read {
                let like = cells.iter().filter(|of| of.tensor_degree == cell.tensor_degree);
                let from = like.filter(|of| of.micro_batch_size >= cell.micro_batch_size);
                prop_assert_eq!(cell.value, from.map(|of| of.value).fold(f64::INFINITY, f64::min));
            }
            prop_assert_eq!(is_shortened, read.iter().any(|cell| !cells.contains(cell)));
        }
    }
}
