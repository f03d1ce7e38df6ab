//! `loadmaster plan`.

use clap::{Args, Subcommand};
use loadmaster_proto::wire::v1;

use super::client::plans;
use super::context::{Context, LeftBehind};
use super::error::Failure;
use super::follow::{self, Wait};
use super::page::{self, Limit};
use super::parse::Devices;
use super::profile::{request_id, whole_seconds};
use super::{help, parse};

/// Verbs of plans.
#[derive(Debug, Subcommand)]
pub(super) enum Verb {
    /// The plan with the lowest peak memory for a profile on given devices.
    #[command(after_help = help::PLAN_RECOMMEND, allow_negative_numbers = true)]
    Recommend(Recommend),
    /// One plan with its stages: predicted, measured, capacity.
    #[command(visible_alias = "get", after_help = help::PLAN_SHOW)]
    Show {
        /// The plan: `plans/ID` or the id alone.
        #[arg(value_parser = parse::plan)]
        name: String,
    },
    /// Plans, newest first.
    #[command(after_help = help::PLAN_LIST)]
    List(Limit),
    /// Train a plan for real and compare what it needed with the prediction.
    #[command(after_help = help::PLAN_VALIDATE, allow_negative_numbers = true)]
    Validate(Validate),
}

/// See [`Verb::Recommend`].
#[derive(Debug, Args)]
pub(super) struct Recommend {
    /// The profile behind the predictions: `profiles/ID` or the id alone.
    #[arg(long, value_name = "PROFILE", value_parser = parse::profile)]
    profile: String,

    /// Devices in pipeline order, one stage each: `COUNTxBYTES[:KIND]`, separated by commas.
    #[arg(long, value_name = "DEVICES")]
    devices: Devices,

    /// Samples of one stage pass [default: the profile's target].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(1..=1_000_000))]
    micro_batch_size: Option<i32>,

    /// Stage passes per iteration [default: the profile's target].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(1..=10_000))]
    micro_batches: Option<i32>,

    /// Answer without storing the plan.
    #[arg(long)]
    dry_run: bool,
}

/// See [`Verb::Validate`].
#[derive(Debug, Args)]
pub(super) struct Validate {
    /// The plan: `plans/ID` or the id alone.
    #[arg(value_parser = parse::plan)]
    name: String,

    /// Measured iterations, after one warm-up iteration.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(i32).range(1..=1000))]
    iterations: i32,

    /// Hard limit of one attempt, for example 10m.
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = parse::duration)]
    run_deadline: std::time::Duration,

    /// UUID that makes a repeated command return the first one's operation.
    #[arg(long, value_name = "UUID", value_parser = parse::uuid)]
    request_id: Option<String>,

    #[command(flatten)]
    wait: Wait,
}

pub(super) async fn run(context: &Context, verb: Verb) -> Result<(), Failure> {
    match verb {
        Verb::Recommend(recommend) => {
            let dry_run = recommend.dry_run;
            let request = v1::RecommendPlanRequest {
                profile: recommend.profile,
                devices: recommend.devices.0,
                micro_batch_size: recommend.micro_batch_size.unwrap_or_default(),
                micro_batches: recommend.micro_batches.unwrap_or_default(),
                shape: v1::PlanShape::SinglePipeline.into(),
                validate_only: dry_run,
            };
            let plan = context
                .client
                .call(request, async |channel, q| plans(channel).recommend_plan(q).await)
                .await?;
            if dry_run {
                context.remark("dry run: the plan is not stored");
            }
            context.output.print(&plan)
        }
        Verb::Show { name } => {
            let request = v1::GetPlanRequest { name };
            let plan =
                context.client.call(request, async |channel, q| plans(channel).get_plan(q).await).await?;
            context.output.print(&plan)
        }
        Verb::List(limit) => {
            let plans = page::all(context, limit, async |page_size, page_token| {
                let request = v1::ListPlansRequest { page_size, page_token };
                context.client.call(request, async |channel, q| plans(channel).list_plans(q).await).await
            });
            context.output.print(&plans.await?)
        }
        Verb::Validate(validate) => {
            let request = v1::ValidatePlanRequest {
                name: validate.name,
                iterations: validate.iterations,
                request_id: request_id(validate.request_id.as_ref()),
                run_deadline_seconds: whole_seconds(validate.run_deadline),
            };
            context.leaves(LeftBehind::Request { request_id: request.request_id.clone() });
            let operation = context
                .client
                .call(request, async |channel, q| plans(channel).validate_plan(q).await)
                .await?;
            follow::begun(context, operation, &validate.wait).await
        }
    }
}
