//! `loadmaster plan predict`: will it fit?

use std::path::PathBuf;

use clap::Args;
use loadmaster_proto::wire::v1;
use loadmaster_proto::wire::v1::predict_plan_request::Subject;
use loadmaster_show::choice::FRAMEWORKS;
use loadmaster_show::table::prediction::verdict;

use super::chunks;
use super::chunks::ChunkOptions;
use crate::failure::options::PLAN_PREDICT;
use crate::failure::{Failure, check_fits};
use crate::input::parse::{self, Devices, Id, choice};
use crate::input::profile::{ProfileRef, profile_or_file};
use crate::input::training::{Actions, copy_pace};
use crate::session::context::Context;

/// See [`super::PlanVerb::Predict`].
#[derive(Debug, Args)]
pub(crate) struct Predict {
    /// The profile behind the prediction: `profiles/ID`, the id alone, or a document (a path that ends with
    /// `.json` or has a slash) [default: the plan's].
    #[arg(long, value_name = "PROFILE", value_parser = profile_or_file, required_unless_present = "plan")]
    profile: Option<ProfileRef>,

    #[command(flatten)]
    subject: PredictSubject,

    /// Position of --stage in its pipeline, from 0. Under 1F1B and PipeDream it decides the peak.
    #[arg(long, value_name = "N", requires = "stage_count", conflicts_with_all = ["partition", "plan"],
          value_parser = clap::value_parser!(i32).range(0..))]
    stage_index: Option<i32>,

    /// Stages of the pipeline that --stage is in.
    #[arg(long, value_name = "N", conflicts_with_all = ["partition", "plan"],
          value_parser = clap::value_parser!(i32).range(1..))]
    stage_count: Option<i32>,

    /// Bytes that training may use on each device.
    #[arg(long, value_name = "BYTES", value_parser = parse::some_bytes, conflicts_with = "devices")]
    capacity: Option<i64>,

    /// Devices in pipeline order where they differ: `COUNTxBYTES[:KIND]`, separated by commas.
    #[arg(long, value_name = "DEVICES")]
    devices: Option<Devices>,

    /// Training framework; adds a warning that compares the bytes per parameter that it holds with those that are
    /// counted [default: the plan's].
    #[arg(long, alias = "launcher", value_parser = Id(FRAMEWORKS))]
    framework: Option<String>,

    #[command(flatten)]
    actions: Actions,

    /// How the model is trained in chunks: a file of what `plan show PLAN -o json` has as `.stages[0].chunks`, or `-` for
    /// standard input; of a --partition of one stage, the whole model [default: the plan's].
    #[arg(long, value_name = "FILE", conflicts_with = "stage")]
    chunks: Option<PathBuf>,

    #[command(flatten)]
    memory: PredictMemoryOptions,

    #[command(flatten)]
    basis: Basis,
}

/// Where parameters and optimizer state are, and what may be chosen of that.
#[derive(Debug, Args)]
#[command(next_help_heading = "Memory")]
struct PredictMemoryOptions {
    /// Where parameters and optimizer state are while the model is trained [default: as --chunks says, or the plan, or else
    /// plain]. In chunks they lie in the host's memory, of which --host-memory says how much may be taken, and the one stage of
    /// --partition or --plan trains the whole model; what --recompute and the options below do not fix is chosen as
    /// `plan recommend` does, for the shortest iteration. With best they are where they are without chunks, if that fits.
    #[arg(long, value_parser = choice::<v1::MemoryMode>(), conflicts_with = "chunks")]
    memory: Option<v1::MemoryMode>,

    #[command(flatten)]
    chosen: ChunkOptions,

    /// Memory of each host that chunks may take, in equal parts by its devices.
    #[arg(long, value_name = "BYTES", value_parser = parse::bytes, requires = "memory")]
    host_memory: Option<i64>,

    /// How fast copies to the host are, for example host=12GB/s [default: a guess by kind of device, which the answer
    /// names].
    #[arg(long, value_name = "RATES", value_parser = copy_pace, requires = "memory")]
    copy_rates: Option<v1::CopyBandwidth>,
}

