//! Scenes drawn by lot: chains whose layers differ, on devices that may differ.

use loadmaster_oracle::{Link, Recompute};
use loadmaster_tests::Sampler;

use crate::certificates::question::SCHEDULES;
use crate::certificates::scene::{
    Accounting, Cluster, Fleet, Group, Kind, Layer, Node, Pair, Row, Scene, Training,
};

/// Seconds that sums of are exact: whole parts of a second, about a microsecond.
fn exact(seconds: f64) -> f64 {
    const PARTS: f64 = (1 << 20) as f64;
    (seconds * PARTS).round().max(1.0) / PARTS
}

pub(crate) fn scene(lots: &mut Sampler, id: &str) -> Scene {
    let layers = lots.one(&[2, 3, 3, 4, 4, 5, 6]);
    let kinds = if lots.percent(30) { 2 } else { 1 };
    let tensors: &[u32] = lots.one(&[&[1][..], &[1], &[1, 2], &[1, 2], &[1, 2, 4]]);
    let (size, count) = (lots.one(&[1, 2, 2, 3, 4, 4, 6, 8]), lots.whole(1, 8));
    let count = count.min(24 / size);
    let samples = size * count;
    let training = Training {
        is_bf16: lots.percent(20),
        state_scalars: lots.one(&[0, 1, 2]),
        schedule: lots.one(SCHEDULES),
        recompute: lots.one(&[Recompute::None, Recompute::None, Recompute::Stage, Recompute::Layer]),
        micro_batch_size: size,
        micro_batches: count,
    };
    let sizes: Vec<u32> = match lots.percent(15) {
        // The rest lies on the line between.
        true => vec![1, samples.max(2)],
        false => (1..=samples).filter(|size| samples.is_multiple_of(*size)).collect(),
    };
    let chain = Chain::draw(lots, layers);
    let slower: Vec<f64> =
        (0..kinds).map(|kind| if kind == 0 { 1.0 } else { lots.scale(0.4, 4.0) }).collect();
    let kinds: Vec<Kind> = slower
        .iter()
        .enumerate()
        .map(|(index, &slower)| {
            let more = if index == 0 { 1.0 } else { lots.between(0.9, 1.2) };
            let layers =
                (0..layers).map(|layer| chain.layer(lots, layer, &sizes, tensors, slower, more)).collect();
            Kind { name: ["alpha", "beta"][index].to_owned(), layers }
        })
        .collect();
    let mut scene = Scene {
        id: id.to_owned(),
        training,
        ledger: if lots.percent(25) { Accounting::Reserved } else { Accounting::Allocated },
        overhead_bytes: if lots.percent(30) { 100_000_003 } else { 0 },
        kinds,
        fleet: Fleet::Groups(Vec::new()),
    };
    scene.fleet = if lots.percent(50) { groups(lots, &scene) } else { cluster(lots, &scene) };
    scene
}

/// The same devices and training with another chain of as many layers.
pub(crate) fn rival(lots: &mut Sampler, scene: &Scene, id: &str) -> Scene {
    let rows = &scene.kinds[0].layers[0].rows;
    let distinct = |of: fn(&Row) -> u32| {
        let all: std::collections::BTreeSet<u32> = rows.iter().map(of).collect();
        all.into_iter().collect::<Vec<u32>>()
    };
    let (sizes, tensors) = (distinct(|row| row.size), distinct(|row| row.tensor));
    let chain = Chain::draw(lots, scene.layers());
    let layers =
        (0..scene.layers()).map(|layer| chain.layer(lots, layer, &sizes, &tensors, 1.0, 1.0)).collect();
    let kind = Kind { name: scene.kinds[0].name.clone(), layers };
    Scene { id: id.to_owned(), kinds: vec![kind], ..scene.clone() }
}

/// What the layers of a chain cost per sample.
struct Chain {
    forward: Vec<f64>,
    backward: Vec<f64>,
    update: Vec<f64>,
    parameters: Vec<f64>,
    activations: Vec<f64>,
    transient: Vec<f64>,
    /// What enters each layer, and what leaves the last.
    edges: Vec<f64>,
    /// Share of a pass that does not grow with the samples.
    fixed: f64,
    /// Share of a layer that every shard has.
    unsplit: f64,
}

