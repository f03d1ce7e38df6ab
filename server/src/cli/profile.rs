//! `loadmaster profile`.

use clap::{Args, Subcommand, ValueEnum};
use loadmaster_proto::wire::longrunning::{Operation, operation};
use loadmaster_proto::wire::v1;

use super::client::profiles;
use super::context::{Context, LeftBehind};
use super::error::Failure;
use super::follow::{self, Wait};
use super::model::ModelArgs;
use super::output::Format;
use super::page::{self, Limit};
use super::training::TrainingArgs;
use super::{help, parse};

/// Verbs of profiles.
#[derive(Debug, Subcommand)]
pub(super) enum Verb {
    /// Measure a model: train pieces of it on the connected workers.
    #[command(after_help = help::PROFILE_RUN, allow_negative_numbers = true)]
    Run(Box<RunProfile>),
    /// Profiles, newest first.
    #[command(after_help = help::PROFILE_LIST)]
    List(Limit),
    /// One profile with the isolated and added memory of each layer.
    #[command(visible_alias = "get", after_help = help::PROFILE_SHOW)]
    Show {
        /// The profile: `profiles/ID` or the id alone.
        #[arg(value_parser = parse::profile)]
        name: String,
    },
    /// What each run of a profile measured.
    #[command(after_help = help::PROFILE_MEASUREMENTS)]
    Measurements {
        /// The profile: `profiles/ID` or the id alone.
        #[arg(value_parser = parse::profile)]
        name: String,
        #[command(flatten)]
        limit: Limit,
    },
}

/// See [`Verb::Run`].
#[derive(Debug, Args)]
pub(super) struct RunProfile {
    #[command(flatten)]
    model: ModelArgs,

    #[command(flatten)]
    training: TrainingArgs,

    #[command(flatten)]
    campaign: CampaignArgs,

    #[command(flatten)]
    wait: Wait,
}

/// What is measured, and on what.
#[derive(Debug, Args)]
#[command(next_help_heading = "Profiling")]
struct CampaignArgs {
    /// Pipeline stages that plans will have, one device each.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(1..))]
    devices: i32,

    /// Which runs the profile is made of.
    #[arg(long, value_enum, default_value_t = Campaign::Stages)]
    campaign: Campaign,

    /// One or two micro-batch sizes to measure at [default: half and a quarter of the target's].
    #[arg(long, value_name = "N,N", value_delimiter = ',',
          value_parser = clap::value_parser!(i32).range(1..))]
    profile_micro_batch_sizes: Vec<i32>,

    /// Measured iterations per run, after one warm-up iteration.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(i32).range(1..=1000))]
    iterations: i32,

    /// Kind of device to measure on, as `loadmaster worker show` prints it [default: the first one's].
    #[arg(long, value_name = "KIND")]
    device_kind: Option<String>,

    /// Least capacity of a device that may take a run, for example 2GiB.
    #[arg(long, value_name = "BYTES", value_parser = parse::bytes)]
    min_capacity: Option<i64>,

    /// Hard limit of one attempt of one run, for example 10m.
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = parse::duration)]
    run_deadline: std::time::Duration,

    /// Id of the new profile: 1 to 63 of a-z, 0-9, '-' [default: derived from the model].
    #[arg(long, value_name = "ID")]
    id: Option<String>,

    /// UUID that makes a repeated command return the first one's operation.
    #[arg(long, value_name = "UUID", value_parser = parse::uuid)]
    request_id: Option<String>,

    /// Check everything, but queue no run.
    #[arg(long)]
    dry_run: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Campaign {
    /// Each distinct stage alone: one device per run, so the runs spread over all workers.
    Stages,
    /// CAPTURE's: whole partitionings over all devices, at each micro-batch size.
    Paper,
}

pub(super) async fn run(context: &Context, verb: Verb) -> Result<(), Failure> {
    match verb {
        Verb::Run(run) => measure(context, *run).await,
        Verb::List(limit) => {
            let profiles = page::all(context, limit, async |page_size, page_token| {
                let request = v1::ListProfilesRequest { page_size, page_token };
                context
                    .client
                    .call(request, async |channel, q| profiles(channel).list_profiles(q).await)
                    .await
            });
            context.output.print(&profiles.await?)
        }
        Verb::Show { name } => {
            let request = v1::GetProfileRequest { name };
            let profile = context
                .client
                .call(request, async |channel, q| profiles(channel).get_profile(q).await)
                .await?;
            context.output.print(&profile)
        }
        Verb::Measurements { name, limit } => {
            let measurements = page::all(context, limit, async |page_size, page_token| {
                let request = v1::ListMeasurementsRequest { parent: name.clone(), page_size, page_token };
                context
                    .client
                    .call(request, async |channel, q| profiles(channel).list_measurements(q).await)
                    .await
            });
            context.output.print(&measurements.await?)
        }
    }
}

