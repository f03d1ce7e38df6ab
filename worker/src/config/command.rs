//! Custom profilers: training commands that the operator of this worker permits.
//!
//! A run has the name of a profiler alone. Program, arguments, environment and folder come from the worker's own
//! configuration, so a caller of the planner cannot start other programs.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use loadmaster_proto::accounting::{Accounting, of_device};
use loadmaster_proto::name::CommandName;
use serde::Deserialize;

use super::value::wait;

/// The commands of a worker by name.
pub(crate) type Commands = BTreeMap<CommandName, TrainingCommand>;

/// Most commands; as many as the planner accepts.
const MAX_COMMANDS: usize = 64;
/// Most arguments, and most variables.
const MAX_WORDS: usize = 1_024;
/// Longest argument or variable, bytes.
const MAX_WORD: usize = 32 << 10;
/// Start of the names of variables that the daemon sets.
const RESERVED: [&str; 2] = ["LOADMASTER_", "CUDA_VISIBLE_DEVICES"];

/// A command that trains what a run asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TrainingCommand {
    /// Program and arguments; `{ranks}` in an argument is replaced by the number of ranks of the run.
    pub(crate) argv: Vec<String>,
    /// Variables besides those of the daemon.
    pub(crate) environment: BTreeMap<String, String>,
    /// Where it starts; the run's private folder where none is given.
    pub(crate) working_directory: Option<PathBuf>,
    /// Hard limit of one run, where it is shorter than the lease's.
    pub(crate) timeout: Option<Duration>,
    /// Memory accounting of the peaks that it reports.
    pub(crate) ledger: Accounting,
}

/// As it is written in the file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawCommand {
    argv: Vec<String>,
    #[serde(default)]
    environment: BTreeMap<String, String>,
    working_directory: Option<PathBuf>,
    timeout: Option<String>,
    #[serde(deserialize_with = "of_device")]
    accounting: Accounting,
}

/// All commands of a file, checked; errors name the key.
pub(super) fn checked(raw: BTreeMap<String, RawCommand>) -> Result<Commands, String> {
    if raw.len() > MAX_COMMANDS {
        return Err(format!(
            "custom_profilers: has {} custom profilers, more than the limit of {MAX_COMMANDS}",
            raw.len()
        ));
    }
    raw.into_iter()
        .map(|(name, command)| {
            let name = CommandName::parse("custom_profilers", name).map_err(|invalid| invalid.to_string())?;
            let command = command.checked().map_err(|why| format!("custom_profilers.{name}.{why}"))?;
            Ok((name, command))
        })
        .collect()
}

impl RawCommand {
    fn checked(self) -> Result<TrainingCommand, String> {
        let Self { argv, environment, working_directory, timeout, accounting } = self;
        if argv.first().is_none_or(String::is_empty) {
            return Err("argv: is empty. Write a program and its arguments.".to_owned());
        }
        if argv.len() > MAX_WORDS || argv.iter().any(|word| !is_word(word)) {
            return Err(format!(
                "argv: has more than {MAX_WORDS} arguments, or one with a NUL byte or more than {MAX_WORD} bytes"
            ));
        }
        if environment.len() > MAX_WORDS {
            return Err(format!("environment: more than {MAX_WORDS} variables"));
        }
        for (name, value) in &environment {
            if name.is_empty() || name.contains('=') || !is_word(name) || !is_word(value) {
                return Err(format!("environment.{name}: is not a valid variable"));
            }
            if RESERVED.iter().any(|reserved| name.starts_with(reserved)) {
                return Err(format!("environment.{name}: is set by the worker. Leave it out."));
            }
        }
        if let Some(folder) = working_directory.as_ref().filter(|folder| !folder.is_absolute()) {
            return Err(format!("working_directory: {} is not an absolute path", folder.display()));
        }
        let timeout = timeout.map(|text| wait(&text)).transpose().map_err(|why| format!("timeout: {why}"))?;
        Ok(TrainingCommand { argv, environment, working_directory, timeout, ledger: accounting })
    }
}

/// Whether the kernel takes it as an argument.
fn is_word(text: &str) -> bool {
    text.len() <= MAX_WORD && !text.contains('\0')
}
