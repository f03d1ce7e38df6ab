//! Pins that a stage of several devices gets a rank on each, and that a failure says which of them.

use std::path::PathBuf;

use loadmaster_proto::measure::links::Collectives;
use loadmaster_proto::measure::rank::{Edges, RankSpec};
use loadmaster_proto::measure::run::{RunSpec, Work};
use loadmaster_proto::model::Model;
use loadmaster_proto::model::layer::{Layer, LayerKind};
use loadmaster_proto::training::stage::{Partitioning, StageConfig};
use loadmaster_proto::training::strategy::Strategy;
use loadmaster_proto::training::{RecomputePolicy, TrainingSpec};
use loadmaster_proto::wire::{v1, worker_v1};

use crate::harness::{Daemon, Setup, welcomed};
use crate::planner::{Planner, spec};

pub(crate) const DEVICES: [&str; 4] = ["cpu0", "cpu1", "cpu2", "cpu3"];

/// Two linear layers on two shards, then one on two replicas.
pub(crate) fn mixed() -> RunSpec {
    let linear = |name: &str, in_features, out_features| Layer {
        name: name.into(),
        kind: LayerKind::Linear { in_features, out_features },
    };
    let plain = spec(1);
    let layers =
        vec![plain.model.layers()[0].clone(), linear("a", 4, 9), linear("b", 9, 6), linear("out", 6, 3)];
    let shards = StageConfig { tensor_degree: 2, ..StageConfig::single(0, 2) };
    let replicas = StageConfig { data_degree: 2, ..StageConfig::single(3, 3) };
    let stages = vec![shards, replicas];
    RunSpec {
        model: Model::new("mixed".into(), plain.model.input(), layers).unwrap(),
        strategy: Strategy::plain(
            TrainingSpec { micro_batch_size: 4, micro_batches: 3, ..plain.strategy.training },
            Work::Partitioning(Partitioning::new(stages).unwrap()),
        ),
        iterations: 2,
        ..plain
    }
}

fn places(result: &worker_v1::RunResult) -> Vec<(i32, i32)> {
    result.measurements.iter().map(|measurement| (measurement.stage_index, measurement.shard)).collect()
}

#[tokio::test]
async fn each_device_of_a_stage_gets_a_rank() {
    let (_planner, daemon, mut connection) = welcomed(Setup { slots: "4x64MiB", ..Setup::default() }).await;
    connection.lease_run("one", 1, &DEVICES, &mixed(), 600.0).await;
    let result = connection.next_result().await;
    assert_eq!(places(&result), [(0, 0), (0, 1), (1, 0), (1, 1)]);

    let Work::Partitioning(partitioning) = mixed().strategy.work else { panic!("no pipeline") };
    for (name, stage, shard) in [("0", 0, 0), ("0.1", 0, 1), ("1", 1, 0), ("1.1", 1, 1)] {
        let text = daemon.written(&format!("spec-{name}.json")).await;
        let spec: RankSpec = serde_json::from_str(&text).unwrap();
        assert_eq!((spec.position.stage_index, spec.shard), (stage, shard));
        assert_eq!(spec.edges, Edges::Sockets { partitioning: partitioning.clone() });
        assert_eq!(spec.collectives, Collectives::Host, "CPU slots have no NCCL");
        assert_eq!(spec.folder, PathBuf::from(daemon.written(&format!("folder-{name}")).await.trim()));
    }
    connection.acknowledge("one", 1).await;
}

/// Pins that a stage's own recompute policy reaches all of its ranks, and no others.
#[tokio::test]
async fn each_stage_recomputes_as_it_is_told() {
    let (_planner, daemon, mut connection) = welcomed(Setup { slots: "4x64MiB", ..Setup::default() }).await;
    let mut spec = mixed();
    spec.strategy.stages[0].recompute = RecomputePolicy::Layer;
    connection.lease_run("one", 1, &DEVICES, &spec, 600.0).await;
    connection.next_result().await;
    let mut policies = Vec::new();
    for name in ["0", "0.1", "1", "1.1"] {
        let text = daemon.written(&format!("spec-{name}.json")).await;
        policies.push(serde_json::from_str::<RankSpec>(&text).unwrap().training.recompute);
    }
    let [first, second] = [RecomputePolicy::Layer, RecomputePolicy::None];
    assert_eq!(policies, [first, first, second, second]);
    connection.acknowledge("one", 1).await;
}

#[tokio::test]
async fn a_failure_names_the_device_of_the_stage() {
    let mut planner = Planner::start().await;
    let rank = "0:lost-neighbour 0.1:segfault 1:lost-neighbour 1.1:lost-neighbour";
    let _daemon = Daemon::start_with(&planner, Setup { rank, slots: "4x64MiB", ..Setup::default() });
    let mut connection = planner.welcome().await;
    connection.lease_run("one", 1, &DEVICES, &mixed(), 600.0).await;
    let failure = connection.next_failure().await;
    assert_eq!((failure.kind(), failure.stage_index), (v1::run_failure::Kind::Crashed, Some(0)));
    assert!(failure.message.contains("stage 0, shard 1"), "{}", failure.message);
}

/// The real rank program, where it is built: all four find each other and train.
#[tokio::test]
async fn a_mixed_pipeline_trains() {
    let program = PathBuf::from(env!("CARGO_BIN_EXE_loadmaster-worker")).with_file_name("loadmaster-rank");
    if !program.exists() {
        println!("skipped: {} is not built", program.display());
        return;
    }
    let mut planner = Planner::start().await;
    let setup = Setup { slots: "4x1GiB", program: Some(program), ..Setup::default() };
    let _daemon = Daemon::start_with(&planner, setup);
    let mut connection = planner.welcome().await;
    connection.lease_run("one", 1, &DEVICES, &mixed(), 600.0).await;
    let result = connection.next_result().await;
    assert_eq!(places(&result), [(0, 0), (0, 1), (1, 0), (1, 1)]);
    let [a, b, c, d] = result.measurements.as_slice() else { panic!("{result:?}") };
    assert!(a.losses.is_empty() && b.losses.is_empty());
    assert!(c.losses.len() == 2 && c.losses == d.losses, "each replica reports the loss of all samples");
    assert!(a.parameter_bytes > b.parameter_bytes, "the first shard has the larger half of nine");
    assert!(result.measurements.iter().all(|measured| measured.peak_allocated_bytes > 0));
}
