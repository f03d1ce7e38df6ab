//! What is promised of plans with interleaved stages, held against every way to cut a chain, and against actions drawn by lot.

use loadmaster_proto::name::ClusterName;
use loadmaster_proto::plan::Plan;
use loadmaster_proto::plan::objective::{
    Launcher, MemoryUnit, NodeSpanning, Objective, PlanShape, SearchMode,
};
use loadmaster_proto::training::Schedule;
use loadmaster_proto::training::actions::{Allowed, Block, StageActions, Way};
use loadmaster_proto::training::schedule::Pass;
use loadmaster_proto::training::stage::{Partitioning, StageConfig};

use super::turns::Turns;
use crate::iteration::copies::pass_of;
use crate::predict::Acted;
use crate::recommend::acted::settings;
use crate::recommend::scene::{LAYERS, Scene, compositions};
use crate::recommend::{Interleaved, QuestionError, RecommendError};

fn seconds(plan: &Plan) -> f64 {
    plan.iteration_seconds().unwrap()
}

/// A chain of so many layers on devices that take turns with so many stages each, without memory actions.
fn scene(layers: usize, objective: Objective, devices: u32, each: u32, capacity: u64) -> Scene {
    Scene::of_layers(layers, objective, devices, capacity).with(|scene| {
        scene.request.virtual_stages = each;
        scene.request.allowed = None;
        scene.micro_batches = 4 * devices;
    })
}

/// Every way to cut the chain of a scene, as a plan that is asked for by its stages on devices without a limit.
fn every_cut(scene: &Scene, layers: usize, batch: u32) -> Vec<Plan> {
    let stages = (scene.devices * scene.request.virtual_stages) as usize;
    let all = compositions(layers, stages).into_iter();
    let all = all.map(|sizes| Partitioning::from_sizes(&sizes).unwrap());
    all.map(|stages| scene.given(&stages, batch, Vec::new()).unwrap()).collect()
}

fn peaks(plan: &Plan) -> Vec<u64> {
    let mut peaks: Vec<u64> = plan.first_stages().iter().map(|stage| stage.predicted_peak).collect();
    peaks.sort_unstable_by(|one, other| other.cmp(one));
    peaks
}

/// Of every way to cut, with every size of a micro-batch that may be chosen, the plan is the fastest that fits, or the one with the
/// lowest peaks, and is called proven; where none fits, that is called proven.
#[test]
fn the_best_cut_is_the_best_of_all() {
    let (mut found, mut refused) = (0, 0);
    for (layers, devices, each) in [(5, 2, 2), (7, 2, 3), (9, 4, 2), (6, 3, 2)] {
        for objective in [Objective::MinIterationTime, Objective::MinPeakMemory] {
            for capacity in [60_000, 130_000, 400_000, 1_000_000] {
                let is_timed = objective == Objective::MinIterationTime;
                let asked = scene(layers, objective, devices, each, capacity).with(|scene| {
                    scene.request.named.micro_batch_size = !is_timed;
                    // They go in groups of two, three and four.
                    scene.micro_batches = 12;
                });
                let batches: &[u32] = if is_timed { &[2, 4, 6, 8, 12, 16, 24] } else { &[4] };
                let all = batches.iter().filter(|&&size| (48 / size).is_multiple_of(devices));
                let all: Vec<Plan> = all.flat_map(|&size| every_cut(&asked, layers, size)).collect();
                let fits = all.iter().filter(|plan| plan.peak() <= capacity);
                let answer = asked.answer();
                let Some(best) = (match is_timed {
                    true => fits.min_by(|one, other| seconds(one).total_cmp(&seconds(other))),
                    false => fits.min_by_key(|plan| peaks(plan)),
                }) else {
                    let error = match answer.unwrap_err() {
                        QuestionError::Recommend(error) => error,
                        other => panic!("{other}"),
                    };
                    assert!(matches!(error, RecommendError::NoPlan { .. }) && error.is_proof(), "{error}");
                    refused += 1;
                    continue;
                };
                let ((_, plan), _) = answer.unwrap();
                let told = format!(
                    "{layers} layers, {devices} × {each}, {objective}, {capacity}: {}",
                    plan.partition()
                );
                let certificate = plan.found.certificate.clone().unwrap();
                assert!(
                    certificate.proven && certificate.bound == Some(certificate.value),
                    "{told}: {certificate:?}"
                );
                match is_timed {
                    true => {
                        assert!(
                            (seconds(&plan) / seconds(best) - 1.0).abs() < 1e-9,
                            "{told}: {}",
                            best.partition()
                        );
                        assert!((certificate.value - seconds(&plan)).abs() < 1e-12, "{told}");
                    }
                    false => assert_eq!(peaks(&plan), peaks(best), "{told}: {}", best.partition()),
                }
                assert_eq!((plan.virtual_stages, plan.device_count()), (each, u64::from(devices)), "{told}");
                found += 1;
            }
        }
    }
    assert!(found >= 15 && refused >= 2, "{found} found, {refused} refused");
}

