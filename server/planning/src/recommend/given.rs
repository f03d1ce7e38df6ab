//! What a plan needs that its caller names: its stages on all devices in their order.

use loadmaster_proto::training::RecomputePolicy;
use loadmaster_proto::training::stage::{Partitioning, StageConfig};

use super::candidate::Candidate;
use super::solve::Asked;
use super::variant::Variant;
use super::wish::Wish;
use super::{RecommendError, Scene};
use crate::cost::Market;
use crate::fleet::Subset;
use crate::search::{Choice, Cuts};

/// Solver of plans whose partitioning was named by their caller.
pub const GIVEN: &str = "given";

/// The plan of a partitioning on all devices, in order. Batch, schedule and recompute policy are the first that
/// the wish names.
///
/// # Errors
/// Another number of layers or devices, a stage that cannot be predicted, or the first stage that does not fit.
pub fn given<M: Market>(
    market: &M,
    scene: &Scene<'_>,
    wish: &Wish,
    partitioning: &Partitioning,
) -> Result<Candidate, RecommendError> {
    let (covered, layers) = (partitioning.layer_count(), market.layers());
    if covered != layers {
        return Err(RecommendError::CoversOther { covered, layers });
    }
    let needed = partitioning.stages().iter().fold(0_u32, |sum, stage| sum.saturating_add(stage.devices()));
    let there = scene.fleet.devices();
    if needed != there {
        return Err(RecommendError::DeviceCount { needed, there });
    }
    let (Some(&batch), Some(&schedule)) = (wish.batches.first(), wish.schedules.first()) else {
        return Err(RecommendError::Stopped);
    };
    let recompute = wish.recompute.first().copied().unwrap_or(RecomputePolicy::None);
    let mut choices: Vec<Choice> = Vec::new();
    let mut stages = Vec::with_capacity(partitioning.stages().len());
    for stage in partitioning.stages() {
        let choice = Choice { data: stage.data_degree, tensor: stage.tensor_degree, recompute };
        let index = choices.iter().position(|known| *known == choice).unwrap_or_else(|| {
            choices.push(choice);
            choices.len() - 1
        });
        stages.push((stage.first_layer, stage.last_layer, index));
    }
    let variant = Variant { batch, schedule, choices, stages: stages.len()..=stages.len() };
    let (part, anywhere) = (Subset::whole(scene.fleet), Cuts::anywhere(layers));
    let sizes: Vec<u32> = partitioning.stages().iter().map(StageConfig::devices).collect();
    let asked = Asked::along(market, wish, &variant, &part, &anywhere, &sizes);
    let plan = asked
        .questions(false)
        .find_map(|question| Candidate::given(&question, &stages, batch, wish.overlap, &part));
    let Some(mut plan) = plan else {
        let why = stages.iter().find_map(|&(first, last, choice)| {
            market.obstacle(schedule, batch, *variant.choices.get(choice)?, first, last)
        });
        return Err(RecommendError::Unpredictable(why.unwrap_or_else(|| {
            "a stage of the partitioning cannot be predicted from this profile".to_owned()
        })));
    };
    plan.simulate();
    if let Some((stage, missing)) = plan.stages.iter().find_map(|stage| Some((stage, stage.lacks()?))) {
        let device = stage.devices.first().copied().unwrap_or_default();
        return Err(RecommendError::GivenDoesNotFit {
            partitioning: partitioning.to_string(),
            position: device,
            device: scene.device(device).unwrap_or_default(),
            needed: loadmaster_proto::bytes::Bytes(stage.peak.needed),
            capacity: stage.capacity,
            missing,
        });
    }
    Ok(plan)
}
