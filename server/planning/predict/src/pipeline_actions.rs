//! The stages of a pipeline with the memory optimizations that they do: checked, with pools, and with what that needs.

use std::collections::BTreeSet;

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::error::Invalid;
use loadmaster_proto::measure::offload::{CopyCount, Offload};
use loadmaster_proto::model::Model;
use loadmaster_proto::training::actions::{ActionContext, PeerPool, StageActions, Steps};

use super::{ActionsPrediction, Prediction, PredictionError, Predictor, StageSetting};

/// Stages with what they do.
#[derive(Debug, Clone)]
pub struct PipelineActions {
    /// What each does, with all pools.
    pub actions: Vec<StageActions>,
    /// What comes of it.
    pub acted: Vec<ActionsPrediction>,
    /// What the device with the highest peak of each sets aside for others, bytes.
    pub peer_pools: Vec<u64>,
}

/// Why actions have no prediction.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ActionsError {
    /// They make no sense, by their path in `stage_actions`.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// The profile lacks what they are predicted from.
    #[error(transparent)]
    Prediction(#[from] PredictionError),
}

/// Most passes of a stage's layers in an iteration whose actions are played, forward ones alone: each has steps, and blocks that
/// may be away.
pub const MOST_PASSES: u64 = 500_000;

impl PipelineActions {
    /// What these stages need with the actions that are given for them, in their order; those beyond the list do nothing.
    /// Pools that are left out are as large as needed.
    ///
    /// # Errors
    /// Actions or pools that make no sense, or a profile that lacks what they are predicted from.
    pub fn of(
        predictor: &(impl Predictor + ?Sized),
        model: Option<&Model>,
        settings: &[StageSetting],
        given: &[StageActions],
    ) -> Result<Self, ActionsError> {
        Self::replayed(model, settings, given, &|setting, actions| predictor.acted(setting, actions))
    }

    /// The same where `steps` are those of a stage, which takes turns with others on its devices.
    ///
    /// # Errors
    /// As [`Self::of`].
    pub fn in_steps(
        predictor: &(impl Predictor + ?Sized),
        model: Option<&Model>,
        settings: &[StageSetting],
        given: &[StageActions],
        steps: &dyn Fn(&StageSetting, &StageActions) -> Steps,
    ) -> Result<Self, ActionsError> {
        let replay = |setting: &StageSetting, actions: &StageActions| {
            predictor.acted_in(setting, actions, steps(setting, actions))
        };
        Self::replayed(model, settings, given, &replay)
    }

    fn replayed(
        model: Option<&Model>,
        settings: &[StageSetting],
        given: &[StageActions],
        replay: &dyn Fn(&StageSetting, &StageActions) -> Result<ActionsPrediction, PredictionError>,
    ) -> Result<Self, ActionsError> {
        for (setting, _) in settings.iter().zip(given).filter(|(_, actions)| !actions.is_empty()) {
            check_size(setting)?;
        }
        check(model, settings, given)?;
        let mut actions: Vec<StageActions> = given.to_vec();
        actions.resize(settings.len(), StageActions::default());
        let acted: Vec<ActionsPrediction> = settings
            .iter()
            .zip(&actions)
            .map(|(setting, actions)| replay(setting, actions))
            .collect::<Result<_, _>>()?;
        let peer_pools = complete(settings, &mut actions, &acted)?;
        Ok(Self { actions, acted, peer_pools })
    }

    /// Checks that each swap of theirs has something away.
    ///
    /// # Errors
    /// The first that has not, by its path in `stage_actions`.
    pub fn check_points(&self) -> Result<(), Invalid> {
        for (index, (actions, acted)) in self.actions.iter().zip(&self.acted).enumerate() {
            let at = |invalid: Invalid| invalid.under(&format!("memory.stage_memory_optimizations[{index}]"));
            actions.check_points(&acted.steps).map_err(at)?;
        }
        Ok(())
    }

    /// What the device with the highest peak of a stage needs.
    pub fn prediction(&self, stage: usize) -> Option<Prediction> {
        Some(self.acted.get(stage)?.prediction(self.peer_pools.get(stage).copied()?))
    }

    /// What a stage's actions move in an iteration; `waited` says for how long its device waits for copies to a stage, or
    /// to the host. None where it does nothing.
    pub fn offload(&self, stage: usize, waited: impl Fn(Option<u32>) -> f64) -> Option<Offload> {
        let (acted, actions) = (self.acted.get(stage)?, self.actions.get(stage)?);
        let copies = acted.pools.iter().map(|pool| CopyCount {
            peer: pool.peer,
            out_bytes: pool.moved_bytes,
            in_bytes: pool.moved_bytes,
            waited_seconds: waited(pool.peer),
        });
        (!actions.is_empty()).then(|| Offload {
            host_peak: Bytes(acted.host_peak()),
            peer_pool_peak: Bytes(self.peer_pools.get(stage).copied().unwrap_or(0)),
            copies: copies.collect(),
        })
    }
}

