//! The CUDA path. Skipped, loudly, on machines without a CUDA device.

use std::process::{Child, Command};

use loadmaster_proto::accounting::Accounting;
use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::cluster::device::Backend;
use loadmaster_proto::measure::links::copies::{CopySpeeds, CopyWay};
use loadmaster_proto::measure::links::{Collectives, LinkMeasurement, LinkWork};
use loadmaster_proto::measure::offload::CopyPace;
use loadmaster_proto::measure::rank::{EXIT_OUT_OF_MEMORY, LinkSpec, Probe, RankDevice, RankEvent, RankSpec};
use loadmaster_proto::training::stage::{Partitioning, StageConfig};
use loadmaster_proto::training::{Precision, RecomputePolicy, Schedule, TrainingSpec};

use crate::processes::{
    Ended, connected, cpu, pipeline, positions, run, run_all, small_gpt, small_vgg, solo, start, training,
    with_input,
};

/// What `loadmaster-rank probe` finds.
fn probe() -> Probe {
    let output = Command::new(env!("CARGO_BIN_EXE_loadmaster-rank")).arg("probe").output().unwrap();
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// A share of the first GPU, or none, said loudly.
pub(crate) fn gpu(capacity: u64) -> Option<RankDevice> {
    if probe().cuda_devices == 0 {
        println!("skipped: no CUDA device");
        return None;
    }
    Some(RankDevice {
        backend: Backend::Cuda,
        kind: "test GPU".to_owned(),
        physical: Bytes(1 << 37),
        ..cpu(capacity)
    })
}

#[test]
fn the_probe_says_what_it_finds() {
    let probe = probe();
    assert_eq!(probe.libtorch_version, loadmaster_proto::LIBTORCH_VERSION);
    assert_eq!(probe.loadmaster_version, env!("CARGO_PKG_VERSION"));
    assert_eq!(probe.cuda_devices == 0, gpu(1).is_none());
}

/// Without CUDA the answer to a CUDA specification is an error that says so, not a crash.
#[test]
fn a_missing_gpu_is_an_error() {
    if probe().cuda_devices > 0 {
        println!("skipped: there is a CUDA device");
        return;
    }
    let mut spec = solo(&small_gpt(false), training(), positions(&[6])[0]);
    spec.device.backend = Backend::Cuda;
    let ended = run(&spec);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.message().contains("cuda"), "{}", ended.message());
}

/// A pipeline trains on a GPU, in either precision, and a stage alone needs what it needs in there. Its
/// losses are not those of a CPU, whose random numbers are others.
#[test]
fn a_gpu_trains_and_measures() {
    let Some(device) = gpu(8 << 30) else { return };
    for (precision, schedule, recompute) in [
        (Precision::Fp32, Schedule::OneFOneB, RecomputePolicy::None),
        (Precision::Bf16, Schedule::Gpipe, RecomputePolicy::Layer),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let training = TrainingSpec { precision, schedule, recompute, ..training() };
        let mut specs = pipeline(&small_gpt(false), training, &[2, 2, 2], folder.path());
        specs.iter_mut().for_each(|spec| spec.device = device.clone());
        let measurements = run_all(&specs);
        for (measured, position) in measurements.iter().zip(positions(&[2, 2, 2])) {
            assert!(measured.peak_reserved.unwrap() >= measured.peak_allocated);
            assert!(!measured.environment.cuda_version.is_empty());
            let alone = RankSpec { device: device.clone(), ..solo(&small_gpt(false), training, position) };
            assert_eq!(run(&alone).measurement().peak_allocated, measured.peak_allocated);
        }
        assert!(measurements[2].losses.iter().all(|loss| (2.0..6.0).contains(loss)));
    }
}

/// Replicas and shards on different GPUs exchange with NCCL, and find the losses that they find over
/// sockets.
#[test]
fn gpus_exchange_with_nccl() {
    if probe().cuda_devices < 2 {
        println!("skipped: fewer than two CUDA devices");
        return;
    }
    let Some(device) = gpu(8 << 30) else { return };
    for (data_degree, tensor_degree) in [(2, 1), (1, 2)] {
        let stage = StageConfig { data_degree, tensor_degree, ..StageConfig::single(0, 5) };
        let partitioning = Partitioning::new(vec![stage]).unwrap();
        let losses = [Collectives::Host, Collectives::Nccl].map(|collectives| {
            let folder = tempfile::tempdir().unwrap();
            let mut specs = connected(&small_gpt(false), training(), &partitioning, folder.path());
            for (ordinal, spec) in (0..).zip(&mut specs) {
                spec.device = RankDevice { ordinal, ..device.clone() };
                spec.collectives = collectives;
            }
            run_all(&specs).remove(0).losses
        });
        for (host, nccl) in losses[0].iter().zip(&losses[1]) {
            assert!((host - nccl).abs() < 1e-3, "{losses:?}");
        }
    }
}

