//! The optimizer step on the host: one pass over a chunk beside the step tensor by tensor, and beside a copy of memory.
//!
//! Every line is Adam on the same number of parameters in the same run. Bytes of a copy are those read and those written, as
//! bytes of the step are.

use std::hint::black_box;
use std::time::Instant;

use loadmaster_proto::training::Optimizer;
use loadmaster_rank::layers::Trained;
use loadmaster_rank::movement::Movement;
use loadmaster_rank::movement::chunks::host_step::HostStep;
use loadmaster_rank::movement::chunks::lists::{Bf16, Instructions, Lists, Scalar};
use loadmaster_rank::optimizer::Stepper;
use tch::{Device, Kind, Tensor};

/// More than any cache holds of five lists. No power of two: lists that far apart keep each other waiting in banks of memory, as those
/// of a chunk, which lie one behind the other, do not.
const PARAMETERS: usize = 65_000_000;
const REPEATS: usize = 5;
const ADAM: Optimizer =
    Optimizer::Adam { learning_rate: 1e-3, beta1: 0.9, beta2: 0.999, epsilon: 1e-8, weight_decay: 0.0 };

fn main() {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    println!(
        "Adam on {} million parameters, median of {REPEATS} steps; GB/s are read and written",
        PARAMETERS / 1_000_000
    );
    println!("{:<34}{:>10}{:>14}{:>8}{:>9}", "", "s", "parameters/s", "GB/s", "ratio");
    for threads in [1, cores] {
        let bytes = 28 * PARAMETERS;
        let (from, mut to) = (vec![1_u8; bytes / 2], vec![0_u8; bytes / 2]);
        let copy = median(|| copy(&from, &mut to, threads));
        drop((from, to));
        line(&format!("copy of memory, {threads} threads"), copy, bytes, None);
        for (name, kind, bytes) in [("bf16", Kind::BFloat16, bytes), ("fp32", Kind::Float, 32 * PARAMETERS)] {
            let tensors = tensor_wise(kind, threads);
            line(&format!("{name} tensor by tensor, {threads} threads"), tensors, bytes, None);
            for (instructions, of) in [(Instructions::Avx2, "AVX2"), (Instructions::Widest, "widest")] {
                let seconds = match kind {
                    Kind::BFloat16 => one_pass::<Bf16>(instructions, threads),
                    _ => one_pass::<f32>(instructions, threads),
                };
                line(&format!("{name} one pass, {of}, {threads} threads"), seconds, bytes, Some(tensors));
            }
        }
    }
}

fn line(name: &str, seconds: f64, bytes: usize, beside: Option<f64>) {
    let ratio = beside.map_or_else(String::new, |beside| format!("{:.1}×", beside / seconds));
    let rate = PARAMETERS as f64 / seconds;
    println!("{name:<34}{seconds:>10.4}{rate:>14.3e}{:>8.1}{ratio:>9}", bytes as f64 / seconds / 1e9);
}

fn median(mut work: impl FnMut()) -> f64 {
    work();
    middle((0..REPEATS).map(|_| {
        let start = Instant::now();
        work();
        start.elapsed().as_secs_f64()
    }))
}

fn middle(seconds: impl Iterator<Item = f64>) -> f64 {
    let mut seconds: Vec<f64> = seconds.collect();
    seconds.sort_by(f64::total_cmp);
    seconds[seconds.len() / 2]
}

fn copy(from: &[u8], to: &mut [u8], threads: usize) {
    let each = from.len().div_ceil(threads);
    std::thread::scope(|scope| {
        for (from, to) in from.chunks(each).zip(to.chunks_mut(each)) {
            scope.spawn(move || to.copy_from_slice(from));
        }
    });
    black_box(to);
}

fn one_pass<L: Scalar>(instructions: Instructions, threads: usize) -> f64 {
    let list = |value: f32| vec![value; PARAMETERS];
    let (mut weights, mut first, mut second) = (list(0.5), list(0.0), list(0.0));
    let mut parameters = vec![L::round(0.25); PARAMETERS];
    let mut steps = 0;
    median(|| {
        steps += 1;
        // The parameters of the step before are the gradients of this one: numbers like any other.
        let lists = Lists {
            parameters: &mut parameters,
            weights: &mut weights,
            first: &mut first,
            second: &mut second,
        };
        lists.step(&HostStep::new(ADAM, steps), instructions, threads);
    })
}

/// The step of today's training, in seconds without those of the backward pass that makes its gradients.
fn tensor_wise(kind: Kind, threads: usize) -> f64 {
    tch::set_num_threads(threads as i32);
    let weights = Tensor::full([PARAMETERS as i64], 0.5, (Kind::Float, Device::Cpu));
    let is_master = kind == Kind::Float;
    let value = weights.to_kind(kind).set_requires_grad(true);
    let master = (!is_master).then(|| weights.shallow_clone());
    let trained = [Trained { layer: 0, name: "weight", value, master, main: None }];
    let mut stepper = Stepper::new(ADAM, 1);
    let mut step = || {
        (&trained[0].value * 0.25).sum(Kind::Float).backward();
        let start = Instant::now();
        stepper.step(&trained, &Movement::default()).unwrap_or_else(|error| panic!("{error}"));
        start.elapsed().as_secs_f64()
    };
    step();
    middle((0..REPEATS).map(|_| step()))
}
