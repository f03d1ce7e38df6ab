//! What is asked of whoever chooses memory actions for the stages of a candidate.

use loadmaster_proto::cluster::Link;
use loadmaster_proto::error::Invalid;
use loadmaster_proto::measure::offload::CopyPace;
use loadmaster_proto::plan::Plan;
use loadmaster_proto::plan::objective::Objective;
use loadmaster_proto::training::actions::{Allowed, StageActions, Step, Way};
use loadmaster_proto::training::{RecomputePolicy, Schedule};

use super::blocks::stage_blocks;
use super::settings;
use crate::actions::fastest::Known;
use crate::actions::{self, NodeDevices, Question, StageBlocks};
use crate::iteration::{Edge, Order};
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
    edge_bytes: Vec<u64>,
    edges: Vec<Edge>,
    pub(super) node: NodeDevices,
    /// By stage: bytes of a replay of the untouched stage that must be absent when all in flight are there; below 0 what is
    /// free then.
    needs: Vec<i128>,
}

impl Asked<'_> {
    /// What is known of it besides the question.
    pub(super) fn known(&self) -> Known<'_> {
        Known { needs: Some(&self.needs), edges: Some(&self.edges) }
    }

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
        let links = self.copy_links(candidate, pace);
        // What must fit is the upper end: whoever chooses sees the predicted bytes.
        let node = NodeDevices {
            capacity: untouched.stages.iter().map(|stage| stage.capacity).collect(),
            host: links.to_host(),
            pairs: links.pairs(),
            host_bytes: 0,
        };
        // As many as take the seconds of the edge over these links.
        let bytes = |(edge, both): (usize, &f64)| {
            let over = |link: Link| (both / 2.0 - link.latency_seconds).max(0.0) * link.bytes_per_second;
            node.link(edge, edge + 1).map_or(0, |link| over(link) as u64)
        };
        let edge_bytes = candidate.edges.iter().enumerate().map(bytes).collect();
        let needs =
            settings.iter().zip(&node.capacity).map(|(setting, &capacity)| self.need(setting, capacity));
        let needs = needs.collect::<Result<_, _>>()?;
        let edges = candidate.edges.iter().map(|&both| Edge::halves(both)).collect();
        Ok(Asked { candidate, untouched, settings, stages, edge_bytes, edges, node, needs })
    }

    /// Bytes that a stage must not have on its device in front of a backward pass that meets all in flight.
    fn need(&self, setting: &StageSetting, capacity: u64) -> Result<i128, PredictionError> {
        let acted = self.chain.predictor.acted(setting, &StageActions::default())?;
        let micro_batch = match setting.training.schedule {
            Schedule::Gpipe => setting.training.micro_batches.saturating_sub(1),
            // The second, if there is one: gradients are there by then.
            Schedule::OneFOneB | Schedule::PipeDream => {
                let in_flight = setting.training.schedule.in_flight(
                    setting.stage_count,
                    setting.stage_index,
                    setting.training.micro_batches,
                );
                u32::from(setting.training.micro_batches > in_flight)
            }
        };
        let fullest = acted.steps.index(Step::Backward { micro_batch, layer: setting.stage.last_layer });
        let held = fullest.and_then(|step| acted.curve.get(step)).map_or(0, |step| step.at_boundary);
        // Blocks are counted as they are predicted: what is multiplied afterwards is the capacity's.
        let capacity = (capacity as f64 / self.bytes_factor()).floor();
        Ok(i128::from(held) - capacity as i128)
    }
}
