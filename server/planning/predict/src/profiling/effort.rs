//! How long runs will take, from how long others took.
//!
//! A run starts, which takes about as long whatever it trains, and then computes iterations. What those compute is counted
//! in multiplications of a forward pass, roughly: a weight is multiplied once at each position of the layer's output (a token,
//! a pixel). How many a second a kind of device does is what earlier runs of any model did.

use loadmaster_proto::measure::run::Work;
use loadmaster_proto::model::Model;
use loadmaster_proto::model::layer::{LayerKind, elements};
use loadmaster_proto::training::TrainingSpec;

/// An element of an output that no weight makes takes as long as so many multiplications: it goes through memory.
const MULTIPLICATIONS_OF_AN_ELEMENT: f64 = 16.0;
/// Iterations of a run besides those that are measured: it warms up, and times its layers.
const OTHER_ITERATIONS: u32 = 2;

/// A run that ended.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ended {
    /// Of each of its devices in an iteration: [`LayerWork::multiplications`].
    pub multiplications: f64,
    /// Measured iterations.
    pub iterations: u32,
    /// Seconds of one of them.
    pub iteration_seconds: f64,
    /// How long it held each of its devices, seconds.
    pub held_seconds: f64,
}

/// How fast runs are on a kind of device.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pace {
    /// Seconds before and after a run's iterations.
    start_seconds: f64,
    multiplications_per_second: f64,
}

impl Pace {
    /// Of runs that ended; none of none.
    pub fn of(ended: &[Ended]) -> Option<Self> {
        let (mut started, mut computed, mut multiplied, mut runs) = (0.0, 0.0, 0.0, 0.0);
        for run in ended.iter().filter(|run| run.multiplications > 0.0 && run.iteration_seconds > 0.0) {
            let iterations = iterations(run.iterations);
            started += (run.held_seconds - iterations * run.iteration_seconds).max(0.0);
            computed += run.iteration_seconds;
            multiplied += run.multiplications;
            runs += 1.0;
        }
        let pace = Self { start_seconds: started / runs, multiplications_per_second: multiplied / computed };
        (pace.start_seconds.is_finite() && pace.multiplications_per_second.is_finite()).then_some(pace)
    }

    /// How long a run holds each of its devices, seconds.
    pub fn held_seconds(&self, multiplications: f64, measured_iterations: u32) -> f64 {
        let computed = multiplications / self.multiplications_per_second;
        self.start_seconds + iterations(measured_iterations) * computed
    }
}

fn iterations(measured: u32) -> f64 {
    f64::from(measured.saturating_add(OTHER_ITERATIONS))
}

/// Multiplications of the forward pass of one sample, by layer: a profiling of a long model has as many runs as
/// layers, and each asks for those of its stages.
#[derive(Debug)]
pub struct LayerWork {
    /// Of all layers before each, and of all: one entry more than layers.
    before: Vec<f64>,
}

impl LayerWork {
    /// Those of a model.
    pub fn of(model: &Model) -> Self {
        let mut before = vec![0.0];
        let mut sum = 0.0;
        before.extend((0..model.layers().len()).map(|layer| {
            sum += of_sample(model, layer);
            sum
        }));
        Self { before }
    }

    /// Multiplications of the forward passes of an iteration, on each device of a run.
    pub fn multiplications(&self, training: &TrainingSpec, work: &Work) -> f64 {
        let before = |layer: usize| self.before.get(layer).copied().unwrap_or_default();
        let (mut all, mut devices) = (0.0, 0);
        for stage in work.positions().into_iter().map(|position| position.stage) {
            all += (before(stage.last_layer + 1) - before(stage.first_layer)).max(0.0);
            devices += stage.devices();
        }
        let samples = f64::from(training.micro_batch_size) * f64::from(training.micro_batches);
        all * samples / f64::from(devices.max(1))
    }
}

