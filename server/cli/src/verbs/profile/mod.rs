//! `loadmaster profile`.

mod campaign;
mod delete;
mod document;

use clap::{Args, Subcommand};
use loadmaster_proto::wire::longrunning::{Operation, operation};
use loadmaster_proto::wire::v1;

use super::help;
use crate::failure::{Failure, options};
use crate::input::labels::{self, LabelChange};
use crate::input::model::ModelArgs;
use crate::input::parse::{self, Etag};
use crate::input::training::TrainingArgs;
use crate::output::Format;
use crate::session::address;
use crate::session::context::{Context, LeftBehind};
use crate::session::follow::{self, Wait};
use crate::session::list::{FilterArg, ListArgs, ListOptions, SelectArgs};
use crate::session::page::{self, Limit};
use crate::session::watch;
use campaign::CampaignArgs;
use delete::DeleteProfile;
use document::{ExportProfile, ImportProfile};
use loadmaster_show::text::{about, count, plain, plural};

#[derive(Debug, Subcommand)]
pub(crate) enum ProfileVerb {
    /// Profile a model: train pieces of it on the connected workers, and record memory and times.
    #[command(after_help = help::PROFILE_RUN, allow_negative_numbers = true, mut_args = common_in_short_help)]
    Run(Box<CreateProfile>),
    /// Measure the missing runs of an incomplete or cancelled profile.
    #[command(after_help = help::PROFILE_RESUME)]
    Resume {
        /// The profile: `profiles/ID` or the id alone.
        #[arg(value_parser = parse::profile)]
        name: String,

        /// UUID that makes a repeated command return the first one's operation.
        #[arg(long, value_name = "UUID", value_parser = parse::uuid)]
        request_id: Option<String>,

        #[command(flatten)]
        wait: Wait,
    },
    /// List profiles, newest first.
    #[command(after_help = help::PROFILE_LIST)]
    List(ListArgs),
    /// Show a profile: its runs and their cost, what each predictor needs, and the memory of each layer.
    #[command(visible_alias = "get", after_help = help::PROFILE_SHOW)]
    Show {
        /// The profile: `profiles/ID` or the id alone.
        #[arg(value_parser = parse::profile)]
        name: String,
    },
    /// Set or remove labels of a profile. Filters use them: `profile list --filter 'labels.team = vision'`.
    #[command(after_help = help::PROFILE_LABEL)]
    Label {
        /// The profile: `profiles/ID` or the id alone.
        #[arg(value_parser = parse::profile)]
        name: String,

        /// KEY=VALUE sets a label, KEY- removes it. All others stay.
        #[arg(required = true, value_name = "CHANGE", value_parser = labels::change)]
        changes: Vec<LabelChange>,

        #[command(flatten)]
        etag: Etag,
    },
    /// Delete a profile, and with --with-plans its plans. Its measurements stay for other profiles.
    #[command(after_help = help::PROFILE_DELETE)]
    Delete(DeleteProfile),
    /// Write a complete profile as a JSON document, for another planner or to read.
    #[command(after_help = help::PROFILE_EXPORT)]
    Export(ExportProfile),
    /// Store a JSON document as a profile, from another planner or another tool.
    #[command(after_help = help::PROFILE_IMPORT)]
    Import(ImportProfile),
    /// List the measurements of a profile, or show one. JSON and YAML contain its allocation trace.
    #[command(after_help = help::PROFILE_MEASUREMENTS)]
    Measurements {
        /// The profile, `profiles/ID` or the id alone; or one measurement, `runs/ID/measurements/STAGE-SHARD`.
        #[arg(value_parser = parse::profile_or_measurement)]
        name: String,
        #[command(flatten)]
        select: SelectArgs,
        #[command(flatten)]
        limit: Limit,
    },
}

/// Options of `profile run` that `-h` lists; `--help` lists all.
const COMMON: &str = "model model_file sequence_length micro_batch_size micro_batches precision optimizer parallelism \
                      parallel_sizes id no_wait dry_run";

fn common_in_short_help(arg: clap::Arg) -> clap::Arg {
    let is_common = COMMON.split(' ').any(|common| arg.get_id() == common);
    arg.hide_short_help(!is_common)
}

/// See [`ProfileVerb::Run`].
#[derive(Debug, Args)]
pub(crate) struct CreateProfile {
    #[command(flatten)]
    model: ModelArgs,

    #[command(flatten)]
    training: TrainingArgs,

    #[command(flatten)]
    campaign: CampaignArgs,

    #[command(flatten)]
    wait: Wait,
}

