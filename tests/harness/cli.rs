//! The command line as users run it.

use std::process::Command;

use serde_json::Value;

use crate::planner::Planner;
use crate::process::binary;

/// What a command printed and how it ended.
#[derive(Debug)]
pub struct Output {
    /// Exit code; -1 when a signal ended it.
    pub code: i32,
    /// Data.
    pub stdout: String,
    /// Messages.
    pub stderr: String,
}

/// Options of a model that trains in milliseconds: 6 layers.
pub const TINY_GPT2: [&str; 12] = [
    "--model",
    "gpt2",
    "--blocks",
    "3",
    "--hidden-size",
    "32",
    "--heads",
    "2",
    "--sequence-length",
    "16",
    "--vocabulary-size",
    "100",
];

/// Options of a model that trains quickly and whose layers can be sharded.
pub const SMALL_GPT2: [&str; 12] = [
    "--model",
    "gpt2",
    "--blocks",
    "4",
    "--hidden-size",
    "64",
    "--heads",
    "4",
    "--sequence-length",
    "32",
    "--vocabulary-size",
    "500",
];

impl Output {
    /// Runs a program to its end.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn of(command: &mut Command) -> Self {
        let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        Self {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Data and messages.
    pub fn text(&self) -> String {
        [self.stdout.as_str(), &self.stderr].concat()
    }
}

/// Runs `loadmaster ARGUMENTS` against a planner.
pub fn cli(planner: &Planner, arguments: &[&str]) -> Output {
    let mut command = Command::new(binary("loadmaster"));
    command.args(arguments).env("LOADMASTER_ADDRESS", planner.address());
    Output::of(command.env("NO_COLOR", "1").env("LC_ALL", "C.UTF-8"))
}

/// Runs `loadmaster ARGUMENTS -o json` and parses what it prints.
///
/// # Panics
/// When it fails.
pub fn json(planner: &Planner, arguments: &[&str]) -> Value {
    let mut all = arguments.to_vec();
    all.extend(["-o", "json"]);
    let output = cli(planner, &all);
    assert_eq!(output.code, 0, "{all:?} failed:\n{}", output.stderr);
    serde_json::from_str(&output.stdout).unwrap_or_else(|error| panic!("{error}:\n{}", output.stdout))
}

/// Runs `loadmaster profile run` with these options to the end, and returns the profile.
///
/// # Panics
/// When it is not complete.
pub fn profile(planner: &Planner, model: &[&str], options: &[&str]) -> Value {
    let profile = json(planner, &[&["profile", "run"], model, options].concat());
    assert_eq!(profile["state"], "COMPLETE", "{profile}");
    profile
}