/// Where there are too many ways to cut, no plan that is given is below the bound that is stated.
#[test]
fn no_cut_is_faster_than_the_bound() {
    let (layers, devices, each) = (24, 4, 3);
    let asked = scene(layers, Objective::MinIterationTime, devices, each, 10_000_000);
    let plan = asked.plan();
    let certificate = plan.found.certificate.clone().unwrap();
    let bound = certificate.bound.unwrap();
    assert!(!certificate.proven && bound < certificate.value, "{certificate:?}");
    let mut faster = 0;
    for step in 1..200_usize {
        // Some way to cut: twelve parts of twenty-four layers, by a walk through them.
        let mut sizes = vec![1; 12];
        (0..12).for_each(|more| sizes[(more * step + step / 12) % 12] += 1);
        let partitioning = Partitioning::from_sizes(&sizes).unwrap();
        let other = asked.given(&partitioning, 4, Vec::new()).unwrap();
        assert!(seconds(&other) >= bound, "{sizes:?} takes {}, bound {bound}", seconds(&other));
        faster += usize::from(seconds(&other) < seconds(&plan) * (1.0 - 1e-9));
    }
    assert_eq!(faster, 0, "of {}", plan.partition());
}

/// A device holds what the stage at work holds in its fullest step, beside what each other one has at that moment: counted here turn by
/// turn, of stages that were replayed alone.
#[test]
fn a_device_holds_what_its_stages_hold_in_turn() {
    for (layers, devices, each) in [(5, 2, 2), (9, 4, 2), (7, 2, 3)] {
        let asked = scene(layers, Objective::MinIterationTime, devices, each, 10_000_000);
        let plan = asked.plan();
        let chain = &asked.chain;
        let turns = Turns::of(plan.stages.len(), devices as usize, plan.training.micro_batches).unwrap();
        let none = StageActions::default();
        let replay =
            |setting: &_| chain.predictor.acted_in(setting, &none, turns.steps(setting, &none)).unwrap();
        let all: Vec<Acted> = settings(&plan).iter().map(replay).collect();
        let timeline = Interleaved::of(&plan, chain, each).unwrap();
        for (device, lane) in timeline.lanes.iter().enumerate() {
            // Who is at work, by the clock.
            let mut passes: Vec<(f64, usize, Pass)> =
                lane.passes.iter().map(|timed| (timed.start, timed.stage as usize, timed.pass)).collect();
            passes.sort_by(|one, other| one.0.total_cmp(&other.0));
            let own: Vec<usize> = (device..plan.stages.len()).step_by(devices as usize).collect();
            let mut behind: Vec<u64> = own.iter().map(|&stage| all[stage].curve[0].at_boundary).collect();
            let mut most = 0;
            for (_, stage, pass) in passes {
                let of_pass = |&(_, step): &(usize, &_)| pass_of(*step) == Some(pass);
                let steps: Vec<usize> =
                    all[stage].steps.all().iter().enumerate().filter(of_pass).map(|(at, _)| at).collect();
                let at = own.iter().position(|&of| of == stage).unwrap();
                let others: u64 =
                    behind.iter().enumerate().filter(|(of, _)| *of != at).map(|(_, held)| held).sum();
                let fullest = steps.iter().map(|&step| all[stage].curve[step].most.total()).max().unwrap();
                most = most.max(fullest + others);
                behind[at] = all[stage].curve[steps.last().unwrap() + 1].at_boundary;
            }
            // Updates come at the end; nothing is in flight then.
            for (at, &stage) in own.iter().enumerate() {
                let others: u64 =
                    behind.iter().enumerate().filter(|(of, _)| *of != at).map(|(_, held)| held).sum();
                let updates = all[stage].curve.iter().zip(all[stage].steps.all());
                let updates = updates.filter(|(_, step)| pass_of(**step).is_none());
                most = most.max(updates.map(|(held, _)| held.most.total() + others).max().unwrap_or(0));
            }
            assert_eq!(timeline.devices[device].peak, most, "device {device} of {}", plan.partition());
            assert_eq!(plan.stages[device].predicted_peak, most);
            let alone: u64 = own.iter().map(|&stage| all[stage].prediction(0).bytes.0).sum();
            assert!(most <= alone && own.iter().all(|&stage| most > all[stage].prediction(0).bytes.0));
        }
    }
}

