//! Who decides what is where: the largest model that each trains, one model by all of them, and by several ranks of ours.

use std::time::Instant;

use anyhow::{Context, Result, anyhow, bail};
use loadmaster_memory::chunks::{
    Baseline, ChunkChoices, ChunkPlan, ChunkQuestion, NoChunks, PassChoice, StepCosts, choose, fits,
};
use loadmaster_predict::Predictor;
use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::chunks::stage::ChunkedStage;
use loadmaster_proto::cluster::Link;
use loadmaster_proto::measure::measurement::Measurement;
use loadmaster_proto::model::Model;
use loadmaster_proto::plan::rates::LaneRates;
use loadmaster_proto::training::chunk_order::ChunkOrder;
use loadmaster_proto::training::stage::StageConfig;
use loadmaster_proto::training::{RecomputePolicy, TrainingSpec};
use loadmaster_simulate::copies::SlotCores;

use crate::chunks::machine::{Machine, Setting};
use crate::chunks::profile::Profile;
use crate::trial::largest::{Found, Sizes, largest as search};

/// Most blocks that are looked at.
const MOST_BLOCKS: u32 = 1_024;
const RECOMPUTES: [RecomputePolicy; 2] = [RecomputePolicy::None, RecomputePolicy::Layer];

/// Who decides what is where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rule {
    /// All of it is on the device.
    Plain,
    /// ZeRO-Offload.
    Static,
    /// PatrickStar as published.
    Patrickstar,
    Ours,
}

/// The largest model that a rule trains.
#[derive(Debug)]
pub(crate) struct Largest {
    pub(crate) rule: Rule,
    /// 0 where it trains none.
    pub(crate) blocks: u32,
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
    /// How long it took to plan, seconds.
    pub(crate) planned_in: f64,
    pub(crate) measured: Box<Measurement>,
}

impl Rule {
    pub(crate) const ALL: [Self; 4] = [Self::Plain, Self::Static, Self::Patrickstar, Self::Ours];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Static => "static (ZeRO-Offload)",
            Self::Patrickstar => "PatrickStar",
            Self::Ours => "ours",
        }
    }
}

/// A rule's plan for a model, or why there is none.
type Planned = Result<(Option<ChunkPlan>, RecomputePolicy, Bytes), String>;

/// A rule that trains models of a profile on a machine.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Trainer<'a> {
    pub(crate) rule: Rule,
    pub(crate) machine: &'a Machine,
    pub(crate) profile: &'a Profile,
}

