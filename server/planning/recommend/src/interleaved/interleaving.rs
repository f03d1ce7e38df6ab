//! What devices hold and do that take turns with several stages of a plan.
//!
//! Each stage is replayed in its own steps. While another stage of its device is at work it holds what it left behind its last step.
//! What was gone by then is gone, and what is fetched comes right in front of its next one.

use loadmaster_proto::model::Model;
use loadmaster_proto::training::actions::{StageActions, Steps};
use loadmaster_proto::training::schedule::Pass;

use crate::memory_optimizations::TimedStage;
use crate::search::Candidate;
use loadmaster_predict::{ActionsPrediction, StageSetting};
use loadmaster_simulate::copies::{
    Copied, CopiesError, CopyPipeline, DeviceSteps, DeviceTimes, Keep, Links, Place, StageSteps, Trip, Way,
    device_of_chunks, pass_of, simulate,
};
use loadmaster_simulate::{Edge, Lane, Order, Overlap, TimedPass, Turn};

/// Who has which turn in an iteration of interleaved 1F1B: stage k is on device k modulo the devices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Interleaving {
    /// By device.
    turns: Vec<Vec<Turn>>,
    /// By stage: the most micro-batches between forward and backward at once.
    in_flight: Vec<u32>,
}

/// What a device holds for all its stages together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceResidency {
    /// Which of the plan's stages they are.
    pub stages: Vec<usize>,
    /// The most at once, what is set aside for other devices included, bytes.
    pub peak: u64,
    /// The most in the host's memory, each stage counted at its own most, bytes.
    pub host: u64,
}

/// Actions that no stage can do which takes turns with others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InterleavingError {
    /// Other slots are meant.
    #[error(
        "stage {stage} has memory optimizations for some micro-batches only (`micro_batch_slots`), which virtual \
         pipeline stages do not support. Remove `micro_batch_slots`"
    )]
    Slots {
        /// Which one.
        stage: usize,
    },
    /// A peer is on the stage's own device.
    #[error(
        "stage {stage} swaps blocks to stage {peer}, which is on the same device. Swap to a stage on another \
        device"
    )]
    OwnPeer {
        /// Which one.
        stage: usize,
        /// Its peer.
        peer: u32,
    },
}

impl InterleavingError {
    /// Whose actions they are.
    pub(crate) fn stage(self) -> usize {
        match self {
            Self::Slots { stage } | Self::OwnPeer { stage, .. } => stage,
        }
    }
}

impl Interleaving {
    /// Those of so many stages on so many devices; none where stages or micro-batches are no multiple of these.
    pub(crate) fn of(stages: usize, devices: usize, micro_batches: u32) -> Option<Self> {
        let is_multiple =
            devices > 0 && stages.is_multiple_of(devices) && (micro_batches as usize).is_multiple_of(devices);
        let order = Order::Interleaved { devices: number(devices) };
        (is_multiple && stages > 0).then(|| {
            let turns = order.turns(stages, micro_batches);
            let in_flight = (0..stages).map(|stage| most_open(passes(&turns, stage))).collect();
            Self { turns, in_flight }
        })
    }

    pub(crate) fn devices(&self) -> usize {
        self.turns.len()
    }

    /// The stages of a device, in the chain's order.
    pub(crate) fn own(&self, device: usize) -> Vec<usize> {
        (device..self.in_flight.len()).step_by(self.devices().max(1)).collect()
    }

    /// The most micro-batches of a stage between forward and backward at once.
    pub(crate) fn in_flight(&self, stage: u32) -> u32 {
        self.in_flight.get(stage as usize).copied().unwrap_or(1)
    }

    /// The steps of a stage, in the order of its turns.
    pub(crate) fn steps(
        &self,
        model: Option<&Model>,
        setting: &StageSetting,
        actions: &StageActions,
    ) -> Steps {
        let passes: Vec<Pass> = passes(&self.turns, setting.stage_index as usize).collect();
        let slots = self.in_flight(setting.stage_index) as usize;
        let runs = actions.runs(setting.stage.layers(), setting.training.recompute, 0);
        let exchanges = Steps::exchanges(model, &setting.stage);
        Steps::of(&passes, setting.stage.layers(), &vec![runs; slots], exchanges)
    }

