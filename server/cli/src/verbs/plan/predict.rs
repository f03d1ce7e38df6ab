//! `loadmaster plan predict`: will it fit?

use std::path::{Path, PathBuf};

use clap::Args;
use loadmaster_proto::wire::v1;
use loadmaster_proto::wire::v1::predict_plan_request::Subject;
use loadmaster_show::choice::FRAMEWORKS;
use loadmaster_show::text::fit;

use super::chunks;
use crate::failure::options::{OptionTable, PLAN_PREDICT, PLAN_PREDICT_GPUS};
use crate::failure::{Failure, check_fits};
use crate::input::parse::{self, Devices, Gpus, Id, choice};
use crate::input::profile::{ProfileRef, profile_or_file};
use crate::input::request_file::{RequestFile, set, set_all};
use crate::input::training::{Actions, copy_pace};
use crate::session::context::Context;

/// See [`super::PlanVerb::Predict`].
#[derive(Debug, Args)]
pub(crate) struct Predict {
    /// Profile behind the prediction: `profiles/ID`, the id alone, or a document (a path that ends with `.json` or has a slash)
    /// [default: the profile of --plan].
    #[arg(long, value_name = "PROFILE", value_parser = profile_or_file, required_unless_present_any = ["plan", "file"])]
    profile: Option<ProfileRef>,

    #[command(flatten)]
    file: RequestFile,

    #[command(flatten)]
    subject: PredictSubject,

    /// Position of --stage in its pipeline, from 0. Under 1F1B it decides the peak.
    #[arg(long, value_name = "N", requires = "stage_count", conflicts_with_all = ["pipeline_layout", "plan"],
          value_parser = clap::value_parser!(i32).range(0..), hide_short_help = true)]
    stage_index: Option<i32>,

    /// Number of stages of the pipeline that --stage is in.
    #[arg(long, value_name = "N", conflicts_with_all = ["pipeline_layout", "plan"],
          value_parser = clap::value_parser!(i32).range(1..), hide_short_help = true)]
    stage_count: Option<i32>,

    /// GPUs by kind, in pipeline order: `8xH100`, or `4xH100,4xA100-80`. The planner has a catalog of kinds with their usable memory.
    #[arg(long, value_name = "COUNTxKIND", conflicts_with_all = ["devices", "capacity"])]
    gpus: Option<Gpus>,

    /// Devices in pipeline order: `COUNTxBYTES[:KIND]`, separated by commas.
    #[arg(long, value_name = "DEVICES", conflicts_with = "capacity")]
    devices: Option<Devices>,

    /// Bytes that training may use on each device, where all are equal.
    #[arg(long, value_name = "BYTES", value_parser = parse::some_bytes)]
    capacity: Option<i64>,

    /// Training framework; adds a warning that compares its bytes per parameter with the predicted ones [default: that of --plan].
    #[arg(long, value_parser = Id(FRAMEWORKS))]
    framework: Option<String>,

    #[command(flatten)]
    actions: Actions,

    #[command(flatten)]
    memory: PredictMemoryOptions,

    #[command(flatten)]
    training: PredictTraining,
}

/// Where parameters and optimizer states are.
#[derive(Debug, Args)]
#[command(next_help_heading = "Memory")]
struct PredictMemoryOptions {
    /// How the model is trained in chunks: a file with what `plan show PLAN -o json` prints as `.stages[0].chunkedTraining`, or `-`
    /// for standard input. It is for a --pipeline-layout of one stage, the whole model [default: as in --plan].
    #[arg(long, value_name = "FILE", conflicts_with = "stage", hide_short_help = true)]
    chunks: Option<PathBuf>,

    /// Where parameters and optimizer states are [default: as in --chunks or --plan, or else plain]. In chunks they are in CPU memory,
    /// and one stage trains the whole model. Unless the request file fixes them, --recompute and the chunks are chosen as
    /// `plan recommend` does, for the shortest iteration.
    #[arg(long, value_parser = choice::<v1::MemoryMode>(), conflicts_with = "chunks", hide_short_help = true)]
    memory_mode: Option<v1::MemoryMode>,