impl Chain {
    fn draw(lots: &mut Sampler, layers: usize) -> Self {
        let each =
            |lots: &mut Sampler, low: f64, high: f64| (0..layers).map(|_| lots.scale(low, high)).collect();
        let uneven = lots.one(&[1.2, 3.0, 10.0]);
        let edges = match lots.below(3) {
            0 => lots.scale(1e3, 1e6),
            1 => lots.scale(1e6, 1e8),
            // Links are busier than devices.
            _ => lots.scale(1e8, 3e9),
        };
        let forward: Vec<f64> = each(lots, 0.01, 0.01 * uneven);
        let ratio = lots.between(0.8, 2.5);
        let jitter: Vec<f64> = each(lots, 0.8, 1.25);
        let backward = forward.iter().zip(jitter).map(|(forward, jitter)| forward * ratio * jitter).collect();
        let heavy = lots.scale(1e6, 3e8);
        let kept = lots.scale(1e6, 3e8);
        Self {
            forward,
            backward,
            update: each(lots, 1e-5, 5e-3),
            parameters: each(lots, heavy, heavy * uneven),
            activations: each(lots, kept, kept * uneven),
            transient: each(lots, 1e3, kept),
            edges: (0..=layers).map(|_| edges * lots.scale(0.5, 2.0)).collect(),
            fixed: lots.one(&[0.0, 0.1, 0.5]),
            unsplit: lots.one(&[0.0, 0.1, 0.4]),
        }
    }

    fn layer(
        &self,
        lots: &mut Sampler,
        index: usize,
        sizes: &[u32],
        tensors: &[u32],
        slower: f64,
        more: f64,
    ) -> Layer {
        let jitter = if slower == 1.0 { 1.0 } else { lots.scale(0.8, 1.25) };
        let mut rows = Vec::new();
        for &size in sizes {
            for &tensor in tensors {
                let share = self.unsplit + (1.0 - self.unsplit) / f64::from(tensor);
                let samples = f64::from(size);
                let takes = |seconds: f64| {
                    exact(seconds * (self.fixed + (1.0 - self.fixed) * samples) * share * slower * jitter)
                };
                let bytes = |per_sample: f64, share: f64| (per_sample * samples * share) as u64;
                rows.push(Row {
                    size,
                    tensor,
                    forward: takes(self.forward[index]),
                    backward: takes(self.backward[index]),
                    update: exact(self.update[index] * slower / f64::from(tensor)),
                    parameter_bytes: (self.parameters[index] / f64::from(tensor)) as u64 / 8 * 8,
                    activation_bytes: bytes(self.activations[index] * more, share),
                    transient_bytes: bytes(self.transient[index] * more, share),
                    input_bytes: bytes(self.edges[index], 1.0),
                    output_bytes: bytes(self.edges[index + 1], 1.0),
                });
            }
        }
        Layer { parameter_count: (self.parameters[index] / 4.0) as u64, rows }
    }
}

/// Bytes that each of so many devices would need if all were shared evenly.
fn even_share(scene: &Scene, devices: u32) -> f64 {
    let training = &scene.training;
    let sum = |of: &dyn Fn(&Row) -> f64| -> f64 {
        let rows = scene.kinds[0].layers.iter().map(|layer| {
            layer
                .rows
                .iter()
                .find(|row| row.tensor == 1 && row.size >= training.micro_batch_size)
                .map_or(0.0, of)
        });
        rows.sum()
    };
    let scalars = sum(&|row| row.parameter_bytes as f64) / if training.is_bf16 { 2.0 } else { 4.0 };
    let each = (8 + 4 * training.state_scalars) as f64;
    let kept = sum(&|row| row.activation_bytes as f64) * f64::from(training.micro_batches.min(3));
    let edges = sum(&|row| row.input_bytes as f64) * 0.5;
    (scalars * each + kept + edges) / f64::from(devices) + scene.overhead_bytes as f64
}

