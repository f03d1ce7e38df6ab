//! Answers on standard output, in the format that the user chose.

pub(crate) mod devices;
pub(crate) mod json;
pub(crate) mod picture;
pub(crate) mod show;
pub(crate) mod table;
pub(crate) mod target;

use std::io::{ErrorKind, Write};

use clap::ValueEnum;

use crate::failure::Failure;
use crate::text::terminal_abilities::Look;
use crate::text::{plain, wrapped};
use show::Show;

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
            Format::Name => answer.names().iter().map(|name| plain(name)).collect::<Vec<_>>().join("\n"),
        };
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        Ok(text)
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