    /// CPU memory of each host that chunks may take, in equal parts by its devices.
    #[arg(long, value_name = "BYTES", value_parser = parse::bytes, hide_short_help = true)]
    host_memory: Option<i64>,

    /// Bandwidth of copies to CPU memory, for example host=12GB/s [default: an estimate per device kind].
    #[arg(long, value_name = "RATES", value_parser = copy_pace, hide_short_help = true)]
    copy_rates: Option<v1::CopyBandwidth>,
}

/// What is predicted.
#[derive(Debug, Args)]
#[group(multiple = false)]
struct PredictSubject {
    /// All stages of a pipeline: the layers of each, for example 8-8-7-7 or 8-8d2-7t4-7. Suffixes of a stage: d
    /// (data-parallel size), t (tensor-parallel size), s (sequence parallelism), z1 (sharded optimizer states).
    #[arg(long, value_name = "STAGES", value_parser = parse::partitioning,
          required_unless_present_any = ["stage", "plan", "file"])]
    pipeline_layout: Option<v1::PipelineLayout>,

    /// One stage: first and last layer, both included, for example 3..9 or 3..9t4.
    #[arg(long, value_name = "LAYERS", value_parser = parse::stage)]
    stage: Option<v1::StageConfig>,

    /// A stored plan with its training and its devices: `plans/ID` or the id alone.
    #[arg(long, value_name = "PLAN", value_parser = parse::plan)]
    plan: Option<String>,
}

/// Settings of the training and of the prediction.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Training")]
struct PredictTraining {
    /// Micro-batch size per GPU, as in Megatron-LM and torchtitan: samples of one replica. The micro-batch of the whole stage is this
    /// times the data-parallel size [default: the target of the profile].
    #[arg(long, alias = "mbs", value_name = "N", value_parser = clap::value_parser!(i32).range(1..=1_000_000))]
    micro_batch_size: Option<i32>,

    /// Number of micro-batches per iteration [default: the target of the profile].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(1..=10_000), hide_short_help = true)]
    micro_batches: Option<i32>,

    /// Pipeline schedule [default: that of the profile]. Another one needs the component predictor.
    #[arg(long, value_parser = choice::<v1::Schedule>())]
    schedule: Option<v1::Schedule>,

    /// Activation recomputation [default: that of the profile]. Another policy needs the component predictor.
    #[arg(long, value_parser = choice::<v1::RecomputePolicy>())]
    recompute: Option<v1::RecomputePolicy>,

    /// Predictor [default: the most accurate one that the profile supports].
    #[arg(long, value_parser = choice::<v1::PredictorKind>(), hide_short_help = true)]
    predictor: Option<v1::PredictorKind>,

    /// Share of the predicted bytes that must stay free, for example 5% [default: the margin of the predictor].
    #[arg(long, value_name = "SHARE", value_parser = parse::share, hide_short_help = true)]
    safety_margin: Option<f64>,
}

impl Predict {
    /// The request file, if one is given.
    pub(crate) fn file(&self) -> Option<&Path> {
        self.file.path()
    }

    /// The options that fill the fields of its request.
    pub(crate) fn options(&self) -> OptionTable {
        if self.gpus.is_some() { PLAN_PREDICT_GPUS } else { PLAN_PREDICT }
    }

    pub(crate) async fn run(self, context: &Context) -> Result<(), Failure> {
        let size = self.training.micro_batch_size;
        let mut request = self.request()?;
        if let Some(size) = size {
            let sizes = data_parallel_sizes(context, request.subject.as_ref()).await?;
            let total = of_stage(size, &sizes)?;
            if total != size {
                context.remark(&format!("micro-batch: {size} samples per GPU, {total} per stage"));
            }
            request.problem.get_or_insert_default().micro_batch_size = total;
        }
        // Predictions are not stored; their plans and profiles may be.
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
        check_fits(answer.verdict(), || fit(answer.summary.as_ref()))
    }