impl ProfileVerb {
    /// The options that fill the fields of its request.
    pub(crate) fn options(&self) -> options::OptionTable {
        match self {
            Self::Run(_) => options::PROFILE_RUN,
            Self::Resume { .. } => options::PROFILE_RESUME,
            Self::List(_) => options::LIST,
            Self::Label { .. } => options::PROFILE_LABEL,
            Self::Show { .. } | Self::Export(_) => options::NAME,
            Self::Delete(_) => options::PROFILE_DELETE,
            Self::Import(_) => options::PROFILE_IMPORT,
            Self::Measurements { .. } => options::PROFILE_MEASUREMENTS,
        }
    }

    /// Returns the file that its request carries.
    pub(crate) fn document(&self) -> Option<&std::path::Path> {
        match self {
            Self::Import(import) => Some(import.file()),
            _ => None,
        }
    }
}

pub(crate) async fn run(context: &Context, verb: ProfileVerb) -> Result<(), Failure> {
    match verb {
        ProfileVerb::Run(run) => measure(context, *run).await,
        ProfileVerb::Resume { name, request_id: given, wait } => {
            let request = v1::ResumeProfileRequest { name, request_id: parse::request_id(given.as_ref()) };
            context.leaves(LeftBehind::Request { request_id: request.request_id.clone() });
            let operation = context.client.call(request).await?;
            follow::begun(context, operation, &wait).await
        }
        ProfileVerb::List(list) => {
            let ListOptions { filter, order_by, shown } = list.asked()?;
            let page = address::of_list("profiles", &filter, &order_by);
            let request = v1::ListProfilesRequest { filter, order_by, ..Default::default() };
            watch::print(context, shown, request).await?;
            context.link(&page);
            Ok(())
        }
        ProfileVerb::Show { name } => {
            context.show(v1::GetProfileRequest { name, ..Default::default() }).await
        }
        ProfileVerb::Label { name, changes, etag: Etag { etag } } => {
            let (labels, update_mask) = labels::request(changes);
            let profile = Some(v1::Profile { name, labels, etag, ..v1::Profile::default() });
            context.show(v1::UpdateProfileRequest { profile, update_mask }).await
        }
        ProfileVerb::Delete(delete) => delete.run(context).await,
        ProfileVerb::Export(export) => document::export(context, export).await,
        ProfileVerb::Import(import) => document::import(context, import).await,
        ProfileVerb::Measurements { name, select, .. } if name.contains("/measurements/") => {
            if !select.rows.filter.is_empty() || !select.order_by.is_empty() {
                return Failure::usage(
                    "--filter and --order-by apply only to a list of measurements. Leave both options out to show one \
                     measurement.",
                );
            }
            let measurement = context.client.call(v1::GetMeasurementRequest { name }).await?;
            context.output.print(&measurement)?;
            context.link(&measurement.run);
            Ok(())
        }
        ProfileVerb::Measurements { name, select, limit } => {
            let SelectArgs { rows: FilterArg { filter }, order_by } = select;
            let request =
                v1::ListMeasurementsRequest { parent: name.clone(), filter, order_by, ..Default::default() };
            context.output.print(&page::all(context, limit, &request).await?)?;
            context.link(&name);
            Ok(())
        }
    }
}

async fn measure(context: &Context, run: CreateProfile) -> Result<(), Failure> {
    let dry_run = run.campaign.dry_run;
    let request = run.request()?;
    if !dry_run {
        context.leaves(LeftBehind::Request { request_id: request.request_id.clone() });
    }
    let operation = context.client.call(request).await?;
    if dry_run {
        let failed = matches!(operation.result, Some(operation::Result::Error(_)));
        if !failed {
            context.remark(&dry_run_remark(&operation));
            // The remark has it all; a script gets its document.
            return match context.output.format {
                Format::Table => Ok(()),
                Format::Json | Format::Yaml | Format::Name => context.output.print(&operation),
            };
        }
    }
    follow::begun(context, operation, &run.wait).await
}

/// The runs that a valid request would have queued.
fn dry_run_remark(operation: &Operation) -> String {
    let profile = match &operation.result {
        Some(operation::Result::Response(made)) => made.to_msg::<v1::Profile>().ok(),
        Some(operation::Result::Error(_)) | None => None,
    }
    .unwrap_or_default();
    let runs = profile.run_counts.as_ref().map_or(0, |runs| runs.total_count);
    let reused = match profile.reused_run_count {
        0 => String::new(),
        reused => format!(" and reuse {reused}"),
    };
    let at_once = match profile.concurrent_run_count {
        0 => String::new(),
        most => format!(", at most {most} at once"),
    };
    format!(
        "dry run: the request is valid. It would queue {}{reused} on {} devices{at_once}. Nothing is stored.\n{}",
        plural(runs, "run"),
        plain(&profile.device_kind),
        cost(&profile)
    )
}

