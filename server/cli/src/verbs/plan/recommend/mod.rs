//! `loadmaster plan recommend`.

mod memory;
mod options;
mod request;

use std::time::Duration;

use self::options::{Batch, Goal, Limits, On, Search};
use clap::Args;
use loadmaster_proto::wire::v1;
use loadmaster_proto::wire::v1::recommend_plan_response::Result as Answer;
use loadmaster_show::table::fit_under;
use memory::RecommendMemoryOptions;
use uuid::Uuid;

use crate::failure::options::PLAN_RECOMMEND;
use crate::failure::{Failure, check_fits};
use crate::input::parse;
use crate::input::parse::choice;
use crate::input::profile::{ProfileRef, profile_or_file};
use crate::input::training::{Actions, copy_pace};
use crate::output::Format;
use crate::session::context::{Context, LeftBehind};
use crate::session::follow;

/// See [`super::PlanVerb::Recommend`].
#[derive(Debug, Args)]
pub(crate) struct Recommend {
    /// The profile behind the predictions: `profiles/ID`, the id alone, or a document (a path that ends with
    /// `.json` or has a slash).
    #[arg(long, value_name = "PROFILE", value_parser = profile_or_file,
          required_unless_present = "candidate_profiles")]
    profile: Option<ProfileRef>,

    #[command(flatten)]
    on: On,

    #[command(flatten)]
    goal: Goal,

    #[command(flatten)]
    batch: Batch,

    #[command(flatten)]
    limits: Limits,

    #[command(flatten)]
    search: Search,

    /// Make a plan of this partitioning on all devices in order instead of searching, for example 8-8d2-7t4-7.
    #[arg(long, value_name = "STAGES", value_parser = parse::partitioning)]
    partition: Option<v1::PipelineLayout>,

    #[command(flatten)]
    actions: Actions,

    /// Has the planner choose what stages do so that they hold less, by any --objective: with these ways [default: all,
    /// of those that --framework can, where --swap, --search-mode mpress, or --host-memory without --memory is there].
    #[arg(long = "actions", value_name = "WAY", value_delimiter = ',', value_parser = choice::<v1::MemoryOptimizationKind>(),
          help_heading = "Memory actions")]
    ways: Vec<v1::MemoryOptimizationKind>,

    /// Blocks that may be away from their devices [default: activations,gradients,optimizer].
    #[arg(long = "swap", value_name = "BLOCK", value_delimiter = ',', value_parser = choice::<v1::MemoryBlock>(),
          help_heading = "Memory actions")]
    blocks: Vec<v1::MemoryBlock>,

    /// Blocks smaller than this stay on their devices, for example 64KiB [default: none]: a copy has a price however little it
    /// moves.
    #[arg(long, value_name = "BYTES", value_parser = parse::bytes, help_heading = "Memory actions")]
    smallest_block: Option<i64>,

    #[command(flatten)]
    memory: RecommendMemoryOptions,

    /// Memory of each host that may be taken: by blocks, or with --memory by chunks, in equal parts by its devices
    /// [default: none]. Beside --action it is the most that the given actions may take [default: any].
    #[arg(long, value_name = "BYTES", value_parser = parse::bytes, help_heading = "Memory")]
    host_memory: Option<i64>,

    /// How fast copies to the host and to other devices are, for example host=12GB/s,peer=92GB/s [default: a guess by
    /// kind of device, which the answer names].
    #[arg(long, value_name = "RATES", value_parser = copy_pace, help_heading = "Memory")]
    copy_rates: Option<v1::CopyBandwidth>,

    /// Answer without storing the plan.
    #[arg(long, help_heading = None)]
    dry_run: bool,
}

/// What a response without a result means.
const NO_RESULT: &str = "the planner's response has neither a plan nor a reason why there is none: install the same version of \
                         Loadmaster as the planner has";

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
    pub(super) async fn run(self, context: &Context) -> Result<(), Failure> {
        let dry_run = self.dry_run;
        let document = self.profile.as_ref().map(ProfileRef::document).transpose()?;
        let profile_document = document.unwrap_or_default();
        let request = loadmaster_proto::changed!(self.request(), problem.profile_document = profile_document);
        let limit = request.search().time_limit.and_then(|limit| Duration::try_from(limit).ok());
        let response = if limit.is_some_and(|limit| limit > MAX_CALL_SEARCH) {
            if dry_run {
                let why =
                    "--dry-run: a search of more than 50 s stores its plan. Use --search-time 50s or less.";
                return Err(Failure::Usage(why.to_owned()));
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
        check_fits(plan.verdict(), || format!("{} {}", plan.name, fit_under(plan.verdict(), &plan.framework)))
    }
}
