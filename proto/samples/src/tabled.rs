//! A model that no one measured: its layers are a table, by what is known of transformers.

use loadmaster_proto::model::Model;
use loadmaster_proto::model::zoo::{Gpt2, Zoo};
use loadmaster_proto::profile::document::{FORMAT, ProfileDocument};
use serde_json::{Value, json};

/// A GPT-2 with heads of 128 numbers, in bf16, four sequences of 1,024 tokens in a pass. What its layers keep is the closed form of
/// Korthikanti et al. (2022), passes hold nothing besides, and of a block's parameters the maps count.
#[derive(Debug, Clone, Copy)]
pub struct TabledGpt2 {
    /// The hidden size.
    pub hidden: u64,
    /// How many blocks there are.
    pub blocks: u64,
}

impl TabledGpt2 {
    /// Sequences of a pass.
    pub const SAMPLES: u32 = 4;
    /// Tokens of each.
    const SEQUENCE: u64 = 1024;
    const TOKENS: u64 = Self::SEQUENCE * Self::SAMPLES as u64;
    /// Numbers of shards that there are rows for.
    const DEGREES: [u64; 2] = [1, 4];

    /// The model.
    pub fn model(&self) -> Model {
        let (blocks, hidden_size) = (self.blocks.cast_signed(), self.hidden.cast_signed());
        let tokens = Self::SEQUENCE.cast_signed();
        let heads = hidden_size / 128;
        let zoo = Gpt2 {
            blocks,
            hidden_size,
            heads,
            sequence_length: tokens,
            positions: tokens,
            ..Gpt2::default()
        };
        Zoo::Gpt2(zoo).build().unwrap()
    }

    /// Bytes of what a block keeps: 34·s·b·h + 5·a·s²·b.
    pub fn kept(&self) -> u64 {
        let heads = self.hidden / 128;
        34 * Self::TOKENS * self.hidden + 5 * heads * Self::SEQUENCE * Self::TOKENS
    }

    /// Bytes of a block's parameters, and of its gradients: 24·h².
    pub fn parameters(&self) -> u64 {
        24 * self.hidden * self.hidden
    }

    /// Bytes between two layers: 2·s·b·h.
    pub fn edge(&self) -> u64 {
        2 * Self::TOKENS * self.hidden
    }

    /// A profile of that table alone.
    pub fn document(&self) -> ProfileDocument {
        let (edge, last) = (self.edge(), self.blocks);
        let vocabulary = Gpt2::default().vocabulary_size.cast_unsigned();
        let table = 2 * vocabulary * self.hidden;
        // Logits are fp32.
        let logits = 4 * Self::TOKENS * vocabulary;
        let groups = [
            rows((0, 0), [table, edge / 2, 0, edge]),
            rows((1, last), [self.parameters(), self.kept(), edge, edge]),
            rows((last + 1, last + 1), [4 * self.hidden, edge, edge, edge]),
            rows((last + 2, last + 2), [table, edge + logits, edge, 0]),
        ];
        let document = json!({
            "format": FORMAT,
            "provenance": {
                "source": "Korthikanti et al., 2022", "tool": "closed form", "device_kind": "cpu", "ledger": "allocated",
            },
            "model": {"known": self.model()},
            "layer_table": {"margin": 0.0, "times_without_collectives": false, "layers": groups},
        });
        ProfileDocument::parse(&document.to_string()).unwrap()
    }
}

/// Of these layers parameters, what they keep, and what enters and leaves them.
fn rows((first, last): (u64, u64), [parameters, kept, input, output]: [u64; 4]) -> Value {
    let bytes = TabledGpt2::DEGREES.map(|degree| {
        json!({
            "micro_batch_size": TabledGpt2::SAMPLES, "tensor_degree": degree, "parameter_bytes": parameters / degree,
            "activation_bytes": kept / degree, "transient_bytes": 0, "input_bytes": input, "output_bytes": output,
        })
    });
    let times = TabledGpt2::DEGREES.map(|degree| {
        json!({
            "micro_batch_size": TabledGpt2::SAMPLES, "tensor_degree": degree, "forward_seconds": 0.05,
            "backward_seconds": 0.1,
        })
    });
    json!({"first_layer": first, "last_layer": last, "bytes": bytes, "times": times})
}
