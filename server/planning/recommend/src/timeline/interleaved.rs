//! A plan's stages as chunks of an interleaved 1F1B (Megatron-LM), several on each device, with the memory
//! optimizations that they do: its own where it is interleaved, what would be where it is not.

use loadmaster_proto::plan::Plan;

use super::{CopyLane, TimelineError, check_same, check_steps, layers, links_of, transfers_of, ways_of};
use crate::interleaved::{DeviceResidency, Interleaving};
use crate::memory_optimizations::{TimedStage, settings, stage_seconds};
use crate::problem::ProfiledChain;
use loadmaster_predict::{ActionsPrediction, Away};
use loadmaster_simulate::Lane;
use loadmaster_simulate::copies::{Copied, Keep};

/// A plan whose stages are chunks.
#[derive(Debug)]
pub struct InterleavedTimeline {
    /// An iteration, device by device.
    pub copied: Copied,
    /// What each device holds.
    pub devices: Vec<DeviceResidency>,
    /// What each device does: passes by chunk.
    pub lanes: Vec<Lane>,
    /// By device, what its trips are.
    away: Vec<Vec<(u32, Away)>>,
}

impl InterleavedTimeline {
    /// The stages of a plan as so many chunks of each device: stage k is on device k modulo the devices.
    ///
    /// # Errors
    /// The stages are no such chunks, or what is missing.
    pub fn of(plan: &Plan, chain: &ProfiledChain, chunks: u32) -> Result<Self, TimelineError> {
        let stages = plan.stages.len();
        let chunks = chunks.max(1) as usize;
        let micro_batches = plan.training.micro_batches;
        let interleaving =
            stages.is_multiple_of(chunks).then(|| Interleaving::of(stages, stages / chunks, micro_batches));
        let Some(interleaving) = interleaving.flatten() else {
            return Err(TimelineError::NoChunks { stages, chunks, micro_batches });
        };
        check_steps(plan.stages.iter().map(|of| of.config.layers().count() as u64).sum(), micro_batches)?;
        let settings = settings(plan);
        let (mut acted, mut seconds) = (Vec::with_capacity(stages), Vec::with_capacity(stages));
        for (index, (stage, setting)) in plan.stages.iter().zip(&settings).enumerate() {
            interleaving.check(index, &stage.actions)?;
            let own = stage_seconds(stage).ok_or(TimelineError::NoTimes)?;
            let steps = interleaving.steps(chain.model.as_ref(), setting, &stage.actions);
            let of = chain.predictor.acted_in(setting, &stage.actions, steps)?;
            seconds.push(layers(chain, setting, &of, own).ok_or(TimelineError::NoTimes)?);
            acted.push(of);
        }
        let links = links_of(plan, &acted)?;
        let own = plan.stages.iter().zip(&acted).zip(&seconds);
        let timed =
            own.map(|((stage, acted), layers)| TimedStage::new(acted, stage.config.first_layer, layers));
        let timed: Vec<TimedStage<'_>> = timed.collect();
        let (edges, overlap) = transfers_of(plan);
        let keep = Keep { steps: true, copies: true };
        let copied = interleaving.simulated(&timed, &edges, overlap, links, keep)?;
        // Of a plan that is interleaved itself, the seconds are the plan's.
        if let Some(then) = plan.iteration_seconds().filter(|_| plan.is_interleaved()) {
            check_same(copied.iteration_seconds, then)?;
        }
        let acted: Vec<&ActionsPrediction> = acted.iter().collect();
        let (devices, lanes) = (interleaving.held(&acted), interleaving.lanes(&acted, &copied));
        let away = (0..interleaving.devices()).map(|device| {
            let of_stage = |stage: usize| {
                let away = acted.get(stage).into_iter().flat_map(|acted| &acted.away);
                away.map(move |away| (u32::try_from(stage).unwrap_or(u32::MAX), away.clone()))
            };
            interleaving.own(device).into_iter().flat_map(of_stage).collect()
        });
        Ok(Self { away: away.collect(), copied, devices, lanes })
    }

    /// All ways that copies use; stages are the plan's.
    pub fn ways(&self) -> Vec<CopyLane<'_>> {
        let devices = u32::try_from(self.devices.len()).unwrap_or(u32::MAX).max(1);
        ways_of(&self.copied, |device, trip, place| {
            let (stage, away) = self.away.get(device as usize)?.get(trip as usize)?;
            let stripes = away.stripes.iter().filter(|(peer, _)| Some(peer % devices) == place);
            let bytes =
                if away.stripes.is_empty() { away.bytes } else { stripes.map(|(_, bytes)| bytes).sum() };
            Some((*stage, &away.absence, bytes))
        })
    }
}
