//! Values of the command line and files as parts of requests.

pub(crate) mod file;
pub(crate) mod labels;
pub(crate) mod megatron;
pub(crate) mod model;
pub(crate) mod parse;
pub(crate) mod profile;
pub(crate) mod training;
