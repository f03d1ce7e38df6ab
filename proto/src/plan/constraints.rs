//! What restricts the plans that a recommendation may choose from.

use serde::{Deserialize, Serialize};

use crate::error::{Invalid, in_range};
use crate::message;
use crate::model::MAX_LAYERS;
use crate::name::{INVISIBLE, is_invisible};
use crate::plan::objective::NodeSpanning;
use crate::training::sharding::StateSharding;
use crate::training::stage::StageConfig;
use crate::training::{RecomputePolicy, Schedule, TrainingSpec};
use crate::wire::{FromWire, ToWire, field, v1};

/// Restrictions of a search; what is left out restricts nothing.
///
/// ```
/// use loadmaster_proto::plan::constraints::Constraints;
///
/// let constraints = Constraints { tensor_degrees: vec![8, 1], cut_after: vec![11], ..Constraints::default() };
/// assert_eq!(constraints.checked()?.tensor_degrees, [1, 8]);
///
/// let wrong = Constraints { tensor_degrees: vec![1, 6], ..Constraints::default() };
/// assert_eq!(wrong.checked().unwrap_err().to_string(), "tensor_parallel_sizes[1]: 6 is not a power of two");
/// # Ok::<(), loadmaster_proto::error::Invalid>(())
/// ```
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Constraints {
    /// Data-parallel sizes that a stage may have, ascending; empty: any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub data_degrees: Vec<u32>,
    /// Tensor-parallel sizes that a stage may have, ascending; empty: any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tensor_degrees: Vec<u32>,
    /// Samples of one pass of a whole stage, ascending; empty: as the objective has it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub micro_batch_sizes: Vec<u32>,
    /// Orders of the passes; empty: that of the training.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub schedules: Vec<Schedule>,
    /// What may be recomputed; empty: the training's policy.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub recompute: Vec<RecomputePolicy>,
    /// State shardings that stages of several replicas may have; empty: none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub shardings: Vec<StateSharding>,
    /// Each stage may choose a policy of its own.
    pub recompute_per_stage: bool,
    /// Fewest stages, 1 or more; none: 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_stages: Option<usize>,
    /// Most stages; none: as many as there are layers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_stages: Option<usize>,
    /// Layers that have to be on a device.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pins: Vec<LayerPin>,
    /// First and last layer of each range that is never cut.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub keep_together: Vec<(usize, usize)>,
    /// Layers after which the chain must be cut.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cut_after: Vec<usize>,
    /// Devices that no plan may use: `node` or `node/index`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub excluded_devices: Vec<String>,
    /// Whether a stage may take devices of several nodes; none: as the shape has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spanning: Option<NodeSpanning>,
    /// Longest iteration, seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_iteration_seconds: Option<f64>,
    /// Most predicted bytes of any device, besides its capacity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_peak_bytes: Option<u64>,
    /// Devices may stay idle.
    pub allow_idle_devices: bool,
}

/// A layer that has to be on a device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LayerPin {
    /// Index of the layer, from 0.
    pub layer: usize,
    /// The device: `node/index`, or its position in the order of devices.
    pub device: String,
}

impl Constraints {
    /// Most entries of a list: what a person or a script may reasonably name.
    pub const MAX_ENTRIES: usize = 1_000;
    /// Longest name of a device.
    pub const MAX_DEVICE_NAME: usize = 300;

