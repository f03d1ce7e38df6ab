//! Models whose state is larger than the device: chunks that come and leave while they are trained (PatrickStar).
//!
//! | module | question |
//! |---|---|
//! | `lanes` | how long does an iteration take, and who waits for what? |
//!
//! The words are those of [`loadmaster_proto::chunks`], which also says what is where in which step.

mod lanes;

pub use lanes::{LaneRates, LaneScene, LaneSeconds, Lanes};
