//! What would make a plan possible where there is none: each remedy was tried by searching again.

use std::cmp::Reverse;

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::objective::PlanShape;
use loadmaster_proto::training::{RecomputePolicy, Schedule};

use super::Scene;
use super::attempt::first_fit;
use super::candidate::Candidate;
use super::market::{Batch, Market};
use super::part::Part;
use super::variant::{divisors, recompute_name};
use super::wish::Wish;
use crate::planning::search::{Fleet, Stop};

/// Most times the devices that there are that are tried.
const MOST_TIMES: u32 = 8;

/// A change of the request after which a plan fits.
#[derive(Debug, Clone, PartialEq)]
pub struct Remedy {
    /// What to change, for people.
    pub what: String,
    /// The option of the command line that does it.
    pub option: String,
    /// A plan that fits then.
    pub plan: Candidate,
}

/// The remedies that work, those that cost least first. Stopping leaves out what was not tried yet.
pub(super) fn remedies<M: Market>(market: &M, scene: &Scene<'_>, wish: &Wish, stop: &Stop) -> Vec<Remedy> {
    let mut found = Vec::new();
    let mut check = |what: String, option: String, wish: &Wish, part: &Part| {
        if stop.is_requested() {
            return false;
        }
        let plan = fits(market, scene, wish, part, stop);
        let works = plan.is_some();
        found.extend(plan.map(|plan| Remedy { what, option, plan }));
        works
    };
    let (fleet, whole) = (scene.fleet, Part::whole(scene.fleet));
    if wish.schedules == [Schedule::Gpipe]
        && wish.rules.is_none_or(|rules| rules.schedules.contains(&Schedule::OneFOneB))
    {
        let other = Wish { schedules: vec![Schedule::OneFOneB], ..wish.clone() };
        check("1F1B instead of GPipe".to_owned(), "--schedule 1f1b".to_owned(), &other, &whole);
    }
    for policy in [RecomputePolicy::Layer, RecomputePolicy::Stage] {
        if !wish.recompute.contains(&policy) {
            let name = recompute_name(policy);
            let other = Wish { recompute: vec![policy], ..wish.clone() };
            check(format!("recompute each {name}"), format!("--recompute {name}"), &other, &whole);
        }
    }
    for batch in smaller(&wish.batches) {
        let option =
            format!("--micro-batch-size {} --micro-batches {}", batch.micro_batch_size, batch.micro_batches);
        let other = Wish { batches: vec![batch], ..wish.clone() };
        let what = format!("a micro-batch of {} samples", batch.micro_batch_size);
        if check(what, option, &other, &whole) {
            break;
        }
    }
    for shape in PlanShape::ALL {
        let is_new = !wish.shape.includes(shape);
        if is_new && wish.rules.is_none_or(|rules| rules.shape.includes(shape)) {
            let other = Wish { shape, ..wish.clone() };
            if check(format!("the shape {shape}"), format!("--shape {shape}"), &other, &whole) {
                break;
            }
        }
    }
    if !wish.constraints.allow_idle_devices
        && let Some(part) = super::part::parts(fleet)
            .into_iter()
            .filter(|part| part.devices() < fleet.devices())
            .rev()
            .find(|part| !stop.is_requested() && fits(market, scene, wish, part, stop).is_some())
    {
        let what = format!("let devices stay idle: {} of {} are enough", part.devices(), fleet.devices());
        check(what, "--allow-idle-devices".to_owned(), wish, &part);
    }
    if let Some((count, larger)) = more_devices(market, scene, wish, stop) {
        let what = format!("{count} devices instead of {}", fleet.devices());
        check(what, devices_option(&larger), wish, &Part::whole(&larger));
    }
    found
}

/// The option that names a fleet's devices; in words where a cluster has them.
fn devices_option(fleet: &Fleet) -> String {
    let groups: Option<Vec<String>> = fleet
        .nodes
        .iter()
        .map(|node| Some(format!("{}x{}", node.devices, exact(fleet.kinds.get(node.kind)?.capacity))))
        .collect();
    match groups.filter(|_| fleet.nodes.iter().all(|node| node.name.is_empty())) {
        Some(groups) => format!("--devices {}", groups.join(",")),
        None => "more nodes like the last one in the cluster".to_owned(),
    }
}

/// Bytes as an option takes them, without rounding.
fn exact(bytes: Bytes) -> String {
    let units = [("GiB", 30), ("MiB", 20), ("KiB", 10)];
    let whole = units.iter().find(|(_, shift)| bytes.0 > 0 && bytes.0.is_multiple_of(1_u64 << shift));
    whole.map_or_else(|| format!("{}B", bytes.0), |(unit, shift)| format!("{}{unit}", bytes.0 >> shift))
}

/// A plan that fits on a part of the fleet, pinned layers on the devices that they are pinned to.
fn fits<M: Market>(
    market: &M,
    scene: &Scene<'_>,
    wish: &Wish,
    part: &Part,
    stop: &Stop,
) -> Option<Candidate> {
    let cuts = wish.cuts_for(scene.model).ok()?;
    let plan = first_fit(market, wish, part, &cuts, stop).candidates.into_iter().next()?;
    let most = wish.constraints.max_peak_bytes.unwrap_or(u64::MAX);
    (plan.peak_bytes() <= most).then_some(plan)
}

/// Smaller micro-batches of the same iteration, the largest first.
fn smaller(batches: &[Batch]) -> Vec<Batch> {
    let Some(least) = batches.iter().min_by_key(|batch| batch.micro_batch_size) else { return Vec::new() };
    let samples = least.samples();
    let mut smaller: Vec<Batch> = divisors(samples)
        .into_iter()
        .filter_map(|size| {
            let micro_batch_size = u32::try_from(size).ok()?;
            let micro_batches = u32::try_from(samples / size).ok()?;
            let allowed = micro_batches <= loadmaster_proto::training::TrainingSpec::MAX_MICRO_BATCHES;
            (micro_batch_size < least.micro_batch_size && allowed)
                .then_some(Batch { micro_batch_size, micro_batches })
        })
        .collect();
    smaller.sort_by_key(|batch| Reverse(batch.micro_batch_size));
    smaller
}

/// The fewest devices like the last node's that are enough: nodes like it are added, whole where there are
/// several, one device at a time where there is one.
fn more_devices<M: Market>(market: &M, scene: &Scene<'_>, wish: &Wish, stop: &Stop) -> Option<(u32, Fleet)> {
    let fleet = scene.fleet;
    let last = fleet.nodes.last()?;
    let is_alone = fleet.nodes.len() == 1;
    let step = if is_alone { 1 } else { last.devices.max(1) };
    let most = fleet.devices().saturating_mul(MOST_TIMES).min(fleet.devices() + 64 * step);
    (1..)
        .map(|more| fleet.devices() + more * step)
        .take_while(|&count| count <= most && !stop.is_requested())
        .find_map(|count| {
            let mut larger = fleet.clone();
            if is_alone {
                larger.nodes.iter_mut().for_each(|node| node.devices = count);
            } else {
                let more = (count - fleet.devices()) / step;
                larger.nodes.extend((0..more).map(|_| last.clone()));
            }
            fits(market, scene, wish, &Part::whole(&larger), stop).map(|_| (count, larger))
        })
}
