//! Attention: queries, keys and values, scaled dot products, and the map of what they mix.

use loadmaster_proto::model::layer::TransformerBlock;
use tch::{TchError, Tensor};

use super::affine::{Affine, Role};
use super::dropout;
use super::norm::Norm;
use super::parameters::Parts;
use crate::error::RankError;
use crate::random;

/// The tensors of attention. Everything is computed per head, so a shard with some of the heads computes
/// as the whole does.
#[derive(Debug)]
pub(super) struct Attention {
    projection: Projection,
    /// Of queries and of keys.
    norms: Option<[Norm; 2]>,
    rotary: Option<Rotary>,
    out: Affine,
    head_size: i64,
    dropout: f64,
    weights_dropout: f64,
    is_causal: bool,
}

/// Where queries, keys and values come from.
#[derive(Debug)]
enum Projection {
    /// One map, whose outputs are query heads, key heads and value heads in these proportions.
    Fused { map: Affine, heads: [i64; 3] },
    /// A map each.
    Separate([Affine; 3]),
}

/// Tables of rotary positions, tokens × half a head.
#[derive(Debug)]
struct Rotary {
    cosine: Tensor,
    sine: Tensor,
}

impl Attention {
    pub(super) fn new(kind: &TransformerBlock, parts: &mut Parts) -> Result<Self, RankError> {
        let projection = if kind.has_fused_qkv() {
            let map = parts.affine(Role::Column, kind.qkv_bias)?;
            Projection::Fused { map, heads: [kind.heads, kind.key_value_heads(), kind.key_value_heads()] }
        } else {
            let mut map = || parts.affine(Role::Column, kind.qkv_bias);
            Projection::Separate([map()?, map()?, map()?])
        };
        let norms = if kind.query_key_norm {
            Some([parts.rms_norm(kind.epsilon)?, parts.rms_norm(kind.epsilon)?])
        } else {
            None
        };
        let rotary = if kind.rotary_base.is_some() {
            Some(Rotary { cosine: parts.buffer()?, sine: parts.buffer()? })
        } else {
            None
        };
        Ok(Self {
            projection,
            norms,
            rotary,
            out: parts.affine(Role::Row, kind.attention_out_bias)?,
            head_size: kind.head_size(),
            dropout: kind.dropout,
            weights_dropout: kind.attention_dropout(),
            is_causal: !kind.bidirectional,
        })
    }

    /// From samples × tokens × hidden to the same. Takes the input, so that it lives no longer than needed.
    pub(super) fn forward(&self, input: Tensor) -> Result<Tensor, RankError> {
        let [query, key, value] = self.project(input)?;
        let is_grouped = key.size() != query.size();
        let attend = || {
            Tensor::f_scaled_dot_product_attention(
                &query,
                &key,
                &value,
                None::<&Tensor>,
                self.weights_dropout,
                self.is_causal,
                None,
                is_grouped,
            )
        };
        let mixed = match &self.out.split {
            // Each shard drops of its own heads.
            Some(split) if self.weights_dropout > 0.0 => random::apart(split.group.own(), attend)?,
            _ => attend()?,
        };
        drop((query, key, value));
        let joined = mixed.f_transpose(1, 2)?.f_flatten(2, 3)?;
        drop(mixed);
        let output = self.out.forward(&joined)?;
        drop(joined);
        dropout(output, self.dropout)
    }

    /// Queries, keys and values: samples × heads × tokens × size of a head.
    fn project(&self, input: Tensor) -> Result<[Tensor; 3], RankError> {
        let projected = match &self.projection {
            Projection::Fused { map, heads } => {
                let all = map.forward(&map.enter(input)?)?;
                // Of all heads, or of a shard's share of each kind.
                let outputs = all.size().last().copied().unwrap_or_default();
                let total = heads.iter().sum::<i64>().max(1);
                let parts = all.f_split_with_sizes(heads.map(|heads| heads * outputs / total), -1)?;
                <[Tensor; 3]>::try_from(parts)
                    .map_err(|_| TchError::Shape("attention needs queries, keys and values".to_owned()))?
            }
            Projection::Separate([query, key, value]) => {
                let input = query.enter(input)?;
                let value = value.forward(&input)?;
                let query = self.placed(self.by_head(&query.forward(&input)?)?, 0)?;
                let key = self.placed(self.by_head(&key.forward(&input)?)?, 1)?;
                drop(input);
                return Ok([query, key, self.by_head(&value)?.f_transpose(1, 2)?]);
            }
        };
        let [query, key, value] = projected;
        let split = |part: Tensor| Ok::<_, RankError>(self.by_head(&part)?.f_transpose(1, 2)?);
        Ok([split(query)?, split(key)?, split(value)?])
    }

    /// From samples × tokens × scalars to samples × tokens × heads × size of a head.
    fn by_head(&self, part: &Tensor) -> Result<Tensor, RankError> {
        Ok(part.f_unflatten(-1, [-1, self.head_size])?)
    }

    /// Queries (0) or keys (1) normalised and turned to their positions, with the heads in front.
    fn placed(&self, mut part: Tensor, which: usize) -> Result<Tensor, RankError> {
        if let Some(norm) = self.norms.as_ref().and_then(|norms| norms.get(which)) {
            part = match &self.out.split {
                Some(split) => norm.shared_by(&split.group)?.forward(&part)?,
                None => norm.forward(&part)?,
            };
        }
        if let Some(rotary) = &self.rotary {
            part = rotary.turn(part)?;
        }
        Ok(part.f_transpose(1, 2)?)
    }
}

impl Rotary {
    /// Turns the pairs (k, k + half) of every head by the angles of its position. Of samples × tokens ×
    /// heads × size of a head.
    fn turn(&self, part: Tensor) -> Result<Tensor, RankError> {
        let halves = part.f_chunk(2, -1)?;
        drop(part);
        let [left, right] = halves.as_slice() else {
            return Err(TchError::Shape("rotary embeddings need two halves".to_owned()).into());
        };
        // One angle per position and pair, the same for all heads.
        let (cosine, sine) = (self.cosine.f_unsqueeze(1)?, self.sine.f_unsqueeze(1)?);
        let mut turned_left = left.f_mul(&cosine)?;
        drop(turned_left.f_sub_(&right.f_mul(&sine)?)?);
        let mut turned_right = right.f_mul(&cosine)?;
        drop(turned_right.f_add_(&left.f_mul(&sine)?)?);
        drop(halves);
        Ok(Tensor::f_cat(&[turned_left, turned_right], -1)?)
    }
}
