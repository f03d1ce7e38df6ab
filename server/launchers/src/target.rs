//! Who an export is for: `deepspeed@0.19`.

use std::fmt;
use std::str::FromStr;

use loadmaster_proto::choice;
use loadmaster_proto::choice::TextChoice;
use loadmaster_proto::error::Invalid;
use loadmaster_proto::plan::objective::Framework;

use crate::framework::exporters;

/// The leading numbers of a framework's version: `0.19`. What an export looks like depends on these alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// First number.
    pub major: u32,
    /// Second number.
    pub minor: u32,
}

/// A framework of a version that exports are known for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Target {
    /// Who.
    pub framework: Framework,
    /// Of which version.
    pub version: Version,
}

/// Which of the ways that a framework has to say a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Variant {
    /// The one that most use.
    #[default]
    Usual,
    /// The pattern of Megatron's hybrid model.
    Hybrid,
}

choice! { Variant { Usual, Hybrid } }

impl TextChoice for Variant {}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.framework, self.version)
    }
}

impl FromStr for Version {
    type Err = Invalid;

    /// `0.19`, `0.19.8`, `v0.19.2rc1`: what follows the second number does not matter.
    fn from_str(text: &str) -> Result<Self, Invalid> {
        let mut numbers = text.trim_start_matches('v').split('.').map(|part| {
            let digits = part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len());
            part[..digits].parse().ok()
        });
        let (major, minor) = (numbers.next().flatten(), numbers.next());
        match (major, minor) {
            (Some(major), Some(Some(minor))) => Ok(Self { major, minor }),
            (Some(major), None) => Ok(Self { major, minor: 0 }),
            _ => {
                let why =
                    format!("{text:?} is not a version. Use numbers separated by periods, for example 0.19");
                Err(Invalid::field("problem.framework_version", why))
            }
        }
    }
}

impl Target {
    /// The version of a framework that exports are made for: the newest where none is named, else the one that is named or the
    /// newest before it.
    ///
    /// # Errors
    /// `framework_version` is none, or is older than what exports are known for.
    pub fn of(framework: Framework, version: &str) -> Result<Self, Invalid> {
        let mut known: Vec<Version> = exporters()
            .iter()
            .filter(|exporter| exporter.target.framework == framework)
            .map(|exporter| exporter.target.version)
            .collect();
        known.sort_unstable();
        let newest = known.last().copied();
        let of = |version| Self { framework, version };
        if version.is_empty() {
            return newest.map(of).ok_or_else(|| not_known(framework));
        }
        let asked: Version = version.parse()?;
        let found = known.iter().rev().find(|&&known| known <= asked).copied();
        found.map(of).ok_or_else(|| {
            let oldest = known
                .first()
                .map_or_else(String::new, |oldest| format!(". The oldest supported version is {oldest}"));
            Invalid::field(
                "framework_version",
                format!("{asked} is not a supported version of {framework}{oldest}"),
            )
        })
    }
}

fn not_known(framework: Framework) -> Invalid {
    Invalid::field("problem.framework", format!("{framework} has no export. Use another framework"))
}