    /// Checks ranges, and puts lists of numbers in order, each once.
    ///
    /// # Errors
    /// Names the first entry that is out of range.
    pub fn checked(mut self) -> Result<Self, Invalid> {
        let entries = |field: &str, count: usize| in_range(field, count, 0..=Self::MAX_ENTRIES).map(drop);
        let layer = |field: String, layer: usize| in_range(&field, layer, 0..=MAX_LAYERS - 1).map(drop);
        entries("data_parallel_sizes", self.data_degrees.len())?;
        entries("tensor_parallel_sizes", self.tensor_degrees.len())?;
        entries("micro_batch_sizes", self.micro_batch_sizes.len())?;
        entries("layer_pins", self.pins.len())?;
        entries("uncut_layer_ranges", self.keep_together.len())?;
        entries("stage_end_layers", self.cut_after.len())?;
        entries("excluded_devices", self.excluded_devices.len())?;
        for (index, &degree) in self.data_degrees.iter().enumerate() {
            in_range(&format!("data_parallel_sizes[{index}]"), degree, 1..=StageConfig::MAX_DATA_DEGREE)?;
        }
        for (index, &degree) in self.tensor_degrees.iter().enumerate() {
            let field = format!("tensor_parallel_sizes[{index}]");
            in_range(&field, degree, 1..=StageConfig::MAX_TENSOR_DEGREE)?;
            if !degree.is_power_of_two() {
                return Err(invalid!(field, "{degree} is not a power of two"));
            }
        }
        for (index, &size) in self.micro_batch_sizes.iter().enumerate() {
            let field = format!("micro_batch_sizes[{index}]");
            in_range(&field, size, 1..=TrainingSpec::MAX_MICRO_BATCH_SIZE)?;
        }
        for numbers in [&mut self.data_degrees, &mut self.tensor_degrees, &mut self.micro_batch_sizes] {
            numbers.sort_unstable();
            numbers.dedup();
        }
        each_once(&mut self.schedules);
        each_once(&mut self.recompute);
        each_once(&mut self.shardings);
        for (index, pin) in self.pins.iter().enumerate() {
            layer(format!("layer_pins[{index}].layer"), pin.layer)?;
            device_name(&format!("layer_pins[{index}].device"), &pin.device)?;
        }
        for (index, &(first, last)) in self.keep_together.iter().enumerate() {
            layer(format!("uncut_layer_ranges[{index}].first_layer"), first)?;
            in_range(&format!("uncut_layer_ranges[{index}].last_layer"), last, first..=MAX_LAYERS - 1)?;
        }
        for (index, &after) in self.cut_after.iter().enumerate() {
            layer(format!("stage_end_layers[{index}]"), after)?;
        }
        for (index, device) in self.excluded_devices.iter().enumerate() {
            device_name(&format!("excluded_devices[{index}]"), device)?;
        }
        if let Some(least) = self.min_stages {
            in_range("min_stage_count", least, 1..=MAX_LAYERS)?;
        }
        if let Some(most) = self.max_stages {
            in_range("max_stage_count", most, self.min_stages.unwrap_or(1)..=MAX_LAYERS)?;
        }
        if let Some(limit) = self.max_iteration_seconds.filter(|limit| !limit.is_finite() || *limit <= 0.0) {
            return Err(invalid!("max_iteration_time", "{limit} s is not valid. Use a value above 0 s"));
        }
        if self.max_peak_bytes == Some(0) {
            return Err(Invalid::field("max_peak_bytes", "0 is not valid. Use a value above 0"));
        }
        Ok(self)
    }

    /// Checks the layers that are named against a model's.
    ///
    /// # Errors
    /// Names the first that the model does not have, or two that contradict each other.
    pub fn check_layers(&self, layers: usize) -> Result<(), Invalid> {
        let most = layers.saturating_sub(1);
        for (index, pin) in self.pins.iter().enumerate() {
            in_range(&format!("layer_pins[{index}].layer"), pin.layer, 0..=most)?;
        }
        for (index, &(_, last)) in self.keep_together.iter().enumerate() {
            in_range(&format!("uncut_layer_ranges[{index}].last_layer"), last, 0..=most)?;
        }
        for (index, &after) in self.cut_after.iter().enumerate() {
            let field = format!("stage_end_layers[{index}]");
            // After the last layer there is nothing to cut.
            in_range(&field, after, 0..=most.saturating_sub(1))?;
            let inside = self.keep_together.iter().find(|&&(first, last)| (first..last).contains(&after));
            if let Some((first, last)) = inside {
                let why = format!(
                    "{after} ends a stage within layers {first} to {last}, which uncut_layer_ranges keeps in one \
                     stage. Remove this stage end or that range of layers"
                );
                return Err(Invalid::field(field, why));
            }
        }
        if let Some(least) = self.min_stages {
            in_range("min_stage_count", least, 1..=layers)?;
        }
        Ok(())
    }
}

fn each_once<T: PartialEq>(list: &mut Vec<T>) {
    let mut kept: Vec<T> = Vec::with_capacity(list.len());
    for entry in list.drain(..) {
        if !kept.contains(&entry) {
            kept.push(entry);
        }
    }
    *list = kept;
}

