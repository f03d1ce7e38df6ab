//! One profiled model: what is profiled, what is held out, and how predictions compare.

use loadmaster_predict::choose::AnyPredictor;
use loadmaster_predict::profiling::runs::Layout;
use loadmaster_predict::profiling::{PlannedRun, Purpose};
use loadmaster_predict::{Predictor, StageSetting};
use loadmaster_proto::accounting::Accounting;
use loadmaster_proto::measure::run::{ProfilingMode, SoloStage, Work};
use loadmaster_proto::model::Model;
use loadmaster_proto::profile::ProfileSettings;
use loadmaster_proto::training::scenario::Scenario;
use loadmaster_proto::training::stage::StageConfig;
use loadmaster_proto::training::strategy::Strategy;
use loadmaster_proto::training::{Precision, RecomputePolicy, TrainingSpec};
use loadmaster_samples::settings;

use crate::accuracy::job::{Job, Outcome};
use crate::accuracy::measure::Measured;
use crate::accuracy::plans::{StagePeaks, chosen_and_best, highest_peaks};
use crate::accuracy::predictors;
use crate::accuracy::report::Cost;
use crate::accuracy::row::{Answer, Group, Row};

/// Devices that the paper's campaign is laid out for, and plans of whole models are made for.
pub(crate) const DEVICES: u32 = 4;

/// A model under one training spec, with what is profiled and what is held out.
#[derive(Debug, Clone)]
pub(crate) struct Study {
    /// Unique, for `--only` and files.
    pub(crate) name: String,
    pub(crate) model: Model,
    /// Settings of the profile; the micro-batch size is its target.
    pub(crate) training: TrainingSpec,
    /// Profiled micro-batch sizes.
    pub(crate) sizes: Vec<u32>,
    /// Profiled scenarios.
    pub(crate) scenarios: Vec<Scenario>,
    /// Scenarios that are profiled the paper's way, too; none leaves `capture` out.
    pub(crate) capture: Vec<Scenario>,
    /// What no profile contains.
    pub(crate) held_out: Vec<HeldOut>,
    /// The held-out stages are all stages: judge whole partitionings, too.
    pub(crate) partitionings: bool,
    /// The goal about the cost of a profile is about this one.
    pub(crate) judges_cost: bool,
}

/// A stage that is measured and never profiled.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct HeldOut {
    pub(crate) setting: StageSetting,
    pub(crate) group: Group,
}

/// What a study found.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    pub(crate) rows: Vec<Row>,
    pub(crate) costs: Vec<Cost>,
    /// Chosen over best plan, by predictor.
    pub(crate) plan_ratios: Vec<(&'static str, f64)>,
    /// How many partitionings are composed of how many measured stages; none where there are none.
    pub(crate) composed: Option<(usize, usize)>,
    /// Device-seconds of the default profile over those of the paper's campaign.
    pub(crate) profile_share: Option<f64>,
    /// What could not be measured or profiled.
    pub(crate) problems: Vec<String>,
}

impl HeldOut {
    /// What has to be run to know.
    fn run(&self) -> PlannedRun {
        let StageSetting { stage, stage_index, stage_count, training } = self.setting;
        let work = Work::Solo(SoloStage { stage, stage_count, stage_index });
        PlannedRun { strategy: Strategy::plain(training, work), purpose: Purpose::Check }
    }
}

impl Study {
    /// A model that is profiled on one device alone at these micro-batch sizes, without the paper's campaign.
    pub(crate) fn new(
        name: &str,
        model: Model,
        training: TrainingSpec,
        sizes: [u32; 2],
        held_out: Vec<HeldOut>,
    ) -> Self {
        Self {
            name: name.to_owned(),
            model,
            training,
            sizes: sizes.to_vec(),
            scenarios: vec![Scenario::SINGLE],
            capture: Vec::new(),
            held_out,
            partitionings: false,
            judges_cost: false,
        }
    }

    /// All runs that it needs.
    pub(crate) fn jobs(&self) -> anyhow::Result<Vec<Job>> {
        let mut runs = self.layout(ProfilingMode::PerLayer)?.runs;
        if !self.capture.is_empty() {
            runs.extend(self.layout(ProfilingMode::PerStage)?.runs);
        }
        runs.extend(self.held_out.iter().map(HeldOut::run));
        Ok(runs.iter().map(|run| Job::new(&self.model, run)).collect())
    }

    /// The settings of a profile of this study.
    pub(crate) fn settings(&self, profiling_mode: ProfilingMode) -> ProfileSettings {
        let scenarios =
            if profiling_mode == ProfilingMode::PerLayer { &self.scenarios } else { &self.capture };
        let devices = (profiling_mode != ProfilingMode::PerLayer).then_some(DEVICES);
        ProfileSettings {
            scenarios: scenarios.clone(),
            micro_batch_sizes: self.sizes.clone(),
            min_capacity: 1,
            ..settings(profiling_mode, self.training, devices)
        }
    }

    pub(crate) fn layout(&self, profiling_mode: ProfilingMode) -> anyhow::Result<Layout> {
        Ok(Layout::new(&self.settings(profiling_mode), &self.model)?)
    }

