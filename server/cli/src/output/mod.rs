//! Answers on standard output or in a file, in the format that the user chose (`--output`).

pub(crate) mod picture_file;

use std::ffi::OsStr;
use std::io::{ErrorKind, Write};
use std::path::Path;

use clap::ValueEnum;
use clap::builder::{EnumValueParser, PossibleValue, TypedValueParser};
use loadmaster_show::text::terminal_abilities::Look;
use loadmaster_show::text::wrapped;
use loadmaster_show::{Show, json};

use crate::failure::Failure;
use crate::failure::options::{self, OptionTable};
use crate::output::picture_file::PictureFile;

/// How an answer is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Human-readable.
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
    /// Options that replace the names of fields in tables.
    pub(crate) options: OptionTable,
}

impl Output {
    pub(crate) fn print(self, answer: &impl Show) -> Result<(), Failure> {
        write_stdout(self.render(answer)?.as_bytes())
    }

    /// Prints an answer of a stream: a line of text, of JSON or with the name, or a document of YAML.
    pub(crate) fn print_line(self, answer: &impl Show) -> Result<(), Failure> {
        let text = match self.format {
            Format::Json => format!("{}\n", json::value(answer)?),
            Format::Yaml => format!("---\n{}", json::yaml(answer)?),
            Format::Table | Format::Name => self.render(answer)?,
        };
        write_stdout(text.as_bytes())
    }

    fn render(self, answer: &impl Show) -> Result<String, Failure> {
        let mut text = match self.format {
            Format::Table => {
                wrapped(&options::answer(&answer.table(self.look), self.options), self.look.width)
            }
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
            "the planner returned the name {name:?}, which is not valid: names consist of letters, digits and '-_.:+@/'"
        ),
        None => Ok(names.join("\n")),
    }
}

/// Writes to standard output, or reports that it is closed.
pub fn write_stdout(bytes: &[u8]) -> Result<(), Failure> {
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(bytes).and_then(|()| stdout.flush()).map_err(|error| match error.kind() {
        ErrorKind::BrokenPipe => Failure::OutputClosed,
        _ => anyhow::Error::new(error).context("cannot write to standard output").into(),
    })
}

/// Writes to standard error. A closed one is no reason to fail.
pub(crate) fn to_stderr(text: &str) {
    let mut stderr = std::io::stderr().lock();
    let _ = stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush());
}

/// Where an answer goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Target {
    /// To standard output.
    Print(Format),
    /// To standard output, as the list of layers that `loadmaster model import` reads.
    Layers,
    /// Into a file, as pictures.
    Draw(PictureFile),
}

/// How [`Target::Layers`] is asked for.
pub(crate) const LAYERS: &str = "layers";

/// Reads formats by their names, and a file by its suffix.
#[derive(Debug, Clone)]
pub(crate) struct TargetParser;

impl TypedValueParser for TargetParser {
    type Value = Target;

    fn parse_ref(
        &self,
        command: &clap::Command,
        argument: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<Target, clap::Error> {
        if value == LAYERS {
            return Ok(Target::Layers);
        }
        match PictureFile::of(Path::new(value)) {
            Some(file) => Ok(Target::Draw(file)),
            None => EnumValueParser::<Format>::new().parse_ref(command, argument, value).map(Target::Print),
        }
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let names = <Format as clap::ValueEnum>::value_variants().iter();
        let layers = PossibleValue::new(LAYERS)
            .help("List of layers of a single model, in the format that `model import` reads");
        Some(Box::new(names.filter_map(clap::ValueEnum::to_possible_value).chain([layers])))
    }
}
