//! The question that a chooser of memory optimizations gets about the stages of a candidate.
//!
//! The bytes of each block, as MPress's planner needs them, are read from replays in which every block leaves.

use loadmaster_proto::cluster::Link;
use loadmaster_proto::error::Invalid;
use loadmaster_proto::measure::offload::CopyPace;
use loadmaster_proto::plan::Plan;
use loadmaster_proto::plan::compatibility::{Setting, Settings};
use loadmaster_proto::plan::objective::Objective;
use loadmaster_proto::training::actions::{
    Action, Allowed, Block, Destination, Optimization, Part, StageActions, Step, Swap, Way,
};
use loadmaster_proto::training::{RecomputePolicy, Schedule, TrainingSpec};

use super::device_mapping::at_best_edges;
use super::links::CopyLinks;
use super::nodes;
use super::seconds::layer_seconds;
use crate::context::Context;
use crate::problem::ProfiledChain;
use crate::result::{QuestionError, RecommendError};
use crate::search::Candidate;
use loadmaster_memory::actions::optimizer::Known;
use loadmaster_memory::actions::{self, LayerBlocks, NodeDevices, Question, StageBlocks};
use loadmaster_predict::{ActionsPrediction, PredictionError, StageSetting};
use loadmaster_search::Stop;
use loadmaster_simulate::copies::LayerSeconds;
use loadmaster_simulate::{Edge, Order};

/// What is asked of a candidate.
#[derive(Clone)]
pub(super) struct ActionProblem<'a> {
    pub(super) candidate: &'a Candidate,
    /// The same stages as if edges were over the best links of their nodes: wherever they are, nothing is faster.
    at_best: Candidate,
    pub(super) untouched: Plan,
    pub(super) settings: Vec<StageSetting>,
    pub(super) stages: Vec<StageBlocks>,
    edge_bytes: Vec<u64>,
    edges: Vec<Edge>,
    pub(super) node: NodeDevices,
    /// By stage: bytes of a replay of the untouched stage that must be absent when all in flight are there; below 0 what is
    /// free then.
    needs: Vec<i128>,
    /// What earlier trials taught to multiply predicted bytes with.
    bytes_factor: f64,
}

impl<'a> ActionProblem<'a> {
    /// Builds the chooser's question about a candidate.
    ///
    /// # Errors
    /// A recompute policy, which says what is to be chosen, or what the profile lacks.
    pub(super) fn new(
        context: &Context<'_>,
        candidate: &'a Candidate,
        untouched: Plan,
        pace: CopyPace,
    ) -> Result<Self, QuestionError> {
        candidate.check_to_be_chosen()?;
        let settings = context.settings(candidate);
        let mut stages = Vec::with_capacity(settings.len());
        for (stage, setting) in candidate.stages.iter().zip(&settings) {
            let Some((mut layers, exchange_seconds)) = layer_seconds(context, candidate, stage) else {
                return Err(RecommendError::NoTimes { objective: Objective::MinIterationTime }.into());
            };
            // Blocks know no exchange of gradients, which comes before the first update.
            if let Some(first) = layers.first_mut().filter(|_| stage.devices.len() > 1) {
                first.update += exchange_seconds;
            }
            stages.push(stage_blocks(context.chain, setting, &layers)?);
        }
        let links = CopyLinks::between(context, candidate, pace);
        // The upper end of the prediction must fit, but the chooser sees the predicted bytes.
        let node = NodeDevices {
            capacity: untouched.stages.iter().map(|stage| stage.capacity).collect(),
            host: links.to_host(),
            pairs: peers(&untouched, links.pairs()),
            host_bytes: 0,
            hosts: nodes::devices_by_node(&untouched),
            shared: links.shared(),
            cores: context.cores_of_all(candidate),
        };
        let of_stages = settings.iter().zip(&stages).zip(&node.capacity);
        let needs = of_stages.map(|((setting, blocks), &capacity)| need(context, setting, blocks, capacity));
        Ok(Self {
            needs: needs.collect::<Result<_, _>>()?,
            at_best: at_best_edges(context, candidate),
            edge_bytes: bytes_of_edges(candidate, &node),
            edges: candidate.edge_halves(),
            bytes_factor: context.bytes_factor(),
            candidate,
            untouched,
            settings,
            stages,
            node,
        })
    }