    /// Slots are of as many micro-batches as 1F1B has in flight, and here a stage has more; and no stage is the peer of its own
    /// device.
    ///
    /// # Errors
    /// The first that is not so.
    pub(crate) fn check(&self, stage: usize, actions: &StageActions) -> Result<(), InterleavingError> {
        if actions.actions.iter().any(|action| !action.slots.is_empty()) {
            return Err(InterleavingError::Slots { stage });
        }
        let devices = self.devices().max(1);
        match actions.peers().into_iter().find(|&peer| peer as usize % devices == stage % devices) {
            Some(peer) => Err(InterleavingError::OwnPeer { stage, peer }),
            None => Ok(()),
        }
    }

    /// What each device holds.
    pub(crate) fn held(&self, stages: &[&ActionsPrediction]) -> Vec<DeviceResidency> {
        let devices = self.devices().max(1);
        let device = |device: usize| {
            let pools = stages.iter().flat_map(|acted| &acted.pools);
            let here = pools.filter(|pool| pool.peer.is_some_and(|peer| peer as usize % devices == device));
            let set_aside: u64 = here.map(|pool| pool.peak).sum();
            let own = self.own(device);
            let host = own.iter().filter_map(|&stage| stages.get(stage)).map(|acted| acted.host_peak()).sum();
            DeviceResidency { peak: self.peak(device, stages).saturating_add(set_aside), host, stages: own }
        };
        (0..self.devices()).map(device).collect()
    }

    /// The most that the stages of a device hold together.
    fn peak(&self, device: usize, stages: &[&ActionsPrediction]) -> u64 {
        let own: Vec<&ActionsPrediction> =
            self.own(device).into_iter().filter_map(|stage| stages.get(stage).copied()).collect();
        let between: Vec<Vec<u64>> = own.iter().map(|acted| between(acted)).collect();
        let overhead = |acted: &&ActionsPrediction| acted.prediction(0).breakdown.map_or(0, |of| of.overhead);
        // Workspaces are shared by the stages of a device.
        let shared: u64 = own.iter().map(overhead).sum::<u64>() - own.iter().map(overhead).max().unwrap_or(0);
        let mut held: Vec<u64> = between.iter().filter_map(|of| of.first().copied()).collect();
        let mut all: u64 = held.iter().fold(0, |sum, bytes| sum.saturating_add(*bytes));
        let mut most = 0;
        for (at, step) in self.in_turn(device, &own) {
            let others = all.saturating_sub(held[at]);
            let now = own[at].curve.get(step).map_or(0, |step| step.most.total());
            most = most.max(now.saturating_add(others));
            held[at] = between[at].get(step + 1).copied().unwrap_or(0);
            all = others.saturating_add(held[at]);
        }
        most.saturating_sub(shared)
    }

    /// The steps of a device's stages in the order in which it does them: which of its stages, and which of that one's steps.
    fn in_turn(&self, device: usize, own: &[&ActionsPrediction]) -> Vec<(usize, usize)> {
        let devices = self.devices().max(1);
        let mut done = vec![0_usize; own.len()];
        let mut all = Vec::new();
        for turn in self.turns.get(device).into_iter().flatten() {
            let at = turn.stage as usize / devices;
            let Some(acted) = own.get(at) else { continue };
            let steps = acted.steps.all();
            while steps.get(done[at]).is_some_and(|&step| pass_of(step) == Some(turn.pass)) {
                all.push((at, done[at]));
                done[at] += 1;
            }
        }
        for (at, done) in done.into_iter().enumerate() {
            all.extend((done..own[at].steps.all().len()).map(|step| (at, step)));
        }
        all
    }

    /// What each device does: passes by stage.
    pub(crate) fn lanes(&self, stages: &[&ActionsPrediction], copied: &Copied) -> Vec<Lane> {
        let devices = (0..self.devices()).zip(&copied.devices);
        devices.map(|(device, times)| self.lane(device, stages, times)).collect()
    }

    fn lane(&self, device: usize, stages: &[&ActionsPrediction], times: &DeviceTimes) -> Lane {
        let mut lane = Lane { passes: Vec::new(), step: None, busy: times.busy };
        let named = self.own(device);
        let own: Vec<&ActionsPrediction> =
            named.iter().filter_map(|&stage| stages.get(stage).copied()).collect();
        for ((at, step), &(start, end)) in self.in_turn(device, &own).into_iter().zip(&times.steps) {
            let stage = number(named[at]);
            let Some(pass) = own[at].steps.all().get(step).and_then(|&step| pass_of(step)) else {
                lane.step = Some((lane.step.map_or(start, |(start, _)| start), end));
                continue;
            };
            match lane.passes.last_mut().filter(|last| (last.stage, last.pass) == (stage, pass)) {
                Some(last) => last.end = end,
                None => lane.passes.push(TimedPass { stage, pass, start, end }),
            }
        }
        lane
    }

