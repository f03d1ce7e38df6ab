//! What the plans of well-known rules need, by the same prices.

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::plan::compared::Baseline;
use loadmaster_proto::training::stage::StageConfig;

use super::Scene;
use super::candidate::Candidate;
use super::market::Market;
use super::part::Part;
use super::solve::Asked;
use super::variant::Variant;
use super::wish::Wish;
use crate::baselines::{Rule, megatron_degrees, uniform};
use crate::search::{Choice, Cuts};

/// The rules on the devices of a recommended plan, at its batch and schedule.
///
/// They know nothing of degrees, so they take the plan's own where all of its stages have the same; else one
/// device per stage, or as many replicas as let the most stages share the devices evenly.
pub(super) fn compared<M: Market>(
    market: &M,
    scene: &Scene<'_>,
    wish: &Wish,
    best: &Candidate,
    cuts: &Cuts,
) -> Vec<Baseline> {
    let (facts, devices) = (market.facts(), best.devices());
    let like = best.stages.first().map_or(Choice::SINGLE, |stage| stage.choice);
    let (choice, stages) = if best.stages.iter().all(|stage| stage.choice == like) {
        (like, best.stages.len())
    } else {
        evenly(devices, market.layers(), best, like)
    };
    let mut compared: Vec<Baseline> = Rule::ALL
        .into_iter()
        .map(|rule| match rule.cut(facts, stages, scene.optimizer) {
            Ok(sizes) => weigh(market, scene, wish, best, rule.as_str(), choice, &sizes),
            Err(note) => nothing(rule.as_str(), note),
        })
        .collect();
    compared.push(megatron(market, scene, wish, best, like));
    // The rules cut where they like; where this request does not, they say so.
    for one in &mut compared {
        let Some(plan) = one.plan.as_ref().filter(|_| one.note.is_empty()) else { continue };
        let stages = plan.partitioning.stages();
        let inner = stages.iter().take(stages.len().saturating_sub(1));
        if let Some(stage) = inner.clone().find(|stage| !cuts.may_end(stage.last_layer)) {
            one.note = format!("cuts after layer {}, where the request does not", stage.last_layer);
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
    let choice = Choice { data: devices / stages, tensor: 1, recompute: like.recompute };
    (choice, stages as usize)
}

/// Megatron's heuristic: the smallest tensor × pipeline degree that fits.
fn megatron<M: Market>(
    market: &M,
    scene: &Scene<'_>,
    wish: &Wish,
    best: &Candidate,
    like: Choice,
) -> Baseline {
    const NAME: &str = "megatron";
    let devices = best.devices();
    let smallest = scene.fleet.nodes.iter().map(|node| node.devices).min().unwrap_or(1);
    let per_node = if scene.fleet.is_one_node { devices } else { smallest };
    for (tensor, pipeline) in
        megatron_degrees(devices, per_node.min(StageConfig::MAX_TENSOR_DEGREE), market.layers())
    {
        let data = devices / (tensor * pipeline);
        if !best.batch.micro_batch_size.is_multiple_of(data) {
            continue;
        }
        let choice = Choice { data, tensor, recompute: like.recompute };
        let sizes = uniform(market.layers(), pipeline as usize);
        let one = weigh(market, scene, wish, best, NAME, choice, &sizes);
        if one.fits {
            return one;
        }
    }
    nothing(NAME, "no tensor × pipeline degree of equal stages fits".to_owned())
}

fn nothing(name: &str, note: String) -> Baseline {
    Baseline { name: name.to_owned(), plan: None, fits: false, peak_ratio: None, time_ratio: None, note }
}

/// What stages of these many layers need, all of one choice.
fn weigh<M: Market>(
    market: &M,
    scene: &Scene<'_>,
    wish: &Wish,
    best: &Candidate,
    name: &str,
    choice: Choice,
    sizes: &[usize],
) -> Baseline {
    let part = used(scene, best);
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
    let anywhere = Cuts::anywhere(market.layers());
    let asked = Asked::along(market, wish, &variant, &part, &anywhere, &vec![choice.devices(); stages.len()]);
    let plan = asked
        .questions(false)
        .find_map(|question| Candidate::given(&question, &stages, best.batch, wish.overlap, &part));
    let Some(mut plan) = plan else {
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
            format!("stage {index} lacks {lacks} on {}", scene.device_range(&stage.devices))
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
fn used(scene: &Scene<'_>, plan: &Candidate) -> Part {
    let mut taken = vec![0; scene.fleet.nodes.len()];
    let begins = scene.fleet.begins();
    for device in plan.stages.iter().flat_map(|stage| &stage.devices) {
        let after = begins.partition_point(|begin| begin <= device);
        if let Some(taken) = after.checked_sub(1).and_then(|node| taken.get_mut(node)) {
            *taken += 1;
        }
    }
    Part::of(scene.fleet, &taken, &[])
}