/// What is asked about.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct PredictSubject {
    /// All stages of a pipeline: layers of each, for example 8-8-7-7 or 8-8d2-7t4-7.
    #[arg(long, value_name = "STAGES", value_parser = parse::partitioning)]
    partition: Option<v1::PipelineLayout>,

    /// One stage: first and last layer, both included, for example 3..9 or 3..9t4.
    #[arg(long, value_name = "LAYERS", value_parser = parse::stage)]
    stage: Option<v1::StageConfig>,

    /// A stored plan with its training and its devices: `plans/ID` or the id alone.
    #[arg(long, value_name = "PLAN", value_parser = parse::plan)]
    plan: Option<String>,
}

/// Settings of the training and of the prediction.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Prediction")]
struct Basis {
    /// Samples of one stage pass [default: the profile's target].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(1..=1_000_000))]
    micro_batch_size: Option<i32>,

    /// Stage passes per iteration [default: the profile's target].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(1..=10_000))]
    micro_batches: Option<i32>,

    /// Order of the passes [default: the profile's]. Another one takes the component predictor.
    #[arg(long, value_parser = choice::<v1::Schedule>())]
    schedule: Option<v1::Schedule>,

    /// What is computed again [default: the profile's]. Another policy takes the component predictor.
    #[arg(long, value_parser = choice::<v1::RecomputePolicy>())]
    recompute: Option<v1::RecomputePolicy>,

    /// What computes the prediction [default: the best one that the profile has what it takes for].
    #[arg(long, value_parser = choice::<v1::PredictorKind>())]
    predictor: Option<v1::PredictorKind>,

    /// Share of the predicted bytes that must stay free, for example 5% [default: the predictor's own
    /// margin]. 0 keeps nothing free.
    #[arg(long, value_name = "SHARE", value_parser = parse::share)]
    margin: Option<f64>,
}

impl Predict {
    pub(super) async fn run(self, context: &Context) -> Result<(), Failure> {
        let profile_document = self.profile.as_ref().map(ProfileRef::document).transpose()?;
        let profile_document = profile_document.unwrap_or_default();
        let chunks = self.chunks.as_deref().map(chunks::read).transpose()?;
        let request = loadmaster_proto::changed!(
            self.request(),
            problem.profile_document = profile_document,
            memory.chunked_training = chunks
        );
        // What is predicted is stored nowhere; what it is about may be.
        let about = match &request.subject {
            Some(Subject::Plan(plan)) => plan.clone(),
            Some(Subject::PipelineLayout(_) | Subject::Stage(_)) | None => request.problem().profile.clone(),
        };
        let answer = context.client.call(request).await?;
        context.output.print(&answer)?;
        if let Some(infeasible) = &answer.infeasible {
            return Err(Failure::infeasible(infeasible, PLAN_PREDICT));
        }
        if !about.is_empty() {
            context.link(&about);
        }
        // On standard output the whole answer, in the exit code what a script wants to know.
        check_fits(answer.verdict(), || verdict(&answer))
    }

