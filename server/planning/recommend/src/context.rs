//! What all plans of one question have in common, and what follows from that alone: bytes as they are corrected, names, and what is
//! known of devices and their cores.

use std::collections::BTreeMap;

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::cluster::device::CPU_KIND;
use loadmaster_proto::name::ProfileName;
use loadmaster_proto::plan::PlacedDevice;
use loadmaster_proto::plan::findings::AppliedCorrection;
use loadmaster_proto::plan::prediction::Interval;
use loadmaster_proto::plan::request::Goal;
use loadmaster_proto::training::TrainingSpec;
use loadmaster_proto::training::actions::StageActions;
use loadmaster_proto::warning::Warning;

use super::problem::{ProfiledChain, Transfers};
use super::search::{Candidate, CandidateStage};
use loadmaster_predict::{
    ActionsError, Margin, Origin, PipelineActions, Prediction, PredictionError, StageSetting,
};
use loadmaster_search::cost::{Factors, Prices};
use loadmaster_search::fleet::PlannedFleet;
use loadmaster_search::{KindSet, StageAt};
use loadmaster_simulate::copies::SlotCores;

/// Everything that plans of one question have in common.
pub(super) struct Context<'a> {
    pub(super) chain: &'a ProfiledChain,
    /// By kind of device, in the fleet's order; and what its predictions are multiplied with.
    pub(super) kinds: &'a [(&'a ProfiledChain, Factors)],
    pub(super) prices: &'a Prices<'a>,
    pub(super) fleet: &'a PlannedFleet,
    pub(super) training: TrainingSpec,
    pub(super) margin: Margin,
    pub(super) goal: Goal,
    pub(super) corrections: Vec<AppliedCorrection>,
    pub(super) notes: Vec<Warning>,
    pub(super) transfers: Transfers,
}

