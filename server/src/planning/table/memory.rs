//! What a device of a stage holds at its peak, from the byte rows of a table.

use loadmaster_proto::document::{BytesRow, LayerRows};
use loadmaster_proto::run::Ledger;
use loadmaster_proto::scenario::Scenario;
use loadmaster_proto::stage::{Parallelism, StageConfig};
use loadmaster_proto::training::RecomputePolicy;

use super::Table;
use super::cells::{Cell, Scales, read};
use crate::planning::predictor::{Breakdown, MOST_BYTES, Origin, PredictionError, StageSetting};

/// One group of like layers at one setting, bytes of each layer on one device.
#[derive(Debug, Clone, Copy)]
struct Group {
    /// Layers of the stage that belong to it.
    count: u64,
    parameters: u64,
    activation: u64,
    transient: u64,
    input: u64,
    output: u64,
}

/// The bytes of a device of a stage.
pub(super) fn breakdown(
    table: &Table,
    setting: &StageSetting,
) -> Result<(Breakdown, Origin), PredictionError> {
    let training = &setting.training;
    let stage = setting.stage;
    let at = Setting::of(setting);
    let mut origin = Origin::Profiled;
    let mut groups = Vec::new();
    for rows in table.groups(stage) {
        let (group, of_group) = table.group(rows, stage, at)?;
        origin = origin.max(of_group);
        groups.push(group);
    }
    let (Some(first), Some(last)) = (groups.first(), groups.last()) else {
        return Err(PredictionError::NothingProfiled { scenario: Scenario::of(stage) });
    };

    let all = |of: fn(&Group) -> u64| {
        groups.iter().fold(0_u64, |sum, group| sum.saturating_add(group.count.saturating_mul(of(group))))
    };
    // Of no state has a scalar more than 16 bytes.
    let scalars = (all(|group| group.parameters) / training.precision.scalar_bytes()).min(MOST_BYTES / 16);
    let of_parameters = training.static_bytes(scalars);
    let in_flight = u64::from(setting.in_flight());
    let (retained, inputs) = (all(|group| group.activation), all(|group| group.input));
    let largest = groups.iter().map(|group| group.activation).max().unwrap_or(0);
    let activations = match training.recompute {
        RecomputePolicy::None => in_flight.saturating_mul(retained),
        RecomputePolicy::Stage => retained,
        RecomputePolicy::Layer => {
            in_flight.saturating_mul(inputs.saturating_sub(first.input)).saturating_add(largest)
        }
    };
    // The model's own input is not counted unless it is what recomputation starts from: data loaders
    // hold it in ways of their own, and token ids are small.
    let keeps_input = stage.first_layer > 0 || training.recompute != RecomputePolicy::None;
    let sends_output = stage.last_layer + 1 < table.layers;
    let held = if keeps_input { in_flight.saturating_mul(first.input) } else { 0 };
    let edges = held.saturating_add(if sends_output { last.output } else { 0 });
    let communication = match stage.parallelism {
        Parallelism::Data if stage.degree > 1 => of_parameters.gradients,
        _ => 0,
    };
    Ok((
        Breakdown {
            weights: of_parameters.parameters,
            gradients: of_parameters.gradients,
            optimizer: of_parameters.optimizer,
            activations: activations.min(MOST_BYTES),
            edges: edges.min(MOST_BYTES),
            communication,
            transient: transient(&groups, table.ledger).min(MOST_BYTES),
            overhead: table.overhead.min(MOST_BYTES),
        },
        origin,
    ))
}

/// What the passes hold besides, see the module of [`Table`].
fn transient(groups: &[Group], ledger: Ledger) -> u64 {
    let mut kinds: Vec<((u64, u64, u64), u64)> = Vec::new();
    for group in groups {
        let kind = (group.parameters, group.input, group.output);
        match kinds.iter_mut().find(|(other, _)| *other == kind) {
            Some((_, most)) => *most = group.transient.max(*most),
            None => kinds.push((kind, group.transient)),
        }
    }
    let each = kinds.iter().map(|(_, most)| *most);
    match ledger {
        Ledger::Allocated => each.max().unwrap_or(0),
        Ledger::Reserved | Ledger::Device => each.fold(0, u64::saturating_add),
    }
}

/// Where in the table a stage is read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Setting {
    pub(super) micro_batch_size: u32,
    pub(super) tensor_degree: u32,
}

impl Setting {
    /// A replica takes its share of the micro-batch, a shard all of it.
    pub(super) fn of(setting: &StageSetting) -> Self {
        let size = setting.training.micro_batch_size;
        match (setting.stage.parallelism, setting.stage.degree.max(1)) {
            (Parallelism::Data, degree) => Self { micro_batch_size: size.div_ceil(degree), tensor_degree: 1 },
            (Parallelism::Tensor, degree) => Self { micro_batch_size: size, tensor_degree: degree },
            (Parallelism::None, _) => Self { micro_batch_size: size, tensor_degree: 1 },
        }
    }
}

impl Table {
    fn group(
        &self,
        rows: &LayerRows,
        stage: StageConfig,
        at: Setting,
    ) -> Result<(Group, Origin), PredictionError> {
        let layer = rows.first_layer.max(stage.first_layer);
        let mut origin = Origin::Profiled;
        let mut bytes = |rows: &LayerRows, field: fn(&BytesRow) -> Option<u64>, scales| {
            let cells: Vec<Cell> = rows
                .bytes
                .iter()
                .filter_map(|row| {
                    let value = field(row)?;
                    let (micro_batch_size, tensor_degree) = (row.micro_batch_size, row.tensor_degree);
                    // A float holds up to 8 PiB exactly, which no device has.
                    Some(Cell { micro_batch_size, tensor_degree, value: value as f64 })
                })
                .collect();
            let (value, read_as) = read(&cells, scales, at.micro_batch_size, at.tensor_degree)?;
            origin = origin.max(read_as);
            Some(value.round() as u64)
        };
        let parameters = bytes(rows, |row| row.parameter_bytes, Scales::Never)
            .ok_or_else(|| self.lacks(layer, "parameter_bytes", at))?;
        let activation = bytes(rows, |row| row.activation_bytes, Scales::WithSamples)
            .ok_or_else(|| self.lacks(layer, "activation_bytes", at))?;
        let transient = bytes(rows, |row| row.transient_bytes, Scales::WithSamples).unwrap_or(activation);
        let output = bytes(rows, |row| row.output_bytes, Scales::WithSamples)
            .ok_or_else(|| self.lacks(layer, "output_bytes", at))?;
        let before = layer.checked_sub(1).and_then(|before| self.rows.layer(before));
        let input = bytes(rows, |row| row.input_bytes, Scales::WithSamples)
            .or_else(|| bytes(before?, |row| row.output_bytes, Scales::WithSamples))
            .ok_or_else(|| self.lacks(layer, "input_bytes", at))?;
        let count = (rows.last_layer.min(stage.last_layer) + 1 - layer) as u64;
        Ok((Group { count, parameters, activation, transient, input, output }, origin))
    }

    fn lacks(&self, layer: usize, field: &str, at: Setting) -> PredictionError {
        let name = self.names.get(layer).map_or("", String::as_str);
        PredictionError::NotProfiled(format!(
            "the layer table has no {field} of layer {layer} ({name}) that reaches tensor degree {} at \
             micro-batch {}: add a row of that degree, or of two others",
            at.tensor_degree, at.micro_batch_size
        ))
    }
}
