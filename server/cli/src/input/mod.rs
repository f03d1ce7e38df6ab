//! Values of the command line and files as parts of requests.

pub(crate) mod labels;
pub(crate) mod megatron;
pub(crate) mod model;
pub(crate) mod parse;
pub(crate) mod profile;
pub(crate) mod request_file;
pub(crate) mod training;

use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::failure::Failure;

/// The name of a file in a message, with `-` as standard input.
pub(crate) fn file_name(path: &Path) -> String {
    if path.as_os_str() == "-" { "standard input".to_owned() } else { path.display().to_string() }
}

/// The text of a file, or of standard input for `-`, of at most so many bytes. `what` it is goes into
/// the errors.
pub(crate) fn read_file(what: &str, path: &Path, most_bytes: usize) -> Result<String, Failure> {
    let cannot =
        |error: std::io::Error| Failure::Usage(format!("cannot read the {what} {}: {error}", path.display()));
    let source: Box<dyn Read> = if path.as_os_str() == "-" {
        Box::new(std::io::stdin().lock())
    } else {
        Box::new(File::open(path).map_err(cannot)?)
    };
    let mut text = String::new();
    source.take(most_bytes as u64 + 1).read_to_string(&mut text).map_err(cannot)?;
    if text.len() > most_bytes {
        return Failure::usage(format!(
            "the {what} {} has more than {most_bytes} bytes. Use a smaller file.",
            path.display()
        ));
    }
    Ok(text)
}
