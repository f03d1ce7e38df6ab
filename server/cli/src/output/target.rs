//! What `--output` may be: a format of standard output, a list of layers, or a file for pictures.

use std::ffi::OsStr;
use std::path::Path;

use clap::builder::{EnumValueParser, PossibleValue, TypedValueParser};

use super::Format;
use crate::output::picture_file::PictureFile;

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
        let layers =
            PossibleValue::new(LAYERS).help("Of one model: the list of layers that `model import` reads");
        Some(Box::new(names.filter_map(clap::ValueEnum::to_possible_value).chain([layers])))
    }
}
