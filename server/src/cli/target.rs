//! What `--output` may be: a format of standard output, or a file for pictures.

use std::ffi::OsStr;
use std::path::Path;

use clap::builder::{EnumValueParser, PossibleValue, TypedValueParser};

use super::output::Format;
use super::picture::file::PictureFile;

/// Where an answer goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Target {
    /// To standard output.
    Print(Format),
    /// Into a file, as pictures.
    Draw(PictureFile),
}

/// Reads a format by its name, and a file by its suffix.
#[derive(Debug, Clone)]
pub(super) struct TargetParser;

impl TypedValueParser for TargetParser {
    type Value = Target;

    fn parse_ref(
        &self,
        command: &clap::Command,
        argument: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<Target, clap::Error> {
        match PictureFile::of(Path::new(value)) {
            Some(file) => Ok(Target::Draw(file)),
            None => EnumValueParser::<Format>::new().parse_ref(command, argument, value).map(Target::Print),
        }
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let names = <Format as clap::ValueEnum>::value_variants().iter();
        Some(Box::new(names.filter_map(clap::ValueEnum::to_possible_value)))
    }
}
