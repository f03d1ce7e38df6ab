//! What predictions are made for and from, on the command line.

use clap::{Args, ValueEnum};
use loadmaster_proto::wire::v1;

use crate::input::parse;
use crate::input::training::{Recompute, Schedule};

/// Settings of the training and of the prediction.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Prediction")]
pub(super) struct Basis {
    /// Samples of one stage pass [default: the profile's target].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(1..=1_000_000))]
    pub(super) micro_batch_size: Option<i32>,

    /// Stage passes per iteration [default: the profile's target].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(1..=10_000))]
    pub(super) micro_batches: Option<i32>,

    /// Order of the passes [default: the profile's]. Another one takes the component predictor.
    #[arg(long, value_enum)]
    pub(super) schedule: Option<Schedule>,

    /// What is computed again [default: the profile's]. Another policy takes the component predictor.
    #[arg(long, value_enum)]
    pub(super) recompute: Option<Recompute>,

    /// What computes the prediction [default: the best one that the profile has what it takes for].
    #[arg(long, value_enum)]
    pub(super) predictor: Option<Predictor>,

    /// Share of the predicted bytes that must stay free, for example 5% [default: the predictor's own
    /// margin]. 0 keeps nothing free.
    #[arg(long, value_name = "SHARE", value_parser = parse::share)]
    pub(super) margin: Option<f64>,
}

/// Whether devices compute while they exchange with the stages next to them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Transfers {
    /// They do.
    Overlapping,
    /// They wait.
    Blocking,
}

impl From<Transfers> for v1::Transfers {
    fn from(transfers: Transfers) -> Self {
        match transfers {
            Transfers::Overlapping => Self::Overlapping,
            Transfers::Blocking => Self::Blocking,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Predictor {
    /// Replays what each layer allocates and frees.
    Component,
    /// CAPTURE's: isolated and added memory.
    Capture,
    /// Sums the tables of an imported profile.
    Table,
}

impl From<Predictor> for v1::PredictorKind {
    fn from(predictor: Predictor) -> Self {
        match predictor {
            Predictor::Component => Self::Component,
            Predictor::Capture => Self::Capture,
            Predictor::Table => Self::Table,
        }
    }
}
