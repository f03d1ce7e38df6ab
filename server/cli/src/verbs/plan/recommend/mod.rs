//! `loadmaster plan recommend`.

mod options;
mod request;

use std::path::Path;
use std::time::Duration;

use self::options::{
    ConstraintOptions, DeviceOptions, MemoryArgs, ObjectiveArgs, SearchArgs, TrainingOptions,
};
use clap::Args;
use loadmaster_proto::wire::v1;
use loadmaster_proto::wire::v1::recommend_plan_response::Result as Answer;
use loadmaster_show::text::fit;
use uuid::Uuid;

use crate::failure::options::{OptionTable, PLAN_RECOMMEND, PLAN_RECOMMEND_GPUS};
use crate::failure::{Failure, check_fits};
use crate::input::profile::{ProfileRef, profile_or_file};
use crate::input::request_file::RequestFile;
use crate::input::training::Actions;
use crate::output::Format;
use crate::session::context::{Context, LeftBehind};
use crate::session::follow;

/// See [`super::PlanVerb::Recommend`].
#[derive(Debug, Args)]
pub(crate) struct Recommend {
    /// Profile behind the predictions: `profiles/ID`, the id alone, or a document (a path that ends with `.json` or has a slash).
    #[arg(long, value_name = "PROFILE", value_parser = profile_or_file, required_unless_present = "file")]
    profile: Option<ProfileRef>,

    #[command(flatten)]
    file: RequestFile,

    #[command(flatten)]
    devices: DeviceOptions,

    #[command(flatten)]
    objective: ObjectiveArgs,

    #[command(flatten)]
    training: TrainingOptions,

    #[command(flatten)]
    constraints: ConstraintOptions,

    #[command(flatten)]
    memory: MemoryArgs,

    #[command(flatten)]
    actions: Actions,

    #[command(flatten)]
    search: SearchArgs,

    /// Answer without storing the plan.
    #[arg(long, help_heading = None)]
    dry_run: bool,
}

/// What a response without a result means.
const NO_RESULT: &str = "the planner returned neither a plan nor a reason why there is none. Install the same version \
    of Loadmaster as the planner's";

/// Longest search of one call. A longer one is an operation.
const MAX_CALL_SEARCH: Duration = Duration::from_secs(50);

/// Searches as an operation, and shows its progress.
async fn long_search(
    context: &Context,
    request: v1::RecommendPlanRequest,
) -> Result<v1::RecommendPlanResponse, Failure> {
    let request_id = Uuid::new_v4().to_string();
    let request = v1::StartRecommendationRequest { request: Some(request), request_id };
    let operation = context.client.call(request).await?;
    follow::to_recommendation(context, operation).await
}

impl Recommend {
    /// The request file, if one is given.
    pub(crate) fn file(&self) -> Option<&Path> {
        self.file.path()
    }

    /// The options that fill the fields of its request.
    pub(crate) fn options(&self) -> OptionTable {
        if self.devices.gpus.is_some() { PLAN_RECOMMEND_GPUS } else { PLAN_RECOMMEND }
    }

    pub(crate) async fn run(self, context: &Context) -> Result<(), Failure> {
        let request = self.request()?;
        let dry_run = request.validate_only;
        let limit = request.search().time_limit.and_then(|limit| Duration::try_from(limit).ok());
        let response = if limit.is_some_and(|limit| limit > MAX_CALL_SEARCH) {
            if dry_run {
                let why = "--dry-run: a search of more than 50 s always stores its plan. Use --search-time 50s or less.";
                return Failure::usage(why);
            }
            long_search(context, request).await?
        } else {
            context.leaves(LeftBehind::Search);
            context.client.call(request).await?
        };
        let plan = match response.result {
            Some(Answer::Plan(plan)) => plan,
            Some(Answer::Infeasible(infeasible)) => {
                // On standard output where a program reads it.
                if context.output.format != Format::Table {
                    context.output.print(&infeasible)?;
                }
                return Err(Failure::infeasible(&infeasible, PLAN_RECOMMEND));
            }
            None => return Err(anyhow::anyhow!(NO_RESULT).into()),
        };
        if dry_run {
            context.remark("dry run: the plan is not stored");
        }
        context.print(&plan, !dry_run)?;
        check_fits(plan.verdict(), || format!("{}: {}", plan.name, fit(plan.summary.as_ref())))
    }
}