impl Context<'_> {
    /// Profiles of other kinds of devices than the first one's.
    pub(super) fn profiles_of_others(&self) -> Vec<ProfileName> {
        let mut others: Vec<ProfileName> = Vec::new();
        for (chain, _) in self.kinds {
            if chain.profile != self.chain.profile && !others.contains(&chain.profile) {
                others.push(chain.profile.clone());
            }
        }
        others
    }

    /// What devices hold and no figure shows, of any kind of device.
    pub(super) fn unknown(&self) -> Option<&'static str> {
        let others = self.kinds.iter().map(|(chain, _)| *chain);
        std::iter::once(self.chain).chain(others).find_map(|chain| chain.predictor.unknown())
    }

    /// The name of a device; empty where there is none.
    pub(super) fn device_name(&self, device: Option<u32>) -> String {
        let name = |device: u32| self.fleet.names().get(device as usize).cloned();
        device.and_then(name).unwrap_or_default()
    }

    /// These devices as their cluster describes them.
    pub(super) fn placed(&self, devices: &[u32]) -> Vec<PlacedDevice> {
        devices.iter().map(|&device| self.fleet.placed(device)).collect()
    }

    /// The stages of a candidate as they would be trained.
    pub(super) fn settings(&self, candidate: &Candidate) -> Vec<StageSetting> {
        let stage_count = u32::try_from(candidate.stages.len()).unwrap_or(u32::MAX);
        let setting = |(stage_index, stage): (u32, &CandidateStage)| StageSetting {
            stage: stage.config(),
            stage_index,
            stage_count,
            training: TrainingSpec {
                schedule: candidate.schedule,
                micro_batch_size: candidate.batch.micro_batch_size,
                micro_batches: candidate.batch.micro_batches,
                recompute: stage.choice.recompute,
                ..self.training
            },
        };
        (0..stage_count).zip(&candidate.stages).map(setting).collect()
    }

    /// The prediction of the kind of device that the stage fills most, before any correction.
    ///
    /// # Errors
    /// What the profile lacks.
    pub(super) fn fullest(
        &self,
        kinds: KindSet,
        setting: &StageSetting,
    ) -> Result<Prediction, PredictionError> {
        let mut fullest: Option<Prediction> = None;
        for kind in kinds.kinds() {
            let Some((chain, _)) = self.kinds.get(kind) else { continue };
            let predicted = chain.predictor.stage(setting)?;
            if fullest.as_ref().is_none_or(|most| predicted.bytes > most.bytes) {
                fullest = Some(predicted);
            }
        }
        fullest.map_or_else(|| self.chain.predictor.stage(setting), Ok)
    }

    /// How far the seconds of a stage may be off, on the kind of device where they are known least.
    pub(super) fn seconds_margin(&self, kinds: KindSet, setting: &StageSetting) -> Option<f64> {
        let own = kinds.kinds().filter_map(|kind| self.kinds.get(kind)).map(|(chain, _)| *chain);
        let mut chains: Vec<&ProfiledChain> = own.collect();
        if chains.is_empty() {
            chains.push(self.chain);
        }
        let margins: Option<Vec<f64>> =
            chains.iter().map(|chain| chain.predictor.stage(setting).ok()?.seconds_margin).collect();
        margins?.into_iter().reduce(f64::max)
    }

    /// How far the seconds of a plan's stages are from what was profiled; none without times.
    pub(super) fn origin(&self, candidate: &Candidate) -> Option<Origin> {
        let of_stage = |stage: &CandidateStage| {
            let at = StageAt::anywhere(stage.first, stage.last, stage.kinds);
            self.prices.origin(candidate.schedule, candidate.batch, stage.choice, &at)
        };
        candidate.stages.iter().map(of_stage).collect::<Option<Vec<Origin>>>()?.into_iter().max()
    }

    /// What earlier trials taught to multiply predicted bytes with: of several kinds of devices the largest.
    pub(super) fn bytes_factor(&self) -> f64 {
        self.kinds.iter().map(|(_, factors)| factors.bytes).reduce(f64::max).unwrap_or(1.0)
    }

    /// Predicted bytes as earlier trials taught to multiply them.
    pub(super) fn corrected(&self, bytes: u64) -> u64 {
        let factor = self.bytes_factor();
        if factor == 1.0 { bytes } else { (bytes as f64 * factor).ceil() as u64 }
    }

    /// The bytes that a capacity must hold for a prediction, corrected as the plan's are.
    pub(super) fn needed(&self, prediction: &Prediction) -> u64 {
        let peak = Bytes(self.corrected(prediction.bytes.0));
        let interval = self.margin.interval(prediction);
        interval.map_or(peak, |interval| Interval::around(peak, interval.margin).high).0
    }

    /// The bytes that a device of a stage must hold that does these actions.
    ///
    /// # Errors
    /// What the profile lacks.
    pub(super) fn needed_with(
        &self,
        setting: &StageSetting,
        actions: &StageActions,
    ) -> Result<u64, PredictionError> {
        Ok(self.needed(&self.chain.predictor.acted(setting, actions)?.prediction(0)))
    }

    /// A replay of stages that do these actions; those beyond the list do nothing.
    ///
    /// # Errors
    /// Actions that make no sense, or what the profile lacks.
    pub(super) fn replayed(
        &self,
        settings: &[StageSetting],
        actions: &[StageActions],
    ) -> Result<PipelineActions, ActionsError> {
        PipelineActions::of(&*self.chain.predictor, self.chain.model.as_ref(), settings, actions)
    }

    /// The cores of a host of CPU slots, as it was profiled; none of other devices, or where it is not known.
    pub(super) fn slot_cores(&self) -> Option<SlotCores> {
        let of_slots = self.kinds.iter().find(|(chain, _)| chain.device_kind == CPU_KIND);
        of_slots.and_then(|(chain, _)| chain.host).map(SlotCores::of)
    }

    /// Nodes whose slots share cores, with the stages of these slots, each as often as it has some there. What a stage does
    /// is simulated once: one on several nodes is where it has most slots.
    pub(super) fn shared_cores(&self, candidate: &Candidate) -> Vec<(SlotCores, Vec<u32>)> {
        let Some(cores) = self.slot_cores() else { return Vec::new() };
        let mut nodes: BTreeMap<String, Vec<u32>> = BTreeMap::new();
        for (stage, own) in (0..).zip(&candidate.stages) {
            let mut here: BTreeMap<String, usize> = BTreeMap::new();
            for placed in self.placed(&own.devices) {
                if placed.kind == CPU_KIND {
                    *here.entry(placed.node).or_default() += 1;
                }
            }
            if let Some((node, slots)) = here.into_iter().max_by_key(|(_, slots)| *slots) {
                nodes.entry(node).or_default().extend(std::iter::repeat_n(stage, slots));
            }
        }
        nodes.into_values().map(|stages| (cores, stages)).collect()
    }

    /// The cores that all stages share, one slot each; none where any has its own.
    pub(super) fn cores_of_all(&self, candidate: &Candidate) -> Option<SlotCores> {
        let shared = self.shared_cores(candidate);
        let [(cores, stages)] = shared.as_slice() else { return None };
        let each_once = stages.iter().copied().eq((0..).take(candidate.stages.len()));
        each_once.then_some(*cores)
    }
}
