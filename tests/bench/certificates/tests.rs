//! This program against arithmetic by hand: what it holds others to must be right itself.

use loadmaster_oracle::{
    Link, Objective, Recompute, Schedule, Shape, Space, Spanning, Truth, front, groups_at_once, rings,
};

use crate::certificates::asked::plan_rules;
use crate::certificates::places::fleet;
use crate::certificates::prices::TablePrices;
use crate::certificates::question::Question;
use crate::certificates::scene::{Accounting, Cluster, Fleet, Kind, Layer, Node, Pair, Row, Scene, Training};
use crate::certificates::truth::{Terms, truth as truth_of};

const TERMS: Terms = Terms {
    sharing: crate::certificates::prices::Sharing { larger_side: true, rings_share: true },
    limit: 100_000,
};

fn row(seconds: f64, output: u64) -> Row {
    Row {
        size: 1,
        tensor: 1,
        forward: seconds,
        backward: 2.0 * seconds,
        update: 0.0,
        parameter_bytes: 40,
        activation_bytes: 100,
        transient_bytes: 7,
        input_bytes: 10,
        output_bytes: output,
    }
}

/// Layers of these seconds for one sample; nodes of these numbers of devices, 1,000 bytes per second apart.
fn scene(seconds: &[f64], nodes: &[u32]) -> Scene {
    let link = |bytes_per_second| Link { bytes_per_second, latency_seconds: 0.0 };
    let node = |(index, &devices): (usize, &u32)| Node {
        name: format!("n{index}"),
        kind: 0,
        devices,
        inside: link(1e12),
        network: link(1e3),
        rack: 0,
        pairs: Vec::new(),
    };
    Scene {
        id: "by hand".to_owned(),
        training: Training {
            is_bf16: false,
            state_scalars: 1,
            schedule: Schedule::Gpipe,
            recompute: Recompute::None,
            micro_batch_size: 1,
            micro_batches: 2,
        },
        ledger: Accounting::Allocated,
        overhead_bytes: 0,
        kinds: vec![Kind {
            name: "alpha".to_owned(),
            layers: seconds
                .iter()
                .map(|&seconds| Layer { parameter_count: 10, rows: vec![row(seconds, 1_000)] })
                .collect(),
        }],
        fleet: Fleet::Cluster(Cluster {
            capacities: vec![1_000_000],
            prices: vec![Some(2.0)],
            nodes: nodes.iter().enumerate().map(node).collect(),
            tiers: None,
        }),
    }
}

fn question(objective: Objective, shape: Shape) -> Question {
    Question { shape: Some(shape), ..Question::plain(objective) }
}

fn truth(scene: &Scene, question: &Question) -> Truth {
    truth_of(scene, question, TERMS).expect("few plans")
}

/// 120 bytes of weights, gradients and momentum, two micro-batches of 100 bytes kept, 7 besides; and of the second
/// stage two inputs held, of the first one gradient received.
#[test]
fn peaks_are_what_must_be_there_at_once() {
    let scene = scene(&[1.0, 1.0], &[2]);
    let lowest = truth(&scene, &question(Objective::MinPeakMemory, Shape::SinglePipeline));
    assert_eq!(lowest.plans, 1);
    assert_eq!(lowest.peaks, Some(vec![f64::from(120 + 200 + 7 + 1_000), f64::from(120 + 200 + 7 + 20)]));
}

/// Between two devices a link of 1,000 bytes per second takes a second for each transfer.
#[test]
fn the_fastest_plan_may_leave_devices_idle() {
    let scene = scene(&[1.0, 1.0], &[1, 1]);
    let asked = Question {
        micro_batch_size: Some(1),
        ..question(Objective::MinIterationTime, Shape::SinglePipeline)
    };
    // Forward 1, over the link, two passes of the second stage, backward 2 and 2, over the link, and 4 of the first: the
    // second gradient comes while the first stage works on the first.
    assert_eq!(truth(&scene, &asked).best, Some(1.0 + 1.0 + 2.0 + 2.0 + 1.0 + 4.0));
    let idle = Question { may_idle: true, ..asked };
    assert_eq!(truth(&scene, &idle).best, Some(11.0));
    assert_eq!(truth(&scene, &Question { max_seconds: Some(10.9), ..idle.clone() }).kept, 0);
    let fewest = Question { objective: Objective::MinDevices, max_seconds: Some(12.0), ..idle };
    assert_eq!(truth(&scene, &fewest).best, Some(1.0));
}