/// With memory actions: a plan fits, is what the same stages and actions come to when they are given, is what is drawn over time, and
/// is within its bound; no actions that are drawn by lot and fit are faster than the bound, nor than the plan beyond a little.
#[test]
fn actions_make_it_fit_within_the_bound() {
    let (mut acted, mut drawn, mut worst) = (0, 0, 0.0_f64);
    for capacity in [55_000, 65_000, 80_000, 100_000, 150_000] {
        for ways in [&Way::ALL[..], &[Way::Recompute], &[Way::Host], &[Way::Recompute, Way::Peer]] {
            let mut asked = Scene::new(Objective::MinIterationTime, 2, capacity);
            asked.request.virtual_stages = 2;
            asked.request.allowed.as_mut().unwrap().ways = ways.to_vec();
            let others = asked.drawn(4, 4, 40);
            let fits = others.iter().filter(|plan| plan.peak() <= capacity);
            let others: Vec<&Plan> = fits.collect();
            drawn += others.len();
            let fastest = others.iter().map(|plan| seconds(plan)).fold(f64::INFINITY, f64::min);
            let told = format!("{ways:?} within {capacity}");
            let Ok(((_, plan), _)) = asked.answer() else {
                assert!(others.is_empty(), "{told}: a plan that was drawn fits");
                continue;
            };
            assert!(plan.peak() <= capacity, "{told}: {}", plan.peak());
            let certificate = plan.found.certificate.clone().unwrap();
            let bound = certificate.bound.unwrap();
            assert!(bound <= fastest && bound <= seconds(&plan), "{told}: bound {bound}, {fastest}");
            assert_eq!(certificate.value, seconds(&plan), "{told}");
            let sizes: Vec<usize> = plan.stages.iter().map(|stage| stage.config.layer_count()).collect();
            let actions: Vec<StageActions> = plan.stages.iter().map(|stage| stage.actions.clone()).collect();
            let same = asked.given(&Partitioning::from_sizes(&sizes).unwrap(), 4, actions.clone()).unwrap();
            assert!((seconds(&same) / seconds(&plan) - 1.0).abs() < 1e-9, "{told}: {}", seconds(&same));
            let of = |plan: &Plan| plan.stages.iter().map(|of| of.predicted_peak).collect::<Vec<_>>();
            assert_eq!(of(&same), of(&plan), "{told}");
            let over_time = Interleaved::of(&plan, &asked.chain, 2).unwrap();
            for (device, held) in over_time.devices.iter().enumerate() {
                assert_eq!(held.peak, plan.stages[device].predicted_peak, "{told}");
            }
            let moved = |way: &Way| actions.iter().flat_map(|of| &of.actions).any(|of| of.deed.way() == *way);
            assert!(Way::ALL.iter().filter(|way| !ways.contains(way)).all(|way| !moved(way)), "{told}");
            acted += usize::from(actions.iter().any(|of| !of.is_empty()));
            if fastest.is_finite() {
                worst = worst.max(seconds(&plan) / fastest - 1.0);
            }
        }
    }
    assert!(acted >= 6 && drawn >= 100, "{acted} plans act, {drawn} drawn ones fit");
    assert!(worst < 0.03, "drawn actions are up to {:.1} % faster", 100.0 * worst);
}

