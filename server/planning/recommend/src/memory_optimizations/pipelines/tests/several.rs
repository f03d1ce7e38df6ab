//! What is promised of plans whose stages have several devices, or lie on several nodes.

use std::collections::BTreeMap;

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::plan::objective::{Objective, PlanShape};
use loadmaster_proto::plan::{Plan, PlanStage};
use loadmaster_proto::training::actions::Way;
use loadmaster_proto::training::stage::{Partitioning, StageConfig};

use super::{PEAKS, seconds};
use crate::tests::fixture::Fixture;

/// Shapes whose stages may have several devices.
const SHAPES: [PlanShape; 4] =
    [PlanShape::PerStageReplicas, PlanShape::PerStageMesh, PlanShape::EqualDevices, PlanShape::UniformGrid];

fn shaped(fixture: &Fixture, shape: PlanShape) -> Fixture {
    fixture.with(|fixture| fixture.request.goal.shape = shape)
}

/// Stages of so many layers on so many replicas each.
fn replicated(stages: &[(usize, u32)]) -> Partitioning {
    let sizes: Vec<usize> = stages.iter().map(|(layers, _)| *layers).collect();
    let plain = Partitioning::from_sizes(&sizes).unwrap();
    let of = |(stage, (_, data)): (&StageConfig, &(usize, u32))| StageConfig { data_degree: *data, ..*stage };
    Partitioning::new(plain.stages().iter().zip(stages).map(of).collect()).unwrap()
}

/// The same question without any action.
fn untouched(fixture: &Fixture) -> Option<Plan> {
    let plain = fixture.with(|fixture| fixture.request.allowed = None);
    plain.answer().ok().map(|((_, plan), _)| plan)
}

fn has_several(stage: &PlanStage) -> bool {
    stage.devices.len() > 1
}

/// What is taken of each node's host.
fn at_hosts(plan: &Plan) -> BTreeMap<String, u64> {
    let mut hosts = BTreeMap::new();
    for stage in &plan.stages {
        for device in &stage.devices {
            *hosts.entry(device.node.clone()).or_default() +=
                stage.offload.as_ref().map_or(0, |of| of.host_peak.0);
        }
    }
    hosts
}

/// Device by device: blocks go to devices of the same node.
fn assert_peers_are_near(plan: &Plan) {
    for stage in &plan.stages {
        for peer in stage.actions.peers() {
            let there = &plan.stages[peer as usize].devices;
            for (index, device) in stage.devices.iter().enumerate() {
                assert_eq!(device.node, there[index % there.len()].node, "{:?}", plan.partition());
            }
        }
    }
}

/// A plan of a shape is no slower than the best one that needs no actions, nor than one of a single pipeline; none that is drawn
/// by lot, with replicas as well, is faster than the bound, and where nothing is said to be possible none fits.
#[test]
fn stages_of_several_devices_are_chosen_and_nothing_beats_their_bound() {
    let (mut acted, mut refused) = (0, 0);
    for capacity in [20_000, 45_000, PEAKS[0], PEAKS[1]] {
        let single = Fixture::new(Objective::MinIterationTime, 4, capacity);
        let alone = single.answer().ok().map(|((_, plan), _)| plan);
        let drawn: Vec<Plan> = single.drawn_of_replicas(4, 4, 8);
        let fit: Vec<&Plan> = drawn.iter().filter(|plan| plan.peak() <= capacity).collect();
        for shape in SHAPES {
            let asked = shaped(&single, shape);
            let includes = |plan: &Plan| match shape {
                PlanShape::EqualDevices | PlanShape::UniformGrid => {
                    let devices = |of: &PlanStage| of.devices.len();
                    plan.stages.windows(2).all(|pair| devices(&pair[0]) == devices(&pair[1]))
                }
                _ => true,
            };
            let plan = match asked.answer() {
                Ok(((_, plan), _)) => plan,
                Err(error) => {
                    refused += 1;
                    let text = error.to_string();
                    let is_proof = matches!(&error, crate::QuestionError::Recommend(of) if of.is_proof());
                    assert!(
                        !is_proof || !fit.iter().any(|plan| includes(plan)),
                        "{capacity} {shape}: {text}"
                    );
                    assert!(untouched(&asked).is_none() && alone.is_none(), "{capacity} {shape}: {text}");
                    continue;
                }
            };
            assert!(plan.peak() <= capacity);
            let value = seconds(&plan);
            for other in untouched(&asked).iter().chain(&alone) {
                assert!(
                    value <= seconds(other) * (1.0 + 1e-9),
                    "{capacity} {shape}: {value} {}",
                    seconds(other)
                );
            }
            let bound = plan.found.certificate.as_ref().and_then(|of| of.bound).unwrap();
            assert!(0.0 < bound && bound <= value);
            for other in fit.iter().filter(|plan| includes(plan)) {
                assert!(seconds(other) >= bound * (1.0 - 1e-9), "{capacity} {shape}: {}", other.partition());
            }
            let is_acted = |stage: &PlanStage| has_several(stage) && !stage.actions.actions.is_empty();
            acted += u32::from(plan.stages.iter().any(is_acted));
        }
    }
    assert!(acted > 2, "{acted} plans do something with replicas, {refused} questions have none");
}

