//! What predictions are made for and from, on the command line.

use clap::Args;
use loadmaster_proto::wire::v1;

use crate::input::choice::choice;
use crate::input::parse;

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
    #[arg(long, value_parser = choice::<v1::Schedule>())]
    pub(super) schedule: Option<v1::Schedule>,

    /// What is computed again [default: the profile's]. Another policy takes the component predictor.
    #[arg(long, value_parser = choice::<v1::RecomputePolicy>())]
    pub(super) recompute: Option<v1::RecomputePolicy>,

    /// What computes the prediction [default: the best one that the profile has what it takes for].
    #[arg(long, value_parser = choice::<v1::PredictorKind>())]
    pub(super) predictor: Option<v1::PredictorKind>,

    /// Share of the predicted bytes that must stay free, for example 5% [default: the predictor's own
    /// margin]. 0 keeps nothing free.
    #[arg(long, value_name = "SHARE", value_parser = parse::share)]
    pub(super) margin: Option<f64>,
}
