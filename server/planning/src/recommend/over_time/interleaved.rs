//! A plan's stages as chunks of an interleaved 1F1B (Megatron-LM), several on each device, with the memory actions that they do.
//!
//! Nobody trains that here: it tells what would be. Each chunk is replayed in its own steps. While another chunk of its device
//! is at work it holds what it left behind its last step: what was gone by then is gone, and what is fetched comes right in
//! front of its next one.

use loadmaster_proto::plan::Plan;
use loadmaster_proto::training::actions::{StageActions, Steps};
use loadmaster_proto::training::schedule::Pass;

use super::shown::{WayShown, ways_of};
use super::{MOST_STEPS, Untold, layers};
use crate::iteration::copies::{
    Copied, DeviceSteps, DeviceTimes, Keep, Links, Parcel, Place, StageSteps, Stepped, Trip, Way,
    device_of_chunks, pass_of, simulate,
};
use crate::iteration::{Edge, Lane, Order, Overlap, TimedPass, Turn};
use crate::predict::{Acted, Away, StageSetting};
use crate::recommend::acted::{settings, trip};
use crate::recommend::ask::ProfiledChain;
use crate::search::Seconds;

/// A plan whose stages are chunks.
#[derive(Debug)]
pub struct Interleaved {
    /// An iteration, device by device.
    pub copied: Copied,
    /// What each device holds.
    pub devices: Vec<ChunksHeld>,
    /// What each device does: passes by chunk.
    pub lanes: Vec<Lane>,
    /// By device, what its trips are.
    away: Vec<Vec<(u32, Away)>>,
}

/// What the chunks of a device hold together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChunksHeld {
    /// Which of the plan's stages they are.
    pub stages: Vec<usize>,
    /// The most at once, what is set aside for other devices included.
    pub peak: u64,
    /// The most in the host's memory, each chunk counted at its own most.
    pub host: u64,
}

/// A chunk in its own steps.
struct Chunk {
    acted: Acted,
    setting: StageSetting,
    layers: Vec<crate::iteration::copies::LayerSeconds>,
    exchange_seconds: f64,
}

impl Interleaved {
    /// The stages of a plan as so many chunks of each device: stage k is on device k modulo the devices.
    ///
    /// # Errors
    /// The stages are no such chunks, or what is missing.
    pub fn of(plan: &Plan, chain: &ProfiledChain, chunks: u32) -> Result<Self, Untold> {
        let stages = plan.stages.len();
        let chunks = chunks.max(1) as usize;
        let devices = stages / chunks;
        let micro_batches = plan.training.micro_batches;
        if devices == 0 || devices * chunks != stages || !(micro_batches as usize).is_multiple_of(devices) {
            return Err(Untold::NoChunks { stages, chunks, micro_batches });
        }
        let layers_of: u64 = plan.stages.iter().map(|of| of.config.layers().count() as u64).sum();
        let steps_in_all = layers_of.saturating_mul(3 * u64::from(micro_batches));
        if steps_in_all > MOST_STEPS {
            return Err(Untold::TooLarge { steps: steps_in_all });
        }
        let number = |of: usize| u32::try_from(of).unwrap_or(u32::MAX);
        let order = Order::Interleaved { devices: number(devices) };
        let turns = order.turns(stages, micro_batches);
        let mut all = Vec::with_capacity(stages);
        for (index, (stage, setting)) in plan.stages.iter().zip(settings(plan)).enumerate() {
            check(&stage.actions, index, devices)?;
            let seconds = stage.seconds.ok_or(Untold::NoTimes)?;
            let steps = steps(&turns, &setting, &stage.actions);
            let acted = chain.predictor.acted_in(&setting, &stage.actions, steps)?;
            let seconds =
                Seconds { forward: seconds.forward, backward: seconds.backward, step: seconds.step };
            let (layers, exchange_seconds) =
                layers(chain, &setting, &acted, seconds).ok_or(Untold::NoTimes)?;
            all.push(Chunk { acted, setting, layers, exchange_seconds });
        }
        let copied = simulated(plan, &turns, &all)?;
        let held = (0..devices).zip(&turns).map(|(device, turns)| {
            let own: Vec<usize> = (device..stages).step_by(devices).collect();
            let set_aside: u64 = (0..)
                .zip(&all)
                .flat_map(|(donor, chunk): (usize, _)| {
                    chunk.acted.pools.iter().map(move |pool| (donor, pool))
                })
                .filter(|(_, pool)| pool.peer.is_some_and(|peer| peer as usize % devices == device))
                .map(|(_, pool)| pool.peak)
                .sum();
            let host = own.iter().map(|&chunk| all[chunk].acted.host_peak()).sum();
            let peak = peak(turns, &own, &all).saturating_add(set_aside);
            ChunksHeld { stages: own, peak, host }
        });
        let own = |device: usize| all.iter().enumerate().skip(device).step_by(devices);
        let lanes = (0..devices).zip(&turns).zip(&copied.devices).map(|((device, turns), times)| {
            let own: Vec<usize> = own(device).map(|(chunk, _)| chunk).collect();
            lane(turns, &own, &all, times)
        });
        let lanes = lanes.collect();
        let away = (0..devices).map(|device| {
            let of_chunk = |(chunk, of): (usize, &Chunk)| {
                of.acted.away.iter().map(move |away| (number(chunk), away.clone())).collect::<Vec<_>>()
            };
            own(device).flat_map(of_chunk).collect()
        });
        let away = away.collect();
        Ok(Self { devices: held.collect(), lanes, away, copied })
    }