/// Of a uniform grid every degree is looked at: the plan is the best of all cuts of single devices and of pairs of replicas.
#[test]
fn grids_are_cut_best_of_all_degrees() {
    let asked = scene(9, Objective::MinIterationTime, 4, 2, 1_000_000);
    let asked = asked.with(|scene| scene.request.goal.shape = PlanShape::UniformGrid);
    let pairs = asked.with(|scene| scene.devices = 2);
    let replicated = |plan: &Plan| {
        let stages = plan.stages.iter().map(|stage| StageConfig { data_degree: 2, ..stage.config });
        asked.given(&Partitioning::new(stages.collect()).unwrap(), 4, Vec::new()).unwrap()
    };
    let single = every_cut(&asked, 9, 4);
    let all: Vec<Plan> = every_cut(&pairs, 9, 4).iter().map(replicated).chain(single).collect();
    assert!(all.iter().all(|plan| plan.device_count() == 4));
    let plan = asked.plan();
    let best = all.iter().map(seconds).fold(f64::INFINITY, f64::min);
    let certificate = plan.found.certificate.clone().unwrap();
    assert!((seconds(&plan) / best - 1.0).abs() < 1e-9 && certificate.proven, "{certificate:?}, {best}");
    assert_eq!(plan.device_count(), 4);
}

/// On two nodes the way from the last device back to the first one crosses the network, as the one from node to node does; other
/// orders of the devices were not looked at, which the certificate does not hide.
#[test]
fn the_way_back_crosses_the_nodes() {
    let asked = scene(9, Objective::MinIterationTime, 4, 2, 1_000_000).with(|scene| {
        scene.nodes = 2;
        // Devices that are named keep their order; those of a cluster need not.
        scene.request.goal.cluster = Some(ClusterName::parse("cluster", "clusters/two").unwrap());
    });
    let plan = asked.plan();
    let edges = &plan.found.edge_seconds;
    assert_eq!(edges.len(), 7);
    for (edge, seconds) in edges.iter().enumerate() {
        let crosses = edge % 4 == 1 || edge % 4 == 3;
        assert_eq!(*seconds > 2.0 * edges[0], crosses, "{edges:?}");
    }
    let nodes: Vec<&str> = plan.stages.iter().map(|stage| stage.devices[0].node.as_str()).collect();
    assert_eq!(nodes, ["n0", "n0", "n1", "n1", "n0", "n0", "n1", "n1"]);
    let certificate = plan.found.certificate.clone().unwrap();
    assert!(!certificate.proven && certificate.bound.is_none_or(|bound| bound < certificate.value));
    assert!(plan.warnings.iter().any(|warning| warning.contains("in their order")), "{:?}", plan.warnings);
}

