//! What requests about plans have in common, checked.

mod chunks;
mod devices;
mod question;
mod settings;

use loadmaster_predict::Margin;
use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::cluster::catalog;
use loadmaster_proto::error::{Invalid, in_range};
use loadmaster_proto::training::TrainingSpec;
use loadmaster_proto::training::stage::Partitioning;
use loadmaster_proto::wire::{field, v1};
use loadmaster_recommend::ProfiledChain;
use loadmaster_search::fleet::MAX_DEVICES;

pub(super) use chunks::first_choice;
pub(super) use devices::{excluded, fleet_error};
pub(super) use question::{question, question_within};

/// A training with the settings that a request names.
///
/// # Errors
/// Names the setting that is out of range.
pub(in crate::rpc::plan) fn overridden(
    problem: &v1::Problem,
    training: TrainingSpec,
) -> Result<TrainingSpec, Invalid> {
    let or = |named: i32, profiled: i32| if named == 0 { profiled } else { named };
    let profiled = v1::TrainingSpec::from(training);
    v1::TrainingSpec {
        micro_batch_size: or(problem.micro_batch_size, profiled.micro_batch_size),
        micro_batch_count: or(problem.micro_batch_count, profiled.micro_batch_count),
        schedule: or(problem.schedule, profiled.schedule),
        recompute: or(problem.recompute, profiled.recompute),
        // It follows from the other two.
        global_batch_size: 0,
        ..profiled
    }
    .try_into()
    .map_err(|invalid: Invalid| invalid.under("problem"))
}

/// Checks that a partitioning is one of the profiled model, and that its stages can be shared as they are to
/// be at this micro-batch size. Of an opaque chain no one knows what can be split.
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
        let why = format!("{covered} layers are covered, but the model has {layers}. Cover each layer once.");
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
        let (capacity, kind) = device(index, group, &[&chain.device_kind])?;
        if kind != chain.device_kind {
            return Err(Invalid::field(
                path("kind"),
                format!(
                    "{:?} was requested, but {} was measured on {:?}. Create a profile on the requested kind of \
                     device.",
                    group.kind, chain.profile, chain.device_kind
                ),
            ));
        }
        capacities.extend(std::iter::repeat_n(capacity, count as usize));
        in_range("problem.devices", capacities.len(), 1..=MAX_DEVICES as usize)?;
    }
    Ok(capacities)
}

/// Returns the capacity and the kind of a device of a group. A kind has the name that a profile has for it, and a kind of the catalog
/// has its usable memory where the group has no capacity.
///
/// # Errors
/// No capacity is given, and the catalog has none of this kind.
pub(in crate::rpc::plan) fn device(
    index: usize,
    group: &v1::DeviceGroup,
    profiled: &[&str],
) -> Result<(Bytes, String), Invalid> {
    let path = |field: &str| format!("problem.devices[{index}].{field}");
    let named = group.kind.as_str();
    let row = catalog::find(named);
    let kind = match profiled {
        [first, ..] if named.is_empty() => *first,
        _ => known_kind(named, profiled.iter().copied()).unwrap_or_else(|| row.map_or(named, |row| row.name)),
    };
    if group.capacity_bytes != 0 || named.is_empty() {
        return Ok((capacity(&path("capacity_bytes"), group.capacity_bytes)?, kind.to_owned()));
    }
    let row = row.ok_or_else(|| {
        let known = catalog::similar(named).join(", ");
        let why = format!(
            "{named:?} is not in the catalog of device kinds. Use one of {known}, or set `capacity_bytes`"
        );
        Invalid::field(path("kind"), why)
    })?;
    let memory = row.usable_memory().ok_or_else(|| {
        let why = format!("the catalog of device kinds has no memory size for {named:?}. State the capacity of these devices");
        Invalid::field(path("capacity_bytes"), why)
    })?;
    Ok((memory, kind.to_owned()))
}

/// Returns the one of these kinds that is this one, under whatever name of the catalog.
pub(in crate::rpc::plan) fn known_kind<'a>(
    kind: &str,
    mut kinds: impl Iterator<Item = &'a str>,
) -> Option<&'a str> {
    let row = catalog::find(kind);
    kinds.find(|known| *known == kind || row.is_some() && catalog::find(known) == row)
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
        Some(share) => Err(Invalid::field("problem.safety_margin", format!("{share} is not 0 to 1"))),
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

    /// What a request does not name stays as it was profiled; what it names is checked.
    #[test]
    fn only_what_is_named_is_overridden() {
        assert_eq!(overridden(&v1::Problem::default(), PROFILED).unwrap(), PROFILED);
        let schedule = v1::Schedule::OneFOneB.into();
        let named = v1::Problem { micro_batch_size: 5, schedule, ..Default::default() };
        let expected = TrainingSpec { micro_batch_size: 5, schedule: Schedule::OneFOneB, ..PROFILED };
        assert_eq!(overridden(&named, PROFILED).unwrap(), expected);
        let field =
            |problem: v1::Problem| overridden(&problem, PROFILED).unwrap_err().violations()[0].field.clone();
        let none = v1::Problem::default;
        assert_eq!(field(v1::Problem { micro_batch_size: -1, ..none() }), "problem.micro_batch_size");
        assert_eq!(field(v1::Problem { micro_batch_count: 10_001, ..none() }), "problem.micro_batch_count");
        assert_eq!(field(v1::Problem { recompute: 99, ..none() }), "problem.recompute");
    }

    /// A kind of the catalog is found under any of its names, and needs no capacity.
    #[test]
    fn kinds_of_the_catalog_have_a_capacity_and_the_profiles_name() {
        let of = |kind: &str, capacity_bytes, profiled: &[&str]| {
            device(0, &v1::DeviceGroup { count: 1, capacity_bytes, kind: kind.to_owned() }, profiled)
        };
        let h100 = Bytes(81_080 << 20);
        assert_eq!(of("H100", 0, &["cpu"]), Ok((h100, "NVIDIA H100 80GB HBM3".to_owned())));
        assert_eq!(
            of("h100", 0, &["cpu", "NVIDIA-H100-80GB-HBM3"]),
            Ok((h100, "NVIDIA-H100-80GB-HBM3".to_owned()))
        );
        assert_eq!(of("mine", 5, &["cpu"]), Ok((Bytes(5), "mine".to_owned())));
        assert_eq!(of("", 5, &["cpu"]), Ok((Bytes(5), "cpu".to_owned())));
        let wrong = |kind: &str| of(kind, 0, &["cpu"]).unwrap_err().violations()[0].clone();
        assert!(wrong("H1000").description.contains("one of H100"), "{:?}", wrong("H1000"));
        assert_eq!(wrong("H800").field, "problem.devices[0].capacity_bytes");
        assert_eq!(wrong("").field, "problem.devices[0].capacity_bytes");
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
