//! Which parts of a measurement are made, and where results are written.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
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

/// Options of most measurements.
#[derive(Debug, Clone, Args)]
pub(crate) struct Common {
    /// Only the part of this name, or else those whose names contain this.
    #[arg(value_name = "PART")]
    parts: Vec<String>,

    /// The same as PART.
    #[arg(long, value_name = "PART")]
    only: Vec<String>,

    /// Small problems and few runs, for trying it out: the figures mean little.
    #[arg(long)]
    pub(crate) quick: bool,

    #[command(flatten)]
    pub(crate) output: Output,
}

impl Common {
    /// Which of these parts are wanted.
    ///
    /// # Errors
    /// A part is wanted that is not there.
    pub(crate) fn select<'a>(&self, names: &[&'a str]) -> Result<Vec<&'a str>> {
        let wanted: Vec<&String> = self.parts.iter().chain(&self.only).collect();
        let is_wanted = |name: &str, part: &str| {
            if names.contains(&part) { name == part } else { name.contains(part) }
        };
        for part in &wanted {
            let is_there = names.iter().any(|name| is_wanted(name, part));
            ensure!(is_there, "no part's name contains {part:?}: there are {}", names.join(", "));
        }
        let all = names.iter().copied();
        Ok(all.filter(|name| wanted.is_empty() || wanted.iter().any(|part| is_wanted(name, part))).collect())
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

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Options {
        #[command(flatten)]
        common: Common,
    }

    /// A part whose name begins another one's can be asked for alone.
    #[test]
    fn an_exact_name_is_preferred_to_a_part_of_one() {
        let select = |arguments: &[&str]| {
            let Options { common } = Options::parse_from([&["bench"], arguments].concat());
            common.select(&["vgg11", "vgg11-parallel", "gpt2-parallel"])
        };
        assert_eq!(select(&[]).unwrap().len(), 3);
        assert_eq!(select(&["--only", "vgg11"]).unwrap(), ["vgg11"]);
        assert_eq!(select(&["parallel"]).unwrap(), ["vgg11-parallel", "gpt2-parallel"]);
        let refused = select(&["bert"]).unwrap_err().to_string();
        assert!(refused.ends_with("\"bert\": there are vgg11, vgg11-parallel, gpt2-parallel"), "{refused}");
    }
}
