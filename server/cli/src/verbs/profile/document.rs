//! Profiles as documents: written to a file or standard output, and stored from a file.

use std::path::{Path, PathBuf};

use clap::Args;
use loadmaster_proto::wire::v1;

use crate::failure::Failure;
use crate::input::{parse, profile};
use crate::output::write_stdout;
use crate::session::context::Context;

/// See the verb `export`.
#[derive(Debug, Args)]
pub(crate) struct ExportProfile {
    /// The profile: `profiles/ID` or the id alone.
    #[arg(value_parser = parse::profile)]
    name: String,

    /// File to write [default: standard output].
    #[arg(long, value_name = "PATH")]
    to: Option<PathBuf>,
}

/// See the verb `import`.
#[derive(Debug, Args)]
pub(crate) struct ImportProfile {
    /// The document, or `-` for standard input.
    #[arg(value_name = "PATH")]
    file: PathBuf,

    /// Id of the new profile: 1 to 63 of a-z, 0-9, '-' [default: derived from the content].
    #[arg(long, value_name = "ID")]
    id: Option<String>,

    /// Check the document without storing it.
    #[arg(long)]
    dry_run: bool,
}

impl ImportProfile {
    pub(crate) fn file(&self) -> &Path {
        &self.file
    }
}

/// Prints the document of a profile, or writes it to a file.
pub(crate) async fn export(context: &Context, export: ExportProfile) -> Result<(), Failure> {
    let ExportProfile { name, to } = export;
    let request = v1::ExportProfileRequest { name: name.clone() };
    let answer = context.client.call(request).await?;
    match to {
        None => write_stdout(answer.document.as_bytes())?,
        Some(path) => {
            std::fs::write(&path, &answer.document).map_err(|error| {
                anyhow::Error::new(error).context(format!("cannot write {}", path.display()))
            })?;
            context.remark(&format!("written to {}", path.display()));
        }
    }
    context.link(&name);
    Ok(())
}

/// Stores a document as a profile.
pub(crate) async fn import(context: &Context, import: ImportProfile) -> Result<(), Failure> {
    let request = v1::ImportProfileRequest {
        document: profile::read(&import.file)?,
        profile_id: import.id.unwrap_or_default(),
        validate_only: import.dry_run,
    };
    let profile = context.client.call(request).await?;
    if import.dry_run {
        context.remark("dry run: the document is valid; nothing is stored");
    }
    context.print(&profile, !import.dry_run)
}
