//! Where results are written.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Args;
use serde::Serialize;

/// The folder of results, as an option.
#[derive(Debug, Clone, Args)]
pub(crate) struct Output {
    /// Folder for the data [default: one beside the folder of this program].
    #[arg(long, value_name = "FOLDER", alias = "out")]
    output: Option<PathBuf>,
}

impl Output {
    /// The folder, which is made: `target/NAME` unless the option names another.
    pub(crate) fn folder(&self, name: &str) -> Result<PathBuf> {
        let folder = match &self.output {
            Some(folder) => folder.clone(),
            None => {
                let program = std::env::current_exe()?;
                let target = program.ancestors().nth(2).context("this program is in no target folder")?;
                target.join(name)
            }
        };
        std::fs::create_dir_all(&folder).with_context(|| format!("{} cannot be made", folder.display()))?;
        Ok(folder)
    }
}

/// Writes data as JSON.
pub(crate) fn write_json(path: &Path, data: &impl Serialize) -> Result<()> {
    let text = serde_json::to_string_pretty(data)?;
    std::fs::write(path, text).with_context(|| format!("{} cannot be written", path.display()))
}

/// A value as files and options spell it.
pub(crate) fn word(value: &impl Serialize) -> String {
    let value = serde_json::to_value(value).unwrap_or_default();
    value.as_str().unwrap_or_default().to_owned()
}
