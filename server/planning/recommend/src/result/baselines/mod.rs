//! Plans of well-known rules, to hold a recommendation against.
//!
//! | name | rule |
//! |---|---|
//! | `uniform-layers` | as many layers in each stage, the first stages one more |
//! | `uniform-parameters` | the largest number of parameters of a stage as small as possible |
//! | `torchgpipe-time` | torchgpipe's `balance_by_time`: its block partition of both passes' seconds |
//! | `torchgpipe-size` | torchgpipe's `balance_by_size`: the same of kept bytes plus scaled parameter bytes |
//! | `megatron` | Megatron's heuristic: the smallest tensor × pipeline degree that fits, tensor within a node first |
//!
//! A rule is a partitioning; what it costs is asked of the same prices as the recommendation.

mod rule;

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::plan::comparison::Baseline;
use loadmaster_proto::training::stage::StageConfig;

use crate::problem::Variant;
use crate::search::{Candidate, Inquiry, PricedVariant};
use loadmaster_search::cost::Market;
use loadmaster_search::fleet::Subset;
use loadmaster_search::{Choice, Cuts, Fleet};
use rule::{Rule, megatron_degrees, uniform};

/// The rules on the devices of a recommended plan, at its batch and schedule.
///
/// They know nothing of degrees, so they take the plan's own where all of its stages have the same. Else one
/// device per stage, or as many replicas as let the most stages share the devices evenly.
pub(super) fn compared<M: Market>(inquiry: Inquiry<'_, M>, best: &Candidate) -> Vec<Baseline> {
    let market = inquiry.market;
    let (facts, devices) = (market.facts(), best.devices());
    let like = best.stages.first().map_or(Choice::SINGLE, |stage| stage.choice);
    // What a request asks of all stages with shards or replicas holds where the plan has neither, too.
    let sharding = match inquiry.criteria.constraints.shardings.as_slice() {
        [only] => *only,
        _ => like.sharding,
    };
    let general = Choice { sharding, sequence: inquiry.criteria.sequence_parallel, ..like };
    let (choice, stages) = if best.stages.iter().all(|stage| stage.choice == like) {
        (like, best.stages.len())
    } else {
        evenly(devices, market.layers(), best, general)
    };
    let mut compared: Vec<Baseline> = Rule::ALL
        .into_iter()
        .map(|rule| match rule.cut(facts, stages, inquiry.job.optimizer) {
            Ok(sizes) => weigh(inquiry, best, rule.as_str(), choice, &sizes),
            Err(note) => nothing(rule.as_str(), note),
        })
        .collect();
    compared.push(megatron(inquiry, best, general));
    // The rules cut where they like; where this request does not, they say so.
    for one in &mut compared {
        let Some(plan) = one.plan.as_ref().filter(|_| one.note.is_empty()) else { continue };
        let stages = plan.partitioning.stages();
        let inner = stages.iter().take(stages.len().saturating_sub(1));
        if let Some(stage) = inner.clone().find(|stage| !inquiry.cuts.may_end(stage.last_layer)) {
            one.note = format!(
                "the baseline, a plan for comparison, ends a stage after layer {}, where the request or the framework \
                 does not allow a stage boundary",
                stage.last_layer
            );
        }
    }
    compared
}

/// Replicas of equal stages, as many stages as there can be.
fn evenly(devices: u32, layers: usize, best: &Candidate, like: Choice) -> (Choice, usize) {
    let most = u32::try_from(layers).unwrap_or(u32::MAX).min(devices);
    let size = best.batch.micro_batch_size;
    let stages = (1..=most)
        .rev()
        .find(|&stages| devices.is_multiple_of(stages) && size.is_multiple_of(devices / stages))
        .unwrap_or(1);
    (like.resized(devices / stages, 1), stages as usize)
}

