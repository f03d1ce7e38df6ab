//! The placement file of a job: the device of each rank, for its tasks.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Args;
use serde::{Deserialize, Serialize};

use super::variables::Variables;
use crate::failure::Failure;

/// Readers refuse what begins with another name or number.
const FORMAT: &str = "loadmaster.slurm/1";

/// Where the file is.
#[derive(Debug, Args)]
pub(super) struct PlacementFile {
    /// File with the device of each rank, in a folder that all nodes of the job share [default: placement-JOB.json].
    #[arg(long, value_name = "PATH", env = "LOADMASTER_PLACEMENT_FILE")]
    placement_file: Option<PathBuf>,
}

/// Who is which rank of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct JobPlacement {
    format: String,
    /// `plans/{plan}`.
    pub(super) plan: String,
    /// `placements/{placement}`.
    pub(super) placement: String,
    /// Where rank 0 waits for the others.
    pub(super) master_address: String,
    /// And at which port.
    pub(super) master_port: u16,
    /// What the framework's processes must find in their environment.
    pub(super) environment: BTreeMap<String, String>,
    /// Every rank, in order.
    pub(super) ranks: Vec<RankDevice>,
}

/// The device of a rank.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RankDevice {
    /// Slurm's name of its node.
    pub(super) node: String,
    /// As Slurm counts the node's GPUs.
    pub(super) index: i32,
    /// Empty where it is not known.
    pub(super) uuid: String,
}

impl PlacementFile {
    /// Where it is in this job.
    pub(super) fn path(&self, variables: &Variables) -> Result<PathBuf, Failure> {
        match &self.placement_file {
            Some(path) => Ok(path.clone()),
            None => Ok(PathBuf::from(format!("placement-{}.json", variables.job()?))),
        }
    }
}

impl JobPlacement {
    pub(super) fn new(
        (plan, placement): (String, String),
        (master_address, master_port): (String, u16),
        environment: BTreeMap<String, String>,
        ranks: Vec<RankDevice>,
    ) -> Self {
        let format = FORMAT.to_owned();
        Self { format, plan, placement, master_address, master_port, environment, ranks }
    }

    /// Writes it whole or not at all: tasks of other nodes read it.
    pub(super) fn write(&self, path: &Path) -> Result<(), Failure> {
        let written = || -> anyhow::Result<()> {
            let folder =
                path.parent().filter(|of| !of.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
            std::fs::create_dir_all(folder)?;
            let mut file = tempfile::Builder::new().prefix(".placement").tempfile_in(folder)?;
            serde_json::to_writer_pretty(&mut file, self)?;
            file.write_all(b"\n")?;
            file.as_file().sync_all()?;
            // All who may read the folder may read the file.
            let permissions = std::os::unix::fs::PermissionsExt::from_mode(0o644);
            file.as_file().set_permissions(permissions)?;
            file.persist(path)?;
            Ok(())
        };
        Ok(written().with_context(|| format!("--placement-file: cannot write {}", path.display()))?)
    }

    /// # Errors
    /// It is not there, or says something else.
    pub(super) fn read(path: &Path) -> Result<Self, Failure> {
        let read = || -> anyhow::Result<Self> { Ok(serde_json::from_str(&std::fs::read_to_string(path)?)?) };
        let placement = read().with_context(|| {
            format!(
                "--placement-file: cannot read {}. Write it with `loadmaster slurm place`",
                path.display()
            )
        })?;
        if placement.format != FORMAT || placement.ranks.is_empty() {
            return Err(anyhow::anyhow!(
                "--placement-file: {} is not a {FORMAT} file. Write the file with `loadmaster slurm place`.",
                path.display()
            )
            .into());
        }
        Ok(placement)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("made").join("placement.json");
        let rank = RankDevice { node: "gpu001".to_owned(), index: 3, uuid: String::new() };
        let names = ("plans/x".to_owned(), "placements/y".to_owned());
        let environment = BTreeMap::from([("A".to_owned(), "b".to_owned())]);
        let placement = JobPlacement::new(names, ("gpu001".to_owned(), 29_500), environment, vec![rank]);
        placement.write(&path).unwrap();
        assert_eq!(JobPlacement::read(&path).unwrap(), placement);
        let text = std::fs::read_to_string(&path).unwrap();
        for wrong in [
            text.replace("slurm/1", "slurm/2"),
            text.replace("29500", "99999"),
            text.replace("index", "idx"),
            String::new(),
        ] {
            std::fs::write(&path, wrong).unwrap();
            assert!(JobPlacement::read(&path).is_err());
        }
        assert!(JobPlacement::read(&folder.path().join("none")).is_err());
    }
}
