//! Who decides what is where, the largest model that each trains, and one model by all of them.

use anyhow::{Result, bail};
use loadmaster_planning::chunks::{
    Baseline, ChunkChoices, ChunkPlan, ChunkQuestion, NoChunks, PatrickStar, choose,
};
use loadmaster_planning::predict::Predictor;
use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::chunks::paging::Eviction;
use loadmaster_proto::chunks::residency::paged::Paging;
use loadmaster_proto::chunks::stage::{ChunkedStage, Residency};
use loadmaster_proto::measure::measurement::Measurement;
use loadmaster_proto::training::RecomputePolicy;
use loadmaster_proto::training::chunk_order::ChunkOrder;

use crate::machine::{Ended, Machine};
use crate::profile::{Profile, roomy};

/// Most blocks that are looked at.
const MOST_BLOCKS: u32 = 1_000;
const RECOMPUTES: [RecomputePolicy; 2] = [RecomputePolicy::None, RecomputePolicy::Layer];

/// Who decides what is where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rule {
    /// All of it is on the device.
    Plain,
    /// ZeRO-Offload.
    Static,
    /// PatrickStar's mode, least recently used first.
    Lru,
    /// PatrickStar's mode as published.
    Belady,
    Ours,
}

/// The largest model that a rule trains.
#[derive(Debug)]
pub(crate) struct Largest {
    pub(crate) rule: Rule,
    /// None where it trains none.
    pub(crate) blocks: Option<u32>,
    pub(crate) parameters: u64,
    pub(crate) attempt: Option<Attempt>,
    /// Why there is no plan for one block more.
    pub(crate) refused: String,
    /// How that ended all the same.
    pub(crate) next: String,
}

/// A model trained by a rule.
#[derive(Debug)]
pub(crate) struct Attempt {
    pub(crate) rule: Rule,
    pub(crate) blocks: u32,
    /// None where nothing is in chunks.
    pub(crate) plan: Option<ChunkPlan>,
    pub(crate) predicted_peak: Bytes,
    pub(crate) measured: Box<Measurement>,
}

impl Rule {
    pub(crate) const ALL: [Self; 5] = [Self::Plain, Self::Static, Self::Lru, Self::Belady, Self::Ours];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Static => "static (ZeRO-Offload)",
            Self::Lru => "PatrickStar mode, LRU",
            Self::Belady => "PatrickStar mode, Belady",
            Self::Ours => "ours",
        }
    }
}

/// A rule's plan for a model, or why there is none.
type Planned = Result<(Option<ChunkPlan>, RecomputePolicy, Bytes), String>;

fn plan(
    rule: Rule,
    machine: &Machine,
    profile: &Profile,
    blocks: u32,
    micro_batches: u32,
) -> Result<Planned> {
    let model = machine.model(blocks)?;
    let training = machine.training(micro_batches, RecomputePolicy::None);
    let component = profile.component(&model, &training)?;
    let setting = machine.setting;
    if rule == Rule::Plain {
        let mut least = None;
        for recompute in RECOMPUTES {
            let training = machine.training(micro_batches, recompute);
            let bytes = component.stage(&Profile::setting(&model, training))?.bytes;
            if least.is_none_or(|(_, known): (_, Bytes)| bytes.0 < known.0) {
                least = Some((recompute, bytes));
            }
        }
        return Ok(match least {
            Some((recompute, bytes)) if bytes.0 <= setting.device.0 => Ok((None, recompute, bytes)),
            Some((_, bytes)) => Err(format!("needs {bytes} of {}", setting.device)),
            None => Err("cannot be predicted".to_owned()),
        });
    }
    let costs = |order: ChunkOrder, recompute: RecomputePolicy| {
        profile.costs(&component, &model, machine.training(micro_batches, recompute), order)
    };
    let question = ChunkQuestion {
        model: model.clone(),
        training,
        capacity: setting.device,
        host_memory: setting.host,
        rates: profile.rates(),
        choices: ChunkChoices::default(),
    };
    let found = match rule {
        Rule::Ours | Rule::Plain => choose(&question, &costs),
        Rule::Static => both(&question, Baseline::Static(ChunkOrder::Layer), &costs),
        Rule::Lru => both(&question, patrickstar(Eviction::Lru), &costs),
        Rule::Belady => both(&question, patrickstar(Eviction::Belady), &costs),
    };
    Ok(match found {
        Ok(plan) => {
            let (recompute, peak) = (plan.recompute, plan.peak());
            Ok((Some(plan), recompute, peak))
        }
        Err(why @ NoChunks::NoRoom(_)) => Err(why.to_string()),
        Err(why) => return Err(why.into()),
    })
}

