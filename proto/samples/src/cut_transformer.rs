//! Plans of transformers that are described in a few words.

use loadmaster_proto::model::Model;
use loadmaster_proto::model::import::{HuggingFaceConfig, ModelSource};
use loadmaster_proto::model::zoo::{Gpt2, Llama, Zoo};
use loadmaster_proto::name::{ModelName, ProfileName};
use loadmaster_proto::plan::{PlacedDevice, Plan, PlanStage};
use loadmaster_proto::training::actions::{Form, StageActions};
use loadmaster_proto::training::sharding::StateSharding;
use loadmaster_proto::training::stage::StageConfig;
use loadmaster_proto::training::{Optimizer, Precision, RecomputePolicy, Schedule, TrainingSpec};
use serde::{Deserialize, Serialize};

/// A plan whose first stage has the embedding and whose last has the final norm and the head.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CutTransformer {
    /// What is cut.
    pub model: DescribedTransformer,
    /// Blocks of each stage.
    pub stages: Vec<usize>,
    /// How many of them each device has interleaved.
    #[serde(default = "one")]
    pub virtual_stages: u32,
    /// Shards of each replica.
    pub tensor: Degrees,
    /// Replicas of each stage.
    pub data: Degrees,
    /// The shards of a replica divide activations along the sequence.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sequence_parallel: bool,
    /// States that the replicas of a stage divide.
    #[serde(default, skip_serializing_if = "StateSharding::is_none")]
    pub sharding: StateSharding,
    /// Nodes, which have names where there are several.
    pub nodes: u32,
    /// Devices of each.
    pub devices_per_node: u32,
    /// Samples on each replica of the first stage.
    pub micro_batch: u32,
    /// Stage passes of an iteration.
    pub micro_batches: u32,
    /// `1F1B`, `GPipe` or `PipeDream`.
    pub schedule: String,
    /// `fp32`, `bf16` with gradients that are added up in fp32, or `bf16-gradients` with gradients in bf16.
    pub precision: String,
    /// `none`, `layer` or `stage`; or by memory optimizations `first 2 blocks` of every stage, or `2 blocks at once`.
    pub recompute: String,
}

/// The optimizer of plans whose replicas divide its states.
const ADAMW: Optimizer =
    Optimizer::AdamW { learning_rate: 1e-3, beta1: 0.9, beta2: 0.95, epsilon: 1e-8, weight_decay: 0.1 };

/// Degrees of the stages.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Degrees {
    /// The same for every stage.
    All(u32),
    /// One for each.
    Each(Vec<u32>),
}

impl Degrees {
    /// That of a stage.
    ///
    /// # Panics
    /// There is no such stage.
    pub fn of(&self, stage: usize) -> u32 {
        match self {
            Self::All(degree) => *degree,
            Self::Each(degrees) => degrees[stage],
        }
    }
}

impl From<u32> for Degrees {
    fn from(degree: u32) -> Self {
        Self::All(degree)
    }
}

/// A transformer of the zoo, or one that Hugging Face describes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DescribedTransformer {
    /// `gpt2` or `llama`; or of a Hugging Face configuration `qwen2` or `qwen3`.
    pub family: String,
    /// Transformer blocks.
    pub blocks: i64,
    /// Hidden size.
    pub hidden: i64,
    /// Attention heads.
    pub heads: i64,
    /// Size of a head, of Qwen3.
    #[serde(default)]
    pub head_size: i64,
    /// Heads of keys and values, of all but GPT-2.
    #[serde(default)]
    pub key_value_heads: i64,
    /// Width of the MLP, of all but GPT-2.
    #[serde(default)]
    pub feed_forward: i64,
    /// Tokens of a sample.
    pub sequence: i64,
    /// Learned positions, of GPT-2.
    #[serde(default)]
    pub positions: i64,
    /// Rows of the token table.
    pub vocabulary: i64,
    /// Base of the rotary positions, of all but GPT-2.
    #[serde(default)]
    pub rotary_base: i64,
    /// The head's weight is the embedding's.
    pub tied: bool,
    /// Dropout everywhere.
    pub dropout: f64,
}

