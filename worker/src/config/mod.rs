//! The configuration file, and how settings are written, there and on the command line.

pub(crate) mod command;
mod file;
#[cfg(test)]
mod tests;
pub(crate) mod value;

pub(crate) use file::{ConfigError, ConfigFile};
