//! What restricts a search.

use super::objective::spanning_from_wire;
use super::{to_i32, to_i64, unsigned};
use crate::error::Invalid;
use crate::plan::constraints::{Constraints, LayerPin};
use crate::training::{RecomputePolicy, Schedule};
use crate::wire::v1;

impl From<RecomputePolicy> for v1::RecomputePolicy {
    fn from(policy: RecomputePolicy) -> Self {
        match policy {
            RecomputePolicy::None => Self::None,
            RecomputePolicy::Stage => Self::Stage,
            RecomputePolicy::Layer => Self::Layer,
        }
    }
}

impl From<Schedule> for v1::Schedule {
    fn from(schedule: Schedule) -> Self {
        match schedule {
            Schedule::Gpipe => Self::Gpipe,
            Schedule::OneFOneB => Self::OneFOneB,
        }
    }
}

impl From<&Constraints> for v1::Constraints {
    fn from(constraints: &Constraints) -> Self {
        let numbers = |list: &[u32]| list.iter().copied().map(to_i32).collect();
        let policy = |&policy: &RecomputePolicy| v1::RecomputePolicy::from(policy).into();
        let schedule = |&schedule: &Schedule| v1::Schedule::from(schedule).into();
        let spanning = constraints.spanning.map_or(v1::NodeSpanning::Unspecified, Into::into);
        let pin = |pin: &LayerPin| v1::LayerPin { layer: to_i32(pin.layer), device: pin.device.clone() };
        let range = |&(first, last): &(usize, usize)| v1::LayerRange {
            first_layer: to_i32(first),
            last_layer: to_i32(last),
        };
        Self {
            data_degrees: numbers(&constraints.data_degrees),
            tensor_degrees: numbers(&constraints.tensor_degrees),
            micro_batch_sizes: numbers(&constraints.micro_batch_sizes),
            schedules: constraints.schedules.iter().map(schedule).collect(),
            recompute: constraints.recompute.iter().map(policy).collect(),
            recompute_per_stage: constraints.recompute_per_stage,
            min_stages: constraints.min_stages.map_or(0, to_i32),
            max_stages: constraints.max_stages.map_or(0, to_i32),
            pins: constraints.pins.iter().map(pin).collect(),
            keep_together: constraints.keep_together.iter().map(range).collect(),
            cut_after: constraints.cut_after.iter().copied().map(to_i32).collect(),
            excluded_devices: constraints.excluded_devices.clone(),
            spanning: spanning.into(),
            max_iteration_seconds: constraints.max_iteration_seconds.unwrap_or(0.0),
            max_peak_bytes: constraints.max_peak_bytes.map_or(0, to_i64),
            allow_idle_devices: constraints.allow_idle_devices,
        }
    }
}

impl TryFrom<v1::Constraints> for Constraints {
    type Error = Invalid;

    fn try_from(wire: v1::Constraints) -> Result<Self, Invalid> {
        Self {
            data_degrees: numbers("data_degrees", wire.data_degrees)?,
            tensor_degrees: numbers("tensor_degrees", wire.tensor_degrees)?,
            micro_batch_sizes: numbers("micro_batch_sizes", wire.micro_batch_sizes)?,
            schedules: each("schedules", wire.schedules, schedule)?,
            recompute: each("recompute", wire.recompute, policy)?,
            recompute_per_stage: wire.recompute_per_stage,
            min_stages: some(unsigned("min_stages", wire.min_stages)?),
            max_stages: some(unsigned("max_stages", wire.max_stages)?),
            pins: each("pins", wire.pins, |path, pin| {
                Ok(LayerPin { layer: unsigned(&format!("{path}.layer"), pin.layer)?, device: pin.device })
            })?,
            keep_together: each("keep_together", wire.keep_together, |path, range| {
                Ok((
                    unsigned(&format!("{path}.first_layer"), range.first_layer)?,
                    unsigned(&format!("{path}.last_layer"), range.last_layer)?,
                ))
            })?,
            cut_after: each("cut_after", wire.cut_after, unsigned)?,
            excluded_devices: wire.excluded_devices,
            spanning: spanning_from_wire("spanning", wire.spanning)?,
            // 0 is no limit; what is no number at all is refused below.
            max_iteration_seconds: (wire.max_iteration_seconds != 0.0).then_some(wire.max_iteration_seconds),
            max_peak_bytes: some(unsigned("max_peak_bytes", wire.max_peak_bytes)?),
            allow_idle_devices: wire.allow_idle_devices,
        }
        .checked()
    }
}

fn some<T: Default + PartialEq>(value: T) -> Option<T> {
    (value != T::default()).then_some(value)
}

fn each<W, T>(
    field: &str,
    wire: Vec<W>,
    convert: impl Fn(&str, W) -> Result<T, Invalid>,
) -> Result<Vec<T>, Invalid> {
    wire.into_iter().enumerate().map(|(index, entry)| convert(&format!("{field}[{index}]"), entry)).collect()
}

fn numbers(field: &str, wire: Vec<i32>) -> Result<Vec<u32>, Invalid> {
    each(field, wire, unsigned)
}

fn schedule(field: &str, wire: i32) -> Result<Schedule, Invalid> {
    match v1::Schedule::try_from(wire) {
        Ok(v1::Schedule::Gpipe) => Ok(Schedule::Gpipe),
        Ok(v1::Schedule::OneFOneB) => Ok(Schedule::OneFOneB),
        Ok(v1::Schedule::Unspecified) | Err(_) => Err(Invalid::field(field, format!("{wire} is unknown"))),
    }
}

fn policy(field: &str, wire: i32) -> Result<RecomputePolicy, Invalid> {
    match v1::RecomputePolicy::try_from(wire) {
        Ok(v1::RecomputePolicy::None) => Ok(RecomputePolicy::None),
        Ok(v1::RecomputePolicy::Stage) => Ok(RecomputePolicy::Stage),
        Ok(v1::RecomputePolicy::Layer) => Ok(RecomputePolicy::Layer),
        Ok(v1::RecomputePolicy::Unspecified) | Err(_) => {
            Err(Invalid::field(field, format!("{wire} is unknown")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::objective::NodeSpanning;

    /// What is sent back is what was asked.
    #[test]
    fn constraints_survive_the_wire() {
        let constraints = Constraints {
            data_degrees: vec![1, 2],
            tensor_degrees: vec![4],
            micro_batch_sizes: vec![8],
            schedules: vec![Schedule::OneFOneB],
            recompute: vec![RecomputePolicy::None, RecomputePolicy::Layer],
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
        let max_iteration_seconds = f64::NAN;
        assert_eq!(field(v1::Constraints { max_iteration_seconds, ..some() }), "max_iteration_seconds");
        assert_eq!(field(v1::Constraints { max_stages: -1, ..some() }), "max_stages");
        assert_eq!(field(v1::Constraints { schedules: vec![0], ..some() }), "schedules[0]");
        assert_eq!(field(v1::Constraints { recompute: vec![1, 9], ..some() }), "recompute[1]");
        assert_eq!(field(v1::Constraints { spanning: 77, ..some() }), "spanning");
        let pin = v1::LayerPin { layer: -1, device: "0".to_owned() };
        assert_eq!(field(v1::Constraints { pins: vec![pin], ..some() }), "pins[0].layer");
    }
}
