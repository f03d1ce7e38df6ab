//! What stages cost a search: bytes and seconds.
//!
//! | module | question |
//! |---|---|
//! | `market` | what do searches ask about the stages of a model? |
//! | `predicted` | how do predictors answer it, one for each kind of device? |
//! | `corrected` | what are the answers multiplied with? |
//! | `pricing` | what does any stage cost at one micro-batch size? |
//! | `known` | what was it asked before? |
//! | `sums` | what do layers cost together, in constant time? |
//! | `rows` | how many bytes do the stages that begin with a layer take? |
//! | `stage` | how is a predictor asked for a stage, and which ways to run it are none? |

mod corrected;
mod known;
mod market;
mod predicted;
mod pricing;
mod rows;
mod stage;
mod sums;
#[cfg(test)]
mod tests;

pub use corrected::{Corrected, Factors};
pub use known::KnownPrices;
pub use market::{Batch, LayerFacts, Market};
pub use predicted::Prices;
pub use pricing::{KindOfDevice, PriceTerms, Pricing, SharedPredictor};
