//! Samples and targets, made when a pass needs them and the same in every partitioning.

use std::ops::Range;

use loadmaster_proto::model::{Loss, Model, ModelInput};
use loadmaster_proto::training::TrainingSpec;
use tch::{Device, Kind, TchError, Tensor};

use crate::random::Purpose;
use crate::tensor::{copy_of, kind};

/// Makes the data of a training run.
#[derive(Debug, Clone)]
pub struct Data {
    input: ModelInput,
    loss: Loss,
    output: Vec<i64>,
    samples: Range<i64>,
    seed: u64,
    kind: Kind,
    device: Device,
}

impl Data {
    /// Data for this model and training on a device.
    pub fn new(model: &Model, training: &TrainingSpec, device: Device) -> Self {
        Self {
            input: model.input(),
            loss: model.loss(),
            output: model.edge(model.layers().len()).first().cloned().unwrap_or_default(),
            samples: 0..training.micro_batch_size.into(),
            seed: training.seed,
            kind: kind(training.precision),
            device,
        }
    }

    /// The same data, but of these samples of each micro-batch alone: what a replica works on.
    #[must_use]
    pub fn of_samples(self, samples: Range<i64>) -> Self {
        Self { samples, ..self }
    }

    /// What enters the first layer.
    ///
    /// # Errors
    /// Out of memory, for one.
    pub fn samples(&self, iteration: u32, micro_batch: u32) -> Result<Tensor, TchError> {
        match self.input {
            ModelInput::Image { channels, height, width } => {
                self.normal(&[channels, height, width], |sample| Purpose::Data {
                    iteration,
                    micro_batch,
                    sample,
                })
            }
            ModelInput::Vector { size } => {
                self.normal(&[size], |sample| Purpose::Data { iteration, micro_batch, sample })
            }
            ModelInput::Tokens { sequence_length, .. } => {
                // A batch of its own, as a data loader hands it over.
                copy_of(&self.tokens(iteration, micro_batch)?.f_narrow(1, 0, sequence_length)?)
            }
        }
    }

    /// What training makes small.
    pub fn loss(&self) -> Loss {
        self.loss
    }

    /// What the last layer's output is compared with: a class per position of that output, or, where there
    /// are no classes, a value per value of it.
    ///
    /// # Errors
    /// Out of memory, for one.
    pub fn targets(&self, iteration: u32, micro_batch: u32) -> Result<Tensor, TchError> {
        if self.loss == Loss::MeanSquare {
            return self.normal(&self.output, |sample| Purpose::Targets { iteration, micro_batch, sample });
        }
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
                let shape: Vec<i64> =
                    std::iter::once(self.count()).chain(positions.iter().copied()).collect();
                let targets = Tensor::f_empty(shape, (Kind::Int64, self.device))?;
                self.draw(
                    targets,
                    |sample| Purpose::Targets { iteration, micro_batch, sample },
                    |row| row.f_random_to_(classes),
                )
            }
        }
    }

    /// Where it is made.
    pub fn device(&self) -> Device {
        self.device
    }

    fn tokens(&self, iteration: u32, micro_batch: u32) -> Result<Tensor, TchError> {
        let ModelInput::Tokens { sequence_length, vocabulary_size } = self.input else {
            return Err(TchError::Shape("the model has no token input".to_owned()));
        };
        let shape = [self.count(), sequence_length + 1];
        let tokens = Tensor::f_empty(shape, (Kind::Int64, self.device))?;
        self.draw(
            tokens,
            |sample| Purpose::Data { iteration, micro_batch, sample },
            |row| row.f_random_to_(vocabulary_size),
        )
    }

    /// Normally distributed values of this shape per sample.
    fn normal(&self, shape: &[i64], purpose: impl Fn(u32) -> Purpose) -> Result<Tensor, TchError> {
        let shape: Vec<i64> = std::iter::once(self.count()).chain(shape.iter().copied()).collect();
        let values = Tensor::f_empty(shape, (self.kind, self.device))?;
        self.draw(values, purpose, |row| row.f_normal_(0.0, 1.0))
    }

    /// Samples that are made.
    fn count(&self) -> i64 {
        self.samples.end - self.samples.start
    }

    /// Draws each sample from a seed of its own, so that it is the same whoever makes it.
    fn draw(
        &self,
        samples: Tensor,
        purpose: impl Fn(u32) -> Purpose,
        draw: impl Fn(&mut Tensor) -> Result<Tensor, TchError>,
    ) -> Result<Tensor, TchError> {
        for (row, sample) in (0..self.count()).zip(self.samples.clone()) {
            purpose(u32::try_from(sample).unwrap_or(u32::MAX)).set(self.seed);
            drop(draw(&mut samples.f_select(0, row)?)?);
        }
        Ok(samples)
    }
}
