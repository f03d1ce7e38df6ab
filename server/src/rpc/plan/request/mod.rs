//! What requests about plans have in common, checked.

mod chunks;
mod devices;
mod question;
mod settings;

use loadmaster_predict::Margin;
use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::error::{Invalid, in_range};
use loadmaster_proto::training::TrainingSpec;
use loadmaster_proto::training::stage::Partitioning;
use loadmaster_proto::wire::{field, v1};
use loadmaster_recommend::ProfiledChain;
use loadmaster_search::fleet::MAX_DEVICES;

pub(super) use chunks::first_choice;
pub(super) use devices::{excluded, fleet_error};
pub(super) use question::{question, question_within};

/// The settings of a training that a request may name; what is 0 stays as it was profiled.
pub(in crate::rpc::plan) struct Overrides {
    pub(in crate::rpc::plan) micro_batch_size: i32,
    pub(in crate::rpc::plan) micro_batches: i32,
    pub(in crate::rpc::plan) schedule: i32,
    pub(in crate::rpc::plan) recompute: i32,
}

impl Overrides {
    /// `training` with the settings that are named.
    ///
    /// # Errors
    /// Names the setting that is out of range.
    pub(in crate::rpc::plan) fn apply(&self, training: TrainingSpec) -> Result<TrainingSpec, Invalid> {
        let or = |named: i32, profiled: i32| if named == 0 { profiled } else { named };
        let profiled = v1::TrainingSpec::from(training);
        v1::TrainingSpec {
            micro_batch_size: or(self.micro_batch_size, profiled.micro_batch_size),
            micro_batch_count: or(self.micro_batches, profiled.micro_batch_count),
            schedule: or(self.schedule, profiled.schedule),
            recompute: or(self.recompute, profiled.recompute),
            // It follows from the other two.
            global_batch_size: 0,
            ..profiled
        }
        .try_into()
        .map_err(|invalid: Invalid| invalid.under("problem"))
    }
}

/// Checks that a partitioning is one of the profiled model, and that its stages can be shared as they are to
/// be at this micro-batch size. Of an opaque chain nobody knows what can be split.
///
/// # Errors
/// Names the stage and what is wrong with it.
pub(in crate::rpc::plan) fn check_partitioning(
    chain: &ProfiledChain,
    partitioning: &Partitioning,
    micro_batch_size: u32,
) -> Result<(), Invalid> {
    let (covered, layers) = (partitioning.layer_count(), chain.layer_names.len());
    if covered != layers {
        let why = format!("cover {covered} layers, the model has {layers}");
        return Err(Invalid::field("stages", why));
    }
    // Before there is a number for each of them.
    let devices = partitioning.stages().iter().map(|stage| u64::from(stage.devices())).sum();
    in_range("stages.devices", devices, 1..=u64::from(MAX_DEVICES))?;
    partitioning.stages().iter().enumerate().try_for_each(|(index, stage)| {
        let checked = chain.model.as_ref().map_or(Ok(()), |model| model.check_stage(stage, micro_batch_size));
        checked.map_err(|invalid| invalid.under(&format!("stages[{index}]")))
    })
}

/// Capacity of each device in pipeline order; empty where no group is named.
///
/// # Errors
/// Names the group and field that is wrong.
pub(in crate::rpc::plan) fn capacities(
    groups: &[v1::DeviceGroup],
    chain: &ProfiledChain,
) -> Result<Vec<Bytes>, Invalid> {
    let mut capacities = Vec::new();
    for (index, group) in groups.iter().enumerate() {
        let path = |field: &str| format!("problem.devices[{index}].{field}");
        let count = in_range(&path("count"), group.count, 1..=MAX_DEVICES.cast_signed())?.unsigned_abs();
        let capacity = capacity(&path("capacity_bytes"), group.capacity_bytes)?;
        if !group.kind.is_empty() && group.kind != chain.device_kind {
            return Err(Invalid::field(
                path("kind"),
                format!(
                    "is {:?}, but {} was measured on {:?}: profile on that kind of device",
                    group.kind, chain.profile, chain.device_kind
                ),
            ));
        }
        capacities.extend(std::iter::repeat_n(capacity, count as usize));
        in_range("problem.devices", capacities.len(), 1..=MAX_DEVICES as usize)?;
    }
    Ok(capacities)
}

/// A capacity above 0.
///
/// # Errors
/// When it is not.
pub(in crate::rpc::plan) fn capacity(name: &str, bytes: i64) -> Result<Bytes, Invalid> {
    let bytes: u64 = field(name, bytes)?;
    in_range(name, bytes, 1..=i64::MAX.unsigned_abs()).map(Bytes)
}

/// What has to stay free.
///
/// # Errors
/// When it is not a share.
pub(in crate::rpc::plan) fn margin(margin: Option<f64>) -> Result<Margin, Invalid> {
    match margin {
        None => Ok(Margin::Known),
        Some(share) if (0.0..=1.0).contains(&share) => Ok(Margin::Share(share)),
        Some(share) => Err(Invalid::field("problem.safety_margin", format!("is {share}, must be 0 to 1"))),
    }
}

#[cfg(test)]
mod tests {
    use loadmaster_proto::training::{Optimizer, Precision, RecomputePolicy, Schedule};

    use super::*;

    const PROFILED: TrainingSpec = TrainingSpec {
        precision: Precision::Bf16,
        optimizer: Optimizer::Sgd { learning_rate: 0.1, momentum: 0.5, weight_decay: 0.0 },
        schedule: Schedule::Gpipe,
        micro_batch_size: 6,
        micro_batches: 7,
        recompute: RecomputePolicy::Layer,
        seed: 3,
    };

    const NONE: Overrides = Overrides { micro_batch_size: 0, micro_batches: 0, schedule: 0, recompute: 0 };

    /// What a request does not name stays as it was profiled; what it names is checked.
    #[test]
    fn only_what_is_named_is_overridden() {
        assert_eq!(NONE.apply(PROFILED).unwrap(), PROFILED);
        let schedule = v1::Schedule::OneFOneB.into();
        let overridden = Overrides { micro_batch_size: 5, schedule, ..NONE }.apply(PROFILED).unwrap();
        let expected = TrainingSpec { micro_batch_size: 5, schedule: Schedule::OneFOneB, ..PROFILED };
        assert_eq!(overridden, expected);
        let field =
            |overrides: Overrides| overrides.apply(PROFILED).unwrap_err().violations()[0].field.clone();
        assert_eq!(field(Overrides { micro_batch_size: -1, ..NONE }), "problem.micro_batch_size");
        assert_eq!(field(Overrides { micro_batches: 10_001, ..NONE }), "problem.micro_batch_count");
        assert_eq!(field(Overrides { recompute: 99, ..NONE }), "problem.recompute");
    }

    /// A margin is a share of what is predicted, and 0 is a choice of its own.
    #[test]
    fn margins_are_shares() {
        assert_eq!(margin(None), Ok(Margin::Known));
        assert_eq!(margin(Some(0.0)), Ok(Margin::Share(0.0)));
        for wrong in [-0.1, 1.1, f64::NAN, f64::INFINITY] {
            assert!(margin(Some(wrong)).is_err(), "{wrong}");
        }
    }
}