    /// All ways that copies use; stages are the plan's.
    pub fn ways(&self) -> Vec<WayShown<'_>> {
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

/// The steps of a device's chunks in the order in which it does them: which of its chunks, and which of that one's steps.
fn in_turn(turns: &[Turn], own: &[usize], chunks: &[Chunk]) -> Vec<(usize, usize)> {
    let mut done = vec![0_usize; own.len()];
    let mut all = Vec::new();
    for turn in turns {
        let Some(at) = own.iter().position(|&chunk| chunk == turn.stage as usize) else { continue };
        let steps = chunks[own[at]].acted.steps.all();
        while steps.get(done[at]).is_some_and(|&step| pass_of(step) == Some(turn.pass)) {
            all.push((at, done[at]));
            done[at] += 1;
        }
    }
    for (at, done) in done.into_iter().enumerate() {
        all.extend((done..chunks[own[at]].acted.steps.all().len()).map(|step| (at, step)));
    }
    all
}

fn lane(turns: &[Turn], own: &[usize], chunks: &[Chunk], times: &DeviceTimes) -> Lane {
    let mut lane = Lane { passes: Vec::new(), step: None, busy: times.busy };
    for ((at, step), &(start, end)) in in_turn(turns, own, chunks).into_iter().zip(&times.steps) {
        let chunk = &chunks[own[at]];
        let stage = chunk.setting.stage_index;
        let Some(pass) = chunk.acted.steps.all().get(step).and_then(|&step| pass_of(step)) else {
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

/// Slots are of as many micro-batches as 1F1B has in flight, and a chunk has more; and no chunk is the peer of its own device.
fn check(actions: &StageActions, stage: usize, devices: usize) -> Result<(), Untold> {
    if actions.actions.iter().any(|action| !action.slots.is_empty()) {
        return Err(Untold::SlotsOfChunks { stage });
    }
    match actions.peers().into_iter().find(|&peer| peer as usize % devices == stage % devices) {
        Some(peer) => Err(Untold::OwnPeer { stage, peer }),
        None => Ok(()),
    }
}

/// The steps of a chunk, in the order of its turns.
fn steps(turns: &[Vec<Turn>], setting: &StageSetting, actions: &StageActions) -> Steps {
    let own = turns.iter().flatten().filter(|turn| turn.stage == setting.stage_index);
    let passes: Vec<Pass> = own.map(|turn| turn.pass).collect();
    let (mut open, mut most) = (0_u32, 1_u32);
    for pass in &passes {
        open = if matches!(pass, Pass::Forward(_)) { open + 1 } else { open.saturating_sub(1) };
        most = most.max(open);
    }
    let runs = actions.runs(setting.stage.layers(), setting.training.recompute, 0);
    Steps::of(&passes, setting.stage.layers(), &vec![runs; most as usize], setting.stage.data_degree > 1)
}

fn simulated(plan: &Plan, turns: &[Vec<Turn>], chunks: &[Chunk]) -> Result<Copied, Untold> {
    let devices = u32::try_from(turns.len()).unwrap_or(u32::MAX);
    let mut links = match &plan.found.copy_rates {
        Some(rates) => Links::of_rates(rates),
        None if chunks.iter().any(|chunk| !chunk.acted.away.is_empty()) => return Err(Untold::NoRates),
        None => Links::default(),
    };
    // A chunk goes over the links of its device: as fast as over those of the stage that it was.
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
        // Chunks of a device have its slots by turns: as many as that of them which has most.
        let slots = |stage: u32| cores.devices.iter().filter(|&&of| of == stage).count();
        let chunks_of = |device: u32| cores.devices.iter().filter(move |&&of| of % devices == device);
        let most = |device: u32| chunks_of(device).map(|&stage| slots(stage)).max().unwrap_or_default();
        cores.devices = (0..devices).flat_map(|device| std::iter::repeat_n(device, most(device))).collect();
    }
    let count = u32::try_from(chunks.len()).unwrap_or(u32::MAX);
    let mut all: Vec<DeviceSteps> = Vec::with_capacity(turns.len());
    for (device, turns) in turns.iter().enumerate() {
        let own = chunks.iter().skip(device).step_by(devices.max(1) as usize);
        let own: Vec<(StageSteps<'_>, Vec<Trip>)> = own
            .map(|chunk| {
                let steps = StageSteps {
                    place: (chunk.setting.stage_index, count),
                    steps: &chunk.acted.steps,
                    first_layer: chunk.setting.stage.first_layer,
                    layers: &chunk.layers,
                    exchange_seconds: chunk.exchange_seconds,
                };
                let place = |parcel: Parcel| match parcel.place {
                    Place::Peer(stage) => Parcel { place: Place::Peer(stage % devices), ..parcel },
                    Place::Host => parcel,
                };
                let trips = chunk.acted.away.iter().map(|away| {
                    let trip = trip(away);
                    Trip { parcels: trip.parcels.iter().copied().map(place).collect(), ..trip }
                });
                (steps, trips.collect())
            })
            .collect();
        all.push(device_of_chunks(turns, &own)?);
    }
    let edges: Vec<Edge> = plan.found.edge_seconds.iter().map(|&both| Edge::halves(both)).collect();
    let overlap = plan.found.iteration.as_ref().map_or_else(Overlap::default, |of| of.overlap);
    let stepped = Stepped { devices: &all, edges: &edges, overlap, links: &links };
    Ok(simulate(&stepped, Keep { steps: true, copies: true })?)
}

/// The most that the chunks of a device hold together.
fn peak(turns: &[Turn], own: &[usize], chunks: &[Chunk]) -> u64 {
    let between: Vec<Vec<u64>> = own.iter().map(|&chunk| between(&chunks[chunk].acted)).collect();
    let overhead = |chunk: &usize| chunks[*chunk].acted.prediction(0).breakdown.map_or(0, |of| of.overhead);
    // Workspaces are shared by the chunks of a device.
    let shared: u64 = own.iter().map(overhead).sum::<u64>() - own.iter().map(overhead).max().unwrap_or(0);
    let mut done = vec![0_usize; own.len()];
    let mut most = 0;
    for (at, step) in in_turn(turns, own, chunks) {
        let others = (0..own.len()).filter(|&other| other != at);
        let others: u64 = others.map(|other| between[other].get(done[other]).copied().unwrap_or(0)).sum();
        let own = chunks[own[at]].acted.curve.get(step).map_or(0, |step| step.most.total());
        most = most.max(own.saturating_add(others));
        done[at] = step + 1;
    }
    most.saturating_sub(shared)
}

/// What a chunk holds in front of each of its steps, before anything is fetched for it; behind the last as before the first.
fn between(acted: &Acted) -> Vec<u64> {
    let count = acted.curve.len().max(1);
    let mut held: Vec<u64> = acted.curve.iter().map(|step| step.at_boundary).collect();
    for away in &acted.away {
        if let Some(at) = held.get_mut(away.absence.fetched % count) {
            *at = at.saturating_sub(away.bytes);
        }
    }
    held.push(held.first().copied().unwrap_or(0));
    held
}
