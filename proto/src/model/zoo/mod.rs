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
