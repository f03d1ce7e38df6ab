//! `loadmaster plan`.

mod basis;
mod predict;

use clap::{Args, Subcommand};
use loadmaster_proto::wire::v1;

use basis::Basis;
use predict::Predict;

use super::client::plans;
use super::context::{Context, LeftBehind};
use super::document::{ProfileRef, profile_or_file};
use super::error::Failure;
use super::follow::{self, Wait};
use super::page::{self, Limit};
use super::parse::Devices;
use super::profile::{request_id, whole_seconds};
use super::{help, parse};

/// Verbs of plans.
#[derive(Debug, Subcommand)]
pub(super) enum Verb {
    /// Will it fit? Memory and times of a stage, a partitioning or a plan, without running it.
    #[command(after_help = help::PLAN_PREDICT, allow_negative_numbers = true)]
    Predict(Box<Predict>),
    /// The plan with the lowest peak memory for a profile on given devices.
    #[command(after_help = help::PLAN_RECOMMEND, allow_negative_numbers = true)]
    Recommend(Box<Recommend>),
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
    /// The profile behind the predictions: `profiles/ID`, the id alone, or a document (a path that ends with
    /// `.json` or has a slash).
    #[arg(long, value_name = "PROFILE", value_parser = profile_or_file)]
    profile: ProfileRef,

    /// Devices in pipeline order, one stage each: `COUNTxBYTES[:KIND]`, separated by commas.
    #[arg(long, value_name = "DEVICES")]
    devices: Devices,

    /// Make a plan of this partitioning instead of searching, for example 8-8d2-7t4-7.
    #[arg(long, value_name = "STAGES", value_parser = parse::partitioning, conflicts_with = "merge_layers_to")]
    partition: Option<v1::Partitioning>,

    /// Cut only between this many groups of layers, which CAPTURE's merger makes; for models that are too
    /// long to search layer by layer.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(1..))]
    merge_layers_to: Option<i32>,

    #[command(flatten)]
    basis: Basis,

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

impl Recommend {
    fn request(self) -> v1::RecommendPlanRequest {
        let Basis { micro_batch_size, micro_batches, schedule, recompute, predictor, margin } = self.basis;
        v1::RecommendPlanRequest {
            profile: self.profile.name(),
            devices: self.devices.0,
            micro_batch_size: micro_batch_size.unwrap_or_default(),
            micro_batches: micro_batches.unwrap_or_default(),
            shape: v1::PlanShape::SinglePipeline.into(),
            validate_only: self.dry_run,
            schedule: schedule.map_or(v1::Schedule::Unspecified, Into::into).into(),
            recompute: recompute.map_or(v1::RecomputePolicy::Unspecified, Into::into).into(),
            predictor: predictor.map_or(v1::PredictorKind::Unspecified, Into::into).into(),
            margin,
            partitioning: self.partition,
            merge_layers_to: self.merge_layers_to.unwrap_or_default(),
            profile_document: String::new(),
        }
    }
}

pub(super) async fn run(context: &Context, verb: Verb) -> Result<(), Failure> {
    match verb {
        Verb::Predict(predict) => predict.run(context).await,
        Verb::Recommend(recommend) => {
            let dry_run = recommend.dry_run;
            let profile_document = recommend.profile.document()?;
            let request = v1::RecommendPlanRequest { profile_document, ..recommend.request() };
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
