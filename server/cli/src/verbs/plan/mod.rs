//! `loadmaster plan`.

mod chunks;
mod compare;
mod drawing;
mod export;
mod observe;
mod place;
mod predict;
mod recommend;
mod show;

use clap::{Args, Subcommand};
use loadmaster_proto::wire::v1;

use super::help;
use crate::failure::{Failure, options};
use crate::input::labels::{self, LabelChange};
use crate::input::parse::{self, Etag, request_id, sent};
use crate::session::address;
use crate::session::context::{Context, LeftBehind};
use crate::session::follow::{self, Wait};
use crate::session::list::{ListArgs, ListOptions};
use crate::session::watch;
use compare::Compare;
use export::ExportPlan;
use observe::{Errors, Report, Reports};
use place::{CreatePlacement, Placements};
pub(crate) use predict::Predict;
pub(crate) use recommend::Recommend;
use show::ShowPlan;

#[derive(Debug, Subcommand)]
pub(crate) enum PlanVerb {
    /// Predict the memory and the time of a stage, a pipeline or a plan, without running it.
    #[command(after_help = help::PLAN_PREDICT_SHORT, after_long_help = help::PLAN_PREDICT, allow_negative_numbers = true)]
    Predict(Box<Predict>),
    /// Recommend the best plan for a profile on devices or a cluster: by memory, time, cost or model size.
    #[command(after_help = help::PLAN_RECOMMEND_SHORT, allow_negative_numbers = true,
              after_long_help = options::with_exclusions(help::PLAN_RECOMMEND, options::PLAN_RECOMMEND))]
    Recommend(Box<Recommend>),
    /// Show a plan: its stages with predictions, measurements and capacity, and pictures.
    #[command(visible_alias = "get", after_help = help::PLAN_SHOW)]
    Show(ShowPlan),
    /// Compare plans: their differences, and pictures on common scales.
    #[command(after_help = help::PLAN_COMPARE)]
    Compare(Compare),
    /// List plans, newest first.
    #[command(after_help = help::PLAN_LIST)]
    List(ListArgs),
    /// Write a plan as the files, flags and ranks of a framework: Megatron-LM, DeepSpeed, torchtitan and others.
    #[command(after_help = help::PLAN_EXPORT)]
    Export(Box<ExportPlan>),
    /// Place the ranks of a plan on the nodes of an allocation, for the shortest iteration.
    #[command(after_help = help::PLAN_PLACE)]
    Place(CreatePlacement),
    /// List placements of plans, newest first, or show one with all ranks.
    #[command(after_help = help::PLAN_PLACEMENTS)]
    Placements(Placements),
    /// Train a plan for a few iterations, and compare memory and time with the prediction.
    #[command(after_help = help::PLAN_TRIAL, allow_negative_numbers = true)]
    Trial(StartTrial),
    /// Report the measured time and memory of a training of a plan.
    #[command(after_help = help::PLAN_REPORT, allow_negative_numbers = true)]
    Report(Report),
    /// Set or remove labels of a plan. Filters use them: `plan list --filter 'labels.team = vision'`.
    #[command(after_help = help::PLAN_LABEL)]
    Label {
        /// The plan: `plans/ID` or the id alone.
        #[arg(value_parser = parse::plan)]
        name: String,

        /// KEY=VALUE sets a label, KEY- removes it. All others stay.
        #[arg(required = true, value_name = "CHANGE", value_parser = labels::change)]
        changes: Vec<LabelChange>,

        #[command(flatten)]
        etag: Etag,
    },
    /// Delete a plan that nothing references, a report, or a placement.
    #[command(after_help = help::PLAN_DELETE)]
    Delete {
        /// The plan, `plans/ID` or the id alone; a report, `plans/ID/reports/ID`; or a placement, `placements/ID`.
        #[arg(value_parser = parse::plan_or_part)]
        name: String,

        /// Also delete the plan's reports, and detach its trials. Their runs stay in `loadmaster run list`.
        #[arg(long)]
        with_trials: bool,

        #[command(flatten)]
        etag: Etag,
    },
    /// List reports of plans, newest first, or show one.
    #[command(after_help = help::PLAN_REPORTS)]
    Reports(Reports),
    /// Compare predictions with trials and reports: errors, and calibration factors.
    #[command(after_help = help::PLAN_ERRORS)]
    Errors(Errors),
}

/// See [`PlanVerb::Trial`].
#[derive(Debug, Args)]
pub(crate) struct StartTrial {
    /// The plan: `plans/ID` or the id alone.
    #[arg(value_parser = parse::plan)]
    name: String,

    /// Measured iterations, after one warm-up iteration. Times are medians.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(i32).range(1..=1000))]
    iterations: i32,

    /// Number of plans to train: this one and the best of its alternatives. Prints the one with the best measurement.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(i32).range(1..=20))]
    candidates: i32,

