//! Chunks: a model's state in blocks of CPU memory (PatrickStar). The crate's README has the walk.
//!
//! What layers compute with comes to the device in time and leaves, by chunks, and gradients leave in the same memory. When
//! follows from [`ChunkedStage`](loadmaster_proto::chunks::stage::ChunkedStage) alone, the contract with the planner. A chunk is
//! one storage, in which tensors lie; its memory comes and goes, and the tensors, and what autograd saved of them, stay.
//!
//! | module | question |
//! |---|---|
//! | `run` | what is done with a chunk in each act? |
//! | `payloads` | how do blocks of chunks come, leave, and get updated? |
//! | `tensors` | what is in a tensor's space, and may be read? |
//! | `device` | what if a chunk's state is on the device? |
//! | `device_step` | what does the optimizer do there? |
//! | `host` | where are chunks on the host, and who updates them? |
//! | `embedding_rows` | who gathers rows of a table on the host, and adds up their gradients? |
//! | `trace` | what does each step need, and what was moved? |
//! | `host_step` | what does the optimizer do to one element? |
//! | `double_float` | how does it compute to more bits than fp32 has? |
//! | `lists` | how does it go over the lists of a chunk: in one pass, with which instructions, on which cores? |

mod device;
mod device_step;
mod double_float;
mod embedding_rows;
mod host;
pub mod host_step;
pub mod lists;
mod payloads;
mod run;
mod tensors;
mod trace;

pub(crate) use run::ChunkRun;