/// Megatron's heuristic: the smallest tensor × pipeline degree that fits.
fn megatron<M: Market>(inquiry: Inquiry<'_, M>, best: &Candidate, like: Choice) -> Baseline {
    const NAME: &str = "megatron";
    let (layers, fleet) = (inquiry.market.layers(), inquiry.fleet());
    let devices = best.devices();
    let smallest = fleet.nodes.iter().map(|node| node.devices).min().unwrap_or(1);
    let per_node = if fleet.is_one_node { devices } else { smallest };
    for (tensor, pipeline) in megatron_degrees(devices, per_node.min(StageConfig::MAX_TENSOR_DEGREE), layers)
    {
        let data = devices / (tensor * pipeline);
        if !best.batch.micro_batch_size.is_multiple_of(data) {
            continue;
        }
        let choice = like.resized(data, tensor);
        let sizes = uniform(layers, pipeline as usize);
        let one = weigh(inquiry, best, NAME, choice, &sizes);
        if one.fits {
            return one;
        }
    }
    nothing(
        NAME,
        "no combination of tensor-parallel and pipeline-parallel size with equal stages fits".to_owned(),
    )
}

fn nothing(name: &str, note: String) -> Baseline {
    Baseline { name: name.to_owned(), plan: None, fits: false, peak_ratio: None, time_ratio: None, note }
}

/// What stages of these many layers need, all of one choice.
fn weigh<M: Market>(
    inquiry: Inquiry<'_, M>,
    best: &Candidate,
    name: &str,
    choice: Choice,
    sizes: &[usize],
) -> Baseline {
    let market = inquiry.market;
    let variant = Variant {
        batch: best.batch,
        schedule: best.schedule,
        choices: vec![choice],
        stages: sizes.len()..=sizes.len(),
    };
    let mut first = 0;
    let stages: Vec<(usize, usize, usize)> = sizes
        .iter()
        .map(|size| {
            first += size;
            (first - size, first - 1, 0)
        })
        .collect();
    let (used, anywhere) = (used(inquiry.fleet(), best), Cuts::anywhere(market.layers()));
    let asked =
        PricedVariant::along(inquiry.on(&used, &anywhere), &variant, &vec![choice.devices(); stages.len()]);
    let Some(mut plan) = asked.given(&stages) else {
        let known = stages
            .iter()
            .find_map(|&(first, last, _)| market.obstacle(best.schedule, best.batch, choice, first, last));
        return nothing(name, known.unwrap_or_else(|| "its stages cannot be predicted".to_owned()));
    };
    plan.simulate();
    let lacking =
        plan.stages.iter().enumerate().filter_map(|(index, stage)| Some((stage.lacks()?, index, stage)));
    let note = match lacking.max_by_key(|&(lacks, index, _)| (lacks, std::cmp::Reverse(index))) {
        Some((lacks, index, stage)) => {
            format!("stage {index} needs {lacks} more on {}", inquiry.job.device_range(&stage.devices))
        }
        None => String::new(),
    };
    let ratio = |one: Option<f64>, other: Option<f64>| Some(one? / other.filter(|&other| other > 0.0)?);
    let mut reference = best.clone();
    reference.simulate();
    let bytes = |plan: &Candidate| Some(Bytes(plan.peak_bytes()).0 as f64);
    Baseline {
        name: name.to_owned(),
        fits: plan.fits(),
        peak_ratio: ratio(bytes(&plan), bytes(best)),
        time_ratio: ratio(plan.seconds(), reference.seconds()),
        plan: plan.outline().ok(),
        note,
    }
}

/// The devices that a plan takes, in the fleet's order.
fn used(fleet: &Fleet, plan: &Candidate) -> Subset {
    let mut taken = vec![0; fleet.nodes.len()];
    let begins = fleet.begins();
    for device in plan.stages.iter().flat_map(|stage| &stage.devices) {
        let after = begins.partition_point(|begin| begin <= device);
        if let Some(taken) = after.checked_sub(1).and_then(|node| taken.get_mut(node)) {
            *taken += 1;
        }
    }
    Subset::of(fleet, &taken, &[])
}