    /// As a message, but for what is in files.
    fn request(self) -> v1::PredictPlanRequest {
        let Basis { micro_batch_size, micro_batches, schedule, recompute, predictor, margin } = self.basis;
        let solo = |stage| v1::SoloStage {
            stage: Some(stage),
            stage_count: self.stage_count.unwrap_or_default(),
            stage_index: self.stage_index.unwrap_or_default(),
        };
        let PredictSubject { partition, stage, plan } = self.subject;
        let subject = partition
            .map(Subject::PipelineLayout)
            .or_else(|| stage.map(solo).map(Subject::Stage))
            .or_else(|| plan.map(Subject::Plan));
        v1::PredictPlanRequest {
            problem: Some(v1::Problem {
                profile: self.profile.map(ProfileRef::name).unwrap_or_default(),
                micro_batch_size: micro_batch_size.unwrap_or_default(),
                micro_batch_count: micro_batches.unwrap_or_default(),
                schedule: schedule.unwrap_or_default().into(),
                recompute: recompute.unwrap_or_default().into(),
                devices: self.devices.map(|devices| devices.0).unwrap_or_default(),
                predictor: predictor.unwrap_or_default().into(),
                safety_margin: margin,
                profile_document: String::new(),
                framework: self.framework.unwrap_or_default(),
                ..Default::default()
            }),
            memory: Some(v1::MemoryOptions {
                stage_memory_optimizations: self.actions.by_stage(),
                chunked_training: None,
                mode: self.memory.memory.unwrap_or_default().into(),
                chunk_options: self.memory.chosen.choices(),
                host_memory_bytes: self.memory.host_memory.unwrap_or_default(),
                cpu_optimizer_rate: self.memory.chosen.host_update.unwrap_or_default(),
                copy_bandwidth: self.memory.copy_rates,
                ..Default::default()
            }),
            subject,
            device_capacity_bytes: self.capacity.unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::tests::parsed;

    fn request(options: &str) -> Result<v1::PredictPlanRequest, clap::Error> {
        parsed::<Predict>(options).map(Predict::request)
    }

    #[test]
    fn options_become_the_request() {
        let asked = request(
            "--profile vgg11-1a --partition 8-8d2 --capacity 24GiB --schedule 1f1b --recompute stage \
             --predictor capture --margin 5% --micro-batch-size 16",
        )
        .unwrap();
        assert_eq!(
            (asked.device_capacity_bytes, asked.problem().safety_margin, asked.problem().micro_batch_size),
            (24 << 30, Some(0.05), 16)
        );
        assert_eq!(
            (asked.problem().schedule(), asked.problem().predictor()),
            (v1::Schedule::OneFOneB, v1::PredictorKind::Capture)
        );
        let Some(Subject::PipelineLayout(partitioning)) = asked.subject else { panic!() };
        assert_eq!(
            (partitioning.stages[1].data_parallel_size, partitioning.stages[1].tensor_parallel_size),
            (2, 1)
        );
    }

    #[test]
    fn a_stage_has_a_position_and_a_plan_needs_no_profile() {
        let asked = request("--profile p --stage 3..9t4 --stage-index 1 --stage-count 4").unwrap();
        let Some(Subject::Stage(solo)) = asked.subject else { panic!() };
        assert_eq!((solo.stage_index, solo.stage_count), (1, 4));
        assert_eq!(request("--plan 7f3c").unwrap().problem().profile, "");
    }

    /// What may be chosen of chunks is said with the words of `plan recommend`.
    #[test]
    fn choices_of_chunks_become_the_request() {
        let asked = request(
            "--profile p --partition 7d2 --capacity 1GiB --memory best --host-memory 64GiB --copy-rates host=12GB/s \
             --chunk-size 4M --chunk-order layer --chunks-on-device 2 --host-update 150M/s",
        )
        .unwrap();
        let choices = asked.memory().chunk_options.clone().unwrap();
        assert_eq!(
            (asked.memory().mode(), asked.memory().host_memory_bytes),
            (v1::MemoryMode::Best, 64 << 30)
        );
        assert!(asked.memory().copy_bandwidth.is_some() && asked.memory().chunked_training.is_none());
        assert_eq!(
            (choices.chunk_elements.as_slice(), choices.resident_chunk_count),
            (&[4 << 20][..], Some(2))
        );
        assert!(choices.micro_batch_orders().eq([v1::MicroBatchOrder::Layer]));
        assert_eq!(asked.memory().cpu_optimizer_rate, 150e6);
        let plain = request("--profile p --partition 7").unwrap();
        assert_eq!(plain.memory(), &v1::MemoryOptions::default());
    }

    #[test]
    fn exactly_one_thing_is_asked_about() {
        for wrong in [
            "--profile p",
            "--partition 3-3",
            "--profile p --partition 3-3 --stage 0..2",
            "--profile p --stage 0..2 --stage-index 1",
            "--profile p --partition 3-3 --stage-count 2",
            "--profile p --stage 0..2 --chunks c.json",
            "--profile p --partition 3-3 --capacity 1GiB --devices 2x1GiB",
            "--profile p --partition 6 --memory chunks --chunks c.json",
            "--profile p --partition 6 --host-memory 1GiB",
            "--profile p --partition 6 --capacity 0",
            "--profile p --partition 6 --chunk-size 4M",
        ] {
            assert!(request(wrong).is_err(), "{wrong}");
        }
    }
}
