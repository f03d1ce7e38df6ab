//! Memory actions for named stages, chosen as MPress does, and held to a replay.

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::cluster::Link;
use loadmaster_proto::error::Invalid;
use loadmaster_proto::measure::offload::CopyPace;
use loadmaster_proto::plan::Plan;
use loadmaster_proto::plan::certificate::Certificate;
use loadmaster_proto::plan::compared::{Baseline, Outline};
use loadmaster_proto::plan::objective::Objective;
use loadmaster_proto::training::RecomputePolicy;
use loadmaster_proto::training::actions::{Allowed, StageActions, Way};
use loadmaster_proto::training::stage::Partitioning;

use super::blocks::stage_blocks;
use super::{Stages, settings};
use crate::actions::paper::{self, PaperError};
use crate::actions::{NodeDevices, StageBlocks};
use crate::iteration::Order;
use crate::predict::{ActedStages, StageSetting};
use crate::recommend::answer::{QuestionError, RecommendError};
use crate::recommend::find::Candidate;
use crate::recommend::plan::Writer;
use crate::search::Stop;

/// Solver of plans whose actions MPress's planner chose.
pub(in crate::recommend) const SOLVER: &str = "mpress/1";
/// How often the planner is asked again because a replay needs more than its blocks add up to.
const ROUNDS: u32 = 24;
/// Within which share of the bound a value is as good.
const EQUAL: f64 = 1e-9;

/// What MPress's planner is asked of a candidate.
struct Asked<'a> {
    candidate: &'a Candidate,
    settings: Vec<StageSetting>,
    stages: Vec<StageBlocks>,
    edge_bytes: Vec<u64>,
    node: NodeDevices,
}

