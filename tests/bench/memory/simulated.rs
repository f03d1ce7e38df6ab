//! How long one simulation of an iteration with actions takes, whatever ways and cores share.

use std::time::{Duration, Instant};

use loadmaster_planning::iteration::copies::{
    Cores, DeviceSteps, Keep, LayerSeconds, Links, Rate, StageSteps, Stepped, Trip, simulate,
};
use loadmaster_planning::iteration::{Edge, Overlap};
use loadmaster_proto::training::actions::{Action, Block, Deed, Destination, StageActions, Steps, Swap};
use loadmaster_proto::training::{RecomputePolicy, Schedule};

use crate::memory::report::{Cell, Claim};

/// The goal for one of them.
const MOST_TIME: Duration = Duration::from_millis(5);

const STAGES: u32 = 8;
/// Of each stage.
const LAYERS: usize = 12;
const MICRO_BATCHES: u32 = 64;
/// Bytes of a layer's activations.
const BYTES: u64 = 1_500_000;
/// Runs of which the median counts.
const RUNS: usize = 21;

/// 8 stages of 12 layers and 64 micro-batches, every layer's activations parked on the host.
pub(crate) fn cells() -> Vec<Cell> {
    let devices: Vec<DeviceSteps> = (0..STAGES).map(device).collect();
    let untouched: Vec<DeviceSteps> =
        devices.iter().map(|device| DeviceSteps { trips: Vec::new(), ..device.clone() }).collect();
    let rate = Rate::new(1e6, 1e-3);
    let hosts = (0..STAGES).fold(Links::default(), |links, device| links.host(device, rate, rate));
    let switches =
        (0..STAGES / 2).fold(hosts.clone(), |links, pair| links.uplink(&[2 * pair, 2 * pair + 1], 1.5e6));
    let one_switch = hosts.clone().uplink(&(0..STAGES).collect::<Vec<_>>(), 6e6);
    let cores = Cores {
        devices: (0..STAGES).collect(),
        cores: 6.0,
        crowded_ratio: 1.0,
        slowdown_seconds_per_byte: 0.0,
    };
    let slots = Links { cores: vec![cores], ..hosts.clone() };
    let scenes = [
        ("nothing shared", hosts.clone(), Overlap::Computing),
        ("nothing shared, transfers block", hosts, Overlap::Nothing),
        ("four switches", switches, Overlap::Computing),
        ("one switch", one_switch, Overlap::Computing),
        ("eight slots on six cores", slots, Overlap::Computing),
    ];
    let of = |(name, links, overlap): (&str, Links, Overlap)| {
        let least = timed(&untouched, &links, overlap).map_or(f64::INFINITY, |(seconds, _)| seconds);
        let (seconds, took) = timed(&devices, &links, overlap).unwrap_or((0.0, Duration::ZERO));
        Cell {
            what: format!("Simulation, {name}"),
            ours: format!(
                "{seconds:.0} s an iteration in {:.2} ms; {least:.0} s without copies",
                1e3 * took.as_secs_f64()
            ),
            published: String::new(),
            claim: Claim::Goal(seconds >= least),
            took,
            within: Some(MOST_TIME),
        }
    };
    scenes.into_iter().map(of).collect()
}

/// Seconds of an iteration, and how long it takes to find them; none where nothing can be simulated.
fn timed(devices: &[DeviceSteps], links: &Links, overlap: Overlap) -> Option<(f64, Duration)> {
    let edges = [Edge { forward: 0.1, backward: 0.1 }; STAGES as usize - 1];
    let mut times = Vec::new();
    let mut seconds = 0.0;
    for _ in 0..RUNS {
        let began = Instant::now();
        let stepped = Stepped { devices, edges: &edges, overlap, links };
        seconds = simulate(&stepped, Keep::default()).ok()?.iteration_seconds;
        times.push(began.elapsed());
    }
    times.sort_unstable();
    Some((seconds, times[RUNS / 2]))
}

fn device(index: u32) -> DeviceSteps {
    let swap = Swap { block: Block::Activations, to: Destination::Host, release_after: 4, fetch_before: 4 };
    let all = Action { first_layer: 0, last_layer: LAYERS - 1, slots: Vec::new(), deed: Deed::Swap(swap) };
    let actions = StageActions { actions: vec![all], ..StageActions::default() };
    let schedule = Schedule::OneFOneB;
    let slots = schedule.in_flight(STAGES, index, MICRO_BATCHES);
    let layers = 0..=LAYERS - 1;
    let runs: Vec<_> =
        (0..slots).map(|slot| actions.runs(layers.clone(), RecomputePolicy::None, slot)).collect();
    let steps = Steps::of(&schedule.passes(STAGES, index, MICRO_BATCHES), layers, &runs, false);
    let seconds = [LayerSeconds { forward: 1.0, backward: 2.0, again: 1.0, update: 0.1 }; LAYERS];
    let stage = StageSteps {
        place: (index, STAGES),
        steps: &steps,
        first_layer: 0,
        layers: &seconds,
        exchange_seconds: 0.0,
    };
    let absences = actions.absences(&steps);
    let trips = absences.iter().map(|absence| Trip::of(absence, BYTES, &Destination::Host, |stage| stage));
    DeviceSteps { trips: trips.collect(), steps: stage.timed().unwrap_or_default() }
}