impl DescribedTransformer {
    /// A GPT-2 of so many blocks, as small as all frameworks take it.
    pub fn small_gpt2(blocks: i64) -> Self {
        Self {
            family: "gpt2".to_owned(),
            blocks,
            hidden: 24,
            heads: 12,
            head_size: 0,
            key_value_heads: 0,
            feed_forward: 0,
            sequence: 16,
            positions: 16,
            vocabulary: 100,
            rotary_base: 0,
            tied: true,
            dropout: 0.0,
        }
    }

    /// What its users have of it: a `config.json`.
    fn hugging_face(&self) -> ModelSource {
        let mut config = serde_json::json!({
            "model_type": self.family,
            "num_hidden_layers": self.blocks,
            "hidden_size": self.hidden,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.key_value_heads,
            "intermediate_size": self.feed_forward,
            "hidden_act": "silu",
            "max_position_embeddings": self.sequence,
            "rms_norm_eps": 1e-6,
            "rope_theta": self.rotary_base,
            "tie_word_embeddings": self.tied,
            "vocab_size": self.vocabulary,
        });
        if self.head_size > 0 {
            config["head_dim"] = self.head_size.into();
        }
        ModelSource::HuggingFace(HuggingFaceConfig { config: config.to_string(), ..Default::default() })
    }
}

impl CutTransformer {
    /// A small GPT-2 with so many blocks in each stage.
    pub fn small_gpt2(stages: Vec<usize>, tensor: Degrees, data: Degrees) -> Self {
        Self {
            model: DescribedTransformer::small_gpt2(stages.iter().sum::<usize>() as i64),
            stages,
            virtual_stages: 1,
            tensor,
            data,
            sequence_parallel: false,
            sharding: StateSharding::None,
            nodes: 1,
            devices_per_node: 64,
            micro_batch: 12,
            micro_batches: 4,
            schedule: "1F1B".to_owned(),
            precision: "bf16".to_owned(),
            recompute: "none".to_owned(),
        }
    }

    /// The model.
    ///
    /// # Panics
    /// It cannot be built.
    pub fn model(&self) -> Model {
        let of = &self.model;
        let source = match of.family.as_str() {
            "gpt2" => ModelSource::Zoo(Zoo::Gpt2(Gpt2 {
                blocks: of.blocks,
                hidden_size: of.hidden,
                heads: of.heads,
                sequence_length: of.sequence,
                positions: of.positions,
                vocabulary_size: of.vocabulary,
                untied_head: !of.tied,
                dropout: of.dropout,
            })),
            "llama" => ModelSource::Zoo(Zoo::Llama(Llama {
                blocks: of.blocks,
                hidden_size: of.hidden,
                heads: of.heads,
                key_value_heads: of.key_value_heads,
                feed_forward_size: of.feed_forward,
                sequence_length: of.sequence,
                vocabulary_size: of.vocabulary,
                rotary_base: of.rotary_base as f64,
                tied_head: of.tied,
            })),
            "qwen2" | "qwen3" => of.hugging_face(),
            family => panic!("no family {family}"),
        };
        source.build().unwrap()
    }