fn capacity(lots: &mut Sampler, scene: &Scene, devices: u32) -> u64 {
    let share = even_share(scene, devices);
    let factor = match lots.below(10) {
        0 => lots.scale(0.3, 1.0),
        1..=4 => lots.scale(1.0, 4.0),
        5..=7 => lots.scale(2.0, 12.0),
        _ => 1e3,
    };
    (share * factor) as u64 + 1
}

fn groups(lots: &mut Sampler, scene: &Scene) -> Fleet {
    let most = if scene.layers() > 4 { 5 } else { 7 };
    let devices = lots.whole(1, most);
    let own = capacity(lots, scene, devices);
    if devices < 2 || lots.percent(45) {
        return Fleet::Groups(vec![Group { count: devices, capacity: own, kind: 0 }]);
    }
    let first = lots.whole(1, devices - 1);
    let kind = scene.kinds.len() - 1;
    let other =
        if lots.percent(70) || kind == 0 { (own as f64 * lots.scale(0.4, 2.5)) as u64 + 1 } else { own };
    let mut groups = vec![
        Group { count: first, capacity: own, kind: 0 },
        Group { count: devices - first, capacity: other, kind },
    ];
    if lots.percent(50) {
        groups.reverse();
    }
    Fleet::Groups(groups)
}

fn link(lots: &mut Sampler, low: f64, high: f64) -> Link {
    Link {
        bytes_per_second: lots.scale(low, high).round(),
        latency_seconds: lots.one(&[0.0, 1e-6, 5e-6, 1e-4, 2e-3]),
    }
}

/// Links of a few classes, for most pairs of devices.
fn pairs(lots: &mut Sampler, devices: u32) -> Vec<Pair> {
    let classes: Vec<Link> = (0..lots.whole(1, 3)).map(|_| link(lots, 1e8, 1e12)).collect();
    let all = (0..devices).flat_map(|b| (0..b).map(move |a| (a, b)));
    let named: Vec<(u32, u32)> = all.filter(|_| lots.percent(80)).collect();
    named.into_iter().map(|(a, b)| Pair { a, b, link: lots.one(&classes) }).collect()
}

fn cluster(lots: &mut Sampler, scene: &Scene) -> Fleet {
    let count = lots.whole(1, 3);
    let most = if scene.layers() > 4 { 5 } else { 7 };
    let are_alike = lots.percent(45);
    let mut nodes: Vec<Node> = Vec::new();
    for index in 0..count {
        let room = most - nodes.iter().map(|node| node.devices).sum::<u32>() - (count - 1 - index);
        let node = match nodes.first() {
            Some(first) if are_alike && first.devices <= room => {
                Node { name: format!("n{index}"), ..first.clone() }
            }
            _ => {
                let devices = lots.whole(1, room.min(4));
                let inside = link(lots, 1e9, 1e12);
                Node {
                    name: format!("n{index}"),
                    kind: lots.below(scene.kinds.len()),
                    devices,
                    inside,
                    network: link(lots, 1e8, 1e11),
                    rack: 0,
                    pairs: if devices > 2 && lots.percent(40) { pairs(lots, devices) } else { Vec::new() },
                }
            }
        };
        nodes.push(Node { rack: lots.below(2), ..node });
    }
    // Profiles are named for all kinds, but the first one must be at home somewhere.
    if nodes.iter().all(|node| node.kind != 0) {
        nodes[0].kind = 0;
    }
    let devices: u32 = nodes.iter().map(|node| node.devices).sum();
    let own = capacity(lots, scene, devices);
    let capacities = (0..scene.kinds.len()).map(|kind| match kind {
        0 => own,
        _ => (own as f64 * lots.scale(0.4, 2.5)) as u64 + 1,
    });
    let capacities = capacities.collect();
    let has_prices = lots.percent(50);
    let prices =
        (0..scene.kinds.len()).map(|_| has_prices.then(|| f64::from(lots.whole(1, 20)) * 0.25)).collect();
    let has_tiers = count > 1 && lots.percent(15);
    let tiers = has_tiers.then(|| [link(lots, 1e9, 1e11), link(lots, 1e8, 1e10)]);
    Fleet::Cluster(Cluster { capacities, prices, nodes, tiers })
}
