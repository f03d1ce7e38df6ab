//! Making a stage from its specification.

use std::collections::HashMap;

use loadmaster_proto::model::Model;
use loadmaster_proto::run::Phase;
use loadmaster_proto::stage::StageConfig;
use loadmaster_proto::training::TrainingSpec;
use tch::{Device, Tensor};

use super::segment::Segment;
use super::stage::Stage;
use crate::data::Data;
use crate::error::RankError;
use crate::layers::{Layer, ParameterMaker, Trained};
use crate::progress;
use crate::timing::{Clock, Times};

impl Stage {
    /// Makes the layers `config` of `model` with their parameters at their start.
    ///
    /// # Errors
    /// Out of memory, for one.
    pub fn build(
        model: &Model,
        config: &StageConfig,
        training: &TrainingSpec,
        device: Device,
        clock: Clock,
    ) -> Result<Self, RankError> {
        let maker = ParameterMaker { device, precision: training.precision, seed: training.seed };
        let mut layers = Vec::with_capacity(config.layer_count());
        let mut trained: Vec<Trained> = Vec::new();
        for (index, layer) in model.layers().iter().enumerate().take(config.last_layer + 1) {
            if index < config.first_layer {
                continue;
            }
            progress::enter(Phase::Setup, Some(index));
            let from = trained.len();
            for (position, parameter) in layer.kind.parameters().iter().enumerate() {
                trained.push(maker.make(index, position, parameter)?);
            }
            let mut tensors: Vec<Tensor> =
                trained.iter().skip(from).map(|own| own.value.shallow_clone()).collect();
            if let Some(shared) = layer.kind.shared_parameter() {
                let embedding = trained.iter().find(|own| own.layer == 0 && own.name == TOKEN.1);
                match embedding {
                    Some(embedding) => tensors.push(embedding.value.shallow_clone()),
                    None => {
                        // A copy that starts as the embedding does, in another stage.
                        let mut copy = maker.make(0, TOKEN.0, &shared)?;
                        copy.layer = index;
                        tensors.push(copy.value.shallow_clone());
                        trained.push(copy);
                    }
                }
            }
            layers.push(Layer::new(index, layer.kind, tensors)?);
        }
        Ok(Self {
            layers,
            trained,
            segments: Segment::of(config, training.recompute),
            data: Data::new(model, training, device),
            times: Times::new(clock, config.first_layer, config.layer_count()),
            loss_edge: model.layers().len(),
            micro_batches: training.micro_batches,
            seed: training.seed,
            in_flight: HashMap::new(),
        })
    }

    /// The tensor whose gradient first and last stage add up: the end of a tied pair whose other end
    /// is in another stage.
    pub fn half_of_tied_pair(&self, model: &Model) -> Option<&Trained> {
        if !model.has_tied_head() || self.is_first() == self.is_last() {
            return None;
        }
        if self.is_first() {
            self.trained.iter().find(|own| own.layer == 0 && own.name == TOKEN.1)
        } else {
            self.trained.iter().find(|own| own.layer + 1 == model.layers().len())
        }
    }
}

/// Position and name of the shared tensor among the token embedding's parameters.
const TOKEN: (usize, &str) = (0, "token");