    /// The plan, whose bytes and seconds say nothing.
    ///
    /// # Panics
    /// The model cannot be built.
    pub fn plan(&self) -> Plan {
        let (recompute, counted) = match self.recompute.as_str() {
            "none" => (RecomputePolicy::None, None),
            "layer" | "full" => (RecomputePolicy::Layer, None),
            "stage" => (RecomputePolicy::Stage, None),
            other => (RecomputePolicy::None, Some(form(other))),
        };
        let schedule = match self.schedule.as_str() {
            "GPipe" => Schedule::Gpipe,
            "PipeDream" => Schedule::PipeDream,
            _ => Schedule::OneFOneB,
        };
        let precision = match self.precision.as_str() {
            "fp32" => Precision::Fp32,
            "bf16" => Precision::Bf16Fp32Gradients,
            "bf16-gradients" => Precision::Bf16,
            other => panic!("no precision {other}"),
        };
        let model = self.model();
        let layers = model.layers().len();
        let mut first = 0;
        let count = self.stages.len();
        let positions = count / self.virtual_stages.max(1) as usize;
        // Stages that follow the last device are on the first one's once more.
        let firsts: Vec<u32> = (0..positions)
            .scan(0, |next, index| {
                let devices = self.data.of(index) * self.tensor.of(index);
                Some(std::mem::replace(next, *next + devices))
            })
            .collect();
        let stage = |(index, blocks): (usize, &usize)| {
            let last = if index + 1 == count { layers - 1 } else { first + blocks - usize::from(index > 0) };
            let config = StageConfig {
                data_degree: self.data.of(index),
                tensor_degree: self.tensor.of(index),
                sequence_parallel: self.sequence_parallel,
                sharding: self.sharding,
                ..StageConfig::single(first, last)
            };
            first = last + 1;
            let devices = (0..config.devices()).map(|at| {
                let device = firsts[index % positions] + at;
                let (node, index) = (device / self.devices_per_node, device % self.devices_per_node);
                let node = if self.nodes > 1 { format!("node{node}") } else { String::new() };
                PlacedDevice {
                    node,
                    index,
                    kind: "gpu".to_owned(),
                    capacity: 1 << 34,
                    ..PlacedDevice::default()
                }
            });
            PlanStage {
                capacity: 1 << 34,
                predicted_peak: 1 << 30,
                in_flight: if self.virtual_stages > 1 {
                    in_turn(positions, self.virtual_stages as usize, index, self.micro_batches as usize)
                } else {
                    schedule.in_flight(
                        u32::try_from(count).unwrap(),
                        u32::try_from(index).unwrap(),
                        self.micro_batches,
                    )
                },
                recompute,
                devices: devices.collect(),
                actions: counted.map_or_else(StageActions::default, |form| {
                    StageActions::recomputing(&form.runs(&model, config.layers()))
                }),
                ..crate::plan_stage(config)
            }
        };
        let stages = self.stages.iter().enumerate().map(stage).collect();
        Plan {
            profile: ProfileName::from_id("golden").unwrap(),
            virtual_stages: self.virtual_stages,
            model: ModelName::from_id("golden").unwrap(),
            training: TrainingSpec {
                precision,
                // Frameworks shard the states of Adam alone.
                optimizer: match self.sharding {
                    StateSharding::None => Optimizer::default(),
                    StateSharding::Optimizer => ADAMW,
                },
                schedule,
                micro_batch_size: self.micro_batch * self.data.of(0),
                micro_batches: self.micro_batches,
                recompute,
                seed: 0,
            },
            device_kind: "gpu".to_owned(),
            solver: "given".to_owned(),
            ..crate::plan(stages)
        }
    }
}

fn one() -> u32 {
    1
}

/// The most micro-batches of a stage between forward and backward pass under Megatron's interleaved 1F1B: its device goes through as
/// many micro-batches as there are devices with one of its `each` stages before the next, and begins with so many forward passes.
fn in_turn(devices: usize, each: usize, stage: usize, micro_batches: usize) -> u32 {
    let (own, device) = (stage / devices, stage % devices);
    let passes = micro_batches * each;
    let warm_up = (2 * (devices - device - 1) + (each - 1) * devices).min(passes);
    let turn = |pass: usize| pass / devices % each;
    let open = |done: usize| {
        let forward = (0..(done + warm_up + 1).min(passes)).filter(|&pass| turn(pass) == own).count();
        let backward = (0..done).filter(|&pass| each - 1 - turn(pass) == own).count();
        forward - backward
    };
    let most = (0..passes).map(open).max().unwrap_or(0);
    u32::try_from(most).unwrap_or(u32::MAX)
}

/// What a text says of the blocks that are recomputed.
fn form(text: &str) -> Form {
    let number = |text: &str| text.parse().unwrap_or_else(|_| panic!("no recomputation {text}"));
    match (text.strip_prefix("first "), text.strip_suffix(" blocks at once")) {
        (Some(first), _) => Form::FirstBlocks(number(first.trim_end_matches(" blocks"))),
        (None, Some(at_once)) => Form::BlocksAtOnce(number(at_once)),
        (None, None) => panic!("no recomputation {text}"),
    }
}