impl Writer<'_> {
    /// The plan of stages with the memory actions that MPress's planner chooses for them.
    ///
    /// # Errors
    /// The planner knows no such pipeline, nothing that is allowed makes it fit, or it was stopped before anything did.
    pub(in crate::recommend) fn chosen(
        &self,
        stages: &Stages,
        allowed: &Allowed,
        pace: CopyPace,
        stop: &Stop,
    ) -> Result<Plan, QuestionError> {
        let candidate = &stages.untouched;
        let untouched = self.plan(candidate, SOLVER)?;
        let asked = self.asked(candidate, &untouched, pace)?;
        let actions = self.actions(&asked, allowed, stop)?;
        let mut plan = self.acted(candidate, &actions, pace, SOLVER)?;
        let best = plan.iteration_seconds().unwrap_or(f64::INFINITY);
        // Actions only add to what the stages do, so nothing of these stages is faster than they are untouched.
        let own = untouched.iteration_seconds().unwrap_or(0.0);
        let bound = stages.bound.map_or(own, |bound| bound.min(best));
        let gap = if bound > 0.0 { (best - bound).max(0.0) / bound } else { 0.0 };
        plan.found.certificate = Some(Certificate {
            value: best,
            bound: Some(bound),
            gap: Some(gap),
            unit: "seconds".to_owned(),
            proven: gap <= EQUAL,
            stopped: stages.stopped || stop.is_requested(),
            states: stages.states,
            rejected: Vec::new(),
        });
        plan.warnings.push(if stages.bound.is_some() {
            "the bound is of every pipeline of one device per stage, untouched and whatever memory it takes: no memory \
             action makes one faster; actions were chosen for the stages of the fastest one alone"
                .to_owned()
        } else {
            "the bound is of these stages under this schedule, untouched: no memory action makes them faster; other \
             partitionings were not looked at"
                .to_owned()
        });
        plan.found.baselines = self.alone(&asked, (allowed, pace), &untouched, &plan, stop)?;
        Ok(plan)
    }

    fn asked<'a>(
        &self,
        candidate: &'a Candidate,
        untouched: &Plan,
        pace: CopyPace,
    ) -> Result<Asked<'a>, QuestionError> {
        if candidate.stages.iter().any(|stage| stage.devices.len() > 1) {
            let why = "is mpress, which knows one device per stage: name a partitioning without replicas and shards";
            return Err(Invalid::field("search_mode", why).into());
        }
        if candidate.stages.iter().any(|stage| stage.choice.recompute != RecomputePolicy::None) {
            let why = "says what every layer does, and the search mode mpress chooses that: ask for none";
            return Err(Invalid::field("recompute", why).into());
        }
        let mut nodes = untouched.stages.iter().flat_map(|stage| &stage.devices).map(|device| &device.node);
        let first = nodes.next();
        if nodes.any(|node| Some(node) != first) {
            let why =
                "is mpress, which knows the devices of one node: name a partitioning of one node's devices";
            return Err(Invalid::field("search_mode", why).into());
        }
        let settings = settings(untouched);
        let predictor = &*self.chain.predictor;
        let mut stages = Vec::with_capacity(settings.len());
        for (stage, setting) in candidate.stages.iter().zip(&settings) {
            let Some((layers, _)) = self.layers(candidate, stage) else {
                return Err(RecommendError::NoTimes { objective: Objective::MinIterationTime }.into());
            };
            stages.push(stage_blocks(predictor, setting, &layers)?);
        }
        let links = self.copy_links(candidate, pace);
        // What must fit is the upper end: the planner sees the predicted bytes.
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
        Ok(Asked { candidate, settings, stages, edge_bytes, node })
    }

    /// Actions that a replay finds to fit.
    fn actions(
        &self,
        asked: &Asked<'_>,
        allowed: &Allowed,
        stop: &Stop,
    ) -> Result<Vec<StageActions>, QuestionError> {
        let has = |way: Way| allowed.ways.contains(&way);
        let ways = paper::Allowed {
            recompute: has(Way::Recompute),
            host: has(Way::Host) && allowed.host_memory.0 > 0,
            peers: has(Way::Peer),
        };
        let node = NodeDevices { host_bytes: allowed.host_memory.0, ..asked.node.clone() };
        let candidate = asked.candidate;
        let mut reserve = vec![0_u64; asked.stages.len()];
        let mut lacks: Option<(usize, u64)> = None;
        for _ in 0..ROUNDS {
            let found = paper::plan(&paper::Question {
                stages: &asked.stages,
                edge_bytes: &asked.edge_bytes,
                order: Order::from(candidate.schedule),
                micro_batches: candidate.batch.micro_batches,
                overlap: candidate.overlap,
                node: &node,
                reserve: &reserve,
                allowed: ways,
                blocks: &allowed.blocks,
                stripes: true,
                mappings: 0,
                stop,
            });
            let found = match found {
                Ok(found) => found,
                Err(PaperError::NoRoom { stage, missing }) => {
                    // What a replay found to be missing is missing as well.
                    let (stage, missing) = lacks.unwrap_or((stage, missing));
                    return Err(self.no_room(asked, allowed, stage, missing));
                }
                Err(PaperError::Stopped) => return Err(RecommendError::Stopped.into()),
                Err(error) => return Err(Invalid::field("partitioning", error.to_string()).into()),
            };
            // Pools are as large as the replay finds them.
            let chosen: Vec<StageActions> = found
                .actions
                .into_iter()
                .map(|of| StageActions { actions: of.actions, ..StageActions::default() })
                .collect();
            let model = self.chain.model.as_ref();
            let stages = ActedStages::of(&*self.chain.predictor, model, &asked.settings, &chosen)?;
            lacks = None;
            for (index, reserve) in reserve.iter_mut().enumerate() {
                let needed = stages.prediction(index).map_or(0, |of| self.needed(&of).0);
                let capacity = asked.node.capacity.get(index).copied().unwrap_or(0);
                let missing = needed.saturating_sub(capacity);
                if missing > 0 {
                    *reserve = reserve.saturating_add(missing);
                    lacks = lacks.or(Some((index, missing)));
                }
            }
            let at_host: u64 = stages.acted.iter().map(|of| of.host_peak()).fold(0, u64::saturating_add);
            if lacks.is_none() && at_host <= allowed.host_memory.0 {
                return Ok(chosen);
            }
        }
        let (stage, missing) = lacks.unwrap_or((0, 0));
        Err(self.no_room(asked, allowed, stage, missing))
    }

    fn no_room(&self, asked: &Asked<'_>, allowed: &Allowed, stage: usize, missing: u64) -> QuestionError {
        let ways: Vec<&str> = allowed.ways.iter().map(|way| way.as_str()).collect();
        let config =
            asked.settings.get(stage).map(|of| of.stage).map_or_else(String::new, |of| of.to_string());
        let host = if allowed.ways.contains(&Way::Host) && allowed.host_memory.0 == 0 {
            " (no host memory may be taken: allow some with `--host-memory`)"
        } else {
            ""
        };
        RecommendError::no_plan(&format!(
            "stage {stage} ({config}) lacks {} by MPress's planner with {}{host} over {}: allow more ways, more host \
             memory or more blocks, or cut the model into more stages",
            Bytes(missing),
            ways.join(", "),
            allowed.blocks.iter().map(|block| block.as_str()).collect::<Vec<_>>().join(", "),
        ))
        .into()
    }

    /// The same stages with nothing done, and with one way alone; stopped, with fewer of them.
    fn alone(
        &self,
        asked: &Asked<'_>,
        (allowed, pace): (&Allowed, CopyPace),
        untouched: &Plan,
        best: &Plan,
        stop: &Stop,
    ) -> Result<Vec<Baseline>, QuestionError> {
        let mut baselines = vec![baseline("keep-only", Some(untouched), best, String::new())?];
        for &way in &allowed.ways {
            let only = Allowed { ways: vec![way], ..allowed.clone() };
            let plan = self
                .actions(asked, &only, stop)
                .and_then(|actions| self.acted(asked.candidate, &actions, pace, SOLVER));
            if stop.is_requested() {
                break;
            }
            let name = format!("{way}-only");
            baselines.push(match plan {
                Ok(plan) => baseline(&name, Some(&plan), best, String::new())?,
                Err(error) => baseline(&name, None, best, error.to_string())?,
            });
        }
        Ok(baselines)
    }
}

fn baseline(name: &str, plan: Option<&Plan>, best: &Plan, note: String) -> Result<Baseline, Invalid> {
    let ratio = |own: f64, of: f64| (of > 0.0).then_some(own / of);
    let outline = |plan: &Plan| {
        Ok::<_, Invalid>(Outline {
            partitioning: Partitioning::new(plan.stages.iter().map(|stage| stage.config).collect())?,
            micro_batch_size: plan.training.micro_batch_size,
            peak: plan.peak(),
            seconds: plan.iteration_seconds(),
        })
    };
    Ok(Baseline {
        name: name.to_owned(),
        fits: plan.is_some_and(|plan| plan.stages.iter().all(super::fits)),
        peak_ratio: plan.and_then(|plan| ratio(plan.peak() as f64, best.peak() as f64)),
        time_ratio: plan.and_then(|plan| ratio(plan.iteration_seconds()?, best.iteration_seconds()?)),
        plan: plan.map(outline).transpose()?,
        note,
    })
}
