//! How a rank ends when it cannot measure.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use loadmaster_proto::accounting::Accounting;
use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::cluster::device::Backend;
use loadmaster_proto::measure::failure::Phase;
use loadmaster_proto::measure::rank::{
    EXIT_BAD_SPEC, EXIT_LOST_NEIGHBOUR, EXIT_OUT_OF_MEMORY, EXIT_WRONG_LIBTORCH, RankEvent, RankSpec,
};
use loadmaster_proto::training::TrainingSpec;

use crate::processes::{
    Ended, cpu, pipeline, positions, rank, run, small_gpt, small_vgg, solo, start, start_with, training,
    with_input,
};

/// Out of memory is data: what was asked for, what was held, where.
#[test]
fn out_of_memory_says_where_and_how_much() {
    let whole = solo(&small_vgg(), training(), positions(&[30])[0]);
    let fits = run(&whole).measurement();
    let scalars = small_vgg().parameter_count();

    // Room for the parameters and the first activations.
    let capacity = scalars * 4 + (1 << 20);
    let ended = run(&RankSpec { device: cpu(capacity), ..whole.clone() });
    assert_eq!(ended.code, Some(EXIT_OUT_OF_MEMORY), "{ended:?}");
    let Some(RankEvent::OutOfMemory { out_of_memory }) = ended.events.last() else { panic!("{ended:?}") };
    assert_eq!(out_of_memory.phase, Phase::Forward);
    assert_eq!(out_of_memory.ledger, Accounting::Allocated);
    assert_eq!(out_of_memory.allowed, Bytes(capacity));
    assert!(out_of_memory.held <= out_of_memory.allowed);
    assert!(out_of_memory.held.0 + out_of_memory.asked.0 > capacity);
    // The first convolution's output and the same again, for its ReLU or on the way there, do not fit.
    assert!(matches!(out_of_memory.layer, Some(0 | 1)), "{out_of_memory:?}");
    assert_eq!(out_of_memory.asked, Bytes(2 * 64 * 32 * 32 * 4));

    // One byte less than the peak is too little; the peak itself is enough.
    let peak = fits.peak_allocated.0;
    assert_eq!(run(&RankSpec { device: cpu(peak), ..whole.clone() }).code, Some(0));
    let ended = run(&RankSpec { device: cpu(peak - 1), ..whole });
    assert_eq!(ended.code, Some(EXIT_OUT_OF_MEMORY), "{ended:?}");
}

/// Parameters that do not fit are named by their layer.
#[test]
fn out_of_memory_while_setting_up_names_the_layer() {
    let mut spec = solo(&small_vgg(), training(), positions(&[30])[0]);
    spec.device = cpu(4 << 20);
    let ended = run(&spec);
    assert_eq!(ended.code, Some(EXIT_OUT_OF_MEMORY), "{ended:?}");
    let Some(RankEvent::OutOfMemory { out_of_memory }) = ended.events.last() else { panic!("{ended:?}") };
    // Layers up to 8 hold 3.7 MiB.
    assert_eq!((out_of_memory.phase, out_of_memory.layer), (Phase::Setup, Some(11)));
}

/// Whoever is left says so at once, and that it is not to blame.
#[test]
fn a_killed_neighbour_ends_the_others() {
    let folder = tempfile::tempdir().unwrap();
    let training = TrainingSpec { micro_batches: 64, ..training() };
    let mut specs = pipeline(&small_vgg(), training, &[10, 10, 10], folder.path());
    specs.iter_mut().for_each(|spec| spec.iterations = 1000);
    let mut children: Vec<Child> = specs.iter().map(start).collect();
    let mut middle = children.remove(1);
    let told = BufReader::new(middle.stdout.take().unwrap()).lines();
    // Once it is at a backward pass, all three are connected and at work.
    assert!(told.map_while(Result::ok).any(|line| line.contains("backward")), "it ended too early");
    middle.kill().unwrap();
    let killed = Instant::now();
    for child in children {
        let ended = Ended::of(child);
        assert_eq!(ended.code, Some(EXIT_LOST_NEIGHBOUR), "{ended:?}");
        assert!(ended.message().contains("not the cause"), "{}", ended.message());
    }
    assert!(killed.elapsed() < Duration::from_secs(10), "{:?}", killed.elapsed());
    middle.wait().unwrap();
}

/// A neighbour that never comes is waited for as long as the specification says.
#[test]
fn a_missing_neighbour_is_not_waited_for_forever() {
    let folder = tempfile::tempdir().unwrap();
    for index in [0, 1] {
        let mut spec = pipeline(&small_gpt(true), training(), &[3, 3], folder.path()).swap_remove(index);
        spec.neighbour_timeout_seconds = 0.3;
        let ended = run(&spec);
        assert_eq!(ended.code, Some(EXIT_LOST_NEIGHBOUR), "{ended:?}");
        std::fs::remove_file(folder.path().join("stage-0.sock")).ok();
    }
}