/// Of what no plan with interleaved stages can do, each is refused by its field.
#[test]
fn what_they_cannot_do_is_refused_by_name() {
    let base = || scene(LAYERS, Objective::MinIterationTime, 2, 2, 1_000_000);
    let field = |change: &dyn Fn(&mut Scene)| -> String {
        let mut asked = base();
        change(&mut asked);
        match asked.answer().unwrap_err() {
            QuestionError::Invalid(invalid) => invalid.violations()[0].field.clone(),
            other => panic!("{other}"),
        }
    };
    assert!(base().answer().is_ok());
    type Change<'a> = &'a dyn Fn(&mut Scene);
    let cases: [(&str, Change<'_>); 13] = [
        ("objective", &|scene| scene.request.goal.objective = Some(Objective::MaxBatch)),
        ("objective", &|scene| scene.request.goal.objective = Some(Objective::Pareto)),
        ("objective", &|scene| {
            scene.request.goal.objective = Some(Objective::MinPeakMemory);
            scene.request.allowed = Some(Allowed::default());
        }),
        ("launcher", &|scene| scene.request.goal.launcher = Some(Launcher::Megatron)),
        ("search_mode", &|scene| scene.request.mode = SearchMode::Amp),
        ("shape", &|scene| scene.request.goal.shape = PlanShape::PerStageMesh),
        ("schedule", &|scene| scene.request.goal.constraints.schedules = vec![Schedule::Gpipe]),
        ("constraints.min_stages", &|scene| scene.request.goal.constraints.min_stages = Some(2)),
        ("constraints.allow_idle_devices", &|scene| scene.request.goal.constraints.allow_idle_devices = true),
        ("constraints.spanning", &|scene| {
            scene.request.goal.constraints.spanning = Some(NodeSpanning::Never);
        }),
        ("virtual_stages", &|scene| scene.request.virtual_stages = 3),
        ("virtual_stages", &|scene| scene.devices = 1),
        ("micro_batches", &|scene| {
            scene.devices = 2;
            scene.request.goal.constraints.micro_batch_sizes = vec![32];
        }),
    ];
    for (named, change) in cases {
        assert_eq!(field(change), named);
    }
    let stages = |sizes: &[usize]| Some(Partitioning::from_sizes(sizes).unwrap());
    assert_eq!(field(&|scene| scene.request.partitioning = stages(&[2, 3])), "partitioning");
    let slots = |scene: &mut Scene, peer: u32| {
        let swap = |to| loadmaster_proto::training::actions::Swap {
            block: Block::Activations,
            to,
            release_after: 0,
            fetch_before: 0,
        };
        let stripe = loadmaster_proto::training::actions::Stripe { stage: peer, share: 10_000 };
        let to = loadmaster_proto::training::actions::Destination::Peers(vec![stripe]);
        let action = loadmaster_proto::training::actions::Action {
            first_layer: 0,
            last_layer: 0,
            slots: if peer == 1 { vec![0] } else { Vec::new() },
            deed: loadmaster_proto::training::actions::Deed::Swap(swap(to)),
        };
        scene.request.partitioning = Some(Partitioning::from_sizes(&[1, 1, 1, 2]).unwrap());
        scene.request.goal.objective = None;
        scene.request.stage_actions = vec![StageActions { actions: vec![action], ..StageActions::default() }];
    };
    assert_eq!(field(&|scene| slots(scene, 1)), "stage_actions[0]");
    assert_eq!(field(&|scene| slots(scene, 2)), "stage_actions[0]");
}

/// Limits hold: what they rule out is not answered, and the reason is told; a share of the capacity is proven as one.
#[test]
fn limits_hold() {
    let fastest = scene(6, Objective::MinIterationTime, 3, 2, 1_000_000).plan();
    let lowest = scene(6, Objective::MinPeakMemory, 3, 2, 1_000_000);
    let unlimited = lowest.plan();
    assert!(unlimited.peak() <= fastest.peak() && seconds(&fastest) <= seconds(&unlimited));
    let within = |limit: f64| {
        lowest.with(|scene| scene.request.goal.constraints.max_iteration_seconds = Some(limit)).answer()
    };
    let ((_, limited), _) = within(seconds(&fastest) * 1.001).unwrap();
    assert!(seconds(&limited) <= seconds(&fastest) * 1.001 && limited.peak() >= unlimited.peak());
    let error = within(seconds(&fastest) * 0.999).unwrap_err();
    assert!(
        matches!(error, QuestionError::Recommend(RecommendError::Limits { is_proof: true, .. })),
        "{error}"
    );
    let small = |most: u64| {
        let asked = scene(6, Objective::MinIterationTime, 3, 2, 1_000_000);
        asked.with(|scene| scene.request.goal.constraints.max_peak_bytes = Some(most)).answer()
    };
    let ((_, plan), _) = small(unlimited.peak()).unwrap();
    assert_eq!(plan.peak(), unlimited.peak());
    assert!(small(unlimited.peak() - 1).is_err());
    let share = lowest.with(|scene| scene.request.goal.memory_unit = MemoryUnit::Share).plan();
    let certificate = share.found.certificate.unwrap();
    assert_eq!((certificate.unit.as_str(), certificate.proven), ("share", true));
    assert!((certificate.value - unlimited.peak() as f64 / 1e6).abs() < 1e-9, "{certificate:?}");
}
