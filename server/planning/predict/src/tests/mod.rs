//! What the tests of planning share: samples, and a memory oracle for VGG11.

use loadmaster_proto::measure::run::ProfilingMode;
use loadmaster_proto::model::Model;
use loadmaster_proto::model::layer::elements;
use loadmaster_proto::model::zoo::{Gpt2, Vgg, Zoo};
use loadmaster_proto::profile::ProfileSettings;
use loadmaster_proto::training::Schedule;
pub(crate) use loadmaster_samples::{measurement, settings, training};

use crate::capture::metrics::StagePeak;
use crate::profiling::neighbours::Neighbours;
use crate::profiling::runs::scenarios;

pub(crate) fn gpt2(blocks: i64) -> Model {
    Zoo::Gpt2(Gpt2 { blocks, ..Gpt2::default() }).build().unwrap()
}

pub(crate) fn vgg11() -> Model {
    Zoo::Vgg11(Vgg::default()).build().unwrap()
}

/// What `loadmaster profile run` asks for with these devices and nothing else.
pub(crate) fn ordered(profiling_mode: ProfilingMode, model: &Model, devices: u32) -> ProfileSettings {
    let training = training(Schedule::Gpipe, 16, 4);
    let scenarios = scenarios(profiling_mode, &[], &[], (model, &training, Some(devices)));
    ProfileSettings {
        scenarios,
        micro_batch_sizes: vec![4, 8],
        ..settings(profiling_mode, training, Some(devices))
    }
}

/// How the working set of a stage is made up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WorkingSet {
    /// `max_k 2·(in_k + out_k)`: nothing is retained.
    Max,
    /// `max_k (Σ_{j ≤ k} out_j + in_k + out_k)`: all outputs are retained.
    Sum,
}

/// True peaks of every stage of VGG11 at 224×224: `12·parameters + in flight·in_a + working set`,
/// with the bytes of one micro-batch in fp32. A stand-in for a device that never errs.
#[derive(Debug)]
pub(super) struct Oracle {
    working_set: WorkingSet,
    model: Model,
}

impl Oracle {
    pub(super) fn new(working_set: WorkingSet) -> Self {
        Self { working_set, model: vgg11() }
    }

    pub(super) fn names(&self) -> Vec<String> {
        self.model.layers().iter().map(|layer| layer.name.clone()).collect()
    }

    pub(super) fn layers(&self) -> usize {
        self.model.layers().len()
    }

    pub(super) fn peak(&self, first: usize, last: usize, micro_batch_size: u32, in_flight: u32) -> u64 {
        let edge = |edge: usize| {
            4 * u64::from(micro_batch_size)
                * self.model.edge(edge).iter().map(|shape| elements(shape)).sum::<u64>()
        };
        let layers = &self.model.layers()[first..=last];
        let parameters: u64 = layers.iter().map(|layer| layer.kind.parameter_count()).sum();
        let mut retained = 0;
        let working_set = (first..=last).map(|layer| {
            let (input, output) = (edge(layer), edge(layer + 1));
            retained += output;
            match self.working_set {
                WorkingSet::Max => 2 * (input + output),
                WorkingSet::Sum => retained + input + output,
            }
        });
        12 * parameters + u64::from(in_flight) * edge(first) + working_set.max().unwrap()
    }

    /// A measurement without error.
    pub(super) fn measure(
        &self,
        first: usize,
        last: usize,
        micro_batch_size: u32,
        in_flight: u32,
    ) -> StagePeak {
        let peak = self.peak(first, last, micro_batch_size, in_flight);
        StagePeak::new(first, last, micro_batch_size, in_flight, peak)
    }

    /// All stages that a neighbour rule needs, measured.
    pub(super) fn profile(
        &self,
        neighbours: &Neighbours,
        micro_batch_size: u32,
        in_flight: u32,
    ) -> Vec<StagePeak> {
        (0..self.layers())
            .map(|layer| (layer, layer))
            .chain(neighbours.stages())
            .map(|(first, last)| self.measure(first, last, micro_batch_size, in_flight))
            .collect()
    }
}