/// Of one sample in one layer.
fn of_sample(model: &Model, layer: usize) -> f64 {
    let outputs = model.edge(layer + 1);
    let written: u64 = outputs.iter().map(|shape| elements(shape)).fold(0, u64::saturating_add);
    let positions = outputs.first().map_or(1, |shape| match shape.as_slice() {
        [_channels, height, width] => height.saturating_mul(*width),
        [tokens, _features] => *tokens,
        _ => 1,
    });
    let weights = match model.layers().get(layer).map(|layer| &layer.kind) {
        // Its rows are looked up, not multiplied.
        None | Some(LayerKind::TokenEmbedding(_)) => 0,
        Some(kind) => kind.parameter_count(),
    };
    weights as f64 * positions as f64 + written as f64 * MULTIPLICATIONS_OF_AN_ELEMENT
}

#[cfg(test)]
mod tests {
    use loadmaster_proto::measure::run::SoloStage;
    use loadmaster_proto::model::zoo::{Gpt2, Zoo};
    use loadmaster_proto::training::Schedule;
    use loadmaster_proto::training::stage::StageConfig;
    use proptest::prelude::*;

    use super::*;
    use crate::tests::training;

    fn gpt2(hidden_size: i64) -> Model {
        Zoo::Gpt2(Gpt2 { blocks: 2, hidden_size, ..Gpt2::default() }).build().unwrap()
    }

    fn alone(layer: usize, data_degree: u32) -> Work {
        let stage = StageConfig { data_degree, ..StageConfig::single(layer, layer) };
        Work::Solo(SoloStage { stage, stage_count: 3, stage_index: 1 })
    }

    /// Four times the weights of a block are four times the work, nearly; twice the samples are twice; two replicas halve it.
    #[test]
    fn work_grows_with_the_model_and_the_batch() {
        let training = training(Schedule::Gpipe, 4, 2);
        let of = |hidden, data_degree| {
            LayerWork::of(&gpt2(hidden)).multiplications(&training, &alone(1, data_degree))
        };
        let ratio = of(3_072, 1) / of(1_536, 1);
        assert!((3.9..4.0).contains(&ratio), "{ratio}");
        assert_eq!(of(1_536, 1), 2.0 * of(1_536, 2));
        let twice =
            LayerWork::of(&gpt2(1_536)).multiplications(&training.with_micro_batch_size(8), &alone(1, 1));
        assert_eq!(twice, 2.0 * of(1_536, 1));
        // A block of 768: 12 · 768² weights and some, at each of 1,024 tokens, for 8 samples.
        let block = 8.0 * 1_024.0 * 12.0 * 768.0 * 768.0;
        assert!((1.0..1.02).contains(&(of(768, 1) / block)), "{}", of(768, 1) / block);
    }

    #[test]
    fn nothing_is_known_without_a_run_that_was_timed() {
        let untimed =
            Ended { multiplications: 1.0, iterations: 1, iteration_seconds: 0.0, held_seconds: 1.0 };
        assert_eq!((Pace::of(&[]), Pace::of(&[untimed])), (None, None));
    }

    proptest! {
        /// Whatever start and speed runs have in common, from any of them the others are known.
        #[test]
        fn runs_of_one_pace_tell_how_long_others_take(
            start in 0.0..20.0_f64, speed in 1e6..1e12_f64,
            runs in prop::collection::vec((1.0..1e12_f64, 1_u32..20), 1..6), other in (1.0..1e12_f64, 1_u32..20),
        ) {
            let held = |(work, count): (f64, u32)| start + f64::from(count + OTHER_ITERATIONS) * work / speed;
            let ended: Vec<Ended> = runs.iter().map(|&(work, iterations)| Ended {
                multiplications: work,
                iterations,
                iteration_seconds: work / speed,
                held_seconds: held((work, iterations)),
            }).collect();
            let told = Pace::of(&ended).unwrap().held_seconds(other.0, other.1);
            prop_assert!((told / held(other) - 1.0).abs() < 1e-6, "{told} {}", held(other));
        }
    }
}
