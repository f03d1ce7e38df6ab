//! What stages cost a search: bytes and seconds.
//!
//! | module | question |
//! |---|---|
//! | `predictor_prices` | what do searches ask about stages, and how do predictors answer it, one for each kind of device? |
//! | `calibration` | what are the answers multiplied with? |
//! | `pricing` | what does any stage cost at one micro-batch size? |
//! | `price_cache` | what was it asked before? |
//! | `sums` | what do layers cost together, in constant time? |
//! | `rows` | how many bytes do the stages that begin with a layer take? |

mod calibration;
mod predictor_prices;
mod price_cache;
mod pricing;
mod rows;
mod sums;
#[cfg(test)]
mod tests;

pub use calibration::{CalibratedCosts, Factors};
pub use predictor_prices::{Batch, LayerFacts, Market, Prices};
pub use price_cache::PriceCache;
pub use pricing::{KindOfDevice, PriceTerms, Pricing, SharedPredictor};
