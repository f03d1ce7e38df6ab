//! Completion of command lines by shells: scripts that ask this program, and its answers.

use std::ffi::OsString;
use std::io::{Result, Write};
use std::path::Path;

use clap::{Command, CommandFactory};
use clap_complete::CompleteEnv;
use clap_complete::env::{Bash, Elvish, EnvCompleter, Fish, Powershell, Shells, Zsh};

use super::Program;

/// The variable by which scripts ask; its value is the shell.
const ASKS: &str = "LOADMASTER_COMPLETE";
const NAME: &str = "loadmaster";
const SHELLS: Shells<'static> = Shells(&[&WholeWords, &Elvish, &Fish, &Powershell, &Autoloaded]);

/// Answers a shell that asks what could be typed, and ends this process; returns if none does.
pub fn answer() {
    CompleteEnv::with_factory(|| loadmaster_cli::with_names(Program::command()))
        .var(ASKS)
        .completer(NAME)
        .shells(SHELLS)
        .complete();
}

/// What makes a shell ask.
pub(super) fn script(shell: clap_complete::Shell) -> Result<Vec<u8>> {
    let mut script = Vec::new();
    let name = shell.to_string();
    let known =
        SHELLS.completer(&name).ok_or_else(|| std::io::Error::other(format!("{name} is not supported")))?;
    known.write_registration(ASKS, NAME, NAME, NAME, &mut script)?;
    Ok(script)
}

/// Bash, whose own notion of a word ends at an equals sign, a colon and an at sign.
struct WholeWords;

impl EnvCompleter for WholeWords {
    fn name(&self) -> &'static str {
        Bash.name()
    }

    fn is(&self, name: &str) -> bool {
        Bash.is(name)
    }

    fn write_registration(&self, _: &str, _: &str, _: &str, _: &str, script: &mut dyn Write) -> Result<()> {
        script.write_all(include_bytes!("completion.bash"))
    }

    /// The words end with the one that is completed. A line for each candidate.
    fn write_complete(
        &self,
        command: &mut Command,
        words: Vec<OsString>,
        folder: Option<&Path>,
        to: &mut dyn Write,
    ) -> Result<()> {
        let last = words.len().saturating_sub(1);
        for candidate in clap_complete::engine::complete(command, words, last, folder)? {
            writeln!(to, "{}", candidate.get_value().to_string_lossy())?;
        }
        Ok(())
    }
}

/// Zsh, which loads a package's script when it is wanted first, and then wants it to answer already.
struct Autoloaded;

impl EnvCompleter for Autoloaded {
    fn name(&self) -> &'static str {
        Zsh.name()
    }

    fn is(&self, name: &str) -> bool {
        Zsh.is(name)
    }

    fn write_registration(
        &self,
        asks: &str,
        name: &str,
        program: &str,
        completer: &str,
        script: &mut dyn Write,
    ) -> Result<()> {
        Zsh.write_registration(asks, name, program, completer, script)?;
        writeln!(
            script,
            "if [[ $funcstack[1] == _{program} ]]; then _clap_dynamic_completer_{name} \"$@\"; fi"
        )
    }

    fn write_complete(
        &self,
        command: &mut Command,
        words: Vec<OsString>,
        folder: Option<&Path>,
        to: &mut dyn Write,
    ) -> Result<()> {
        Zsh.write_complete(command, words, folder, to)
    }
}