/// Ranks that find no NCCL say so and exchange through the host's memory.
#[test]
fn without_nccl_ranks_exchange_through_the_host() {
    if probe().cuda_devices > 0 {
        println!("skipped: there is a CUDA device, and perhaps NCCL");
        return;
    }
    let stage = StageConfig { data_degree: 2, ..StageConfig::single(0, 5) };
    let folder = tempfile::tempdir().unwrap();
    let partitioning = Partitioning::new(vec![stage]).unwrap();
    let mut specs = connected(&small_gpt(false), training(), &partitioning, folder.path());
    specs.iter_mut().for_each(|spec| spec.collectives = Collectives::Nccl);
    let children: Vec<Child> = specs.iter().map(start).collect();
    let ended: Vec<Ended> = children.into_iter().map(Ended::of).collect();
    for ended in ended {
        assert!(ended.errors.contains("libnccl.so"), "{}", ended.errors);
        assert_eq!(ended.measurement().losses.len(), 3);
    }
}

/// The share of the GPU is enforced and running out of it is reported in the reserved ledger.
#[test]
fn a_gpu_share_is_enforced() {
    // Less than the parameters, so that a plain tensor is refused: what a convolution asked for in vain
    // no one tells.
    let Some(device) = gpu(32 << 20) else { return };
    let spec = RankSpec { device, ..solo(&small_vgg(), training(), positions(&[30])[0]) };
    let ended = run(&spec);
    assert_eq!(ended.code, Some(EXIT_OUT_OF_MEMORY), "{ended:?}");
    let Some(RankEvent::OutOfMemory { out_of_memory }) = ended.events.last() else { panic!("{ended:?}") };
    assert_eq!(out_of_memory.ledger, Accounting::Reserved);
    assert!(out_of_memory.asked.0 > 0 && out_of_memory.held <= out_of_memory.allowed, "{out_of_memory:?}");
}

/// The caching allocator's blocks are recorded as those of the host are, whatever thread allocates them.
#[test]
fn a_layer_on_a_gpu_is_recorded() {
    let Some(device) = gpu(1 << 31) else { return };
    let block = positions(&[1, 1, 1, 1, 1, 1])[1];
    let spec = RankSpec { device, ..solo(&small_gpt(false), training(), block) };
    let measured = run(&spec).measurement();
    let trace = measured.trace.as_deref().unwrap();
    let left: u64 = trace.first.left().into_iter().map(|block| trace.first.blocks[block]).sum();
    // Rounded up, and created in the backward pass: by the engine's own thread for the device.
    assert!(left >= measured.static_bytes.gradients, "{left} {:?}", measured.static_bytes);
    assert!(trace.later.left().is_empty(), "{:?}", trace.later);
}

/// A GPU copies to the host's memory and back and into memory of other ranks, alone, both ways and while others do.
#[test]
fn a_gpu_copies_to_the_host_and_to_peers() {
    let Some(device) = gpu(1 << 30) else { return };
    let folder = tempfile::tempdir().unwrap();
    let work = LinkWork { devices: 2, payload_bytes: vec![1 << 20, 4 << 20, 16 << 20], repeats: 3 };
    // Two shares of one GPU: they send tensors through the host's memory.
    let spec = |index| LinkSpec {
        work: work.clone(),
        index,
        device_id: format!("gpu0.{index}"),
        folder: folder.path().to_owned(),
        collectives: Collectives::Host,
        device: device.clone(),
        threads: 1,
        neighbour_timeout_seconds: 60.0,
        pace: CopyPace::default(),
    };
    let ended = (0..2).map(|index| {
        let text = serde_json::to_string(&spec(index)).unwrap();
        with_input(Command::new(env!("CARGO_BIN_EXE_loadmaster-rank")).arg("links"), &text)
    });
    let ended: Vec<Child> = ended.collect();
    let parts = ended.into_iter().map(Ended::of).map(|ended| match ended.events.into_iter().next_back() {
        Some(RankEvent::LinksMeasured { links }) => *links,
        last => panic!("{last:?}: {}", ended.errors),
    });
    let copies = LinkMeasurement::of_ranks(parts.collect()).unwrap().copies.unwrap();
    let is_fast = |way: &CopyWay| assert!(way.link.bytes_per_second > 1e8, "{way:?}");
    let are_fast = |speeds: &CopySpeeds| {
        [&speeds.out, &speeds.back, speeds.both.as_ref().unwrap()].into_iter().for_each(is_fast);
    };
    assert_eq!((copies.devices.len(), copies.pairs.len()), (2, 1));
    copies.pairs.iter().for_each(|pair| are_fast(&pair.copies));
    for of in &copies.devices {
        are_fast(&of.host);
        [&of.all_out, &of.all_back, of.all_next.as_ref().unwrap()].into_iter().for_each(is_fast);
    }
}
