//! Samples and targets, made when a pass needs them and the same in every partitioning.

use loadmaster_proto::model::{Model, ModelInput};
use loadmaster_proto::training::TrainingSpec;
use tch::{Device, Kind, TchError, Tensor};

use crate::layers::{copy_of, kind};
use crate::random::Purpose;

/// Makes the data of a training run.
#[derive(Debug, Clone)]
pub struct Data {
    input: ModelInput,
    output: Vec<i64>,
    samples: i64,
    seed: u64,
    kind: Kind,
    device: Device,
}

impl Data {
    /// Data for this model and training on a device.
    pub fn new(model: &Model, training: &TrainingSpec, device: Device) -> Self {
        Self {
            input: model.input(),
            output: model.edge(model.layers().len()).first().cloned().unwrap_or_default(),
            samples: training.micro_batch_size.into(),
            seed: training.seed,
            kind: kind(training.precision),
            device,
        }
    }

    /// What enters the first layer.
    ///
    /// # Errors
    /// Out of memory, for one.
    pub fn samples(&self, iteration: u32, micro_batch: u32) -> Result<Tensor, TchError> {
        match self.input {
            ModelInput::Image { channels, height, width } => {
                Purpose::Data { iteration, micro_batch }.set(self.seed);
                Tensor::f_randn([self.samples, channels, height, width], (self.kind, self.device))
            }
            ModelInput::Tokens { sequence_length, .. } => {
                // A batch of its own, as a data loader hands it over.
                copy_of(&self.tokens(iteration, micro_batch)?.f_narrow(1, 0, sequence_length)?)
            }
        }
    }

    /// What the last layer's output is compared with: a class per position of that output.
    ///
    /// # Errors
    /// Out of memory, for one.
    pub fn targets(&self, iteration: u32, micro_batch: u32) -> Result<Tensor, TchError> {
        let (classes, positions) =
            self.output.split_last().map_or((1, &[][..]), |(&last, rest)| (last, rest));
        match self.input {
            // The next token of each, where there is an output per token.
            ModelInput::Tokens { sequence_length, vocabulary_size }
                if positions == [sequence_length] && vocabulary_size <= classes =>
            {
                copy_of(&self.tokens(iteration, micro_batch)?.f_narrow(1, 1, sequence_length)?)
            }
            _ => {
                Purpose::Targets { iteration, micro_batch }.set(self.seed);
                let shape: Vec<i64> =
                    std::iter::once(self.samples).chain(positions.iter().copied()).collect();
                Tensor::f_randint(classes, shape, (Kind::Int64, self.device))
            }
        }
    }

    /// Where it is made.
    pub fn device(&self) -> Device {
        self.device
    }

    fn tokens(&self, iteration: u32, micro_batch: u32) -> Result<Tensor, TchError> {
        let ModelInput::Tokens { sequence_length, vocabulary_size } = self.input else {
            return Err(TchError::Shape("the model does not take tokens".to_owned()));
        };
        Purpose::Data { iteration, micro_batch }.set(self.seed);
        Tensor::f_randint(vocabulary_size, [self.samples, sequence_length + 1], (Kind::Int64, self.device))
    }
}
