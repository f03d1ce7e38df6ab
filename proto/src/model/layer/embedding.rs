//! The embedding of tokens.

use serde::{Deserialize, Serialize};

use super::checks::{epsilon, share, size};
use super::parameters::{GPT_INIT, Init, Parameter, parameter};
use super::{MAX_EXTENT, Shape, is_default};
use crate::error::{Invalid, in_range};

/// Token embedding, plus learned positions and token types where there are any, summed; perhaps
/// normalised; then dropout. In training every token is of type 0.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenEmbedding {
    /// Rows of the token table.
    pub vocabulary_size: i64,
    /// Rows of the position table; 0 where positions enter elsewhere (rotary models).
    pub positions: i64,
    /// Columns of all tables.
    pub hidden_size: i64,
    /// Dropout at the end.
    pub dropout: f64,
    /// Rows of the token type table; 0 for none.
    #[serde(default, skip_serializing_if = "is_default")]
    pub token_types: i64,
    /// Epsilon of a layer normalisation after the sum, where there is one (BERT).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub norm_epsilon: Option<f64>,
}

impl TokenEmbedding {
    /// Tokens and learned positions alone, as GPT-2 has them.
    pub fn gpt2(vocabulary_size: i64, positions: i64, hidden_size: i64, dropout: f64) -> Self {
        Self { vocabulary_size, positions, hidden_size, dropout, token_types: 0, norm_epsilon: None }
    }

    pub(super) fn check(&self) -> Result<(), Invalid> {
        size("vocabulary_size", self.vocabulary_size)?;
        in_range("positions", self.positions, 0..=MAX_EXTENT)?;
        size("hidden_size", self.hidden_size)?;
        share("dropout", self.dropout)?;
        in_range("token_types", self.token_types, 0..=MAX_EXTENT)?;
        self.norm_epsilon.map_or(Ok(()), |value| epsilon("norm_epsilon", value))
    }

    pub(super) fn output_shape(&self, input: &[i64]) -> Result<Shape, String> {
        match *input {
            [length] if self.positions == 0 || length <= self.positions => Ok(vec![length, self.hidden_size]),
            [_] => Err(format!("at most {} tokens", self.positions)),
            _ => Err("a sequence of tokens".to_owned()),
        }
    }

    /// The token table comes first: a tied head shares it.
    pub(super) fn parameters(&self) -> Vec<Parameter> {
        let mut parameters = vec![parameter("token", &[self.vocabulary_size, self.hidden_size], GPT_INIT)];
        for (name, rows) in [("position", self.positions), ("token_type", self.token_types)] {
            if rows > 0 {
                parameters.push(parameter(name, &[rows, self.hidden_size], GPT_INIT));
            }
        }
        if self.norm_epsilon.is_some() {
            parameters.push(parameter("norm.weight", &[self.hidden_size], Init::Ones));
            parameters.push(parameter("norm.bias", &[self.hidden_size], Init::Zeros));
        }
        parameters
    }
}
