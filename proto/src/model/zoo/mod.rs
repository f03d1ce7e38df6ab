//! Models that Loadmaster knows by name.

mod amoebanet;
pub(crate) mod bert;
mod gpt2;
pub(crate) mod llama;
pub(crate) mod transformer;
mod transgan;
mod vgg;
mod wire;

#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

pub use amoebanet::AmoebaNet;
pub use bert::Bert;
pub use gpt2::Gpt2;
pub use llama::Llama;
pub use transgan::TransGan;
pub use vgg::Vgg;

use crate::error::Invalid;
use crate::model::Model;

/// Names of all families, as users write them.
pub const FAMILIES: [&str; 6] = ["vgg11", "gpt2", "bert", "llama", "amoebanet_d", "transgan"];

/// A family with its hyper-parameters.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "family", rename_all = "lowercase")]
pub enum Zoo {
    /// See [`Vgg`].
    Vgg11(Vgg),
    /// See [`Gpt2`].
    Gpt2(Gpt2),
    /// See [`Bert`].
    Bert(Bert),
    /// See [`Llama`].
    Llama(Llama),
    /// See [`AmoebaNet`].
    #[serde(rename = "amoebanet_d")]
    AmoebaNetD(AmoebaNet),
    /// See [`TransGan`].
    TransGan(TransGan),
}

impl Zoo {
    /// The family's name.
    pub fn family(&self) -> &'static str {
        match self {
            Self::Vgg11(_) => "vgg11",
            Self::Gpt2(_) => "gpt2",
            Self::Bert(_) => "bert",
            Self::Llama(_) => "llama",
            Self::AmoebaNetD(_) => "amoebanet_d",
            Self::TransGan(_) => "transgan",
        }
    }

    /// The same with another value of a parameter that counts something, such as `blocks`.
    ///
    /// ```
    /// use loadmaster_proto::model::zoo::{Gpt2, Zoo};
    ///
    /// let larger = Zoo::Gpt2(Gpt2::default()).with("blocks", 96)?;
    /// assert_eq!(larger, Zoo::Gpt2(Gpt2 { blocks: 96, ..Gpt2::default() }));
    /// # Ok::<(), loadmaster_proto::error::Invalid>(())
    /// ```
    ///
    /// # Errors
    /// The family has no such parameter; says which ones it has.
    pub fn with(&self, parameter: &str, value: u64) -> Result<Self, Invalid> {
        let unreadable = |error: serde_json::Error| Invalid::field("parameter", error.to_string());
        let mut fields = serde_json::to_value(self).map_err(unreadable)?;
        let Some(all) = fields.as_object_mut() else {
            return Err(Invalid::field("parameter", "is of a family without any"));
        };
        match all.get_mut(parameter) {
            Some(field) if field.is_u64() || field.is_i64() => *field = value.into(),
            _ => {
                let counts: Vec<&str> = all
                    .iter()
                    .filter(|(_, value)| value.is_u64() || value.is_i64())
                    .map(|(name, _)| name.as_str())
                    .collect();
                let why =
                    format!("is {parameter:?}, {} has the parameters {}", self.family(), counts.join(", "));
                return Err(Invalid::field("parameter", why));
            }
        }
        serde_json::from_value(fields).map_err(unreadable)
    }

    /// Builds the model.
    ///
    /// # Errors
    /// When a hyper-parameter is out of range; the violation names it.
    pub fn build(&self) -> Result<Model, Invalid> {
        match self {
            Self::Vgg11(options) => vgg::build(options),
            Self::Gpt2(options) => gpt2::build(options),
            Self::Bert(options) => bert::build(options),
            Self::Llama(options) => llama::build(options),
            Self::AmoebaNetD(options) => amoebanet::build(options),
            Self::TransGan(options) => transgan::build(options),
        }
    }
}

fn share(field: &str, value: f64) -> Result<(), Invalid> {
    if (0.0..1.0).contains(&value) {
        Ok(())
    } else {
        Err(Invalid::field(field, format!("is {value}, must be 0 to below 1")))
    }
}