async fn measure(context: &Context, run: RunProfile) -> Result<(), Failure> {
    let dry_run = run.campaign.dry_run;
    let request = run.request()?;
    if !dry_run {
        context.leaves(LeftBehind::Request { request_id: request.request_id.clone() });
    }
    let operation =
        context.client.call(request, async |channel, q| profiles(channel).run_profile(q).await).await?;
    if dry_run {
        let failed = matches!(operation.result, Some(operation::Result::Error(_)));
        if !failed {
            context.remark(&dry_run_remark(&operation));
            // There is nothing to see for people; a script gets its document.
            return match context.output.format {
                Format::Table => Ok(()),
                Format::Json | Format::Yaml | Format::Name => context.output.print(&operation),
            };
        }
    }
    follow::begun(context, operation, &run.wait).await
}

/// What a valid request would have begun.
fn dry_run_remark(operation: &Operation) -> String {
    let profile = match &operation.result {
        Some(operation::Result::Response(made)) => made.to_msg::<v1::Profile>().ok(),
        Some(operation::Result::Error(_)) | None => None,
    };
    let runs = profile.as_ref().and_then(|profile| profile.runs.as_ref()).map_or(0, |runs| runs.total);
    let kind = profile.map(|profile| profile.device_kind).unwrap_or_default();
    format!("dry run: the request is valid and would queue {runs} runs on {kind} devices; nothing is stored")
}

impl RunProfile {
    fn request(&self) -> Result<v1::RunProfileRequest, Failure> {
        let args = &self.campaign;
        let campaign = match args.campaign {
            Campaign::Paper => v1::Campaign::Paper,
            Campaign::Stages => v1::Campaign::Stages,
        };
        Ok(v1::RunProfileRequest {
            subject: Some(self.model.subject()?),
            training: Some(self.training.spec()?),
            campaign: campaign.into(),
            devices: args.devices,
            micro_batch_sizes: args.profile_micro_batch_sizes.clone(),
            iterations: args.iterations,
            device_kind: args.device_kind.clone().unwrap_or_default(),
            min_capacity_bytes: args.min_capacity.unwrap_or_default(),
            profile_id: args.id.clone().unwrap_or_default(),
            request_id: request_id(args.request_id.as_ref()),
            validate_only: args.dry_run,
            run_deadline_seconds: whole_seconds(args.run_deadline),
        })
    }
}

/// The given id, or a fresh one, so that a repeated call of this command begins nothing twice.
pub(super) fn request_id(given: Option<&String>) -> String {
    given.cloned().unwrap_or_else(|| uuid::Uuid::new_v4().to_string())
}

/// Rounded up: 0 would mean "the default".
pub(super) fn whole_seconds(duration: std::time::Duration) -> i32 {
    let up = u64::from(duration.subsec_nanos() > 0);
    i32::try_from(duration.as_secs().saturating_add(up)).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        run: RunProfile,
    }

    fn request(options: &str) -> v1::RunProfileRequest {
        let line = format!("x --model vgg11 --micro-batch-size 8 --micro-batches 4 --devices 4 {options}");
        Line::try_parse_from(line.split_whitespace()).unwrap().run.request().unwrap()
    }

    #[test]
    fn options_become_the_request() {
        let request = request(
            "--image-size 32 --campaign stages --profile-micro-batch-sizes 2,4 --min-capacity 2GiB \
             --run-deadline 90s",
        );
        assert_eq!(request.devices, 4);
        assert_eq!(request.campaign(), v1::Campaign::Stages);
        assert_eq!(request.micro_batch_sizes, [2, 4]);
        assert_eq!(request.min_capacity_bytes, 2 << 30);
        assert_eq!(request.run_deadline_seconds, 90);
    }

    #[test]
    fn each_command_has_a_request_id() {
        assert_ne!(request("").request_id, request("").request_id);
        let given = "67e55044-10b1-426f-9247-bb680e5fe0c8";
        assert_eq!(request(&format!("--request-id {given}")).request_id, given);
    }
}
