//! How long an iteration takes with what is done, and who waits for what.

use std::collections::{BTreeMap, BTreeSet};

use loadmaster_proto::training::actions::{Block, Destination, Optimization, StageActions};

use super::residency::bytes_of;
use super::{PlanError, Question, StageBlocks, StageWork};
use loadmaster_simulate::copies::{
    Copied, CopyPipeline, DeviceSteps, Keep, LayerSeconds, Limit, Links, Rate, StageSteps, Trip, Way,
    simulate, simulate_within,
};
use loadmaster_simulate::{Edge, Order};

/// Micro-batches, in multiples of the stages, after which PipeDream is in its long run.
const FILLING: usize = 3;

/// The stages of a question on their devices, with what they do.
#[derive(Debug, Clone)]
pub(super) struct SimulationContext<'a> {
    question: Question<'a>,
    links: Links,
    edges: Vec<Edge>,
    /// By stage; those that do nothing yet have no steps.
    devices: Vec<DeviceSteps>,
    /// By stage: seconds between its last step and the end of the iteration, at least.
    after: Vec<f64>,
}

/// A simulated iteration.
#[derive(Debug)]
pub(super) struct SimulatedIteration {
    pub(super) works: Vec<StageWork>,
    pub(super) copied: Copied,
}

/// Seconds of an iteration. PipeDream never ends one: as many micro-batches as an iteration has in the long run.
pub(super) fn seconds(
    question: &Question<'_>,
    mapping: &[usize],
    actions: &[StageActions],
) -> Result<f64, PlanError> {
    let once = |micro_batches| -> Result<f64, PlanError> {
        let question = Question { micro_batches, ..*question };
        Ok(SimulatedIteration::of(&question, mapping, actions, Keep::default())?.copied.iteration_seconds)
    };
    if question.order != Order::PipeDream {
        return once(question.micro_batches);
    }
    let filled =
        u32::try_from(FILLING * question.stages.len()).unwrap_or(u32::MAX).max(question.micro_batches);
    let more = once(filled.saturating_mul(2))? - once(filled)?;
    Ok(more * f64::from(question.micro_batches) / f64::from(filled))
}

impl<'a> SimulationContext<'a> {
    /// On these devices, before any stage does anything.
    pub(super) fn new(question: &Question<'a>, mapping: &[usize]) -> Self {
        let device = |stage: usize| mapping.get(stage).copied().unwrap_or(0);
        let node = question.node;
        let mut links = Links::default();
        for stage in 0..question.stages.len() {
            let place = question.place(stage).0;
            if let Some(host) = node.host.get(device(stage)) {
                let [out, back] =
                    [host.out, host.back].map(|link| Rate::new(link.bytes_per_second, link.latency_seconds));
                links = links.host(place, out, back);
            }
            for other in (0..question.stages.len()).filter(|&other| other != stage) {
                if let Some(link) = node.link(device(stage), device(other)) {
                    let rate = Rate::new(link.bytes_per_second, link.latency_seconds);
                    links = links.peer(place, question.place(other).0, rate);
                }
            }
        }
        let is_allowed = |way: &Way| match way {
            Way::ToHost(_) | Way::FromHost(_) => question.allowed.host,
            Way::Between { .. } => question.allowed.peers,
        };
        let used: BTreeSet<Way> = links.ways.keys().copied().filter(is_allowed).collect();
        let stage_on = |device: u32| mapping.iter().position(|&own| own == device as usize);
        let place_on = |device: u32| stage_on(device).map(|stage| question.place(stage).0);
        for shared in &node.shared {
            let ways = shared.ways.iter().filter_map(|way| way.renamed(place_on));
            links.share(ways.collect(), shared.bytes_per_second, &used);
        }
        if let Some(cores) = node.cores {
            cores.share_among((0..question.place(0).1).collect(), used, &mut links);
        }
        let edge = |(stage, &bytes): (usize, &u64)| node.edge(device(stage), device(stage + 1), bytes);
        let edges: Vec<Edge> = question.edge_bytes.iter().enumerate().map(edge).collect();
        let devices = vec![DeviceSteps::default(); question.stages.len()];
        let after = after(question, &edges);
        Self { question: *question, links, edges, devices, after }
    }

    /// Lets a stage do something else, and takes back what it did.
    pub(super) fn exchange(&mut self, stage: usize, device: &mut DeviceSteps) {
        if let Some(own) = self.devices.get_mut(stage) {
            std::mem::swap(own, device);
        }
    }

    /// Simulates an iteration, as far as it may take at most so many seconds.
    pub(super) fn simulated_within(&self, seconds: f64) -> Result<Option<Copied>, PlanError> {
        let Self { question, links, edges, devices, after } = self;
        let stepped = CopyPipeline { devices, edges, overlap: question.overlap, links };
        Ok(simulate_within(&stepped, Limit { seconds, after })?)
    }

