//! What is printed and written.

mod csv;
mod svg;
mod table;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::accuracy::row::Row;

pub(crate) use table::{Cost, print, print_costs, print_distributions, print_goals};

/// Writes every comparison as CSV and as a picture; returns both paths.
///
/// # Errors
/// The folder cannot be written to.
pub(crate) fn write(rows: &[Row], folder: &Path) -> Result<[PathBuf; 2]> {
    fs::create_dir_all(folder).with_context(|| format!("{} cannot be made", folder.display()))?;
    let paths = [folder.join("accuracy.csv"), folder.join("accuracy.svg")];
    for (path, text) in paths.iter().zip([csv::csv(rows), svg::scatter(rows)]) {
        fs::write(path, text).with_context(|| format!("{} cannot be written", path.display()))?;
    }
    Ok(paths)
}