/// Named stages of replicas get actions, too: host memory is counted for each device, and peers have room for all that they
/// host.
#[test]
fn named_replicas_get_actions_and_every_device_counts() {
    let mut peer_pools = 0;
    for stages in [&[(2, 2), (3, 2)][..], &[(3, 2), (2, 1)], &[(2, 1), (3, 2)], &[(2, 2), (2, 1), (1, 2)]] {
        for capacity in [PEAKS[0], PEAKS[1], PEAKS[2]] {
            let asked = Fixture::new(Objective::MinIterationTime, 0, capacity).with(|fixture| {
                fixture.devices = stages.iter().map(|(_, replicas)| replicas).sum();
                fixture.request.partitioning = Some(replicated(stages));
            });
            let Ok(((_, plan), _)) = asked.answer() else { continue };
            assert!(plan.peak() <= capacity, "{stages:?}");
            assert_peers_are_near(&plan);
            let most = at_hosts(&plan).into_values().max().unwrap();
            assert!(most <= 1 << 20, "{stages:?}: {most}");
            peer_pools += u32::from(plan.stages.iter().any(|stage| !stage.actions.peer_pools.is_empty()));
            if most > 0 {
                // Half of it is enough for no plan that takes it all, and is kept to.
                let half = asked.with(|fixture| {
                    fixture.request.allowed.as_mut().unwrap().host_memory = Bytes(most / 2);
                });
                if let Ok(((_, plan), _)) = half.answer() {
                    assert!(at_hosts(&plan).into_values().all(|bytes| bytes <= most / 2), "{stages:?}");
                }
            }
        }
    }
    assert!(peer_pools > 0, "no plan has blocks on peers");
}

/// Plans on several nodes: peers are on the same node, and each node's host gives what it may, not all of them together.
#[test]
#[ignore = "slow: make test-slow"]
fn plans_on_several_nodes_use_each_nodes_host_and_near_peers() {
    let (mut peers, mut beyond_one) = (0, 0);
    for capacity in [30_000, 50_000, 70_000, 90_000, 120_000] {
        for shape in [PlanShape::SinglePipeline, PlanShape::PerStageReplicas, PlanShape::UniformGrid] {
            for (host_memory, ways) in [(1 << 20, &Way::ALL[..]), (25_000, &Way::ALL), (0, &[Way::PeerSwap])]
            {
                let asked =
                    shaped(&Fixture::new(Objective::MinIterationTime, 4, capacity), shape).with(|fixture| {
                        fixture.nodes = 2;
                        let allowed = fixture.request.allowed.as_mut().unwrap();
                        (allowed.host_memory, allowed.ways) = (Bytes(host_memory), ways.to_vec());
                    });
                let Ok(((_, plan), _)) = asked.answer() else { continue };
                assert_peers_are_near(&plan);
                let hosts = at_hosts(&plan);
                assert!(plan.peak() <= capacity && hosts.len() <= 2);
                assert!(hosts.values().all(|&bytes| bytes <= host_memory), "{hosts:?}");
                beyond_one += u32::from(hosts.values().sum::<u64>() > host_memory);
                peers += u32::from(plan.stages.iter().any(|stage| !stage.actions.peers().is_empty()));
                if let Some(other) = untouched(&asked) {
                    assert!(seconds(&plan) <= seconds(&other) * (1.0 + 1e-9));
                }
            }
        }
    }
    assert!(peers > 0 && beyond_one > 0, "{peers} plans with peers, {beyond_one} with two hosts' memory");
}

/// What no node has room for alone may fit several: the fewest devices are counted over all nodes.
#[test]
fn the_fewest_devices_may_be_of_several_nodes() {
    let mut across = 0;
    for capacity in (30_000..130_000).step_by(10_000) {
        let two = Fixture::new(Objective::MinDevices, 4, capacity).with(|fixture| {
            fixture.nodes = 2;
            fixture.request.allowed.as_mut().unwrap().ways = vec![Way::Recompute, Way::PeerSwap];
        });
        let Ok(((_, plan), _)) = two.answer() else { continue };
        let nodes: std::collections::BTreeSet<&String> =
            plan.stages.iter().flat_map(|of| &of.devices).map(|of| &of.node).collect();
        across += u32::from(nodes.len() > 1);
        assert_eq!(plan.found.certificate.as_ref().unwrap().value, plan.device_count() as f64);
        assert_peers_are_near(&plan);
    }
    assert!(across > 0);
}