/// The estimated time, and its origin.
fn cost(profile: &v1::Profile) -> String {
    let origin = plain(&profile.estimate_origin);
    match (profile.estimated_seconds, profile.estimated_device_seconds) {
        (Some(taken), Some(held)) => {
            format!(
                "the runs would take {}. Their device time, summed over all devices, is {}: {origin}",
                about(taken),
                device_seconds(held)
            )
        }
        (None, Some(held)) => format!(
            "the device time of the runs, summed over all devices, is {}: {origin}. The duration of the runs is not \
                known, because no worker is connected",
            device_seconds(held)
        ),
        (_, None) if origin.is_empty() => "the runs would take no time".to_owned(),
        (_, None) => format!("the duration of the runs is not known: {origin}"),
    }
}

/// `about 90 device-seconds`.
fn device_seconds(seconds: f64) -> String {
    let whole = if seconds < 10.0 { format!("{seconds:.1}") } else { count(seconds.round() as i64) };
    format!("about {whole} device-seconds")
}

impl CreateProfile {
    fn request(&self) -> Result<v1::CreateProfileRequest, Failure> {
        let request = v1::CreateProfileRequest {
            subject: Some(self.model.subject()?),
            training: Some(self.training.spec()?),
            ..self.campaign.request()
        };
        Ok(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::tests::parsed;

    fn request(options: &str) -> v1::CreateProfileRequest {
        let line = format!("--model vgg11 --micro-batch-size 8 --micro-batches 4 {options}");
        parsed::<CreateProfile>(&line).unwrap().request().unwrap()
    }

    #[test]
    fn options_become_the_request() {
        let request = request(
            "--image-size 32 --profiling-mode per-stage --device-count 4 --profile-micro-batch-sizes 2,4 --min-capacity 2GiB \
             --run-time-limit 90s --parallelism data,tensor --parallel-sizes 2,8 --ignore-stored-runs --scale-from-single-devices",
        );
        assert_eq!(request.device_count, 4);
        assert_eq!(request.profiling_mode(), v1::ProfilingMode::PerStage);
        assert_eq!(request.micro_batch_sizes, [2, 4]);
        assert_eq!(request.min_capacity_bytes, 2 << 30);
        assert_eq!(request.run_time_limit, Some(prost_types::Duration { seconds: 90, nanos: 0 }));
        let kinds: Vec<v1::Parallelism> = request.parallelisms().collect();
        assert_eq!(kinds, [v1::Parallelism::Data, v1::Parallelism::Tensor]);
        assert_eq!(request.parallel_sizes, [2, 8]);
        assert!(request.ignore_stored_runs && request.single_device_scaling);
    }

    /// Seconds, device-seconds and what they rest on; or why there are none.
    #[test]
    fn a_dry_run_says_what_it_would_cost() {
        let profile = |seconds, held, origin: &str| v1::Profile {
            estimated_seconds: seconds,
            estimated_device_seconds: held,
            estimate_origin: origin.to_owned(),
            ..v1::Profile::default()
        };
        let told = cost(&profile(Some(45.0), Some(1_234.4), "as long as 51 runs"));
        assert_eq!(
            told,
            "the runs would take about 45 s. Their device time, summed over all devices, is about 1,234 \
             device-seconds: as long as 51 runs"
        );
        let told = cost(&profile(None, Some(2.0), "as long as 51 runs"));
        assert!(told.contains("2.0 device-seconds") && told.contains("no worker is connected"), "{told}");
        let told = cost(&profile(None, None, "no run has ended on cpu devices yet"));
        assert_eq!(told, "the duration of the runs is not known: no run has ended on cpu devices yet");
    }

    /// The default campaign needs nothing but a model and a training.
    #[test]
    fn the_default_is_the_minimal_campaign_for_any_number_of_devices() {
        let request = request("");
        assert_eq!((request.profiling_mode(), request.device_count), (v1::ProfilingMode::PerLayer, 0));
        assert!(request.parallelisms.is_empty() && !request.ignore_stored_runs);
    }

    #[test]
    fn each_command_has_a_request_id() {
        assert_ne!(request("").request_id, request("").request_id);
        let given = "67e55044-10b1-426f-9247-bb680e5fe0c8";
        assert_eq!(request(&format!("--request-id {given}")).request_id, given);
    }
}
