//! What a model's own description sets and no layer here computes with: values depend on it, memory and time do not.
//!
//! A planner that left it out would have its exports train another model than the one that was described, so the model keeps it:
//! exports set it, or name it where their framework cannot.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::error::Invalid;
use crate::message;
use crate::wire::v1;

/// Standard deviation of fresh parameters where a model has none of its own, in Transformers as in Megatron.
pub const USUAL_INITIALIZER_RANGE: f64 = 0.02;

/// Most factors of a list: one for each pair of columns of a head.
const MAX_FACTORS: usize = 65_536;

/// Types of rotary scaling that change angles alone, with their parameters besides lists of factors.
pub const ROTARY_SCALINGS: [(&str, &[&str]); 5] = [
    ("linear", &["factor"]),
    ("dynamic", &["factor", "original_max_position_embeddings"]),
    (
        "yarn",
        &[
            "factor",
            "original_max_position_embeddings",
            "attention_factor",
            "beta_fast",
            "beta_slow",
            "mscale",
            "mscale_all_dim",
            "truncate",
        ],
    ),
    ("longrope", &["factor", "original_max_position_embeddings", "attention_factor"]),
    ("llama3", &["factor", "original_max_position_embeddings", "low_freq_factor", "high_freq_factor"]),
];

/// Settings of a model that change values alone.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Numerics {
    /// How the angles of rotary positions are scaled; none where they are not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rotary_scaling: Option<RotaryScaling>,
    /// Standard deviation of fresh parameters; none where it is [`USUAL_INITIALIZER_RANGE`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initializer_range: Option<f64>,
}

/// How the angles of rotary positions are scaled, in the words of Hugging Face Transformers.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RotaryScaling {
    /// One of [`ROTARY_SCALINGS`].
    pub kind: String,
    /// Its parameters; a switch is 0 or 1.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, f64>,
    /// Factors of `longrope`, one for each pair of columns of a head.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub short_factor: Vec<f64>,
    /// The same for sequences beyond the original length.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub long_factor: Vec<f64>,
}

impl Numerics {
    /// Whether everything is as usual.
    pub fn is_usual(&self) -> bool {
        *self == Self::default()
    }

    /// These, checked.
    ///
    /// # Errors
    /// Names what is out of range, or no parameter of its kind of scaling.
    pub fn checked(self) -> Result<Self, Invalid> {
        if let Some(scaling) = &self.rotary_scaling {
            scaling.check().map_err(|invalid| invalid.under("rotary_scaling"))?;
        }
        if let Some(range) = self.initializer_range.filter(|range| !range.is_finite() || *range < 0.0) {
            return Err(invalid!("initializer_range", "{range} is not valid. Use 0 or more"));
        }
        Ok(Self {
            initializer_range: self.initializer_range.filter(|&range| range != USUAL_INITIALIZER_RANGE),
            ..self
        })
    }
}

impl RotaryScaling {
    /// A parameter, where it is given.
    pub fn parameter(&self, name: &str) -> Option<f64> {
        self.parameters.get(name).copied()
    }

    fn check(&self) -> Result<(), Invalid> {
        let Some((_, known)) = ROTARY_SCALINGS.iter().find(|(kind, _)| *kind == self.kind) else {
            let kinds: Vec<&str> = ROTARY_SCALINGS.iter().map(|(kind, _)| *kind).collect();
            return Err(invalid!("kind", "{:?} is not valid. Use {}", self.kind, kinds.join(", ")));
        };
        if let Some(name) = self.parameters.keys().find(|name| !known.contains(&name.as_str())) {
            return Err(invalid!("parameters", "has {name:?}, but {} has {}", self.kind, known.join(", ")));
        }
        let factors = || self.short_factor.iter().chain(&self.long_factor);
        if self.short_factor.len().max(self.long_factor.len()) > MAX_FACTORS
            || self.kind != "longrope" && factors().next().is_some()
        {
            return Err(invalid!(
                "short_factor",
                "is not valid. Set short_factor and long_factor only for longrope, with at most {MAX_FACTORS} values \
                 each"
            ));
        }
        match self.parameters.values().chain(factors()).find(|value| !value.is_finite()) {
            Some(value) => Err(invalid!("parameters", "contain {value}. Use finite numbers")),
            None => Ok(()),
        }
    }
}

/// The kind with its parameters: `llama3 (factor 8, …)`.
impl fmt::Display for RotaryScaling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut words: Vec<String> =
            self.parameters.iter().map(|(name, value)| format!("{name} {value}")).collect();
        for (name, factors) in [("short_factor", &self.short_factor), ("long_factor", &self.long_factor)] {
            if !factors.is_empty() {
                words.push(format!("{name} of {} numbers", factors.len()));
            }
        }
        write!(f, "{}", self.kind)?;
        if words.is_empty() { Ok(()) } else { write!(f, " ({})", words.join(", ")) }
    }
}

message! { Numerics <=> v1::ModelNumerics }

impl From<&Numerics> for v1::ModelNumerics {
    fn from(numerics: &Numerics) -> Self {
        let scaling = numerics.rotary_scaling.as_ref().map(|of| v1::RotaryScaling {
            kind: of.kind.clone(),
            parameters: of.parameters.iter().map(|(name, &value)| (name.clone(), value)).collect(),
            short_factor: of.short_factor.clone(),
            long_factor: of.long_factor.clone(),
        });
        Self { rotary_scaling: scaling, initializer_range: numerics.initializer_range }
    }
}

impl TryFrom<v1::ModelNumerics> for Numerics {
    type Error = Invalid;

    fn try_from(wire: v1::ModelNumerics) -> Result<Self, Invalid> {
        let rotary_scaling = wire.rotary_scaling.map(|of| RotaryScaling {
            kind: of.kind,
            parameters: of.parameters.into_iter().collect(),
            short_factor: of.short_factor,
            long_factor: of.long_factor,
        });
        Self { rotary_scaling, initializer_range: wire.initializer_range }.checked()
    }
}
