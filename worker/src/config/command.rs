//! Training commands: what the operator of this worker lets a run start.
//!
//! A run names a command and nothing else. Program, arguments, environment and folder come from the
//! worker's own configuration, so nobody who can talk to the planner can make a worker run something new.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use loadmaster_proto::ledger::{Ledger, of_device};
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
    /// Ledger of the peaks that it reports.
    pub(crate) ledger: Ledger,
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
    ledger: Ledger,
}

/// All commands of a file, checked; errors name the key.
pub(super) fn checked(raw: BTreeMap<String, RawCommand>) -> Result<Commands, String> {
    if raw.len() > MAX_COMMANDS {
        return Err(format!("commands: there are {}, at most {MAX_COMMANDS} can be offered", raw.len()));
    }
    raw.into_iter()
        .map(|(name, command)| {
            let name = CommandName::parse("commands", name).map_err(|invalid| invalid.to_string())?;
            let command = command.checked().map_err(|why| format!("commands.{name}.{why}"))?;
            Ok((name, command))
        })
        .collect()
}

impl RawCommand {
    fn checked(self) -> Result<TrainingCommand, String> {
        let Self { argv, environment, working_directory, timeout, ledger } = self;
        if argv.first().is_none_or(String::is_empty) {
            return Err("argv: is empty, must be a program and its arguments".to_owned());
        }
        if argv.len() > MAX_WORDS || argv.iter().any(|word| !is_word(word)) {
            return Err(format!("argv: has more than {MAX_WORDS} arguments, or one that is too long"));
        }
        if environment.len() > MAX_WORDS {
            return Err(format!("environment: has more than {MAX_WORDS} variables"));
        }
        for (name, value) in &environment {
            if name.is_empty() || name.contains('=') || !is_word(name) || !is_word(value) {
                return Err(format!("environment.{name}: is no variable"));
            }
            if RESERVED.iter().any(|reserved| name.starts_with(reserved)) {
                return Err(format!("environment.{name}: is set by the worker"));
            }
        }
        if let Some(folder) = working_directory.as_ref().filter(|folder| !folder.is_absolute()) {
            return Err(format!("working_directory: {} must be an absolute path", folder.display()));
        }
        let timeout = timeout.map(|text| wait(&text)).transpose().map_err(|why| format!("timeout: {why}"))?;
        Ok(TrainingCommand { argv, environment, working_directory, timeout, ledger })
    }
}

/// Whether the kernel takes it as an argument.
fn is_word(text: &str) -> bool {
    text.len() <= MAX_WORD && !text.contains('\0')
}
