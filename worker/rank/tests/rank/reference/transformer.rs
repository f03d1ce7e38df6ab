//! The transformer block by its definition: scores, a softmax, sums.

use loadmaster_proto::model::layer::{Activation, NormKind, NormPosition, Perceptron, TransformerBlock};
use tch::{Device, Kind, Tensor};

use super::layers::{Named, affine, layer_norm, rms_norm};

pub(super) fn forward(block: TransformerBlock, w: &Named<'_>, input: &Tensor) -> Tensor {
    let norm = |name: &str, x: &Tensor| match block.norm {
        NormKind::LayerNorm => layer_norm(w, name, block.epsilon, x),
        NormKind::RmsNorm => rms_norm(&w[format!("{name}weight").as_str()], block.epsilon, x),
    };
    match block.norm_position {
        NormPosition::Pre => {
            let hidden = input + attention(block, w, &norm("norm1.", input));
            let inner = norm("norm2.", &hidden);
            hidden + perceptron(block, w, &inner)
        }
        NormPosition::Post => {
            let hidden = norm("norm1.", &(input + attention(block, w, input)));
            norm("norm2.", &(&hidden + perceptron(block, w, &hidden)))
        }
    }
}

fn attention(block: TransformerBlock, w: &Named<'_>, x: &Tensor) -> Tensor {
    let [samples, tokens] = [x.size()[0], x.size()[1]];
    let (size, heads, groups) = (block.head_size(), block.heads, block.key_value_heads());
    let (q, k, v) = if block.has_fused_qkv() {
        let all = affine(w, "attention.qkv.", x);
        let (queries, keys) = (heads * size, groups * size);
        (all.narrow(2, 0, queries), all.narrow(2, queries, keys), all.narrow(2, queries + keys, keys))
    } else {
        (affine(w, "attention.query.", x), affine(w, "attention.key.", x), affine(w, "attention.value.", x))
    };
    let by_head = |part: Tensor, heads: i64| part.reshape([samples, tokens, heads, size]).transpose(1, 2);
    let (mut q, mut k, mut v) = (by_head(q, heads), by_head(k, groups), by_head(v, groups));
    if block.query_key_norm {
        q = rms_norm(&w["attention.query_norm.weight"], block.epsilon, &q);
        k = rms_norm(&w["attention.key_norm.weight"], block.epsilon, &k);
    }
    if let Some(base) = block.rotary_base {
        q = turned(&q, base);
        k = turned(&k, base);
    }
    // Every group of query heads has a copy of its keys and values.
    k = k.repeat_interleave_self_int(heads / groups, 1, None);
    v = v.repeat_interleave_self_int(heads / groups, 1, None);
    let mut scores = q.matmul(&k.transpose(-2, -1)) / (size as f64).sqrt();
    if !block.bidirectional {
        let future = Tensor::ones([tokens, tokens], (Kind::Bool, Device::Cpu)).triu(1);
        scores = scores.masked_fill(&future, f64::NEG_INFINITY);
    }
    let mixed = scores.softmax(-1, None).dropout(block.attention_dropout(), true).matmul(&v);
    let joined = mixed.transpose(1, 2).reshape([samples, tokens, heads * size]);
    affine(w, "attention.out.", &joined).dropout(block.dropout, true)
}

/// x · cos + `rotate_half(x)` · sin, as Hugging Face has it, with angles made number by number.
fn turned(x: &Tensor, base: f64) -> Tensor {
    let (tokens, size) = (x.size()[2], x.size()[3]);
    let angle = |token: i64, column: i64| {
        let pair = column % (size / 2);
        token as f64 / base.powf(2.0 * pair as f64 / size as f64)
    };
    let table = |function: fn(f64) -> f64| {
        let values: Vec<f64> = (0..tokens)
            .flat_map(|token| (0..size).map(move |column| (token, column)))
            .map(|(token, column)| function(angle(token, column)))
            .collect();
        Tensor::from_slice(&values).reshape([tokens, size]).to_kind(x.kind())
    };
    let rotated = Tensor::cat(&[-x.narrow(3, size / 2, size / 2), x.narrow(3, 0, size / 2)], 3);
    x * table(f64::cos) + rotated * table(f64::sin)
}

fn perceptron(block: TransformerBlock, w: &Named<'_>, x: &Tensor) -> Tensor {
    let activate = |x: &Tensor| match block.activation {
        Activation::GeluTanh => x.gelu("tanh"),
        Activation::Gelu => x * 0.5 * ((x / std::f64::consts::SQRT_2).erf() + 1.0),
        Activation::Silu => x * x.sigmoid(),
        Activation::Relu => x.clamp_min(0.0),
    };
    let inner = affine(w, "mlp.in.", x);
    let active = match block.perceptron {
        Perceptron::TwoLayer => activate(&inner),
        Perceptron::Gated => activate(&affine(w, "mlp.gate.", x)) * inner,
    };
    affine(w, "mlp.out.", &active).dropout(block.dropout, true)
}
