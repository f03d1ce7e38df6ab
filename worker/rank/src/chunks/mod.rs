//! Chunks: a model's state in pieces that live in the host's memory (PatrickStar).
//!
//! | module | question |
//! |---|---|
//! | `host_step` | what does the optimizer do to one element? |
//! | `lists` | how does it go over the lists of a chunk: in one pass, with which instructions, on which cores? |

pub mod host_step;
pub mod lists;
