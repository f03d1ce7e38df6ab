//! What an export is made of.

use std::collections::BTreeMap;

use loadmaster_proto::choice;
use loadmaster_proto::plan::objective::Framework;
use loadmaster_proto::plan::prediction::Verdict;
use loadmaster_proto::plan::{PlacedDevice, Plan};
use loadmaster_proto::warning::{Warning, WarningCode};
use loadmaster_proto::wire::v1;
use serde::{Deserialize, Serialize};

use crate::allocation::Allocation;
use crate::memory::{self, StageMemory};
use crate::target::{Target, Version};

/// A plan as a framework runs it.
#[derive(Debug, Clone, PartialEq)]
pub struct Export {
    /// Whose, of which version.
    pub target: Target,
    /// Files, in the order in which a reader wants them.
    pub files: Vec<ExportedFile>,
    /// What is run on each node, from the folder of the files. What users put there is in capitals: `$NODE_RANK`, `TRAIN.py`.
    pub command: Vec<String>,
    /// That is run once instead: what it starts reaches the other nodes by itself.
    pub runs_once: bool,
    /// What the framework's processes must find in their environment.
    pub environment: BTreeMap<String, String>,
    /// Every rank, in order.
    pub ranks: Vec<RankPlace>,
    /// What to ask a scheduler for.
    pub allocation: Allocation,
    /// What to know before running it, human-readable.
    pub warnings: Vec<Warning>,
    /// What was proved of such exports with the framework's own code.
    pub verified: Verified,
    /// Whose code that was, at which version; none where nothing was proved.
    pub proof: Option<Proof>,
    /// What each stage holds under the framework, or each device with all stages that are interleaved on its
    /// devices, in the order of the first of them. None where it is not known, which a warning says: then it is
    /// uncertain whether the plan fits.
    pub memory: Option<Vec<StageMemory>>,
}

impl Export {
    /// Returns the verdict of the plan under the framework: that of its worst stage, and `Uncertain` where the framework's
    /// memory is not known.
    pub fn verdict(&self) -> Verdict {
        let Some(stages) = &self.memory else { return Verdict::Uncertain };
        stages.iter().map(StageMemory::verdict).max().unwrap_or(Verdict::NotAsked)
    }

    /// Returns the warnings that go with [`Self::verdict`]: one for each stage that does not fit, or is not certain to.
    pub fn memory_warnings(&self, plan: &Plan) -> Vec<Warning> {
        memory::warnings(plan, self.memory.as_deref(), self.target.framework)
    }
}

/// A file of an export.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExportedFile {
    /// Its name, without folders.
    pub name: String,
    /// Media type, such as `application/json`.
    pub media_type: &'static str,
    /// All of it.
    pub contents: String,
}

/// Where a rank is: in the plan, and on which device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RankPlace {
    /// The framework's number of it.
    pub rank: u32,
    /// Its stage; of several interleaved the first.
    pub stage: usize,
    /// Its replica of the stage.
    pub replica: u32,
    /// Its shard of the replica.
    pub shard: u32,
    /// Its device; none in plans that name none.
    pub device: Option<PlacedDevice>,
}

/// What a framework's own code was seen to make of exports like this one. Each includes those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verified {
    /// Nothing: no code of the framework was asked.
    #[default]
    None,
    /// Its parser took it, and what it resolved is what the plan says.
    Parsed,
    /// It built every rank's stage from it: layers, place in the grid and parameters are the plan's.
    Built,
    /// It trained with it.
    Trained,
}

/// Whose code it was that an export was proved with, at which version: no other was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Proof {
    /// The package, as it is installed: `deepspeed`.
    pub package: &'static str,
    /// Its version.
    pub version: &'static str,
    /// The package is the framework, rather than what that builds upon.
    pub is_framework: bool,
}

impl Proof {
    pub(crate) const fn of(package: &'static str, version: &'static str) -> Self {
        Self { package, version, is_framework: true }
    }

    /// By what the framework builds upon.
    pub(crate) const fn beneath(package: &'static str, version: &'static str) -> Self {
        Self { is_framework: false, ..Self::of(package, version) }
    }

    /// Whether it was proved for a version of the framework: as far as two numbers tell, by which exports differ.
    pub fn is_for(&self, version: Version) -> bool {
        self.is_framework && self.version.parse().is_ok_and(|proved: Version| proved == version)
    }

    /// Returns a warning where the export was not tested with the code or the version that the user runs.
    pub(crate) fn caveat(&self, framework: Framework, named: Option<Version>) -> Option<Warning> {
        let Self { package, version, .. } = self;
        let why = match named {
            _ if !self.is_framework => Some(format!(
                "this export was tested with {package} {version}, not with the code of {framework} \
                    itself"
            )),
            Some(named) if !self.is_for(named) => Some(format!(
                "this export was tested with {package} {version}, not with {framework} {named}. The files are the same \
                 for both versions"
            )),
            _ => None,
        };
        why.map(|why| WarningCode::ProofPartial.says(why))
    }
}

choice! { Verified = v1::ExportVerified { None, Parsed, Built, Trained } }

impl ExportedFile {
    /// A file of JSON, human-readable too.
    pub(crate) fn json(name: &str, value: &impl Serialize) -> Self {
        // What is written has no keys but texts.
        let mut contents = serde_json::to_string_pretty(value).unwrap_or_default();
        contents.push('\n');
        Self::new(name, contents)
    }

    /// A file whose media type follows from its ending.
    pub(crate) fn new(name: &str, contents: String) -> Self {
        let media_type = match name.rsplit_once('.').map(|(_, ending)| ending) {
            Some("json") => "application/json",
            Some("toml") => "application/toml",
            Some("yaml") => "application/yaml",
            Some("py") => "text/x-python",
            Some("sh") => "text/x-shellscript",
            _ => "text/plain",
        };
        Self { name: name.to_owned(), media_type, contents }
    }
}
