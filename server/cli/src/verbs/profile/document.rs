//! Profile documents on the command line: written to a file or standard output, read from a file, and
//! given in place of a profile's name.

use std::path::{Path, PathBuf};

use clap::Args;
use loadmaster_proto::profile::document::MAX_DOCUMENT_BYTES;
use loadmaster_proto::wire::v1;

use crate::failure::Failure;
use crate::input::{file, parse};
use crate::output::write_stdout;
use crate::session::client::profiles;
use crate::session::context::Context;

/// `--profile`: a stored profile, or the file of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ProfileRef {
    /// `profiles/ID`.
    Named(String),
    /// A document.
    File(PathBuf),
}

/// A profile's name or id, or the path of a document: that ends with `.json` or has a slash in it.
pub(crate) fn profile_or_file(text: &str) -> Result<ProfileRef, String> {
    match parse::profile(text) {
        Ok(name) => Ok(ProfileRef::Named(name)),
        Err(_) if text.ends_with(".json") || text.contains('/') => Ok(ProfileRef::File(text.into())),
        Err(why) => Err(format!("{why}; or name a document, a path that ends with .json or has a slash")),
    }
}

impl ProfileRef {
    /// The name for a request; empty for a file.
    pub(crate) fn name(self) -> String {
        match self {
            Self::Named(name) => name,
            Self::File(_) => String::new(),
        }
    }

    /// The document for a request; empty for a name.
    pub(crate) fn document(&self) -> Result<String, Failure> {
        match self {
            Self::Named(_) => Ok(String::new()),
            Self::File(path) => read(path),
        }
    }
}

/// See the verb `export`.
#[derive(Debug, Args)]
pub(crate) struct Export {
    /// The profile: `profiles/ID` or the id alone.
    #[arg(value_parser = parse::profile)]
    name: String,

    /// Write to this file instead of standard output.
    #[arg(short, long, value_name = "PATH")]
    file: Option<PathBuf>,
}

/// See the verb `import`.
#[derive(Debug, Args)]
pub(crate) struct Import {
    /// The document, or `-` for standard input.
    #[arg(value_name = "PATH")]
    file: PathBuf,

    /// Id of the profile: 1 to 63 of a-z, 0-9, '-' [default: derived from the content].
    #[arg(long, value_name = "ID")]
    id: Option<String>,

    /// Check the document without storing it.
    #[arg(long)]
    dry_run: bool,
}

/// Prints the document of a profile, or writes it to a file.
pub(crate) async fn export(context: &Context, export: Export) -> Result<(), Failure> {
    let Export { name, file } = export;
    let request = v1::ExportProfileRequest { name };
    let answer =
        context.client.call(request, async |channel, q| profiles(channel).export_profile(q).await).await?;
    match file {
        None => write_stdout(answer.document.as_bytes()),
        Some(path) => {
            std::fs::write(&path, &answer.document).map_err(|error| {
                anyhow::Error::new(error).context(format!("cannot write {}", path.display()))
            })?;
            context.remark(&format!("written to {}", path.display()));
            Ok(())
        }
    }
}

/// Stores a document as a profile.
pub(crate) async fn import(context: &Context, import: Import) -> Result<(), Failure> {
    let request = v1::ImportProfileRequest {
        document: read(&import.file)?,
        profile_id: import.id.unwrap_or_default(),
        validate_only: import.dry_run,
    };
    let profile =
        context.client.call(request, async |channel, q| profiles(channel).import_profile(q).await).await?;
    if import.dry_run {
        context.remark("dry run: the document is valid; nothing is stored");
    }
    context.output.print(&profile)
}

/// A document, as long as a request can carry.
fn read(path: &Path) -> Result<String, Failure> {
    file::read("profile document", path, MAX_DOCUMENT_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_told_from_a_name() {
        let named = |text: &str| profile_or_file(text).map(ProfileRef::name);
        assert_eq!(named("vgg-1"), Ok("profiles/vgg-1".to_owned()));
        assert_eq!(named("profiles/vgg-1"), Ok("profiles/vgg-1".to_owned()));
        for path in ["p.json", "./p", "/tmp/profile", "profiles/p.json"] {
            assert_eq!(profile_or_file(path), Ok(ProfileRef::File(path.into())), "{path}");
        }
        assert!(profile_or_file("No Name").unwrap_err().contains(".json"));
    }

    #[test]
    fn a_file_that_is_not_there_is_named() {
        let missing = ProfileRef::File("/does/not/exist.json".into());
        assert!(
            matches!(missing.document(), Err(Failure::Usage(why)) if why.contains("/does/not/exist.json"))
        );
    }
}