/// One node of two devices and one of one: counted by hand.
#[test]
fn every_plan_is_there_once() {
    let scene = scene(&[1.0, 1.0, 1.0], &[2, 1]);
    let plans = |question: &Question| truth(&scene, question).plans;
    let all = question(Objective::MinPeakMemory, Shape::SinglePipeline);
    // Three stages of one layer, the single device first or last.
    assert_eq!(plans(&all), 2);
    // Any number of devices: three plans of all three; of two devices two cuts each, on n0 or with either node first;
    // of one device one plan on either node.
    let idle = Question { may_idle: true, ..all.clone() };
    assert_eq!(plans(&idle), 2 + 2 * 3 + 2);
    // A pin to the last of two like devices asks for the node, and for no place in it.
    let pinned = |pins: &[(usize, &str)]| Question {
        pins: pins.iter().map(|&(layer, device)| (layer, device.to_owned())).collect(),
        ..all.clone()
    };
    assert_eq!(plans(&pinned(&[(0, "n0/1")])), 1);
    assert_eq!(plans(&pinned(&[(1, "n0/1")])), 2);
    assert_eq!(plans(&pinned(&[(1, "n0/1"), (0, "n0/0")])), 1);
    assert_eq!(plans(&pinned(&[(1, "n0/1"), (2, "n0/1")])), 0);
}

/// Whole nodes are whole: two devices of two nodes of two are no stage that spans.
#[test]
fn stages_span_whole_nodes_only() {
    let scene = Scene {
        training: Training { micro_batch_size: 2, ..scene(&[1.0], &[2, 2]).training },
        ..scene(&[1.0], &[2, 2])
    };
    let asked = |spanning, data: u32| Question {
        spanning: Some(spanning),
        data_degrees: vec![data],
        micro_batch_size: Some(4),
        may_idle: true,
        ..question(Objective::MinPeakMemory, Shape::PerStageReplicas)
    };
    let plans = |spanning, data| truth(&scene, &asked(spanning, data)).plans;
    assert_eq!(
        [plans(Spanning::Never, 4), plans(Spanning::WholeNodes, 4), plans(Spanning::Anywhere, 4)],
        [0, 1, 1]
    );
    // Two devices: of one node; or one of each.
    assert_eq!(
        [plans(Spanning::Never, 2), plans(Spanning::WholeNodes, 2), plans(Spanning::Anywhere, 2)],
        [1, 1, 2]
    );
}

/// Rings of two shards that cross nodes have half of the network each; a ring inside a node has all of it.
#[test]
fn rings_that_run_at_once_share_a_network() {
    let scene = scene(&[1.0], &[2, 2]);
    let asked = question(Objective::MinPeakMemory, Shape::PerStageMesh);
    let (rules, fleet) = (plan_rules(&scene, &asked), fleet(&scene, &asked));
    let route = fleet.routes(false, false).remove(0);
    let at_once = |count: usize, tensor| groups_at_once(&route[..count], &rings(&route[..count], tensor));
    assert_eq!([at_once(4, 2), at_once(4, 1), at_once(2, 2)], [2, 1, 1]);
    assert_eq!(fleet.around(&route).bytes_per_second, 1e3);
    assert_eq!(fleet.around(&route[..2]).bytes_per_second, 1e12);
    let prices =
        TablePrices { scene: &scene, fleet: &fleet, margin: 0.0, sharing: TERMS.sharing, by_ranks: false };
    let space = Space { prices: &prices, fleet: &fleet, rules: &rules };
    assert!(space.may_be_stage(0, 0));
}

/// Devices whose links differ are told apart: two stages are where the fast one is, three have it between two of them.
#[test]
fn stages_are_tried_on_every_device_of_a_node_whose_links_are_unlike() {
    let seconds = |layers: usize, pins: &[(usize, &str)]| {
        let mut scene = scene(&vec![1.0; layers], &[3]);
        let Fleet::Cluster(cluster) = &mut scene.fleet else { unreachable!("it is one") };
        let node = &mut cluster.nodes[0];
        let link = |bytes_per_second| Link { bytes_per_second, latency_seconds: 0.0 };
        // 10, 1 and 1/2 seconds for a thousand bytes.
        (node.inside, node.pairs) = (link(100.0), vec![Pair { a: 0, b: 2, link: link(1e3) }]);
        node.pairs.push(Pair { a: 1, b: 2, link: link(2e3) });
        let mut asked = question(Objective::MinIterationTime, Shape::SinglePipeline);
        asked.micro_batch_size = Some(1);
        asked.pins = pins.iter().map(|&(layer, device)| (layer, device.to_owned())).collect();
        let truth = truth(&scene, &asked);
        (truth.plans, truth.best.unwrap())
    };
    let (every, free) = seconds(3, &[]);
    let (pinned, slow) = seconds(3, &[(0, "n0/0"), (1, "n0/1")]);
    assert_eq!((every, pinned), (6, 1), "three stages, in every order; and in one");
    assert!(free < slow - 10.0, "{free} {slow}: in the best one nothing goes over the slow link");
}

/// Points that differ by rounding only are one.
#[test]
fn fronts_have_no_points_that_rounding_made() {
    let points = vec![(1.0 + 1e-13, 5.0), (1.0, 6.0), (2.0, 5.0), (3.0, 4.0), (3.0, 9.0)];
    assert_eq!(front(points), [(1.0 + 1e-13, 5.0), (3.0, 4.0)]);
}
