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
use crate::input::parse;
use crate::input::parse::{request_id, sent};
use crate::session::address;
use crate::session::context::{Context, LeftBehind};
use crate::session::follow::{self, Wait};
use crate::session::list::{ListArgs, ListOptions};
use crate::session::watch;
use compare::Compare;
use export::ExportPlan;
use observe::{Errors, Report, Reports};
use place::{CreatePlacement, Placements};
use predict::Predict;
use recommend::Recommend;
use show::ShowPlan;

#[derive(Debug, Subcommand)]
pub(crate) enum PlanVerb {
    /// Will it fit? Memory and times of a stage, a partitioning or a plan, without running it.
    #[command(after_help = help::PLAN_PREDICT, allow_negative_numbers = true)]
    Predict(Box<Predict>),
    /// The best plan for a profile on given devices or a cluster: memory, time, cost or size.
    #[command(after_help = options::with_exclusions(help::PLAN_RECOMMEND, options::PLAN_RECOMMEND), allow_negative_numbers = true)]
    Recommend(Box<Recommend>),
    /// One plan with its stages: predicted, measured, capacity; and pictures of it.
    #[command(visible_alias = "get", after_help = help::PLAN_SHOW)]
    Show(ShowPlan),
    /// Plans side by side: what differs, and pictures on common scales.
    #[command(after_help = help::PLAN_COMPARE)]
    Compare(Compare),
    /// Plans, newest first.
    #[command(after_help = help::PLAN_LIST)]
    List(ListArgs),
    /// A plan as the files, flags and ranks of a framework: Megatron-LM, DeepSpeed, torchtitan and others.
    #[command(after_help = help::PLAN_EXPORT)]
    Export(Box<ExportPlan>),
    /// Put a plan on the very nodes that a scheduler gave, in the order that makes an iteration shortest.
    #[command(alias = "bind", after_help = help::PLAN_PLACE)]
    Place(CreatePlacement),
    /// Which plans were put on which nodes, newest first; or one of these placements, rank by rank.
    #[command(after_help = help::PLAN_PLACEMENTS)]
    Placements(Placements),
    /// Train a plan for real and compare what it needed with the prediction.
    #[command(alias = "validate", after_help = help::PLAN_TRIAL, allow_negative_numbers = true)]
    Trial(Validate),
    /// Report what a real training run of a plan needed.
    #[command(after_help = help::PLAN_REPORT, allow_negative_numbers = true)]
    Report(Report),
    /// Write labels on a plan, to find it again: `plan list --filter 'labels.team = vision'`.
    #[command(after_help = help::PLAN_LABEL)]
    Label {
        /// The plan: `plans/ID` or the id alone.
        #[arg(value_parser = parse::plan)]
        name: String,

        /// KEY=VALUE sets a label, KEY- removes it; all others stay.
        #[arg(required = true, value_name = "CHANGE", value_parser = labels::change)]
        changes: Vec<LabelChange>,
    },
    /// Delete a plan that nothing references, a report, or a placement.
    #[command(after_help = help::PLAN_DELETE)]
    Delete {
        /// The plan, `plans/ID` or the id alone; a report, `plans/ID/reports/ID`; or a placement, `placements/ID`.
        #[arg(value_parser = parse::plan_or_part)]
        name: String,

        /// Also where trials measured or somebody reported something of the plan: its reports go with it, its runs stay
        /// in the list of runs.
        #[arg(long)]
        with_trials: bool,
    },
    /// Reports of plans, newest first; or one of them.
    #[command(after_help = help::PLAN_REPORTS)]
    Reports(Reports),
    /// How right predictions were, from trials and reports, and what would correct them.
    #[command(after_help = help::PLAN_ERRORS)]
    Errors(Errors),
}

/// See [`PlanVerb::Trial`].
#[derive(Debug, Args)]
pub(crate) struct Validate {
    /// The plan: `plans/ID` or the id alone.
    #[arg(value_parser = parse::plan)]
    name: String,

    /// Measured iterations, after one warm-up iteration; seconds are medians over them.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(i32).range(1..=1000))]
    iterations: i32,

    /// Plans to train: this one and the best of its alternatives; the one that measures best is printed.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(i32).range(1..=20))]
    candidates: i32,

    /// Only this stage, alone, counted from 0; several times for several of them. For plans that no worker could hold
    /// whole.
    #[arg(long = "stage", value_name = "N", value_delimiter = ',', conflicts_with = "candidates",
          value_parser = clap::value_parser!(i32).range(0..))]
    stages: Vec<i32>,

    /// Hard limit of one attempt, for example 10m.
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = parse::duration)]
    run_deadline: std::time::Duration,

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
            Self::Predict(_) => options::PLAN_PREDICT,
            Self::Recommend(_) => options::PLAN_RECOMMEND,
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
        PlanVerb::Place(bind) => bind.run(context).await,
        PlanVerb::Placements(placements) => placements.run(context).await,
        PlanVerb::List(list) => {
            let ListOptions { filter, order_by, shown } = list.asked()?;
            let page = address::of_list("plans", &filter, &order_by);
            let request = v1::ListPlansRequest { filter, order_by, ..Default::default() };
            watch::print(context, shown, request).await?;
            context.link(&page);
            Ok(())
        }
        PlanVerb::Trial(validate) => {
            let request = v1::StartTrialRequest {
                name: validate.name,
                iteration_count: validate.iterations,
                request_id: request_id(validate.request_id.as_ref()),
                run_time_limit: sent(validate.run_deadline),
                plan_count: validate.candidates,
                stage_indices: validate.stages,
            };
            context.leaves(LeftBehind::Request { request_id: request.request_id.clone() });
            let operation = context.client.call(request).await?;
            follow::begun(context, operation, &validate.wait).await
        }
        PlanVerb::Report(report) => report.run(context).await,
        PlanVerb::Label { name, changes } => {
            let (labels, update_mask) = labels::request(changes);
            let plan = Some(v1::Plan { name, labels, ..v1::Plan::default() });
            // A plan is large, and would be a part of every command's state.
            Box::pin(context.show(v1::UpdatePlanRequest { plan, update_mask })).await
        }
        PlanVerb::Delete { name, .. } if name.contains("/reports/") => {
            context.delete(v1::DeleteReportRequest { name: name.clone() }, &name).await
        }
        PlanVerb::Delete { name, .. } if name.starts_with("placements/") => {
            context.delete(v1::DeletePlacementRequest { name: name.clone() }, &name).await
        }
        PlanVerb::Delete { name, with_trials } => {
            let request =
                v1::DeletePlanRequest { name: name.clone(), force: with_trials, ..Default::default() };
            context.delete(request, &name).await
        }
        PlanVerb::Reports(reports) => reports.run(context).await,
        PlanVerb::Errors(errors) => errors.run(context).await,
    }
}