impl Trainer<'_> {
    fn plan(self, blocks: u32, micro_batches: u32) -> Result<Planned> {
        let Self { rule, machine, profile } = self;
        let model = machine.model(blocks)?;
        let training = machine.training(micro_batches, RecomputePolicy::None);
        let component = profile.component(&model, &training)?;
        if rule == Rule::Plain {
            let setting = machine.setting;
            let mut least = None;
            for recompute in RECOMPUTES {
                let training = machine.training(micro_batches, recompute);
                let bytes = component.stage(&Profile::setting(&model, training, 1))?.bytes;
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
        let costs = |of: PassChoice| {
            profile.costs(&component, &model, (machine.training(micro_batches, of.recompute), 1), of)
        };
        let question = self.question(model.clone(), micro_batches);
        let found = match rule {
            Rule::Ours | Rule::Plain => choose(&question, &costs),
            Rule::Static => Baseline::Static(ChunkOrder::Layer).fastest(&question, &costs),
            Rule::Patrickstar => Baseline::PATRICKSTAR.fastest(&question, &costs),
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

    /// Whether a rule has a plan, or why not. Of ours nothing is simulated for that.
    fn room(self, blocks: u32, micro_batches: u32) -> Result<Result<(), String>> {
        let Self { rule, machine, profile } = self;
        if rule == Rule::Ours {
            let model = machine.model(blocks)?;
            let question = self.question(model.clone(), micro_batches);
            let component = profile.component(&model, &question.training)?;
            let costs = |of: PassChoice| {
                profile.costs(&component, &model, (machine.training(micro_batches, of.recompute), 1), of)
            };
            if fits(&question, &costs, &|| false)? {
                return Ok(Ok(()));
            }
        }
        Ok(self.plan(blocks, micro_batches)?.map(drop))
    }

    fn question(self, model: Model, micro_batches: u32) -> ChunkQuestion {
        let Self { machine, profile, .. } = self;
        ChunkQuestion {
            model,
            training: machine.training(micro_batches, RecomputePolicy::None),
            ranks: 1,
            shards: 1,
            capacity: machine.setting.device,
            host_memory: machine.setting.host,
            rates: profile.rates(machine.setting.pace),
            choices: ChunkChoices::on(machine.kind()),
        }
    }

    /// Finds the largest model of a rule, trains it, and tries one block more.
    pub(crate) async fn largest(self) -> Result<Largest> {
        let Self { rule, machine, .. } = self;
        // Twice as many until there is no plan, then between.
        let sizes = Sizes { fewest: 1, most: MOST_BLOCKS, first: 1, step: 1 };
        let Found { size: blocks, beyond: refused, .. } = search(sizes, |blocks| self.room(blocks, 1))?;
        if blocks == MOST_BLOCKS {
            bail!("{} trains {MOST_BLOCKS} blocks: ask for smaller caps", rule.name());
        }
        let mut largest =
            Largest { rule, blocks, parameters: 0, attempt: None, refused, next: String::new() };
        if blocks > 0 {
            largest.parameters = machine.model(blocks)?.parameter_count();
            largest.attempt = Some(self.attempt(blocks, 1).await?);
        }
        largest.next = if machine.is_gpu() {
            "not tried, since a rank is given more of a GPU than plans are".to_owned()
        } else {
            self.one_more(blocks + 1).await?
        };
        Ok(largest)
    }

    /// How a training without room ends: by the plan for a device and a host that have twice as much.
    async fn one_more(self, blocks: u32) -> Result<String> {
        let machine = self.machine;
        let Setting { device, host, .. } = machine.setting;
        let setting = Setting { device: Bytes(2 * device.0), host: Bytes(2 * host.0), ..machine.setting };
        let roomy = Machine { setting };
        let (plan, recompute) = match (Trainer { machine: &roomy, ..self }).plan(blocks, 1)? {
            Ok((plan, recompute, _)) => (plan, recompute),
            Err(why) => return Ok(format!("there is no plan with twice the room either: {why}")),
        };
        let stage = plan.map(|plan| (ChunkedStage { host_memory: host, ..plan.stage }, plan.actions));
        let stage = stage.as_ref().map(|(stage, actions)| (stage, actions));
        let model = machine.model(blocks)?;
        let whole = (0, model.layers().len() - 1);
        let trained = machine.train(&model, machine.training(1, recompute), whole, stage, device).await?;
        Ok(match trained {
            Err(why) => why,
            Ok(measured) if measured.chunks.as_ref().is_some_and(|run| run.is_replanned) => {
                "its visits had no room, so some came later or left sooner".to_owned()
            }
            Ok(measured) => format!("trained all the same, with {}", measured.peak_allocated),
        })
    }

    /// Trains a model by a rule.
    pub(crate) async fn attempt(self, blocks: u32, micro_batches: u32) -> Result<Attempt> {
        let Self { rule, machine, .. } = self;
        let name = rule.name();
        let begin = Instant::now();
        let planned = self.plan(blocks, micro_batches)?;
        let planned_in = begin.elapsed().as_secs_f64();
        let (plan, recompute, predicted_peak) =
            planned.map_err(|why| anyhow!("{name} has no plan for {blocks} blocks: {why}"))?;
        let model = machine.model(blocks)?;
        let training = machine.training(micro_batches, recompute);
        let stage = plan.as_ref().map(|plan| (&plan.stage, &plan.actions));
        let whole = (0, model.layers().len() - 1);
        let granted = machine.granted(machine.setting.device);
        let measured = machine.train(&model, training, whole, stage, granted).await?;
        let measured = measured.map_err(|why| anyhow!("{name} did not train {blocks} blocks: {why}"))?;
        Ok(Attempt { rule, blocks, plan, predicted_peak, planned_in, measured })
    }
}

/// The largest of so many blocks that all of these rules have a plan for; 0 where there is none.
pub(crate) fn common(rules: &[Trainer<'_>], most: u32) -> Result<u32> {
    let sizes = Sizes { fewest: 1, most, first: most.div_ceil(2), step: most.div_ceil(4) };
    let found = search(sizes, |blocks| {
        for &rule in rules {
            if let Err(why) = rule.room(blocks, rule.machine.setting.micro_batches)? {
                return Ok(Err(why));
            }
        }
        Ok(Ok(()))
    })?;
    Ok(found.size)
}

/// Numbers of slots. Each has a sample of every micro-batch.
pub(crate) const COUNTS: [u32; 3] = [1, 2, 4];

/// A training by several ranks.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) ranks: u32,
    /// Between them; none where there is one.
    pub(crate) link: Option<Link>,
    pub(crate) plan: ChunkPlan,
    /// Of each rank.
    pub(crate) measured: Vec<Measurement>,
}

/// Plans and trains a model by so many ranks: the host's memory is theirs together.
pub(crate) async fn share(machine: &Machine, profile: &Profile, blocks: u32, ranks: u32) -> Result<Shared> {
    let setting = machine.setting;
    let link = if ranks > 1 { Some(machine.link(ranks).await?) } else { None };
    let model = machine.model(blocks)?;
    let training = |recompute: RecomputePolicy| {
        let one = machine.training(setting.micro_batches, recompute);
        TrainingSpec { micro_batch_size: ranks * one.micro_batch_size, ..one }
    };
    let alone = profile.rates(machine.setting.pace);
    let slower = profile.host().map_or(1.0, |host| SlotCores::of(host).slower(ranks));
    let trainer = Trainer { rule: Rule::Ours, machine, profile };
    let question = ChunkQuestion {
        training: training(RecomputePolicy::None),
        ranks,
        host_memory: Bytes(setting.host.0 / u64::from(ranks)),
        rates: LaneRates {
            gather: link.map_or(alone.gather, |link| link.bytes_per_second),
            collective_seconds: link.map_or(0.0, |link| link.latency_seconds),
            update: alone.update / slower,
            ..alone
        },
        ..trainer.question(model.clone(), setting.micro_batches)
    };
    let component = profile.component(&model, &question.training)?;
    let costs = |of: PassChoice| {
        let costs = profile.costs(&component, &model, (training(of.recompute), ranks), of)?;
        let seconds = costs.seconds.into_iter().map(|seconds| seconds * slower).collect();
        Ok(StepCosts { seconds, ..costs })
    };
    let plan = choose(&question, &costs).with_context(|| format!("{ranks} ranks have no plan"))?;
    let chunks = (&plan.stage, &plan.actions);
    let whole = StageConfig { data_degree: ranks, ..StageConfig::single(0, model.layers().len() - 1) };
    let training = training(plan.recompute);
    let trained = machine.train_shared(&model, training, whole, Some(chunks), setting.device).await?;
    let failed = |why| anyhow!("{ranks} ranks did not train {blocks} blocks: {why}");
    let measured: Vec<Measurement> =
        trained.into_iter().map(|rank| rank.map(|rank| *rank).map_err(failed)).collect::<Result<_>>()?;
    Ok(Shared { ranks, link, plan, measured })
}
