//! What a plan needs that its caller names: its stages on all devices, in the order of nodes.

use loadmaster_proto::training::RecomputePolicy;
use loadmaster_proto::training::stage::{Partitioning, StageConfig};

use super::problem::{Criteria, Variant};
use super::result::RecommendError;
use super::search::{Candidate, Effort, Inquiry, Job, KnownOrders, PricedVariant};
use loadmaster_search::cost::Market;
use loadmaster_search::fleet::Subset;
use loadmaster_search::{Choice, Cuts};

/// Solver of plans whose partitioning was named by their caller.
pub(super) const GIVEN: &str = "given";

/// The plan of a partitioning on all devices, in the order of nodes; where links within one are unlike, on the best of its
/// devices for each stage. Batch, schedule and recompute policy are the first that
/// the criteria name.
///
/// # Errors
/// Another number of layers or devices, a stage that cannot be predicted, or the first stage that does not fit.
pub(super) fn named_stages<M: Market>(
    market: &M,
    job: &Job<'_>,
    criteria: &Criteria,
    partitioning: &Partitioning,
) -> Result<Candidate, RecommendError> {
    // Pins fix the devices of layers, so no better devices are searched.
    let plan = untouched_on(market, job, criteria, partitioning, criteria.cuts.pins().is_empty())?;
    if let Some(stage) = plan.stages.iter().find(|stage| stage.lacks().is_some()) {
        let device = stage.devices.first().copied().unwrap_or_default();
        let told = (device, job.device(device).unwrap_or_default());
        let (needed, capacity) = (stage.peak.needed, stage.capacity.0);
        return Err(RecommendError::given_does_not_fit(partitioning.to_string(), told, needed, capacity));
    }
    Ok(plan)
}

/// The same in the order of devices, whether it fits or not.
///
/// # Errors
/// Another number of layers or devices, or a stage that cannot be predicted.
pub(super) fn untouched<M: Market>(
    market: &M,
    job: &Job<'_>,
    criteria: &Criteria,
    partitioning: &Partitioning,
) -> Result<Candidate, RecommendError> {
    untouched_on(market, job, criteria, partitioning, false)
}

/// How stages share their work, each way once; and by stage its first layer, its last one and its way.
pub(super) fn choices_of(
    stages: impl Iterator<Item = (StageConfig, RecomputePolicy)>,
) -> (Vec<Choice>, Vec<(usize, usize, usize)>) {
    let mut choices: Vec<Choice> = Vec::new();
    let placed = stages.map(|(stage, recompute)| {
        let choice = Choice::of(&stage, recompute);
        let index = choices.iter().position(|known| *known == choice).unwrap_or_else(|| {
            choices.push(choice);
            choices.len() - 1
        });
        (stage.first_layer, stage.last_layer, index)
    });
    let placed = placed.collect();
    (choices, placed)
}

fn untouched_on<M: Market>(
    market: &M,
    job: &Job<'_>,
    criteria: &Criteria,
    partitioning: &Partitioning,
    best_devices: bool,
) -> Result<Candidate, RecommendError> {
    let (covered, layers) = (partitioning.layer_count(), market.layers());
    if covered != layers {
        return Err(RecommendError::CoversOther { covered, layers });
    }
    let needed = partitioning.stages().iter().fold(0_u32, |sum, stage| sum.saturating_add(stage.devices()));
    let there = job.fleet.devices();
    if needed != there {
        return Err(RecommendError::DeviceCount { needed, there });
    }
    let (Some(&batch), Some(&schedule)) = (criteria.batches.first(), criteria.schedules.first()) else {
        return Err(RecommendError::Stopped);
    };
    let recompute = criteria.recompute.first().copied().unwrap_or(RecomputePolicy::None);
    let (choices, stages) = choices_of(partitioning.stages().iter().map(|&stage| (stage, recompute)));
    let variant = Variant { batch, schedule, choices, stages: stages.len()..=stages.len() };
    let (whole, anywhere) = (Subset::whole(job.fleet), Cuts::anywhere(layers));
    let effort = Effort::last_look();
    let orders = KnownOrders::default();
    let inquiry =
        Inquiry { market, job, subset: &whole, criteria, cuts: &anywhere, effort: &effort, orders: &orders };
    let sizes: Vec<u32> = partitioning.stages().iter().map(StageConfig::devices).collect();
    let asked = PricedVariant::along(inquiry, &variant, &sizes);
    let Some(mut plan) = asked.given(&stages) else {
        let why = stages.iter().find_map(|&(first, last, choice)| {
            market.obstacle(schedule, batch, *variant.choices.get(choice)?, first, last)
        });
        return Err(RecommendError::Unpredictable(why.unwrap_or_else(|| {
            "the profile cannot predict a stage of the pipeline layout. Use another layout, or profile the parallel \
             sizes of its stages".to_owned()
        })));
    };
    if best_devices {
        plan = asked.on_best_devices(plan).candidate;
    }
    plan.simulate();
    Ok(plan)
}
