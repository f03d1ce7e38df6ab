//! Who makes stages fit.

use anyhow::{Context, Result};
use serde::Serialize;

use crate::train::cuts::partitionings;
use crate::train::scene::{Answer, Scene, Slots};

/// Blocks that may leave, all that there are with a flush.
const ALL_BLOCKS: &str = "activations,inputs,weights,gradients,optimizer";

/// A way, or several, to hold less.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Rule {
    /// Nothing.
    KeepOnly,
    /// Computing again.
    RecomputeOnly,
    /// Blocks in the host's memory.
    HostOnly,
    /// Blocks on peers.
    PeerOnly,
    /// All of them, as MPress's planner chooses.
    Mpress,
    /// All of them.
    Ours,
}

/// How long is looked for a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Care {
    /// The first that fits.
    First,
    /// The fastest of all cuts.
    Fastest,
}

impl Rule {
    pub(crate) const ALL: [Self; 6] =
        [Self::KeepOnly, Self::RecomputeOnly, Self::HostOnly, Self::PeerOnly, Self::Mpress, Self::Ours];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::KeepOnly => "keep-only",
            Self::RecomputeOnly => "recompute-only",
            Self::HostOnly => "host-only",
            Self::PeerOnly => "peer-only",
            Self::Mpress => "MPress's planner",
            Self::Ours => "ours, all ways",
        }
    }

    /// Options of `plan recommend`.
    fn options(self, scene: &Scene<'_>) -> Vec<String> {
        let ways = match self {
            Self::KeepOnly => return Vec::new(),
            Self::RecomputeOnly => "recompute",
            Self::HostOnly => "host",
            Self::PeerOnly => "peer",
            Self::Mpress | Self::Ours => "recompute,host,peer",
        };
        let mut options = vec!["--actions", ways, "--copy-rates", scene.setting.rates];
        if self != Self::RecomputeOnly {
            options.extend(["--swap", ALL_BLOCKS]);
        }
        let host = format!("{}B", scene.setting.host_bytes);
        if matches!(self, Self::HostOnly | Self::Mpress | Self::Ours) {
            options.extend(["--host-memory", &host]);
        }
        if self == Self::Mpress {
            options.extend(["--search-mode", "mpress"]);
        }
        options.into_iter().map(str::to_owned).collect()
    }

    /// A plan for the model of so many blocks: over the blocks as evenly as can be, or over stages that the planner finds.
    ///
    /// # Errors
    /// After an interruption.
    pub(crate) fn plan(self, scene: &Scene<'_>, blocks: u32, slots: Slots, care: Care) -> Result<Answer> {
        let options = self.options(scene);
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        let mut found: Option<Answer> = None;
        for cut in partitionings(blocks, slots.count) {
            let answer = scene.plan(blocks, slots, &[&options[..], &["--partition", &cut]].concat())?;
            found = Some(better(found, answer));
            if care == Care::First && found.as_ref().is_some_and(Result::is_ok) {
                break;
            }
        }
        if care == Care::Fastest || !found.as_ref().is_some_and(Result::is_ok) {
            let free: &[&str] = match self {
                Self::KeepOnly => {
                    &["--objective", "min-iteration-time", "--shape", "single-pipeline", "--schedule", "1f1b"]
                }
                _ => &[],
            };
            let answer = scene.plan(blocks, slots, &[&options[..], free].concat())?;
            // Stages that nobody named come last: why these do not fit says least.
            found = Some(match found {
                Some(found) => better(Some(found), answer),
                None => answer,
            });
        }
        found.context("no cut and no search was asked for")
    }
}

/// The faster plan; where there is none, why the first one asked for does not fit.
fn better(known: Option<Answer>, answer: Answer) -> Answer {
    let seconds = |of: &Answer| {
        of.as_ref()
            .ok()
            .and_then(|plan| plan["iteration"]["iterationSeconds"].as_f64())
            .unwrap_or(f64::INFINITY)
    };
    match known {
        Some(known) if known.is_ok() || answer.is_err() => {
            if seconds(&answer) < seconds(&known) {
                answer
            } else {
                known
            }
        }
        _ => answer,
    }
}