    /// Compares what was measured with what the predictors say.
    pub(crate) fn findings(&self, measured: &Measured) -> anyhow::Result<Findings> {
        let mut findings = Findings::default();
        let mut all =
            vec![predictors::made(self, measured, &mut findings.problems, ProfilingMode::PerLayer)?];
        if !self.capture.is_empty() {
            all.push(predictors::made(self, measured, &mut findings.problems, ProfilingMode::PerStage)?);
        }
        let paper = predictors::paper(self, measured)?;
        findings.profile_share = paper
            .as_ref()
            .zip(all.first())
            .map(|(paper, ours)| ours.cost.device_seconds / paper.device_seconds)
            .filter(|share| share.is_finite());
        findings.costs = all.iter().map(|made| made.cost.clone()).chain(paper).collect();
        let all: Vec<AnyPredictor> = all.into_iter().filter_map(|made| made.predictor).collect();

        for held_out in &self.held_out {
            let Some(peak) = self.peak(held_out, measured, &mut findings.problems) else { continue };
            for predictor in &all {
                if self.asks(predictor.as_ref(), held_out) {
                    findings.rows.push(self.row(held_out, peak, predictor.as_ref()));
                }
            }
        }
        if self.partitionings {
            for predictor in &all {
                self.judge_partitionings(predictor.as_ref(), measured, &mut findings);
            }
        }
        Ok(findings)
    }

    /// The model, and what is computed again: a stage that recomputes is another problem.
    fn label(&self) -> String {
        let family = match self.training.precision {
            Precision::Fp32 => self.model.family().to_owned(),
            Precision::Bf16 => format!("{}, bf16", self.model.family()),
            Precision::Bf16Fp32Gradients => format!("{}, bf16, fp32 gradients", self.model.family()),
        };
        match self.training.recompute {
            RecomputePolicy::None => family,
            RecomputePolicy::Stage => format!("{family}, recompute stages"),
            RecomputePolicy::Layer => format!("{family}, recompute layers"),
        }
    }

    /// The measured peak; a problem where there is none.
    fn peak(&self, held_out: &HeldOut, measured: &Measured, problems: &mut Vec<String>) -> Option<u64> {
        let job = Job::new(&self.model, &held_out.run());
        match measured.of(&job) {
            Some(Outcome::Failed(why)) => {
                problems.push(format!("{}: {} was not measured: {why}", self.name, job.describe()))
            }
            Some(outcome) => return outcome.peak(),
            None => problems.push(format!("{}: {} was not run", self.name, job.describe())),
        }
        None
    }

    /// `capture` is asked for what its campaign has, or extrapolates by itself.
    fn asks(&self, predictor: &dyn Predictor, held_out: &HeldOut) -> bool {
        let asked = held_out.setting.stage.scenario();
        predictor.name().starts_with(crate::accuracy::goals::DEFAULT)
            || self
                .capture
                .iter()
                .any(|scenario| asked.is_some_and(|of| of.parallelism == scenario.parallelism))
    }

    fn row(&self, held_out: &HeldOut, measured: u64, predictor: &dyn Predictor) -> Row {
        let setting = &held_out.setting;
        let StageConfig { first_layer, last_layer, data_degree, tensor_degree, .. } = setting.stage;
        let predicted = predictor.stage(setting);
        let stage =
            format!("{first_layer}..{last_layer} ({} of {})", setting.stage_index + 1, setting.stage_count);
        Row {
            parallelism: match (data_degree, tensor_degree) {
                (1, 1) => "none".to_owned(),
                (_, 1) => format!("data {data_degree}"),
                (1, _) => format!("tensor {tensor_degree}"),
                _ => format!("data {data_degree}, tensor {tensor_degree}"),
            },
            group: held_out.group,
            micro_batch_size: setting.training.micro_batch_size,
            in_flight: setting.in_flight(),
            answer: predicted
                .map(|found| Answer { bytes: found.bytes.0, margin: found.margin })
                .map_err(|error| error.to_string()),
            ..self.partitioning(stage, measured, Answer { bytes: 0, margin: None }, predictor)
        }
    }

    /// The row of a whole partitioning.
    fn partitioning(&self, stage: String, measured: u64, answer: Answer, predictor: &dyn Predictor) -> Row {
        Row {
            study: self.name.clone(),
            model: self.label(),
            parallelism: "none".to_owned(),
            group: Group::Partitionings,
            predictor: predictor.name(),
            stage,
            micro_batch_size: self.training.micro_batch_size,
            in_flight: self.training.micro_batches,
            ledger: Accounting::Allocated,
            measured,
            answer: Ok(answer),
        }
    }

    /// All partitionings over [`DEVICES`] devices, from the stages at the profile's target. Under GPipe a
    /// stage's peak does not depend on its place.
    fn judge_partitionings(&self, predictor: &dyn Predictor, measured: &Measured, findings: &mut Findings) {
        let layers = self.model.layers().len();
        let (mut truth, mut said) = (StagePeaks::new(layers), StagePeaks::new(layers));
        let at_target = self.held_out.iter().filter(|held_out| held_out.setting.training == self.training);
        for held_out in at_target {
            let StageConfig { first_layer, last_layer, .. } = held_out.setting.stage;
            let job = Job::new(&self.model, &held_out.run());
            if let (Some(peak), Ok(prediction)) =
                (measured.of(&job).and_then(Outcome::peak), predictor.stage(&held_out.setting))
            {
                truth.insert(first_layer, last_layer, peak);
                said.insert(first_layer, last_layer, prediction.bytes.0);
            }
        }
        let margin = findings
            .rows
            .iter()
            .filter(|row| row.predictor == predictor.name() && row.group == Group::Stages)
            .filter_map(Row::margin)
            .reduce(f64::max);
        let plans = highest_peaks(&said, &truth, DEVICES as usize);
        findings.composed = Some((plans.len(), truth.count()));
        for plan in plans {
            let sizes: Vec<String> = plan.sizes.iter().map(ToString::to_string).collect();
            let answer = Answer { bytes: plan.predicted, margin };
            findings.rows.push(self.partitioning(sizes.join("-"), plan.measured, answer, predictor));
        }
        if let Some((chosen, best)) = chosen_and_best(&said, &truth, DEVICES as usize) {
            findings.plan_ratios.push((predictor.name(), chosen.measured as f64 / best.measured as f64));
        }
    }
}