fn patrickstar(eviction: Eviction) -> Baseline {
    Baseline::PatrickStar(PatrickStar { eviction, ..PatrickStar::default() })
}

/// The faster of both recomputations.
fn both(
    question: &ChunkQuestion,
    baseline: Baseline,
    costs: &impl loadmaster_planning::chunks::Passes,
) -> Result<ChunkPlan, NoChunks> {
    let [first, second] = RECOMPUTES.map(|recompute| baseline.plan(question, costs, recompute));
    match (first, second) {
        (Ok(one), Ok(other)) => {
            let is_faster = one.lanes.iteration_seconds <= other.lanes.iteration_seconds;
            Ok(if is_faster { one } else { other })
        }
        (Ok(plan), Err(_)) | (Err(_), Ok(plan)) => Ok(plan),
        (Err(_), Err(why)) => Err(why),
    }
}

/// Finds the largest model of a rule, trains it, and tries one block more.
pub(crate) fn largest(rule: Rule, machine: &Machine, profile: &Profile) -> Result<Largest> {
    let (mut low, mut high) = (1, MOST_BLOCKS);
    let (mut blocks, mut refused) = (None, String::new());
    while low <= high {
        let middle = low + (high - low) / 2;
        match plan(rule, machine, profile, middle, 1)? {
            Ok(_) => {
                blocks = Some(middle);
                low = middle + 1;
            }
            Err(why) => {
                refused = why;
                high = middle - 1;
            }
        }
    }
    let attempt = blocks.map(|blocks| attempt(rule, machine, profile, blocks, 1)).transpose()?;
    let more = blocks.map_or(1, |blocks| blocks + 1);
    let next = one_more(rule, machine, more, attempt.as_ref())?;
    let parameters =
        blocks.map_or(Ok(0), |blocks| machine.model(blocks).map(|model| model.parameter_count()))?;
    Ok(Largest { rule, blocks, parameters, attempt, refused, next })
}

/// How a training without room ends: with chunks as the last plan has them, and nothing there but what steps need.
fn one_more(rule: Rule, machine: &Machine, blocks: u32, last: Option<&Attempt>) -> Result<String> {
    let model = machine.model(blocks)?;
    let plan = last.and_then(|last| last.plan.as_ref());
    let training = machine.training(1, plan.map_or(RecomputePolicy::Layer, |plan| plan.recompute));
    let stage = plan.map_or_else(roomy, |plan| ChunkedStage {
        residency: Residency::Paged(Paging::AT_NEED),
        host_memory: machine.setting.host,
        ..plan.stage.clone()
    });
    let chunks = (rule != Rule::Plain).then_some(&stage);
    let ended =
        machine.train(&model, training, (0, model.layers().len() - 1), chunks, machine.setting.device)?;
    Ok(match ended {
        Ended::Trained(measured) => format!("trained all the same, with {}", measured.peak_allocated),
        Ended::Not(why) => why,
    })
}

/// Trains a model by a rule.
pub(crate) fn attempt(
    rule: Rule,
    machine: &Machine,
    profile: &Profile,
    blocks: u32,
    micro_batches: u32,
) -> Result<Attempt> {
    let (plan, recompute, predicted_peak) = match plan(rule, machine, profile, blocks, micro_batches)? {
        Ok(planned) => planned,
        Err(why) => bail!("{} has no plan for {blocks} blocks: {why}", rule.name()),
    };
    let model = machine.model(blocks)?;
    let training = machine.training(micro_batches, recompute);
    let stage = plan.as_ref().map(|plan| &plan.stage);
    let whole = (0, model.layers().len() - 1);
    match machine.train(&model, training, whole, stage, machine.setting.device)? {
        Ended::Trained(measured) => Ok(Attempt { rule, blocks, plan, predicted_peak, measured }),
        Ended::Not(why) => bail!("{} did not train {blocks} blocks: {why}", rule.name()),
    }
}