fn device_name(field: &str, name: &str) -> Result<(), Invalid> {
    if name.is_empty() {
        return Err(Invalid::field(
            field,
            "is required. Use `node/index`, or the device's position in the list of devices",
        ));
    }
    if name.contains(is_invisible) {
        return Err(Invalid::field(field, INVISIBLE));
    }
    in_range(field, name.len(), 1..=Constraints::MAX_DEVICE_NAME).map(drop)
}

message! { Constraints <=> v1::Constraints }

impl TryFrom<v1::Constraints> for Constraints {
    type Error = Invalid;

    /// The layouts are read with the request: they are no restriction of a search.
    fn try_from(wire: v1::Constraints) -> Result<Self, Invalid> {
        Self::checked(Self {
            data_degrees: field("data_parallel_sizes", wire.data_parallel_sizes)?,
            tensor_degrees: field("tensor_parallel_sizes", wire.tensor_parallel_sizes)?,
            micro_batch_sizes: field("micro_batch_sizes", wire.micro_batch_sizes)?,
            schedules: field("schedules", wire.schedules)?,
            recompute: field("recompute_policies", wire.recompute_policies)?,
            shardings: field("state_shardings", wire.state_shardings)?,
            recompute_per_stage: field("recompute_per_stage", wire.recompute_per_stage)?,
            min_stages: field("min_stage_count", wire.min_stage_count)?,
            max_stages: field("max_stage_count", wire.max_stage_count)?,
            pins: field("layer_pins", wire.layer_pins)?,
            keep_together: field("uncut_layer_ranges", wire.uncut_layer_ranges)?,
            cut_after: field("stage_end_layers", wire.stage_end_layers)?,
            excluded_devices: field("excluded_devices", wire.excluded_devices)?,
            spanning: field("node_spanning", wire.node_spanning)?,
            max_iteration_seconds: field("max_iteration_time", wire.max_iteration_time)?,
            max_peak_bytes: field("max_peak_bytes", wire.max_peak_bytes)?,
            allow_idle_devices: field("allow_idle_devices", wire.allow_idle_devices)?,
        })
    }
}

impl From<&Constraints> for v1::Constraints {
    fn from(of: &Constraints) -> Self {
        Self {
            data_parallel_sizes: of.data_degrees.to_wire(),
            tensor_parallel_sizes: of.tensor_degrees.to_wire(),
            micro_batch_sizes: of.micro_batch_sizes.to_wire(),
            schedules: of.schedules.to_wire(),
            recompute_policies: of.recompute.to_wire(),
            state_shardings: of.shardings.to_wire(),
            recompute_per_stage: of.recompute_per_stage.to_wire(),
            min_stage_count: of.min_stages.to_wire(),
            max_stage_count: of.max_stages.to_wire(),
            layer_pins: of.pins.to_wire(),
            uncut_layer_ranges: of.keep_together.to_wire(),
            stage_end_layers: of.cut_after.to_wire(),
            excluded_devices: of.excluded_devices.to_wire(),
            node_spanning: of.spanning.to_wire(),
            max_iteration_time: of.max_iteration_seconds.to_wire(),
            max_peak_bytes: of.max_peak_bytes.to_wire(),
            allow_idle_devices: of.allow_idle_devices.to_wire(),
            ..Self::default()
        }
    }
}

message! {
    LayerPin <=> v1::LayerPin { layer, device }
}

impl FromWire<v1::LayerRange> for (usize, usize) {
    fn from_wire(wire: v1::LayerRange) -> Result<Self, Invalid> {
        Ok((field("first_layer", wire.first_layer)?, field("last_layer", wire.last_layer)?))
    }
}