/// Whether a stage's steps are few enough to be played with actions.
///
/// # Errors
/// They are not; says what to change.
pub fn check_size(StageSetting { stage, stage_index, training, .. }: &StageSetting) -> Result<(), Invalid> {
    let (layers, micro_batches) = (stage.layer_count() as u64, training.micro_batches);
    if layers.saturating_mul(micro_batches.into()) <= MOST_PASSES {
        return Ok(());
    }
    let why = format!(
        "{micro_batches} is too large for stage {stage_index} with {layers} layers. Memory optimizations and chunks \
         are simulated for at most {MOST_PASSES} passes per iteration. Use fewer, larger micro-batches, or more stages"
    );
    Err(Invalid::field("problem.micro_batch_count", why))
}

fn check(model: Option<&Model>, settings: &[StageSetting], actions: &[StageActions]) -> Result<(), Invalid> {
    if actions.len() > settings.len() {
        let [named, last] = [actions.len(), settings.len()].map(|count| count.saturating_sub(1));
        let why = format!("stage {named} does not exist. Use 0 to {last}");
        return Err(Invalid::field("memory.stage_memory_optimizations", why));
    }
    for (index, (of, setting)) in actions.iter().zip(settings).enumerate() {
        let StageSetting { stage, stage_index, stage_count, training } = setting;
        let acted = ActionContext { model, training, stage, index: *stage_index, count: *stage_count };
        of.check(acted)
            .map_err(|invalid| invalid.under(&format!("memory.stage_memory_optimizations[{index}]")))?;
    }
    Ok(())
}

/// Fills in pools that are left out, and holds those that are given to what is needed. Returns what the device with
/// the highest peak of each stage sets aside for others.
fn complete(
    settings: &[StageSetting],
    actions: &mut [StageActions],
    acted: &[ActionsPrediction],
) -> Result<Vec<u64>, Invalid> {
    for (index, (of, acted)) in actions.iter_mut().zip(acted).enumerate() {
        let needed = Bytes(acted.host_peak());
        if of.host_pool.0 == 0 {
            of.host_pool = needed;
        } else if of.host_pool < needed {
            let why = format!(
                "{0} is less than {1}, the bytes that the stage's memory optimizations need at once. Use at least {1}, \
                 or remove this field",
                of.host_pool.0, needed.0
            );
            return Err(Invalid::field(
                format!("memory.stage_memory_optimizations[{index}].host_pool_bytes"),
                why,
            ));
        }
    }
    let devices_of = |stage: u32| {
        let known = settings.iter().find(|setting| setting.stage_index == stage);
        known.map_or(1, |setting| setting.stage.devices().max(1))
    };
    let peers: Vec<BTreeSet<u32>> = actions.iter().map(StageActions::peers).collect();
    let mut peer_pools = Vec::with_capacity(actions.len());
    for (index, (of, host)) in actions.iter_mut().zip(settings).enumerate() {
        for ((donor, acted), peers) in settings.iter().zip(acted).zip(&peers) {
            if peers.contains(&host.stage_index) {
                set_aside(of, index, donor.stage_index, Bytes(acted.peak_on(host.stage_index)))?;
            }
        }
        let is_guest = |stage: u32| {
            let mut known = settings.iter().zip(&peers).filter(|(of, _)| of.stage_index == stage);
            known.all(|(_, peers)| peers.contains(&host.stage_index))
        };
        if let Some(at) = of.peer_pools.iter().position(|peer_pools| !is_guest(peer_pools.stage)) {
            let why =
                format!("stage {} swaps no blocks to this stage. Remove this entry", of.peer_pools[at].stage);
            return Err(Invalid::field(
                format!("memory.stage_memory_optimizations[{index}].peer_pools[{at}].stage"),
                why,
            ));
        }
        of.peer_pools.sort_unstable_by_key(|peer_pools| peer_pools.stage);
        let own = devices_of(host.stage_index);
        peer_pools.push(of.peer_pools.iter().fold(0, |sum: u64, PeerPool { stage, bytes }| {
            // One device may host several of a stage that has more of them.
            let donors = devices_of(*stage).div_ceil(own);
            sum.saturating_add(bytes.0.saturating_mul(donors.into()))
        }));
    }
    Ok(peer_pools)
}

fn set_aside(of: &mut StageActions, index: usize, stage: u32, needed: Bytes) -> Result<(), Invalid> {
    match of.peer_pools.iter().position(|peer_pools| peer_pools.stage == stage) {
        None => of.peer_pools.push(PeerPool { stage, bytes: needed }),
        Some(at) if of.peer_pools[at].bytes < needed => {
            let why = format!(
                "{0} is less than {1}, the bytes that the swaps of stage {stage} need at once. Use at least {1}, or \
                 remove this field",
                of.peer_pools[at].bytes.0, needed.0
            );
            return Err(Invalid::field(
                format!("memory.stage_memory_optimizations[{index}].peer_pools[{at}].bytes"),
                why,
            ));
        }
        Some(_) => {}
    }
    Ok(())
}
