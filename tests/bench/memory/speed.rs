//! How long mappings and simulations take, and how much memory all searches together.

use loadmaster_proto::training::actions::{
    Action, Block, Destination, Optimization, StageActions, Steps, Swap,
};
use loadmaster_proto::training::{RecomputePolicy, Schedule};
use loadmaster_search::fleet::mapping::{LinkGraph, Promise, best};
use loadmaster_simulate::copies::{
    CopyPipeline, Cores, DeviceSteps, Keep, LayerSeconds, Links, Rate, StageSteps, Trip, simulate,
};
use loadmaster_simulate::{Edge, Overlap};
use loadmaster_tests::peak_resident_bytes;
use nix::unistd::Pid;

use crate::memory::Scope;
use crate::memory::paper::{CUBE_MESH, STAGES, Server};
use crate::report::{Claim, Figure};
use crate::stats::timed;

/// Seconds of the goal for listing all mappings, and for finding the best.
const LISTING: f64 = 0.05;

/// How many mappings there are, and how long it takes to list them.
pub(crate) fn mappings(_: &Scope) -> Vec<Figure> {
    let expected =
        [(Server::Dgx1, 10_080, "10,080 classes by its links; found in 47 s"), (Server::Dgx2, 1, "1 class")];
    let mut figures: Vec<Figure> = expected
        .into_iter()
        .map(|(server, classes, published)| {
            let graph = server.node().graph();
            let (found, took) = timed(5, || graph.classes(STAGES).map_or(0, |classes| classes.len()));
            Figure::new(
                format!("Mappings of 8 stages, {}", server.name()),
                format!("{found} in {:.1} ms", took * 1e3),
                published.to_owned(),
                Claim::Goal(found == classes),
            )
            .took(took)
            .within(LISTING)
        })
        .collect();
    // Every link different, every mapping valued by a sum over links: all of 8!.
    let odd = LinkGraph::new(&[(); STAGES], |from, to| from * STAGES + to);
    let value =
        |mapping: &[usize]| mapping.windows(2).map(|pair| f64::from(10 - CUBE_MESH[pair[0]][pair[1]])).sum();
    let promise = |mapping: &[usize]| Promise { bound: value(mapping), guess: 0.0 };
    let (found, took) = timed(5, || best(&odd, STAGES, usize::MAX, promise, |mapping| Some(value(mapping))));
    let found = found.map_or((0, false), |found| (found.classes.unwrap_or(0), found.is_exact));
    figures.push(
        Figure::new(
            "The best of all 8!, all links different",
            format!("{} in {:.1} ms, exact", found.0, took * 1e3),
            "",
            Claim::Goal(found == (40_320, true)),
        )
        .took(took)
        .within(LISTING),
    );
    figures
}

/// Seconds of the goal for one simulation.
const SIMULATION: f64 = 5e-3;
const DEVICES: u32 = STAGES as u32;
/// Of each stage.
const LAYERS: usize = 12;
const MICRO_BATCHES: u32 = 64;
/// Bytes of a layer's activations.
const BYTES: u64 = 1_500_000;

/// 8 stages of 12 layers and 64 micro-batches, every layer's activations parked on the host.
pub(crate) fn simulations(_: &Scope) -> Vec<Figure> {
    let devices: Vec<DeviceSteps> = (0..DEVICES).map(device).collect();
    let untouched: Vec<DeviceSteps> =
        devices.iter().map(|device| DeviceSteps { trips: Vec::new(), ..device.clone() }).collect();
    let rate = Rate::new(1e6, 1e-3);
    let hosts = (0..DEVICES).fold(Links::default(), |links, device| links.host(device, rate, rate));
    let switches =
        (0..DEVICES / 2).fold(hosts.clone(), |links, pair| links.uplink(&[2 * pair, 2 * pair + 1], 1.5e6));
    let one_switch = hosts.clone().uplink(&(0..DEVICES).collect::<Vec<_>>(), 6e6);
    let cores = Cores {
        devices: (0..DEVICES).collect(),
        cores: 6.0,
        contention_slowdown: 1.0,
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
    let edges = [Edge { forward: 0.1, backward: 0.1 }; STAGES - 1];
    let of = |(name, links, overlap): (&str, Links, Overlap)| {
        let run = |devices: &[DeviceSteps]| {
            let (found, took) = timed(21, || {
                let stepped = CopyPipeline { devices, edges: &edges, overlap, links: &links };
                simulate(&stepped, Keep::default())
            });
            found.ok().map(|found| (found.iteration_seconds, took))
        };
        let least = run(&untouched).map_or(f64::INFINITY, |(seconds, _)| seconds);
        let (seconds, took) = run(&devices).unwrap_or((0.0, 0.0));
        Figure::new(
            format!("Simulation, {name}"),
            format!("{seconds:.0} s an iteration in {:.2} ms; {least:.0} s without copies", 1e3 * took),
            "",
            Claim::Goal(seconds >= least),
        )
        .took(took)
        .within(SIMULATION)
    };
    scenes.into_iter().map(of).collect()
}

fn device(index: u32) -> DeviceSteps {
    let swap = Swap { block: Block::Activations, to: Destination::Host, release_after: 4, fetch_before: 4 };
    let all = Action {
        first_layer: 0,
        last_layer: LAYERS - 1,
        slots: Vec::new(),
        optimization: Optimization::Swap(swap),
    };
    let actions = StageActions { actions: vec![all], ..StageActions::default() };
    let schedule = Schedule::OneFOneB;
    let slots = schedule.in_flight(DEVICES, index, MICRO_BATCHES);
    let layers = 0..=LAYERS - 1;
    let runs: Vec<_> =
        (0..slots).map(|slot| actions.runs(layers.clone(), RecomputePolicy::None, slot)).collect();
    let steps = Steps::of(&schedule.passes(DEVICES, index, MICRO_BATCHES), layers, &runs, false);
    let seconds = [LayerSeconds { forward: 1.0, backward: 2.0, again: 1.0, update: 0.1 }; LAYERS];
    let stage = StageSteps {
        place: (index, DEVICES),
        steps: &steps,
        first_layer: 0,
        layers: &seconds,
        exchange_seconds: 0.0,
    };
    let absences = actions.absences(&steps);
    let trips = absences.iter().map(|absence| Trip::of(absence, BYTES, &Destination::Host, |stage| stage));
    DeviceSteps { trips: trips.collect(), steps: stage.timed().unwrap_or_default() }
}

/// Bytes within which a planner should search.
const GOAL: u64 = 512 << 20;

/// How much memory this program ever had: that of its largest search, and of all that it keeps of the others.
pub(crate) fn memory(_: &Scope) -> Vec<Figure> {
    let held = peak_resident_bytes(Pid::this());
    vec![Figure::new(
        "all searches of this run, in one process",
        format!("{} MiB at most (goal {} MiB)", held.div_ceil(1 << 20), GOAL >> 20),
        "",
        Claim::Goal(held <= GOAL),
    )]
}