    /// What is known of it besides the question.
    pub(super) fn known(&self) -> Known<'_> {
        self.known_within(&self.needs)
    }

    /// Bytes as they are predicted, of bytes that earlier trials taught to multiply.
    pub(super) fn predicted(&self, bytes: u64) -> u64 {
        (bytes as f64 / self.bytes_factor).floor() as u64
    }

    /// By stage: bytes that must be absent where devices have these capacities instead of their own.
    pub(super) fn needs_within(&self, capacity: &[u64]) -> Vec<i128> {
        let predicted = |bytes: u64| i128::from(self.predicted(bytes));
        let of_stages = self.needs.iter().zip(&self.node.capacity).zip(capacity);
        of_stages.map(|((need, &own), &other)| need + predicted(own) - predicted(other)).collect()
    }

    /// Its stages with edges that are known, of which this must be absent.
    pub(super) fn known_within<'s>(&'s self, needs: &'s [i128]) -> Known<'s> {
        Known { needs: Some(needs), edges: Some(&self.edges), policies: None }
    }

    /// Between each stage and the next one, wherever they are on their nodes, at least.
    pub(super) fn least_edges(&self) -> Vec<Edge> {
        self.at_best.edge_halves()
    }

    /// Seconds of an iteration of its stages untouched, wherever they are on their nodes, at least; none without times.
    pub(super) fn least_seconds(&self) -> Option<f64> {
        self.at_best.simulated
    }

    /// The same stages on each other's devices: `candidate` is these, `node` these devices in the order of the stages.
    pub(super) fn on<'b>(&'b self, candidate: &'b Candidate, node: NodeDevices) -> ActionProblem<'b> {
        let edge_bytes = bytes_of_edges(candidate, &node);
        ActionProblem { candidate, node, edge_bytes, edges: candidate.edge_halves(), ..self.clone() }
    }

    /// Its devices with as much memory of each host as may be taken.
    pub(super) fn node_within(&self, allowed: &Allowed) -> NodeDevices {
        NodeDevices { host_bytes: allowed.host_memory.0, ..self.node.clone() }
    }

    /// The question with these bytes reserved.
    pub(super) fn question<'s>(
        &'s self,
        node: &'s NodeDevices,
        reserve: &'s [u64],
        allowed: &'s Allowed,
        stop: &'s Stop,
    ) -> Question<'s> {
        let has = |way: Way| allowed.ways.contains(&way);
        let Candidate { schedule, batch, overlap, .. } = *self.candidate;
        Question {
            stages: &self.stages,
            edge_bytes: &self.edge_bytes,
            order: Order::from(schedule),
            micro_batches: match schedule.updates_always() {
                // As many as are in flight, and some that follow: it goes on.
                true => batch.micro_batches.max(u32::try_from(3 * self.stages.len()).unwrap_or(u32::MAX)),
                false => batch.micro_batches,
            },
            overlap,
            node,
            reserve,
            allowed: actions::Allowed {
                recompute: has(Way::Recompute),
                host: has(Way::CpuOffload) && allowed.host_memory.0 > 0,
                peers: has(Way::PeerSwap),
            },
            blocks: &allowed.blocks,
            smallest_block: allowed.smallest_block.0,
            stripes: true,
            mappings: 0,
            stop,
        }
    }
}

impl Candidate {
    /// # Errors
    /// Stages have a recompute policy, where that is to be chosen.
    pub(crate) fn check_to_be_chosen(&self) -> Result<(), Invalid> {
        let recomputes = self.stages.iter().any(|stage| stage.choice.recompute != RecomputePolicy::None);
        Settings::default().when(true, Setting::ChosenActions).when(recomputes, Setting::Recompute).check()
    }
}

/// Bytes that a stage must not have on its device in front of a backward pass that meets all in flight.
fn need(
    context: &Context<'_>,
    setting: &StageSetting,
    blocks: &StageBlocks,
    capacity: u64,
) -> Result<i128, PredictionError> {
    let StageSetting { stage, stage_index, stage_count, training } = setting;
    if training.schedule.updates_always() {
        // No one asks: nothing but its untouched stages bounds what never flushes.
        return Ok(0);
    }
    let in_flight = training.schedule.in_flight(*stage_count, *stage_index, training.micro_batches);
    let micro_batch = match training.schedule {
        Schedule::Gpipe => training.micro_batches.saturating_sub(1),
        // The second, if there is one: gradients are there by then.
        Schedule::OneFOneB | Schedule::PipeDream => u32::from(training.micro_batches > in_flight),
    };
    let layer = stage.last_layer;
    let held = |actions: &StageActions, step: Step| -> Result<i128, PredictionError> {
        let acted = context.chain.predictor.acted(setting, actions)?;
        let step = acted.steps.index(step).and_then(|step| acted.curve.get(step));
        Ok(step.map_or(0, |step| i128::from(step.at_boundary)))
    };
    let untouched = held(&StageActions::default(), Step::Backward { micro_batch, layer })?;
    let all_again =
        StageActions { actions: stage.layers().map(recompute).collect(), ..StageActions::default() };
    let least = held(&all_again, Step::Again { micro_batch, layer })?;
    // What recomputing saves and no block has: what a stage hands over, which its graph holds.
    let of_blocks = |of: &LayerBlocks| i128::from(of.activations) - i128::from(of.input);
    let of_blocks = blocks.layers.iter().map(of_blocks).sum::<i128>() * i128::from(in_flight);
    let beside = (untouched - least - of_blocks).max(0);
    // Blocks are counted as they are predicted: what is multiplied afterwards is the capacity's.
    let capacity = (capacity as f64 / context.bytes_factor()).floor();
    Ok(untouched - beside - capacity as i128)
}

