//! Making a rank's share of its stage from the specification.

use std::collections::HashMap;
use std::rc::Rc;

use loadmaster_proto::measure::failure::Phase;
use loadmaster_proto::model::Model;
use loadmaster_proto::training::TrainingSpec;
use loadmaster_proto::training::shard::Shard;
use loadmaster_proto::training::stage::StageConfig;
use tch::{Device, Tensor};

use super::segment::Segment;
use super::stage::Stage;
use super::version::{LayerFrame, Version};
use crate::collective::divided::Division;
use crate::collective::{Group, Groups};
use crate::data::Data;
use crate::error::RankError;
use crate::layers::{ParameterMaker, Trained};
use crate::movement::Movement;
use crate::progress;
use crate::timing::Times;

impl Stage {
    /// Makes a rank's share of the layers of a stage of `model`, with their parameters at their start, to be trained in
    /// the steps of this movement.
    ///
    /// # Errors
    /// Out of memory, for one.
    pub fn build(
        model: &Model,
        share: &Share,
        training: &TrainingSpec,
        movement: &Movement,
        device: Device,
    ) -> Result<Self, RankError> {
        let (config, shard) = (share.config, share.tensor_shard());
        let (precision, seed, updated) = (training.precision, training.seed, share.updated());
        let maker = ParameterMaker { device, precision, seed, updated };
        let mut frames = Vec::with_capacity(config.layer_count());
        let mut layers = Vec::with_capacity(config.layer_count());
        let mut trained: Vec<Trained> = Vec::new();
        for (index, layer) in model.layers().iter().enumerate().take(config.last_layer + 1) {
            if index < config.first_layer {
                continue;
            }
            progress::enter(Phase::Setup, Some(index));
            let from = trained.len();
            for (position, parameter) in layer.kind.shard_parameters(shard).iter().enumerate() {
                trained.push(match &mut movement.lock().chunks {
                    Some(chunks) => chunks.make(&maker, (index, position), parameter)?,
                    None => maker.make_shard(index, position, parameter)?,
                });
            }
            let mut parameters: Vec<Tensor> =
                trained.iter().skip(from).map(|own| own.value.shallow_clone()).collect();
            if let Some(shared) = layer.kind.shard_shared_parameter(shard) {
                let embedding = trained.iter().find(|own| own.layer == 0 && own.name == TOKEN.1);
                match embedding {
                    Some(embedding) => parameters.push(embedding.shared()?),
                    None => {
                        // A copy that starts as the embedding does, in another stage.
                        let mut copy = maker.make_shard(0, TOKEN.0, &shared)?;
                        copy.layer = index;
                        parameters.push(copy.value.shallow_clone());
                        trained.push(copy);
                    }
                }
            }
            let buffers = model.buffers(index);
            let buffers: Vec<Tensor> =
                buffers.iter().map(|buffer| maker.buffer(buffer)).collect::<Result<_, _>>()?;
            movement.lock().actions.made(index, trained.get(from..).unwrap_or_default(), &buffers)?;
            let frame = LayerFrame {
                index,
                kind: layer.kind,
                buffers,
                shards: share.shards().cloned(),
                feeds_loss: index + 1 == model.layers().len(),
                movement: movement.clone(),
            };
            layers.push(frame.layer(parameters)?);
            frames.push(frame);
        }
        // Where every micro-batch is an update, it is the whole of what a loss is the mean over.
        let summed = if training.schedule.updates_always() { 1 } else { training.micro_batches };
        Ok(Self {
            frames,
            newest: Rc::new(Version { layers, trained }),
            gone_back: None,
            slots: Segment::of_slots(movement.steps()),
            data: Data::new(model, training, device)
                .of_samples(config.samples_of(share.shard, training.micro_batch_size)),
            times: Times::new(config.first_layer, config.layer_count()),
            loss_edge: model.layers().len(),
            loss_parts: f64::from(summed) * f64::from(config.data_degree),
            replica: share.replica(),
            seed: training.seed,
            in_flight: HashMap::new(),
            movement: movement.clone(),
        })
    }

    /// The tensor whose gradient first and last stage add up: the end of a tied pair whose other end
    /// is in another stage.
    pub fn half_of_tied_pair(&self, model: &Model) -> Option<&Trained> {
        if !model.has_tied_head() || self.is_first() == self.is_last() {
            return None;
        }
        if self.is_first() {
            self.trained().iter().find(|own| own.layer == 0 && own.name == TOKEN.1)
        } else {
            self.trained().iter().find(|own| own.layer + 1 == model.layers().len())
        }
    }
}

/// Position and name of the shared tensor among the token embedding's parameters.
const TOKEN: (usize, &str) = (0, "token");

/// A rank's share of its stage.
#[derive(Debug, Clone)]
pub struct Share {
    /// The stage.
    pub config: StageConfig,
    /// Which device of the stage.
    pub shard: u32,
    /// The ranks that it shares its work with.
    pub groups: Groups,
}

impl Share {
    /// The only rank of a stage.
    pub fn single(config: StageConfig) -> Self {
        Self { config, shard: 0, groups: Groups::default() }
    }

    /// The replica of the stage that this rank is, or is a shard of.
    pub fn replica(&self) -> u32 {
        self.config.replica(self.shard)
    }

    /// The shard of the stage's tensors that this rank holds.
    pub fn tensor_shard(&self) -> Shard {
        self.config.shard(self.shard)
    }

    /// The part of each of its tensors that this rank updates.
    pub fn updated(&self) -> Shard {
        self.config.updated(self.shard)
    }

    /// The replicas with which this rank divides states; none where it does not.
    pub(crate) fn division(&self, training: &TrainingSpec) -> Option<Division> {
        let replicas = self.replicas().filter(|_| self.updated() != Shard::WHOLE)?.clone();
        Some(Division { replicas, gradient_bytes: training.precision.gradient_bytes() })
    }

    /// The ranks that hold the same tensors in the other replicas, where there are any.
    pub fn replicas(&self) -> Option<&Group> {
        self.groups.replicas.as_ref()
    }

    /// The ranks that hold the other shards of this replica, where there are any.
    pub fn shards(&self) -> Option<&Group> {
        self.groups.shards.as_ref()
    }
}
