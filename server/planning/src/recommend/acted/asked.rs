//! What is asked of whoever chooses memory actions for the stages of a candidate.

use loadmaster_proto::cluster::{Link, LinkOrigin};
use loadmaster_proto::error::Invalid;
use loadmaster_proto::measure::offload::CopyPace;
use loadmaster_proto::plan::Plan;
use loadmaster_proto::plan::objective::Objective;
use loadmaster_proto::training::actions::{Allowed, StageActions, Step, Way};
use loadmaster_proto::training::{RecomputePolicy, Schedule};

use super::blocks::stage_blocks;
use super::settings;
use crate::actions::{self, NodeDevices, Question, StageBlocks};
use crate::iteration::Order;
use crate::predict::{PredictionError, StageSetting};
use crate::recommend::answer::{QuestionError, RecommendError};
use crate::recommend::find::Candidate;
use crate::recommend::plan::Writer;
use crate::search::Stop;

/// What is asked of a candidate.
pub(super) struct Asked<'a> {
    pub(super) candidate: &'a Candidate,
    pub(super) untouched: Plan,
    pub(super) settings: Vec<StageSetting>,
    pub(super) stages: Vec<StageBlocks>,
    pub(super) edge_bytes: Vec<u64>,
    pub(super) node: NodeDevices,
    /// By stage: bytes of a replay of the untouched stage that must be absent when all in flight are there; below 0 what is
    /// free then.
    pub(super) needs: Vec<i128>,
}

impl Asked<'_> {
    /// Its node with as much memory of the host as may be taken.
    pub(super) fn node_within(&self, allowed: &Allowed) -> NodeDevices {
        NodeDevices { host_bytes: allowed.host_memory.0, ..self.node.clone() }
    }

    /// The question with these bytes reserved.
    pub(super) fn question<'a>(
        &'a self,
        node: &'a NodeDevices,
        reserve: &'a [u64],
        allowed: &'a Allowed,
        stop: &'a Stop,
    ) -> Question<'a> {
        let has = |way: Way| allowed.ways.contains(&way);
        let Candidate { schedule, batch, overlap, .. } = *self.candidate;
        Question {
            stages: &self.stages,
            edge_bytes: &self.edge_bytes,
            order: Order::from(schedule),
            micro_batches: batch.micro_batches,
            overlap,
            node,
            reserve,
            allowed: actions::Allowed {
                recompute: has(Way::Recompute),
                host: has(Way::Host) && allowed.host_memory.0 > 0,
                peers: has(Way::Peer),
            },
            blocks: &allowed.blocks,
            stripes: true,
            mappings: 0,
            stop,
        }
    }
}

impl Writer<'_> {
    /// What is asked of a candidate; `who` chooses.
    ///
    /// # Errors
    /// Stages of several devices or nodes, or what the profile lacks.
    pub(super) fn asked<'a>(
        &self,
        candidate: &'a Candidate,
        untouched: Plan,
        pace: CopyPace,
    ) -> Result<Asked<'a>, QuestionError> {
        if candidate.stages.iter().any(|stage| stage.devices.len() > 1) {
            let why = "has stages of several devices, and memory actions are chosen for stages of one: name a partitioning \
                       without replicas and shards";
            return Err(Invalid::field("partitioning", why).into());
        }
        if candidate.stages.iter().any(|stage| stage.choice.recompute != RecomputePolicy::None) {
            let why = "says what every layer does, and that is to be chosen: ask for none, or leave the choice of actions out";
            return Err(Invalid::field("recompute", why).into());
        }
        let mut nodes = untouched.stages.iter().flat_map(|stage| &stage.devices).map(|device| &device.node);
        let first = nodes.next();
        if nodes.any(|node| Some(node) != first) {
            let why = "lies on several nodes, and memory actions are chosen on one: name devices of one node";
            return Err(Invalid::field("partitioning", why).into());
        }
        let settings = settings(&untouched);
        let predictor = &*self.chain.predictor;
        let mut stages = Vec::with_capacity(settings.len());
        for (stage, setting) in candidate.stages.iter().zip(&settings) {
            let Some((layers, _)) = self.layers(candidate, stage) else {
                return Err(RecommendError::NoTimes { objective: Objective::MinIterationTime }.into());
            };
            stages.push(stage_blocks(predictor, setting, &layers)?);
        }
        let (host, peer) = self.rates(pace);
        let link =
            |bytes_per_second| Link { bytes_per_second, latency_seconds: 0.0, origin: LinkOrigin::Assumed };
        let count = candidate.stages.len();
        let row = |own: usize| (0..count).map(|other| (other != own).then_some(link(peer))).collect();
        // What must fit is the upper end: the planner sees the predicted bytes.
        let node = NodeDevices {
            capacity: untouched.stages.iter().map(|stage| stage.capacity).collect(),
            host: vec![link(host); count],
            pairs: (0..count).map(row).collect(),
            host_bytes: 0,
        };
        // As many as take the seconds of the edge over these links.
        let edge_bytes = candidate.edges.iter().map(|both| (both / 2.0 * peer).max(0.0) as u64).collect();
        let needs =
            settings.iter().zip(&node.capacity).map(|(setting, &capacity)| self.need(setting, capacity));
        let needs = needs.collect::<Result<_, _>>()?;
        Ok(Asked { candidate, untouched, settings, stages, edge_bytes, node, needs })
    }

    /// Bytes that a stage must not have on its device in front of the first backward pass that meets all in flight.
    fn need(&self, setting: &StageSetting, capacity: u64) -> Result<i128, PredictionError> {
        let acted = self.chain.predictor.acted(setting, &StageActions::default())?;
        let micro_batch = match setting.training.schedule {
            Schedule::Gpipe => setting.training.micro_batches.saturating_sub(1),
            Schedule::OneFOneB | Schedule::PipeDream => 0,
        };
        let fullest = acted.steps.index(Step::Backward { micro_batch, layer: setting.stage.last_layer });
        let held = fullest.and_then(|step| acted.curve.get(step)).map_or(0, |step| step.at_boundary);
        // Blocks are counted as they are predicted: what is multiplied afterwards is the capacity's.
        let capacity = (capacity as f64 / self.bytes_factor()).floor();
        Ok(i128::from(held) - capacity as i128)
    }
}