    /// Returns the request: that of the file, with options in place of its fields, but for the micro-batch size.
    ///
    /// # Errors
    /// A file cannot be read.
    fn request(self) -> Result<v1::PredictPlanRequest, Failure> {
        let mut request: v1::PredictPlanRequest = self.file.read()?;
        let Self { profile, subject, memory, training, .. } = self;
        let problem = request.problem.get_or_insert_default();
        if let Some(profile) = profile {
            profile.name_in(problem)?;
        }
        set(&mut problem.micro_batch_count, training.micro_batches);
        set(&mut problem.schedule, training.schedule);
        set(&mut problem.recompute, training.recompute);
        set(&mut problem.predictor, training.predictor);
        set(&mut problem.safety_margin, training.safety_margin.map(Some));
        set(&mut problem.framework, self.framework);
        let devices = parse::named_devices(self.gpus, self.devices);
        if devices.is_some() || self.capacity.is_some() {
            problem.devices = devices.unwrap_or_default();
            request.device_capacity_bytes = self.capacity.unwrap_or_default();
        }
        let solo = |stage| Subject::Stage(v1::SoloStage { stage: Some(stage), ..Default::default() });
        let PredictSubject { pipeline_layout, stage, plan } = subject;
        let subject = pipeline_layout
            .map(Subject::PipelineLayout)
            .or_else(|| stage.map(solo))
            .or_else(|| plan.map(Subject::Plan));
        set(&mut request.subject, subject.map(Some));
        if let Some(Subject::Stage(solo)) = &mut request.subject {
            set(&mut solo.stage_count, self.stage_count);
            set(&mut solo.stage_index, self.stage_index);
        }
        let options = request.memory.get_or_insert_default();
        set_all(&mut options.stage_memory_optimizations, self.actions.by_stage());
        let chunks = memory.chunks.as_deref().map(chunks::read).transpose()?;
        set(&mut options.chunked_training, chunks.map(Some));
        set(&mut options.mode, memory.memory_mode);
        set(&mut options.host_memory_bytes, memory.host_memory);
        set(&mut options.copy_bandwidth, memory.copy_rates.map(Some));
        Ok(request)
    }
}

/// Returns the data-parallel size of each stage that is predicted.
async fn data_parallel_sizes(context: &Context, subject: Option<&Subject>) -> Result<Vec<i32>, Failure> {
    let stages = match subject {
        None => Vec::new(),
        Some(Subject::PipelineLayout(layout)) => layout.stages.clone(),
        Some(Subject::Stage(solo)) => solo.stage.into_iter().collect(),
        Some(Subject::Plan(name)) => {
            let plan =
                context.client.call(v1::GetPlanRequest { name: name.clone(), ..Default::default() }).await?;
            plan.stages.into_iter().filter_map(|stage| stage.config).collect()
        }
    };
    // Unset, it is one replica.
    Ok(stages.iter().map(|stage| stage.data_parallel_size.max(1)).collect())
}

