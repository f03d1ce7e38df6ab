//! Answers on standard output, in the format that the user chose.

pub(crate) mod picture_file;
pub(crate) mod target;

use std::io::{ErrorKind, Write};

use clap::ValueEnum;

use crate::failure::Failure;
use loadmaster_show::json;
use loadmaster_show::show::Show;
use loadmaster_show::text::terminal_abilities::Look;
use loadmaster_show::text::wrapped;

/// How an answer is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people.
    Table,
    /// One document in the JSON mapping of the protocol: lowerCamelCase, 64-bit integers as strings.
    Json,
    /// The same document as YAML.
    Yaml,
    /// Only the names, one per line.
    Name,
}

/// Where answers go.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Output {
    pub(crate) format: Format,
    pub(crate) look: Look,
}

impl Output {
    pub(crate) fn print(self, answer: &impl Show) -> Result<(), Failure> {
        write_stdout(self.render(answer)?.as_bytes())
    }

    fn render(self, answer: &impl Show) -> Result<String, Failure> {
        let mut text = match self.format {
            Format::Table => wrapped(&answer.table(self.look), self.look.width),
            Format::Json => json::json(answer)?,
            Format::Yaml => json::yaml(answer)?,
            Format::Name => names(&answer.names())?,
        };
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        Ok(text)
    }
}

/// Names, one per line: scripts hand them on as words.
fn names(names: &[String]) -> anyhow::Result<String> {
    let is_within = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:+@/".contains(&byte);
    // What was not stored has no name.
    let is_name = |name: &str| {
        name.is_empty()
            || name.starts_with(|first: char| first.is_ascii_alphanumeric()) && name.bytes().all(is_within)
    };
    match names.iter().find(|name| !is_name(name)) {
        Some(name) => anyhow::bail!(
            "the planner returned the name {name:?}, which is none: letters, digits and '-_.:+@/'"
        ),
        None => Ok(names.join("\n")),
    }
}

/// Writes to standard output, or says that nobody reads any more.
pub fn write_stdout(bytes: &[u8]) -> Result<(), Failure> {
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(bytes).and_then(|()| stdout.flush()).map_err(|error| match error.kind() {
        ErrorKind::BrokenPipe => Failure::OutputClosed,
        _ => anyhow::Error::new(error).context("cannot write to standard output").into(),
    })
}

/// Writes to standard error. That nobody reads it is no reason to fail.
pub(crate) fn to_stderr(text: &str) {
    let mut stderr = std::io::stderr().lock();
    let _ = stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush());
}
