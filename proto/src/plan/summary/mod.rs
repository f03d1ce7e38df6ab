//! The headline of a plan or of a prediction: fit, speed, parallel sizes, optimality and price, as fields and as five lines.
//!
//! Everything follows from the message, the model and the catalog of devices, so that every view shows the same figures. The text is
//! made in [`headline`].

mod headline;
mod speed;

use crate::model::Model;
use crate::plan::prediction::UNUSABLE_MARGIN;
use crate::training::stage::Partitioning;
use crate::wire::v1;

/// The parts of a model that a summary needs.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SummaryModel {
    /// Family and size: `llama-8.0B`.
    pub title: String,
    /// Tokens of a sample; none of other models.
    pub tokens_per_sample: Option<u64>,
    /// FLOPs of training on a sample; none where they are not counted.
    pub flops_per_sample: Option<f64>,
    /// Reason why tokens are not known.
    pub without_tokens: &'static str,
}

impl SummaryModel {
    /// Returns them of a model with the id `id`; without layers where only its name is known.
    pub fn of(model: Option<&Model>, id: &str) -> Self {
        let Some(model) = model else {
            let title = id.rsplit_once('-').map_or(id, |(name, _)| name).to_owned();
            return Self { title, without_tokens: "sequence length unknown", ..Self::default() };
        };
        Self {
            title: format!("{}-{}", model.family(), headline::compact(model.parameter_count() as f64)),
            tokens_per_sample: model.tokens_per_sample(),
            flops_per_sample: model.training_flops_per_sample(),
            without_tokens: "not a language model",
        }
    }
}

/// The memory of a stage's devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StagePeak {
    /// Index of the stage.
    pub stage: usize,
    /// Predicted peak, with the memory that a framework adds.
    pub peak: i64,
    /// Upper end of its interval; none where that is not known.
    pub high: Option<i64>,
    /// Usable memory; none where no capacity was given.
    pub capacity: Option<i64>,
}

impl StagePeak {
    /// The bytes that must be there.
    fn needed(&self) -> i64 {
        self.high.unwrap_or(self.peak).max(self.peak)
    }

    /// Share of the capacity that is needed; without a capacity the bytes.
    fn share(&self) -> f64 {
        self.needed() as f64 / self.capacity.unwrap_or(1).max(1) as f64
    }
}

/// A plan with what its summary is computed from.
struct SummarizedPlan<'a> {
    plan: &'a v1::Plan,
    model: &'a SummaryModel,
    stages: Vec<v1::StageConfig>,
}

impl SummarizedPlan<'_> {
    /// The least and the largest of a size over the stages.
    fn range(&self, size: impl Fn(&v1::StageConfig) -> i32) -> (i32, i32) {
        let sizes = || self.stages.iter().map(|stage| size(stage).max(1));
        (sizes().min().unwrap_or(1), sizes().max().unwrap_or(1))
    }

    fn devices(&self) -> i64 {
        self.plan.devices.iter().map(|group| i64::from(group.count.max(0))).sum()
    }
}

/// Returns the summary of a prediction, of stages for a framework or for none.
pub fn of_prediction(
    answer: &v1::PredictPlanResponse,
    model: &SummaryModel,
    framework: &str,
) -> v1::PlanSummary {
    let recompute = answer.training.as_ref().map_or(0, |training| training.recompute);
    let stage = |of: &v1::StagePrediction| v1::PlanStage {
        config: of.config,
        capacity_bytes: of.capacity_bytes.unwrap_or(0),
        predicted_peak: of.peak.clone(),
        interval: of.interval,
        memory_optimizations: of.memory_optimizations.clone(),
        chunked_training: of.chunked_training.clone(),
        recompute,
        ..v1::PlanStage::default()
    };
    let sizes =
        |of: &v1::StageConfig| of.data_parallel_size.max(1).saturating_mul(of.tensor_parallel_size.max(1));
    let count =
        answer.stages.iter().filter_map(|of| of.config.as_ref()).map(sizes).fold(0, i32::saturating_add);
    let devices = v1::DeviceGroup { count, kind: answer.device_kind.clone(), ..v1::DeviceGroup::default() };
    let peaks = answer.stages.iter().filter_map(|of| of.peak.clone());
    let plan = v1::Plan {
        training: answer.training,
        stages: answer.stages.iter().map(stage).collect(),
        devices: vec![devices],
        predicted_peak: peaks.max_by_key(|peak| peak.bytes),
        verdict: answer.verdict,
        framework: framework.to_owned(),
        ..v1::Plan::default()
    };
    of_plan(&plan, model, None)
}