/// Returns the micro-batch size of whole stages from that of a GPU.
///
/// # Errors
/// The stages have different data-parallel sizes, or the product is too large.
fn of_stage(size: i32, data_parallel_sizes: &[i32]) -> Result<i32, Failure> {
    let first = data_parallel_sizes.first().copied().unwrap_or(1);
    if let Some(other) = data_parallel_sizes.iter().find(|&&other| other != first) {
        return Failure::usage(format!(
            "--micro-batch-size {size} is per GPU, but stages have different data-parallel sizes: {first} and {other}. \
             Their micro-batches would have different sizes. Set the micro-batch size of a whole stage in a request \
             file (-f): `problem: {{micro_batch_size: {size}}}`"
        ));
    }
    size.checked_mul(first).ok_or_else(|| {
        Failure::Usage(format!(
            "--micro-batch-size {size}, multiplied by the data-parallel size {first}, is more than {}. Use a smaller \
             micro-batch size",
            i32::MAX
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::tests::parsed;

    fn request(options: &str) -> Result<v1::PredictPlanRequest, String> {
        let parsed = parsed::<Predict>(options).map_err(|error| error.to_string())?;
        parsed.request().map_err(|error| format!("{error:?}"))
    }

    #[test]
    fn options_become_the_request() {
        let asked = request(
            "--profile vgg11-1a --pipeline-layout 8-8d2 --capacity 24GiB --schedule 1f1b --recompute stage \
             --predictor capture --safety-margin 5% --micro-batches 16",
        )
        .unwrap();
        assert_eq!(
            (asked.device_capacity_bytes, asked.problem().safety_margin, asked.problem().micro_batch_count),
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

    /// A request file has all fields; options replace them.
    #[test]
    fn options_replace_fields_of_a_file() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(
            file.path(),
            "problem: {profile: profiles/p, micro_batch_size: 8}\nplan: plans/a\n\
             memory: {mode: MEMORY_MODE_BEST, chunk_options: {chunk_elements: [4194304], resident_chunk_count: 2}}\n",
        )
        .unwrap();
        let with = |options: &str| request(&format!("-f {} {options}", file.path().display())).unwrap();
        assert_eq!(with("").subject, Some(Subject::Plan("plans/a".to_owned())));
        let asked = with("--pipeline-layout 7d2 --gpus 2xH100 --host-memory 64GiB --copy-rates host=12GB/s");
        assert!(matches!(asked.subject, Some(Subject::PipelineLayout(_))));
        assert_eq!((asked.problem().micro_batch_size, asked.problem().devices[0].kind.as_str()), (8, "H100"));
        let chunks = asked.memory().chunk_options.clone().unwrap();
        assert_eq!(
            (chunks.chunk_elements.as_slice(), chunks.resident_chunk_count),
            (&[4 << 20][..], Some(2))
        );
        assert_eq!(
            (asked.memory().mode(), asked.memory().host_memory_bytes),
            (v1::MemoryMode::Best, 64 << 30)
        );
        let plain = request("--profile p --pipeline-layout 7").unwrap();
        assert_eq!(plain.memory(), &v1::MemoryOptions::default());
    }

    #[test]
    fn micro_batches_are_per_gpu() {
        assert_eq!(of_stage(4, &[2, 2]).ok(), Some(8));
        assert_eq!(of_stage(4, &[]).ok(), Some(4));
        let refused = of_stage(4, &[1, 2]);
        assert!(
            matches!(&refused, Err(Failure::Usage(why)) if why.contains("problem: {micro_batch_size: 4}")),
            "{refused:?}"
        );
        assert!(of_stage(1 << 30, &[4]).is_err());
    }

    #[test]
    fn exactly_one_thing_is_asked_about() {
        for wrong in [
            "--profile p",
            "--pipeline-layout 3-3",
            "--profile p --pipeline-layout 3-3 --stage 0..2",
            "--profile p --stage 0..2 --stage-index 1",
            "--profile p --pipeline-layout 3-3 --stage-count 2",
            "--profile p --stage 0..2 --chunks c.json",
            "--profile p --pipeline-layout 3-3 --capacity 1GiB --devices 2x1GiB",
            "--profile p --pipeline-layout 6 --memory-mode chunks --chunks c.json",
            "--profile p --pipeline-layout 6 --capacity 0",
            "--profile p --pipeline-layout 6 --capacity 80",
            "--profile p --pipeline-layout 6 --gpus 6xH100 --capacity 1GiB",
        ] {
            assert!(request(wrong).is_err(), "{wrong}");
        }
    }
}