/// A wrong specification is refused, and the field is named.
#[test]
fn a_bad_specification_is_refused_by_field() {
    let good = solo(&small_gpt(false), training(), positions(&[6])[0]);
    let good = serde_json::to_value(&good).unwrap();
    let mut cases = vec![("threads", serde_json::json!(0)), ("iterations", serde_json::json!(5000))];
    cases.push(("training.micro_batch_size", serde_json::json!(0)));
    cases.push(("training.optimizer.learning_rate", serde_json::json!(-1.0)));
    cases.push(("position.stage.last_layer", serde_json::json!(6)));
    cases.push(("device.capacity", serde_json::json!(0)));
    cases.push(("training.schedule", serde_json::json!("zigzag")));
    cases.push(("neighbour_timeout_seconds", serde_json::json!("soon")));
    for (field, wrong) in cases {
        let mut bad = good.clone();
        *bad.pointer_mut(&format!("/{}", field.replace('.', "/"))).unwrap() = wrong;
        let ended = Ended::of(start_with(&bad.to_string()));
        assert_eq!(ended.code, Some(EXIT_BAD_SPEC), "{field}: {ended:?}");
        assert!(ended.message().contains(field), "{field}: {}", ended.message());
    }
    for nonsense in ["", "{", "[]", "{} {}"] {
        assert_eq!(Ended::of(start_with(nonsense)).code, Some(EXIT_BAD_SPEC), "{nonsense:?}");
    }
}

/// A connected stage must lie where its index says, or it would wait for neighbours that never come.
#[test]
fn a_connected_stage_must_lie_where_its_index_says() {
    let folder = tempfile::tempdir().unwrap();
    let good = pipeline(&small_gpt(true), training(), &[2, 2, 2], folder.path());
    for (stage, index) in [(0, 1), (1, 0), (1, 2), (2, 1)] {
        let mut bad = good[stage].clone();
        bad.position.stage_index = index;
        let ended = run(&bad);
        assert_eq!(ended.code, Some(EXIT_BAD_SPEC), "{ended:?}");
        assert!(ended.message().contains("position.stage_index"), "{}", ended.message());
    }
    let mut bad = good[0].clone();
    bad.shard = 1;
    assert!(run(&bad).message().contains("shard: 1 is out of range. Use 0 to 0"));
    let mut bad = good[0].clone();
    bad.folder = "/tmp".repeat(40).into();
    assert!(run(&bad).message().contains("folder: is too long: its socket path"));
}

/// Another libtorch than the one compiled against is refused: its objects may have another layout.
#[test]
fn another_libtorch_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (source, library) = (folder.path().join("other.c"), folder.path().join("other.so"));
    // What libtorch 2.10.1 would say.
    std::fs::write(
        &source,
        "unsigned long long aoti_torch_abi_version(void) { return 0x020A010000000000ULL; }",
    )
    .unwrap();
    let compiled = Command::new("cc").args(["-shared", "-fPIC", "-o"]).args([&library, &source]).status();
    if !compiled.is_ok_and(|status| status.success()) {
        println!("skipped: no C compiler");
        return;
    }
    let spec = solo(&small_gpt(true), training(), positions(&[6])[0]);
    let child = with_input(rank().env("LD_PRELOAD", &library), &serde_json::to_string(&spec).unwrap());
    let ended = Ended::of(child);
    assert_eq!(ended.code, Some(EXIT_WRONG_LIBTORCH), "{ended:?}");
    assert!(ended.message().contains("2.10.1") && ended.message().contains("2.11.0"), "{ended:?}");
}

/// An allocator of CUDA that does not count would make every number of the rank wrong, so it is refused
/// before anything of CUDA is needed.
#[test]
fn an_allocator_that_does_not_count_is_refused() {
    let mut spec = solo(&small_gpt(true), training(), positions(&[6])[0]);
    spec.device.backend = Backend::Cuda;
    let spec = serde_json::to_string(&spec).unwrap();
    for (name, value) in
        [("PYTORCH_NO_CUDA_MEMORY_CACHING", "1"), ("PYTORCH_ALLOC_CONF", "backend:cudaMallocAsync")]
    {
        let ended = Ended::of(with_input(rank().env(name, value), &spec));
        assert_eq!(ended.code, Some(1), "{ended:?}");
        assert!(ended.message().contains(name), "{}", ended.message());
    }
}

/// Progress never goes back, begins at setup and is there before the end.
#[test]
fn progress_is_told() {
    let mut spec = solo(&small_vgg(), training(), positions(&[30])[0]);
    spec.iterations = 10;
    let ended = run(&spec);
    let told: Vec<(f64, Phase)> = ended
        .events
        .iter()
        .filter_map(|event| match event {
            RankEvent::Progress { fraction, phase } => Some((*fraction, *phase)),
            _ => None,
        })
        .collect();
    assert_eq!(told.first(), Some(&(0.0, Phase::Setup)));
    assert!(told.is_sorted_by(|a, b| a.0 <= b.0), "{told:?}");
    assert!(told.iter().any(|&(_, phase)| phase == Phase::Backward), "{told:?}");
    ended.measurement();
}

/// A rank whose daemon is gone ends by itself instead of keeping the device busy.
#[test]
fn a_rank_that_nobody_listens_to_ends() {
    let mut spec = solo(&small_gpt(false), training(), positions(&[6])[0]);
    spec.iterations = 1000;
    spec.training.micro_batches = 1000;
    let mut child = start(&spec);
    drop(child.stdout.take());
    let begun = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if begun.elapsed() > Duration::from_secs(30) {
            child.kill().unwrap();
            panic!("it still works for nobody");
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(child.wait().unwrap().code(), Some(1));
}