/// Of each edge, as many bytes as take its seconds over the links of these devices.
fn bytes_of_edges(candidate: &Candidate, node: &NodeDevices) -> Vec<u64> {
    let bytes = |(edge, both): (usize, &f64)| node.bytes_in(edge, edge + 1, both / 2.0);
    candidate.edges.iter().enumerate().map(bytes).collect()
}

/// Links between stages whose devices may have blocks of each other.
fn peers(plan: &Plan, mut links: Vec<Vec<Option<Link>>>) -> Vec<Vec<Option<Link>>> {
    for (own, row) in plan.stages.iter().zip(&mut links) {
        for (other, link) in plan.stages.iter().zip(row) {
            *link = link.filter(|_| nodes::may_be_peers(&own.devices, &other.devices));
        }
    }
    links
}

/// Passes in which every block of a stage has a step of another between its uses, wherever there is one.
const PASSES: u32 = 2;

/// The blocks of a stage whose layers take these seconds. Weights and gradients of tied layers never leave: they are fixed, and
/// so are all of them under PipeDream, where older versions of the weights may leave.
///
/// # Errors
/// What the profile lacks.
pub(crate) fn stage_blocks(
    chain: &ProfiledChain,
    setting: &StageSetting,
    seconds: &[LayerSeconds],
) -> Result<StageBlocks, PredictionError> {
    let predictor = &chain.predictor;
    let probe = StageSetting {
        training: TrainingSpec { schedule: Schedule::Gpipe, micro_batches: PASSES, ..setting.training },
        ..*setting
    };
    let away = |actions: &StageActions| predictor.acted(&probe, actions);
    let stage = setting.stage;
    let layers = stage.layers();
    let all = |block| vec![swap(block, stage.first_layer, stage.last_layer)];
    let with = |actions: Vec<Action>| away(&StageActions { actions, ..StageActions::default() });
    let [activations, weights, gradients, optimizer] =
        [Block::Activations, Block::Weights, Block::Gradients, Block::Optimizer]
            .map(|block| with(all(block)));
    let (activations, weights, gradients, optimizer) = (activations?, weights?, gradients?, optimizer?);
    let again = layers.clone().flat_map(|layer| [recompute(layer), swap(Block::Inputs, layer, layer)]);
    let inputs = with(again.collect())?;
    let is_endless = setting.training.schedule.updates_always();
    let versions = if is_endless && setting.in_flight() > 1 {
        let probe = StageSetting { stage_index: 0, stage_count: 2, ..*setting };
        let actions = StageActions { actions: all(Block::Versions), ..StageActions::default() };
        Some(predictor.acted(&probe, &actions)?)
    } else {
        None
    };
    let mut fixed = 0_u64;
    let mut blocks = Vec::with_capacity(seconds.len());
    for (layer, &seconds) in layers.zip(seconds) {
        let mut weights = bytes(&weights, layer);
        let mut gradients = bytes(&gradients, layer);
        let versions = versions.as_ref().map_or(0, |versions| bytes(versions, layer));
        if chain.is_tied(layer) || is_endless {
            // The newest version is the weights.
            fixed = fixed.saturating_add(weights).saturating_add(gradients).saturating_sub(versions);
            (weights, gradients) = (0, 0);
        }
        blocks.push(LayerBlocks {
            seconds,
            activations: bytes(&activations, layer),
            input: bytes(&inputs, layer),
            versions,
            weights,
            gradients,
            optimizer: bytes(&optimizer, layer),
            working: 0,
        });
    }
    Ok(StageBlocks { first_layer: stage.first_layer, layers: blocks, fixed })
}

/// Has blocks on the host whenever they are not used.
pub(super) fn swap(block: Block, first_layer: usize, last_layer: usize) -> Action {
    let swap = Swap { block, to: Destination::Host, release_after: 0, fetch_before: 0 };
    Action { first_layer, last_layer, slots: Vec::new(), optimization: Optimization::Swap(swap) }
}

/// Computes a layer once more, alone.
pub(crate) fn recompute(layer: usize) -> Action {
    Action { first_layer: layer, last_layer: layer, slots: Vec::new(), optimization: Optimization::Recompute }
}

/// The most of a layer that is away at once: of its first micro-batch, its output included that no one else holds.
fn bytes(acted: &ActionsPrediction, layer: usize) -> u64 {
    let own = |part: Part| {
        let own = acted.away.iter().filter(move |away| {
            let absence = &away.absence;
            absence.layer == layer
                && absence.part == part
                && absence.micro_batch.is_none_or(|index| index == 0)
        });
        own.map(|away| away.bytes).max().unwrap_or(0)
    };
    own(Part::Own).saturating_add(own(Part::Above))
}