    /// An iteration of a candidate, with its copies. `links` are those of stages as if each had a device of its own.
    pub(crate) fn iteration(
        &self,
        candidate: &Candidate,
        stages: &[TimedStage<'_>],
        links: Links,
    ) -> Result<Copied, CopiesError> {
        let keep = Keep { copies: true, ..Keep::default() };
        self.simulated(stages, &candidate.edge_halves(), candidate.overlap, links, keep)
    }

    /// An iteration, device by device. `links` are those of stages as if each had a device of its own.
    pub(crate) fn simulated(
        &self,
        stages: &[TimedStage<'_>],
        edges: &[Edge],
        overlap: Overlap,
        links: Links,
        keep: Keep,
    ) -> Result<Copied, CopiesError> {
        let devices = number(self.devices()).max(1);
        let links = on_devices(links, devices);
        let count = number(stages.len());
        let mut all: Vec<DeviceSteps> = Vec::with_capacity(self.devices());
        for (device, turns) in self.turns.iter().enumerate() {
            let own = (0..).zip(stages).skip(device).step_by(devices as usize);
            let own: Vec<(StageSteps<'_>, Vec<Trip>)> = own
                .map(|(stage, timed)| {
                    let mut trips = timed.trips();
                    for parcel in trips.iter_mut().flat_map(|trip| &mut trip.parcels) {
                        if let Place::Peer(stage) = &mut parcel.place {
                            *stage %= devices;
                        }
                    }
                    (timed.steps((stage, count)), trips)
                })
                .collect();
            all.push(device_of_chunks(turns, &own)?);
        }
        simulate(&CopyPipeline { devices: &all, edges, overlap, links: &links }, keep)
    }
}

/// The passes of a stage, in order.
fn passes(turns: &[Vec<Turn>], stage: usize) -> impl Iterator<Item = Pass> {
    let own = turns.get(stage % turns.len().max(1)).into_iter().flatten();
    own.filter(move |turn| turn.stage as usize == stage).map(|turn| turn.pass)
}

/// The most micro-batches between forward and backward at once.
fn most_open(passes: impl Iterator<Item = Pass>) -> u32 {
    let (mut open, mut most) = (0_u32, 1_u32);
    for pass in passes {
        open = if matches!(pass, Pass::Forward(_)) { open + 1 } else { open.saturating_sub(1) };
        most = most.max(open);
    }
    most
}

/// The links of stages as those of their devices: a stage goes over the links of its device, as fast as over those of the stage that
/// it is.
fn on_devices(mut links: Links, devices: u32) -> Links {
    let on_device = |way: Way| match way {
        Way::ToHost(of) => Way::ToHost(of % devices),
        Way::FromHost(of) => Way::FromHost(of % devices),
        Way::Between { from, to } => Way::Between { from: from % devices, to: to % devices },
    };
    for (way, rate) in links.ways.clone() {
        links.ways.entry(on_device(way)).or_insert(rate);
    }
    links.ways.retain(|&way, _| on_device(way) == way);
    for shared in &mut links.shared {
        shared.ways = shared.ways.iter().map(|&way| on_device(way)).collect();
        shared.ways.sort_unstable();
        shared.ways.dedup();
    }
    for cores in &mut links.cores {
        // Stages of a device have its slots by turns: as many as that of them which has most.
        let slots = |stage: u32| cores.devices.iter().filter(|&&of| of == stage).count();
        let stages_of = |device: u32| cores.devices.iter().filter(move |&&of| of % devices == device);
        let most = |device: u32| stages_of(device).map(|&stage| slots(stage)).max().unwrap_or_default();
        cores.devices = (0..devices).flat_map(|device| std::iter::repeat_n(device, most(device))).collect();
    }
    links
}

/// What a stage holds in front of each of its steps, before anything is fetched for it; behind the last as before the first.
fn between(acted: &ActionsPrediction) -> Vec<u64> {
    let count = acted.curve.len().max(1);
    let mut held: Vec<u64> = acted.curve.iter().map(|step| step.at_boundary).collect();
    for away in &acted.away {
        if let Some(at) = held.get_mut(away.absence.at.fetched % count) {
            *at = at.saturating_sub(away.bytes);
        }
    }
    held.push(held.first().copied().unwrap_or(0));
    held
}

fn number(of: usize) -> u32 {
    u32::try_from(of).unwrap_or(u32::MAX)
}
