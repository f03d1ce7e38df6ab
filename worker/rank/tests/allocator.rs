//! The host allocator counts requested bytes exactly and enforces its capacity.
//!
//! These tests read counters of the whole process, so they take turns.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on must fail")]

use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use loadmaster_proto::model::zoo::{Gpt2, Zoo};
use loadmaster_proto::training::actions::{StageActions, Steps};
use loadmaster_proto::training::stage::StageConfig;
use loadmaster_proto::training::{Optimizer, Precision, RecomputePolicy, Schedule, TrainingSpec};
use loadmaster_rank::ffi::{self, Direction, Excess, Finder, Mapping, Storage, Transfer};
use loadmaster_rank::movement::Movement;
use loadmaster_rank::optimizer::Stepper;
use loadmaster_rank::pipeline::{MicroBatch, Share, Stage};
use tch::{Device, Kind, Tensor};

const FLOATS: (Kind, Device) = (Kind::Float, Device::Cpu);

fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    ffi::track_host_memory();
    ffi::set_host_capacity(u64::MAX);
    ffi::take_host_excess();
    turn
}

fn held() -> u64 {
    ffi::host_memory().allocated
}

fn peak() -> u64 {
    ffi::host_memory().allocated_peak
}

/// Requested bytes, no rounding: 4 per float, and the peak of a known sequence.
#[test]
fn bytes_are_counted_exactly() {
    let _turn = alone();
    let before = held();
    ffi::reset_host_peak();
    assert_eq!(peak(), before);
    let a = Tensor::zeros([1_000], FLOATS);
    assert_eq!(held() - before, 4_000);
    let b = Tensor::zeros([3], FLOATS);
    assert_eq!(held() - before, 4_012);
    drop(a);
    assert_eq!((held() - before, peak() - before), (12, 4_012));
    let c = &b + 1.0;
    assert_eq!((held() - before, peak() - before), (24, 4_012));
    drop((b, c));
    assert_eq!(held(), before);
    ffi::reset_host_peak();
    assert_eq!(peak(), before);
}

/// Views share memory, and an empty tensor has none.
#[test]
fn views_and_empty_tensors_cost_nothing() {
    let _turn = alone();
    let before = held();
    let whole = Tensor::zeros([10, 10], FLOATS);
    let views = (whole.get(3), whole.transpose(0, 1), whole.shallow_clone(), whole.detach());
    let empty = Tensor::zeros([0, 5], FLOATS);
    assert_eq!(held() - before, 400);
    drop((whole, empty));
    assert_eq!(held() - before, 400);
    drop(views);
    assert_eq!(held(), before);
}

/// Data is aligned as libtorch's kernels expect, whatever the size.
#[test]
fn data_is_aligned() {
    let _turn = alone();
    for elements in [1, 3, 17, 1_000, 123_457] {
        let tensor = Tensor::ones([elements], FLOATS);
        assert_eq!(tensor.data_ptr() as usize % 64, 0);
        assert_eq!(tensor.sum(Kind::Float).double_value(&[]), elements as f64);
    }
}

/// What exceeds the capacity is an error that tells asked, held and allowed; what fits still works.
#[test]
fn the_capacity_is_enforced() {
    let _turn = alone();
    let before = held();
    let kept = Tensor::zeros([100], FLOATS);
    let allowed = before + 1_000;
    ffi::set_host_capacity(allowed);
    let error = Tensor::f_zeros([151], FLOATS).unwrap_err();
    assert!(error.to_string().contains("out of memory"), "{error}");
    assert_eq!(ffi::take_host_excess(), Some(Excess { asked: 604, held: before + 400, allowed }));
    assert_eq!(ffi::take_host_excess(), None, "told once");
    assert_eq!(held(), before + 400, "a refused request holds nothing");
    let exact = Tensor::zeros([150], FLOATS);
    assert_eq!(held(), allowed);
    drop((kept, exact));
    assert_eq!(held(), before);
}

/// Threads that allocate at once lose no byte.
#[test]
fn counting_is_thread_safe() {
    let _turn = alone();
    let before = held();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for elements in 1..2_000 {
                    drop(Tensor::zeros([elements], FLOATS));
                }
            });
        }
    });
    assert_eq!(held(), before);
}

/// Absurd sizes are refused, not wrapped around.
#[test]
fn absurd_sizes_are_refused() {
    let _turn = alone();
    let before = held();
    assert!(Tensor::f_empty([i64::MAX / 8], FLOATS).is_err());
    assert_eq!(held(), before);
}