impl ToWire<v1::LayerRange> for (usize, usize) {
    fn to_wire(&self) -> v1::LayerRange {
        v1::LayerRange { first_layer: self.0.to_wire(), last_layer: self.1.to_wire() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(constraints: Constraints) -> String {
        constraints.checked().unwrap_err().violations()[0].field.clone()
    }

    /// What a user may get wrong is named with its place.
    #[test]
    fn every_wrong_entry_is_named() {
        let some = Constraints::default;
        assert_eq!(field(Constraints { data_degrees: vec![2, 0], ..some() }), "data_parallel_sizes[1]");
        assert_eq!(field(Constraints { tensor_degrees: vec![3], ..some() }), "tensor_parallel_sizes[0]");
        assert_eq!(field(Constraints { tensor_degrees: vec![128], ..some() }), "tensor_parallel_sizes[0]");
        assert_eq!(field(Constraints { micro_batch_sizes: vec![0], ..some() }), "micro_batch_sizes[0]");
        assert_eq!(
            field(Constraints { keep_together: vec![(4, 2)], ..some() }),
            "uncut_layer_ranges[0].last_layer"
        );
        let (min_stages, max_stages) = (Some(3), Some(2));
        assert_eq!(field(Constraints { min_stages, max_stages, ..some() }), "max_stage_count");
        for limit in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            let max_iteration_seconds = Some(limit);
            assert_eq!(field(Constraints { max_iteration_seconds, ..some() }), "max_iteration_time");
        }
        let pin = LayerPin { layer: 0, device: String::new() };
        assert_eq!(field(Constraints { pins: vec![pin], ..some() }), "layer_pins[0].device");
        let many = Constraints { cut_after: vec![1; Constraints::MAX_ENTRIES + 1], ..some() };
        assert_eq!(field(many), "stage_end_layers");
    }

    /// Order and repetition of lists make no other request, so they make no other plan.
    #[test]
    fn lists_are_brought_into_one_order() {
        let (data_degrees, micro_batch_sizes) = (vec![4, 2, 4], vec![8, 1]);
        let checked = Constraints { data_degrees, micro_batch_sizes, ..Constraints::default() }.checked();
        let checked = checked.unwrap();
        assert_eq!((checked.data_degrees, checked.micro_batch_sizes), (vec![2, 4], vec![1, 8]));
    }

    /// A cut within layers that stay together can never be.
    #[test]
    fn cuts_that_contradict_each_other_are_refused() {
        let constraints =
            Constraints { cut_after: vec![3], keep_together: vec![(2, 5)], ..Constraints::default() };
        assert!(constraints.check_layers(9).is_err());
        let beside = Constraints { cut_after: vec![5], ..constraints };
        assert!(beside.check_layers(9).is_ok() && beside.check_layers(6).is_err());
    }

    /// What is sent back is what was asked.
    #[test]
    fn constraints_survive_the_wire() {
        let constraints = Constraints {
            data_degrees: vec![1, 2],
            tensor_degrees: vec![4],
            micro_batch_sizes: vec![8],
            schedules: vec![Schedule::OneFOneB],
            recompute: vec![RecomputePolicy::None, RecomputePolicy::Layer],
            shardings: StateSharding::ALL.to_vec(),
            recompute_per_stage: true,
            min_stages: Some(2),
            max_stages: Some(4),
            pins: vec![LayerPin { layer: 3, device: "node1/0".to_owned() }],
            keep_together: vec![(1, 2)],
            cut_after: vec![5],
            excluded_devices: vec!["node2".to_owned()],
            spanning: Some(NodeSpanning::WholeNodes),
            max_iteration_seconds: Some(1.5),
            max_peak_bytes: Some(1 << 30),
            allow_idle_devices: true,
        };
        let wire = v1::Constraints::from(&constraints);
        assert_eq!(Constraints::try_from(wire).unwrap(), constraints);
        assert_eq!(Constraints::try_from(v1::Constraints::default()).unwrap(), Constraints::default());
    }

    /// Nothing that is no number, negative or unknown gets in.
    #[test]
    fn hostile_constraints_are_refused_by_field() {
        let field =
            |wire: v1::Constraints| Constraints::try_from(wire).unwrap_err().violations()[0].field.clone();
        let some = v1::Constraints::default;
        for (seconds, nanos) in [(0, 0), (-1, 0), (1, -1), (1, 1_000_000_000), (i64::MIN, i32::MIN)] {
            let max_iteration_time = Some(prost_types::Duration { seconds, nanos });
            assert_eq!(field(v1::Constraints { max_iteration_time, ..some() }), "max_iteration_time");
        }
        assert_eq!(field(v1::Constraints { max_stage_count: -1, ..some() }), "max_stage_count");
        assert_eq!(field(v1::Constraints { schedules: vec![0], ..some() }), "schedules[0]");
        assert_eq!(
            field(v1::Constraints { recompute_policies: vec![1, 9], ..some() }),
            "recompute_policies[1]"
        );
        assert_eq!(field(v1::Constraints { node_spanning: 77, ..some() }), "node_spanning");
        let pin = v1::LayerPin { layer: -1, device: "0".to_owned() };
        assert_eq!(field(v1::Constraints { layer_pins: vec![pin], ..some() }), "layer_pins[0].layer");
    }
}
