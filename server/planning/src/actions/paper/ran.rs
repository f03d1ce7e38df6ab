//! How long an iteration takes with what is decided, and who waits for what.

use std::collections::BTreeMap;

use loadmaster_proto::training::actions::{Deed, Destination, StageActions};

use super::decided::Of;
use super::{Decided, PaperError, Question};
use crate::actions::held::bytes_of;
use crate::actions::{StageBlocks, StageWork};
use crate::iteration::Order;
use crate::iteration::copies::{
    Copied, DeviceSteps, Keep, LayerSeconds, Links, Rate, StageSteps, Stepped, Trip, simulate,
};

/// Micro-batches, in multiples of the stages, after which PipeDream is in its long run.
const FILLING: usize = 3;

/// A simulated iteration.
#[derive(Debug)]
pub(super) struct Ran {
    pub(super) works: Vec<StageWork>,
    pub(super) copied: Copied,
}

/// Seconds of an iteration. PipeDream never ends one: as many micro-batches as an iteration has in the long run.
pub(super) fn seconds(question: &Question<'_>, decided: &Decided) -> Result<f64, PaperError> {
    let once = |micro_batches| -> Result<f64, PaperError> {
        Ok(Ran::of(&Question { micro_batches, ..*question }, decided, Keep::default())?
            .copied
            .iteration_seconds)
    };
    if question.order != Order::PipeDream {
        return once(question.micro_batches);
    }
    let filled =
        u32::try_from(FILLING * question.stages.len()).unwrap_or(u32::MAX).max(question.micro_batches);
    let more = once(filled.saturating_mul(2))? - once(filled)?;
    Ok(more * f64::from(question.micro_batches) / f64::from(filled))
}

impl Ran {
    /// Simulates an iteration.
    pub(super) fn of(question: &Question<'_>, decided: &Decided, keep: Keep) -> Result<Self, PaperError> {
        let device = |stage: usize| decided.mapping.get(stage).copied().unwrap_or(0);
        let node = question.node;
        let mut links = Links::default();
        let (mut works, mut devices) = (Vec::new(), Vec::new());
        for (stage, blocks) in question.stages.iter().enumerate() {
            let actions = decided.actions_of(stage);
            let place = question.place(stage);
            let work = StageWork::of(blocks, place, question.order, question.micro_batches, &actions);
            let layers = seconds_of(blocks, question.order);
            let steps = StageSteps {
                place,
                steps: &work.steps,
                first_layer: blocks.first_layer,
                layers: &layers,
                exchange_seconds: 0.0,
            };
            devices.push(DeviceSteps { steps: steps.timed()?, trips: trips(blocks, &work, &actions) });
            works.push(work);
            if let Some(host) = node.host.get(device(stage)) {
                let rate = Rate::new(host.bytes_per_second, host.latency_seconds);
                links = links.host(place.0, rate, rate);
            }
            for other in (0..question.stages.len()).filter(|&other| other != stage) {
                if let Some(link) = node.link(device(stage), device(other)) {
                    let rate = Rate::new(link.bytes_per_second, link.latency_seconds);
                    links = links.peer(place.0, question.place(other).0, rate);
                }
            }
        }
        let edge = |(stage, &bytes): (usize, &u64)| node.edge(device(stage), device(stage + 1), bytes);
        let edges: Vec<_> = question.edge_bytes.iter().enumerate().map(edge).collect();
        let stepped = Stepped { devices: &devices, edges: &edges, overlap: question.overlap, links: &links };
        let copied = simulate(&stepped, keep)?;
        Ok(Self { works, copied })
    }

    /// By stage and block: seconds for which its device waited for copies of it, if the simulation kept copies.
    pub(super) fn waited(&self) -> Vec<BTreeMap<Of, f64>> {
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
    let to = |action: usize| match actions.actions.get(action).map(|action| &action.deed) {
        Some(Deed::Swap(swap)) => swap.to.clone(),
        _ => Destination::Host,
    };
    let of = |absence| Trip::of(absence, bytes_of(blocks, absence), &to(absence.action), |stage| stage);
    work.absences.iter().map(of).collect()
}