    /// Simulates an iteration.
    pub(super) fn simulated(&self, keep: Keep) -> Result<Copied, PlanError> {
        let Self { question, links, edges, devices, .. } = self;
        Ok(simulate(&CopyPipeline { devices, edges, overlap: question.overlap, links }, keep)?)
    }
}

/// By stage: seconds between its last step and the end of the iteration, at least: the last micro-batch goes back to the first
/// stage, which steps then. PipeDream's iterations have no end.
fn after(question: &Question<'_>, edges: &[Edge]) -> Vec<f64> {
    let mut after = Vec::with_capacity(question.stages.len());
    let mut back = 0.0;
    let step = |stage: &StageBlocks| stage.layers.iter().map(|layer| layer.seconds.update).sum::<f64>();
    let first = question.stages.first().map_or(0.0, step);
    for (index, stage) in question.stages.iter().enumerate() {
        let flushes = matches!(question.order, Order::Gpipe | Order::OneFOneB);
        after.push(if index > 0 && flushes { (back + first - step(stage)).max(0.0) } else { 0.0 });
        let own = stage.layers.iter().map(|layer| layer.seconds.backward).sum::<f64>();
        back += own;
        // What comes over the edge behind this stage goes back through it first.
        back += edges.get(index).map_or(0.0, |edge| edge.backward);
    }
    after
}

/// What a stage does with these actions, and how long its steps take.
pub(super) fn device_of(
    question: &Question<'_>,
    stage: usize,
    actions: &StageActions,
) -> Result<(StageWork, DeviceSteps), PlanError> {
    let blocks = question.stages.get(stage).ok_or(PlanError::Unfit("a stage has blocks"))?;
    let place = question.place(stage);
    let work = StageWork::of(blocks, place, question.order, question.micro_batches, actions);
    let layers = seconds_of(blocks, question.order);
    let steps = StageSteps {
        place,
        steps: &work.steps,
        first_layer: blocks.first_layer,
        layers: &layers,
        exchange_seconds: 0.0,
    };
    let device = DeviceSteps { steps: steps.timed()?, trips: trips(blocks, &work, actions) };
    Ok((work, device))
}

impl SimulatedIteration {
    /// Simulates an iteration.
    pub(super) fn of(
        question: &Question<'_>,
        mapping: &[usize],
        actions: &[StageActions],
        keep: Keep,
    ) -> Result<Self, PlanError> {
        let mut scene = SimulationContext::new(question, mapping);
        let mut works = Vec::with_capacity(actions.len());
        for (stage, actions) in (0..question.stages.len()).zip(actions) {
            let (work, mut device) = device_of(question, stage, actions)?;
            scene.exchange(stage, &mut device);
            works.push(work);
        }
        Ok(Self { works, copied: scene.simulated(keep)? })
    }

    /// By stage and block of a layer: seconds for which its device waited for copies of it, if the simulation kept copies.
    pub(super) fn waited(&self) -> Vec<BTreeMap<(usize, Block), f64>> {
        let mut all = vec![BTreeMap::new(); self.works.len()];
        for wait in &self.copied.waits {
            let stage = wait.device as usize;
            let absence = self.works.get(stage).and_then(|work| work.absences.get(wait.trip as usize));
            if let (Some(absence), Some(of_stage)) = (absence, all.get_mut(stage)) {
                *of_stage.entry((absence.layer, absence.block)).or_insert(0.0) += wait.end - wait.start;
            }
        }
        all
    }
}

/// PipeDream updates with each backward pass, and never otherwise.
fn seconds_of(blocks: &StageBlocks, order: Order) -> Vec<LayerSeconds> {
    let of = |seconds: LayerSeconds| match order {
        Order::PipeDream => {
            LayerSeconds { backward: seconds.backward + seconds.update, update: 0.0, ..seconds }
        }
        Order::Gpipe | Order::OneFOneB | Order::Interleaved { .. } => seconds,
    };
    blocks.layers.iter().map(|layer| of(layer.seconds)).collect()
}

/// The ways of a stage's blocks, in the order of its absences. Devices are named after their stages.
fn trips(blocks: &StageBlocks, work: &StageWork, actions: &StageActions) -> Vec<Trip> {
    let to = |action: usize| match actions.actions.get(action).map(|action| &action.optimization) {
        Some(Optimization::Swap(swap)) => swap.to.clone(),
        _ => Destination::Host,
    };
    let of = |absence| match bytes_of(blocks, absence) {
        // Nothing is copied, and no one waits for it.
        0 => Trip::default(),
        bytes => Trip::of(absence, bytes, &to(absence.action), |stage| stage),
    };
    work.absences.iter().map(of).collect()
}