    /// Train only these stages, each alone, counted from 0: 0,2. For plans that no worker can train as a whole.
    #[arg(long, value_name = "INDEX,…", value_delimiter = ',', conflicts_with = "candidates",
          value_parser = clap::value_parser!(i32).range(0..))]
    stage_indices: Vec<i32>,

    /// Time limit of one attempt of a run, for example 10m.
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = parse::duration)]
    run_time_limit: std::time::Duration,

    /// UUID that makes a repeated command return the first one's operation.
    #[arg(long, value_name = "UUID", value_parser = parse::uuid)]
    request_id: Option<String>,

    #[command(flatten)]
    wait: Wait,
}

impl PlanVerb {
    /// The options that fill the fields of its request.
    pub(crate) fn options(&self) -> options::OptionTable {
        match self {
            Self::Predict(predict) => predict.options(),
            Self::Recommend(recommend) => recommend.options(),
            Self::Show(_) => options::PLAN_SHOW,
            Self::Delete { .. } => options::PLAN_DELETE,
            Self::Compare(_) => options::PLAN_COMPARE,
            Self::List(_) => options::LIST,
            Self::Export(export) => export.options(),
            Self::Place(_) => options::PLAN_PLACE,
            Self::Placements(_) => options::PLAN_PLACEMENTS,
            Self::Label { .. } => options::PLAN_LABEL,
            Self::Trial(_) => options::PLAN_TRIAL,
            Self::Report(_) => options::PLAN_REPORT,
            Self::Reports(_) => options::REPORTS,
            Self::Errors(_) => options::PLAN_ERRORS,
        }
    }

    /// The request file, if one is given.
    pub(crate) fn request_file(&self) -> Option<&std::path::Path> {
        match self {
            Self::Predict(predict) => predict.file(),
            Self::Recommend(recommend) => recommend.file(),
            _ => None,
        }
    }

    /// Whether it can draw into a file.
    pub(crate) fn draws(&self) -> bool {
        matches!(self, Self::Show(_) | Self::Compare(_))
    }
}

pub(crate) async fn run(context: &Context, verb: PlanVerb) -> Result<(), Failure> {
    match verb {
        PlanVerb::Predict(predict) => predict.run(context).await,
        PlanVerb::Recommend(recommend) => recommend.run(context).await,
        PlanVerb::Show(show) => show.run(context).await,
        PlanVerb::Compare(compare) => compare.run(context).await,
        PlanVerb::Export(export) => export.run(context).await,
        PlanVerb::Place(place) => place.run(context).await,
        PlanVerb::Placements(placements) => placements.run(context).await,
        PlanVerb::List(list) => {
            let ListOptions { filter, order_by, shown } = list.asked()?;
            let page = address::of_list("plans", &filter, &order_by);
            let request = v1::ListPlansRequest { filter, order_by, ..Default::default() };
            watch::print(context, shown, request).await?;
            context.link(&page);
            Ok(())
        }
        PlanVerb::Trial(trial) => {
            let request = v1::StartTrialRequest {
                name: trial.name,
                iteration_count: trial.iterations,
                request_id: request_id(trial.request_id.as_ref()),
                run_time_limit: sent(trial.run_time_limit),
                plan_count: trial.candidates,
                stage_indices: trial.stage_indices,
            };
            context.leaves(LeftBehind::Request { request_id: request.request_id.clone() });
            let operation = context.client.call(request).await?;
            follow::begun(context, operation, &trial.wait).await
        }
        PlanVerb::Report(report) => report.run(context).await,
        PlanVerb::Label { name, changes, etag: Etag { etag } } => {
            let (labels, update_mask) = labels::request(changes);
            let plan = Some(v1::Plan { name, labels, etag, ..v1::Plan::default() });
            // A plan is large, and would be a part of every command's state.
            Box::pin(context.show(v1::UpdatePlanRequest { plan, update_mask })).await
        }
        PlanVerb::Delete { name, etag, .. } if parse::plan(&name).is_err() && !etag.etag.is_empty() => {
            let why = format!("--etag {}: {name} has no etag. Leave the option out.", etag.etag);
            Failure::usage(why)
        }
        PlanVerb::Delete { name, .. } if name.contains("/reports/") => {
            context.delete(v1::DeleteReportRequest { name: name.clone() }, &name).await
        }
        PlanVerb::Delete { name, .. } if name.starts_with("placements/") => {
            context.delete(v1::DeletePlacementRequest { name: name.clone() }, &name).await
        }
        PlanVerb::Delete { name, with_trials, etag: Etag { etag } } => {
            let request = v1::DeletePlanRequest { name: name.clone(), force: with_trials, etag };
            context.delete(request, &name).await
        }
        PlanVerb::Reports(reports) => reports.run(context).await,
        PlanVerb::Errors(errors) => errors.run(context).await,
    }
}