/// Returns the summary of a plan in either view. `peaks` replaces the peaks of the plan where its framework adds memory.
pub fn of_plan(plan: &v1::Plan, model: &SummaryModel, peaks: Option<Vec<StagePeak>>) -> v1::PlanSummary {
    let mut stages: Vec<v1::StageConfig> = plan.stages.iter().filter_map(|stage| stage.config).collect();
    if stages.is_empty() {
        let parsed = plan.layout_notation.parse::<Partitioning>();
        stages = parsed.map_or_else(|_| Vec::new(), |of| v1::PipelineLayout::from(&of).stages);
    }
    let of = SummarizedPlan { plan, model, stages };
    let own = |(stage, of): (usize, &v1::PlanStage)| {
        let capacity = Some(of.capacity_bytes).filter(|&capacity| capacity > 0);
        let high = of.interval.as_ref().map(|interval| interval.high_bytes);
        Some(StagePeak { stage, peak: of.predicted_peak.as_ref()?.bytes, high, capacity })
    };
    let peaks = peaks.unwrap_or_else(|| plan.stages.iter().enumerate().filter_map(own).collect());
    // Of equal ones the first.
    let closest = peaks.iter().rev().max_by(|a, b| a.share().total_cmp(&b.share()));
    let peak = plan
        .predicted_peak
        .clone()
        .map(|figure| v1::MemoryFigure { bytes: closest.map_or(figure.bytes, |of| of.peak), ..figure });
    let common = |(least, most): (i32, i32)| if least == most { least } else { 0 };
    let data = common(of.range(|stage| stage.data_parallel_size));
    let iteration = plan.iteration.as_ref();
    let margin = iteration.and_then(|of| of.interval.as_ref()).map_or(0.0, |interval| interval.margin_ratio);
    let training = plan.training.unwrap_or_default();
    let virtual_stages = plan.virtual_stage_count.max(1);
    let mut message = v1::PlanSummary {
        verdict: plan.verdict,
        peak,
        peak_stage: closest.and_then(|of| i32::try_from(of.stage).ok()),
        capacity_bytes: closest.and_then(|of| of.capacity),
        slack_bytes: closest.and_then(|of| Some(of.capacity?.saturating_sub(of.needed()))),
        iteration_seconds: iteration.map(|of| of.iteration_seconds),
        iteration_interval: iteration.and_then(|of| of.interval),
        iteration_origin: iteration.map_or(0, |_| v1::FigureOrigin::Predicted.into()),
        iteration_usable: iteration.is_some() && margin <= UNUSABLE_MARGIN,
        tensor_parallel_size: common(of.range(|stage| stage.tensor_parallel_size)),
        pipeline_parallel_size: i32::try_from(of.stages.len()).unwrap_or(i32::MAX) / virtual_stages,
        data_parallel_size: data,
        virtual_stage_count: virtual_stages,
        device_micro_batch_size: if data > 0 { training.micro_batch_size / data } else { 0 },
        micro_batch_count: training.micro_batch_count,
        global_batch_size: i64::from(training.micro_batch_size) * i64::from(training.micro_batch_count),
        memory_optimizations: optimizations(plan, &of.stages),
        optimal: plan.certificate.as_ref().map(|of| of.optimal),
        optimality_gap: plan.certificate.as_ref().and_then(|of| of.optimality_gap),
        hourly_price: plan.hourly_price,
        ..v1::PlanSummary::default()
    };
    if let Some(seconds) = message.iteration_seconds.filter(|&of| of > 0.0 && message.iteration_usable) {
        speed::fill(&mut message, &of, seconds);
    }
    message.title = headline::title(&of, &message);
    if !peaks.is_empty() {
        message.headline_lines = headline::lines(&of, &message);
    }
    message
}

/// The memory optimizations of any stage, in BASIC view of the training.
fn optimizations(plan: &v1::Plan, stages: &[v1::StageConfig]) -> Vec<String> {
    use v1::memory_optimization::Action;
    let recompute = |policy: v1::RecomputePolicy| match policy {
        v1::RecomputePolicy::Unspecified | v1::RecomputePolicy::None => None,
        v1::RecomputePolicy::Stage => Some("recompute stage"),
        v1::RecomputePolicy::Layer => Some("recompute layer"),
    };
    let action = |of: &v1::MemoryOptimization| {
        Some(match of.action.as_ref()? {
            Action::Recompute(_) => "recompute runs of layers",
            Action::Swap(swap) if swap.place() == v1::MemoryPlace::Peers => "peer swap",
            Action::Swap(_) => "CPU offload",
        })
    };
    let mut words: Vec<&str> = Vec::new();
    for config in stages {
        words.extend(match config.state_sharding() {
            v1::StateSharding::Unspecified | v1::StateSharding::None => None,
            v1::StateSharding::Optimizer => Some("ZeRO-1"),
        });
    }
    words.extend(stages.iter().any(|config| config.sequence_parallel).then_some("sequence parallel"));
    for stage in &plan.stages {
        words.extend(recompute(stage.recompute()));
        words.extend(stage.memory_optimizations.iter().flat_map(|of| &of.optimizations).filter_map(action));
        words.extend(stage.chunked_training.as_ref().map(|_| "chunks"));
    }
    if plan.stages.is_empty() {
        words.extend(plan.training.as_ref().and_then(|training| recompute(training.recompute())));
    }
    words.sort_unstable();
    words.dedup();
    words.into_iter().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests;
