//! One model by our rule on several slots, whose ranks share its chunks.

use anyhow::{Context, Result, bail};
use loadmaster_planning::chunks::{ChunkChoices, ChunkPlan, ChunkQuestion, PassChoice, StepCosts, choose};
use loadmaster_planning::iteration::copies::SlotCores;
use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::cluster::Link;
use loadmaster_proto::measure::measurement::Measurement;
use loadmaster_proto::plan::lane_rates::LaneRates;
use loadmaster_proto::training::{RecomputePolicy, TrainingSpec};

use crate::chunks::machine::{Ended, Machine};
use crate::chunks::profile::Profile;

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
pub(crate) fn share(machine: &Machine, profile: &Profile, blocks: u32, ranks: u32) -> Result<Shared> {
    let setting = machine.setting;
    let link = if ranks > 1 { Some(machine.link(ranks)?) } else { None };
    let model = machine.model(blocks)?;
    let training = |recompute: RecomputePolicy| {
        let one = machine.training(setting.micro_batches, recompute);
        TrainingSpec { micro_batch_size: ranks * one.micro_batch_size, ..one }
    };
    let alone = profile.rates(machine.setting.pace);
    let slower = profile.host().map_or(1.0, |host| SlotCores::of(host).slower(ranks));
    let question = ChunkQuestion {
        model: model.clone(),
        training: training(RecomputePolicy::None),
        ranks,
        shards: 1,
        capacity: setting.device,
        host_memory: Bytes(setting.host.0 / u64::from(ranks)),
        rates: LaneRates {
            gather: link.map_or(alone.gather, |link| link.bytes_per_second),
            collective_seconds: link.map_or(0.0, |link| link.latency_seconds),
            update: alone.update / slower,
            ..alone
        },
        choices: ChunkChoices::on(machine.kind()),
    };
    let component = profile.component(&model, &question.training)?;
    let costs = |of: PassChoice| {
        let costs = profile.costs(&component, &model, (training(of.recompute), ranks), of)?;
        let seconds = costs.seconds.into_iter().map(|seconds| seconds * slower).collect();
        Ok(StepCosts { seconds, ..costs })
    };
    let plan = choose(&question, &costs).with_context(|| format!("{ranks} ranks have no plan"))?;
    let mut measured = Vec::new();
    for ended in
        machine.train_shared(&model, training(plan.recompute), (&plan.stage, &plan.actions), ranks)?
    {
        match ended {
            Ended::Trained(of_rank) => measured.push(*of_rank),
            Ended::Not(why) => bail!("{ranks} ranks did not train {blocks} blocks: {why}"),
        }
    }
    Ok(Shared { ranks, link, plan, measured })
}
