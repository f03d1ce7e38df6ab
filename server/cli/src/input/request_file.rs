//! `-f`: a request as a file, whose fields options replace.

use std::path::{Path, PathBuf};

use clap::Args;
use loadmaster_proto::profile::document::MAX_DOCUMENT_BYTES;
use loadmaster_show::json;
use prost::{Message, Name};

use super::{file_name, read_file};
use crate::failure::Failure;

/// The file of a request.
#[derive(Debug, Clone, Args)]
pub(crate) struct RequestFile {
    /// Request file in YAML or JSON, or `-` for standard input. It may set every field of the request, as the API reference lists
    /// them; options replace its fields.
    #[arg(short, long, value_name = "PATH")]
    file: Option<PathBuf>,
}

impl RequestFile {
    /// Returns the path, if one is given.
    pub(crate) fn path(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// Returns the request of the file; an empty one without a file.
    ///
    /// # Errors
    /// The file cannot be read, or is no such request: with the place and the field.
    pub(crate) fn read<M: Message + Name + Default>(&self) -> Result<M, Failure> {
        let Some(path) = &self.file else { return Ok(M::default()) };
        let text = read_file("request file", path, MAX_DOCUMENT_BYTES)?;
        json::parse_yaml(&M::full_name(), &text).map_err(|error| {
            Failure::Usage(format!("{} is not a valid {}: {error:#}", file_name(path), M::NAME))
        })
    }
}

/// Replaces a field by the value of an option.
pub(crate) fn set<T, V: Into<T>>(field: &mut T, option: Option<V>) {
    if let Some(value) = option {
        *field = value.into();
    }
}

/// Replaces a list by the values of an option.
pub(crate) fn set_all<T, V: Into<T>>(field: &mut Vec<T>, option: Vec<V>) {
    if !option.is_empty() {
        *field = option.into_iter().map(Into::into).collect();
    }
}

/// Replaces a setting by the one value of an option, or the choice of settings by several.
pub(crate) fn set_choice<V: Into<i32>>(one: &mut i32, several: &mut Vec<i32>, option: Vec<V>) {
    let values: Vec<i32> = option.into_iter().map(Into::into).collect();
    match values.as_slice() {
        [] => {}
        [only] => (*one, *several) = (*only, Vec::new()),
        _ => (*one, *several) = (0, values),
    }
}