/// `StaticBytes` is what the allocator holds: parameters after setup, gradients before the step,
/// optimizer state after it. And nothing else stays behind.
#[test]
fn static_bytes_are_what_the_allocator_holds() {
    let _turn = alone();
    let model = Zoo::Gpt2(Gpt2 {
        blocks: 2,
        hidden_size: 24,
        heads: 3,
        sequence_length: 8,
        positions: 16,
        vocabulary_size: 40,
        untied_head: false,
        dropout: 0.1,
    })
    .build()
    .unwrap();
    let adam =
        Optimizer::Adam { learning_rate: 1e-3, beta1: 0.9, beta2: 0.99, epsilon: 1e-8, weight_decay: 0.1 };
    for optimizer in [adam, Optimizer::default()] {
        for precision in [Precision::Fp32, Precision::Bf16] {
            let before = held();
            let training = TrainingSpec {
                precision,
                optimizer,
                schedule: Schedule::Gpipe,
                micro_batch_size: 2,
                micro_batches: 1,
                recompute: RecomputePolicy::None,
                seed: 3,
            };
            let config = StageConfig::single(0, 4);
            let steps = Steps::of_stage(&training, &config, (0, 1), &StageActions::default(), false);
            let mut stage =
                Stage::build(&model, &Share::single(config), &training, &Movement::none(steps), Device::Cpu)
                    .unwrap();
            let scalars = model
                .stage_parameters(0, 4)
                .iter()
                .map(loadmaster_proto::model::layer::Parameter::elements)
                .sum();
            let expected = training.static_bytes(scalars);
            assert_eq!(held() - before, expected.parameters);

            let mut stepper = Stepper::new(optimizer, stage.trained().len());
            for iteration in 0..2 {
                let micro_batch = MicroBatch { iteration, index: 0, in_steps: 0 };
                stage.forward(micro_batch, None).unwrap();
                stage.backward(micro_batch, None).unwrap();
                let state = if iteration == 0 { 0 } else { expected.optimizer };
                assert_eq!(held() - before, expected.parameters + expected.gradients + state);
                stepper.step(stage.trained(), &Movement::default()).unwrap();
                assert_eq!(held() - before, expected.parameters + expected.optimizer);
            }
            drop((stage, stepper));
            assert_eq!(held(), before);
        }
    }
}

/// A storage without memory costs nothing, and with its bytes in new memory every handle and view of it is what it was;
/// what autograd saved too.
#[test]
fn a_storage_gives_its_memory_back_and_gets_new_one() {
    let _turn = alone();
    let before = held();
    let tensor = Tensor::arange(1_000, FLOATS);
    let views = [tensor.narrow(0, 10, 5), tensor.view([10, 100]).transpose(0, 1)];
    let sums = || views.each_ref().map(|view| view.sum(Kind::Double).double_value(&[]));
    let expected = sums();
    let weight = Tensor::ones([1_000], FLOATS).set_requires_grad(true);
    ffi::prepare_to_find(false).unwrap();
    let finder = Finder::begin().unwrap();
    let product = (&tensor * &weight).sum(Kind::Float);
    let found: Vec<u64> = finder.found().iter().map(Storage::id).collect();

    let storage = Storage::of(&views[0]).unwrap();
    // The weight is saved only for the gradient of the tensor, which no one wants.
    assert_eq!(found, [storage.id()]);
    let held_then = held();
    let pool = Arc::new(Mapping::made(5_000).unwrap());
    let copy = |direction| {
        let mut transfer = Transfer::new(&storage, (0, 4_000), &pool, 1_000, direction).unwrap();
        assert_eq!(transfer.advance(0, 3_000) + transfer.advance(3_000, 3_000), 4_000);
    };
    copy(Direction::Out);
    let mut memory = storage.hold().unwrap();
    memory.give_back().unwrap();
    assert_eq!((held_then - held(), memory.bytes()), (4_000, 4_000));
    let other = Tensor::ones([1_000], FLOATS);
    memory.renew().unwrap();
    drop(memory);
    copy(Direction::Back);
    assert_eq!(held(), held_then + 4_000);
    assert_eq!(sums(), expected);
    product.backward();
    assert!(weight.grad().equal(&tensor));

    assert!(Transfer::new(&storage, (1, 4_000), &pool, 0, Direction::Out).is_none(), "beyond its end");
    assert!(Transfer::new(&storage, (0, 4_000), &pool, 1_001, Direction::Out).is_none(), "beyond the pool's");
    drop((tensor, views, weight, product, other));
    assert!(storage.hold().is_none(), "nobody has it any more");
    assert_eq!(held(), before);
}

/// Whoever touches what is away ends with a signal, wherever in it: nothing reads what was there before.
#[test]
fn a_touch_of_what_is_away_ends_the_process() {
    const TOUCH: &str = "LOADMASTER_TEST_TOUCH";
    if let Ok(element) = std::env::var(TOUCH) {
        let _turn = alone();
        let tensor = Tensor::ones([1_000_000], FLOATS);
        Storage::of(&tensor).unwrap().hold().unwrap().give_back().unwrap();
        println!("read {}", tensor.double_value(&[element.parse().unwrap()]));
        return;
    }
    for element in ["0", "999999"] {
        let ended = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "a_touch_of_what_is_away_ends_the_process", "--nocapture"])
            .env(TOUCH, element)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&ended.stdout);
        assert!(ended.status.signal().is_some() && !said.contains("read"), "{element}: {ended:?}");
    }
}
