//! The `component` predictor, `component/4`: replays a stage from the allocation traces of its layers.
//!
//! Every distinct layer was trained alone once, and its allocations and frees were recorded as an allocation trace
//! ([`loadmaster_proto::measure::trace`]). The traces of a stage's layers are played in the order of its passes.
//! Tensors at edges are shared between neighbours, as on the rank. The peak is the maximum of the running sum.
//! Schedule, recompute policy and micro-batches in flight decide only the order of play, so one profile covers all
//! of them.
//!
//! ```text
//!  trace of layer 3       trace of layer 4          stage 3..4, two micro-batches under GPipe
//!  ┌ input    +x          ┌ input    +x
//!  │ forward  +a +y  …    │ forward  +t −t +b +y …   fwd 3 · fwd 4 · fwd 3 · fwd 4
//!  │ backward +g −a …     │ backward +g −b −x …        · bwd 4 (first) · bwd 3 (first)
//!  └ step     +s −s       └ step     +s −s             · bwd 4 (later) · bwd 3 (later) · step
//!       y of layer 3 is x of layer 4: one block, live until its last reference ends
//! ```
//!
//! The first backward pass of an iteration creates the gradients, and later ones add to them, so both are recorded.
//!
//! ```text
//! let predictor = Component::new(&model, &training, named_measurements)?;   // single layers, with allocation traces
//! let predictor = predictor.with_checks(&[(training_of_the_run, &measurement)]);   // optional: margins
//! let prediction = predictor.stage(&StageSetting { stage, stage_index, stage_count, training })?;
//! ```
//!
//! | module | question |
//! |---|---|
//! | `library` | which allocation trace has this layer at this micro-batch size and tensor-parallel size? |
//! | `blend` | what are the bytes of a block at a setting between or beyond two recordings? |
//! | `counterparts` | which blocks are the same one in two recordings whose events differ? |
//! | `scratch` | which blocks do kernels take for themselves, and how many bytes at most? |
//! | `machine` | which bytes of a device are taken, and by what? |
//! | `playing` | which blocks of an allocation trace are live while it is played? |
//! | `stage` | which layers does a stage have, and which of them are recomputed together? |
//! | `micro_batch` | what does the rank hold of a micro-batch around the layers of a stage? |
//! | `replay` | what does a stage hold, from the allocation traces of its layers? |
//! | `equal_stages` | which stages play the same? |
//! | `schedule` | which moment of an iteration is the highest? |
//! | `memory_optimizations` | what is where, step by step, where blocks are recomputed, or away? |
//! | `chunked` | what does a device hold besides chunks, where a model is trained in them? |
//! | `layer_seconds` | how long does a layer take at a setting between or beyond two recordings? |
//! | `costs` | what does each layer cost one by one: seconds, and bytes that it sends? |
//! | `tied_weights` | what if both ends of a shared weight are in one stage? |
//! | `margin`, `pace` | how sure is it, of bytes and of seconds? |
//!
//! Under PipeDream every backward pass is followed by an update, and each micro-batch in flight holds the version of the
//! weights that it went forward with. The peak is that of the long run, with as many versions.
//!
//! A device of a stage of d replicas plays the allocation traces of a d-th of the micro-batch and holds the buffers in
//! which gradients are summed. Where a replica consists of shards, it plays the allocation traces of its shard.
//!
//! # Limits
//!
//! * The micro-batch size is read on a straight line per block, the tensor-parallel size on A + B/n per block.
//!   Where kernels choose another algorithm at another size, the two recordings differ in their events;
//!   then scratch blocks are scaled, and [`warnings`](Predictor::warnings) and the margin say so.
//! * Seconds are sums of the layers' own; gradient synchronisation over replicas is not in them. Below the smallest
//!   recorded micro-batch size they are those of that size, which is the most that they can be; above the largest, samples
//!   take as long as there.
//! * What kernels take for themselves in bf16, and on GPUs, follows no line. At sizes that were not recorded the
//!   stage is played a second time with as much as they are held to, and the margin reaches that peak.
//! * Shards that hold unequal parts are played one by one, and each kind of pass counts on the shard where it
//!   needs most.

mod blend;
mod chunked;
mod counterparts;
mod layer_seconds;
mod library;
mod machine;
pub mod margin;
mod memory_optimizations;
mod micro_batch;
pub mod pace;
mod playing;
mod replay;
mod schedule;
mod scratch;
mod stage;
mod tied_weights;

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::Arc;

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::chunks::stage::Chunks;
use loadmaster_proto::cluster::device::CPU_KIND;
use loadmaster_proto::measure::disturbance::Disturbance;
use loadmaster_proto::measure::measurement::Measurement;
use loadmaster_proto::measure::trace::{Event, LayerContent, LayerTrace, Passage};
use loadmaster_proto::model::{Model, ModelInput};
use loadmaster_proto::training::actions::{StageActions, Steps};
use loadmaster_proto::training::shard::Shard;
use loadmaster_proto::training::stage::StageConfig;
use loadmaster_proto::training::{Optimizer, TrainingSpec};
use loadmaster_proto::warning::{Warning, WarningCode};

use crate::memo::Memo;
use crate::{
    ActionsPrediction, Breakdown, Interval, LayerCost, MOST_BYTES, Moments, PeakCurve, Prediction,
    PredictionError, Predictor, Share, StageSeconds, StageSetting, margin_up_to,
};
use library::{Gap, Library, TracedLayer};
use machine::BlockClass;
use replay::{Played, PlayedKey};
use schedule::{Place, StageBytes};
use stage::Runs;

/// Name and version in predictions.
pub const NAME: &str = "component/4";

/// The component predictor of one profile.
#[derive(Debug)]
pub struct Component {
    model: Model,
    training: TrainingSpec,
    /// Fingerprint of each layer's content.
    contents: Vec<String>,
    runs: Runs,
    library: Library,
    /// See [`Predictor::smallest_share`].
    smallest_share: Option<u32>,
    /// Names of the measurements.
    names: Vec<String>,
    largest_error: Option<f64>,
    /// The same, of seconds.
    largest_error_in_seconds: Option<f64>,
    /// What made the profile's seconds longer than those of devices of their own.
    disturbance: Disturbance,
    /// Of each measurement in the order of `names`: the share of its seconds by which quiet ones may differ from them, and its
    /// seconds.
    disturbed: Vec<(f64, f64)>,
    /// With how many threads layers were recorded whose bytes depend on it: fewest and most.
    threads: Option<[u32; 2]>,
    /// Whether all of it was measured on CPU slots.
    on_slots: bool,
    /// About how much an allocation trace takes.
    trace_bytes: usize,
    /// Allocation traces that were read before: equal layers have equal ones.
    read: Memo<(String, u32, u32), TracedLayer>,
    /// Stages that were asked for before: a search asks for each many times.
    played: Memo<PlayedKey, Played>,
}

impl Component {
    /// From the measurements of a profile, by name: those with an allocation trace count, whatever the layer's place in
    /// the model that it was measured in. `training` is the profile's; another precision or optimizer
    /// needs another profile.
    ///
    /// # Errors
    /// No measurement has an allocation trace.
    pub fn new<'a>(
        model: &Model,
        training: &TrainingSpec,
        measurements: impl IntoIterator<Item = (&'a str, &'a Measurement)>,
    ) -> Result<Self, PredictionError> {
        let mut library = Library::default();
        let mut names = Vec::new();
        let mut disturbed = Vec::new();
        let mut threads = None;
        let mut on_slots = true;
        let mut trace_bytes = 0;
        for (name, measurement) in measurements {
            library.add(names.len(), measurement, training.precision);
            names.push(name.to_owned());
            let seconds = measurement.iteration_seconds.max(f64::MIN_POSITIVE);
            disturbed.push((measurement.environment.disturbed_share(), seconds));
            on_slots &= measurement.environment.device_kind == CPU_KIND;
            if let Some(trace) = &measurement.trace {
                trace_bytes = trace_bytes.max(about_bytes(trace));
                threads = scratch::threads(threads, training.precision, &measurement.environment);
            }
        }
        if library.is_empty() {
            let why = "the profile has no allocation traces of single layers. Profile with `profiling_mode` \
                PROFILING_MODE_PER_LAYER";
            return Err(PredictionError::NotProfiled(why.to_owned()));
        }
        let contents = contents(model);
        Ok(Self {
            model: model.clone(),
            training: *training,
            runs: Runs::of(&contents),
            smallest_share: smallest_share(&contents, &library),
            contents,
            library,
            names,
            largest_error: None,
            largest_error_in_seconds: None,
            disturbance: Disturbance::default(),
            disturbed,
            threads,
            on_slots,
            trace_bytes,
            read: Memo::default(),
            played: Memo::default(),
        })
    }

    /// What answers for another model by the same recordings, and is held to be as wrong as this is.
    #[must_use]
    pub fn of_model(&self, model: &Model) -> Self {
        let contents = contents(model);
        Self {
            model: model.clone(),
            training: self.training,
            runs: Runs::of(&contents),
            smallest_share: smallest_share(&contents, &self.library),
            contents,
            library: self.library.clone(),
            names: self.names.clone(),
            largest_error: self.largest_error,
            largest_error_in_seconds: self.largest_error_in_seconds,
            disturbance: self.disturbance,
            disturbed: self.disturbed.clone(),
            threads: self.threads,
            on_slots: self.on_slots,
            trace_bytes: self.trace_bytes,
            read: Memo::default(),
            played: Memo::default(),
        }
    }

    /// Learns from stages that were measured and that nothing else was learnt from how wrong predictions
    /// are, each with the settings of its run. What cannot be predicted checks nothing.
    #[must_use]
    pub fn with_checks(mut self, checks: &[(TrainingSpec, &Measurement)]) -> Self {
        let (mut bytes, mut seconds) = (Vec::new(), Vec::new());
        for &(training, measurement) in checks {
            let setting = StageSetting {
                stage: measurement.stage,
                stage_index: measurement.stage_index,
                stage_count: measurement.stage_count,
                training: training.with_micro_batch_size(measurement.micro_batch_size),
            };
            let Ok(predicted) = self.stage(&setting) else { continue };
            let peak = predicted.bytes.0;
            bytes.push(peak.abs_diff(measurement.peak_allocated.0) as f64 / peak.max(1) as f64);
            seconds.extend(predicted.seconds.and_then(|of| pace::checked(of, &training, measurement)));
        }
        self.largest_error = bytes.into_iter().reduce(f64::max).or(self.largest_error);
        self.largest_error_in_seconds = pace::largest_error(&seconds).or(self.largest_error_in_seconds);
        self
    }

    /// Has it warn of what disturbed the profile's measurements.
    #[must_use]
    pub fn disturbed_by(self, disturbance: Disturbance) -> Self {
        Self { disturbance, ..self }
    }

    /// Whether every layer can be predicted at this micro-batch size of a device, on one device or in
    /// shards of this degree: what is missing, human-readable, by layer.
    pub fn missing(&self, tensor_degree: u32, size: u32) -> Vec<String> {
        (0..self.contents.len())
            .filter_map(|layer| self.trace(layer, tensor_degree, size).err())
            .map(|error| error.to_string())
            .collect()
    }

    fn trace(&self, layer: usize, degree: u32, size: u32) -> Result<Arc<TracedLayer>, PredictionError> {
        let content = self.contents.get(layer).cloned().unwrap_or_default();
        self.read
            .get((content.clone(), degree, size), || {
                let mut trace = self.library.read(&content, degree, size)?;
                self.allow_for_small_products(&mut trace, layer, degree, size);
                Ok(trace)
            })
            .map_err(|gap| self.not_profiled(layer, degree, size, &gap))
    }

    /// Allows for the scratch of products that were too small to have any where the allocation trace was recorded.
    fn allow_for_small_products(&self, trace: &mut TracedLayer, layer: usize, degree: u32, size: u32) {
        let [recorded, largest_degree] = trace.largest.map(u64::from);
        let Some(kind) = self.model.layers().get(layer).map(|layer| &layer.kind) else { return };
        let [degree_asked, size] = [degree.max(1), size].map(u64::from);
        if trace.is_steady || (size <= recorded && degree_asked >= largest_degree) {
            return;
        }
        let tokens = match self.model.input() {
            ModelInput::Tokens { sequence_length, .. } => u64::try_from(sequence_length).unwrap_or(1),
            ModelInput::Image { .. } | ModelInput::Vector { .. } => 1,
        };
        let shrunk = largest_degree.div_ceil(degree_asked);
        trace.allow_for(|index| {
            scratch::unseen(kind, Shard { index, degree }, tokens, recorded, size.max(recorded), shrunk)
        });
    }

    fn not_profiled(&self, layer: usize, degree: u32, size: u32, gap: &Gap) -> PredictionError {
        let name = self.model.layers().get(layer).map_or("", |layer| layer.name.as_str());
        PredictionError::NotProfiled(match gap {
            Gap::Layer => format!(
                "the allocation trace of layer {layer} ({name}) is missing. Profile with `profiling_mode` \
                 PROFILING_MODE_PER_LAYER, or resume the profile if it is incomplete"
            ),
            Gap::Degree { recorded } => format!(
                "the allocation trace of layer {layer} ({name}) is missing at tensor-parallel size {degree}. It exists at \
                 {recorded:?}, but predictions for other sizes need two profiled sizes of 2 or more. Profile with \
                 `profiling_mode` PROFILING_MODE_PER_LAYER, `parallelisms` PARALLELISM_TENSOR and `parallel_sizes` 2 and 4"
            ),
            Gap::Size { recorded } => format!(
                "layer {layer} ({name}) was profiled only at micro-batch size {recorded}, which cannot be scaled to {size}. \
                 Profile a second micro-batch size"
            ),
        })
    }

    fn seconds_margin(&self, played: &Played, setting: &StageSetting) -> Option<f64> {
        let StageConfig { data_degree, .. } = setting.stage;
        let reading = pace::SecondsOrigin {
            origin: played.origin,
            data_degree,
            size: Share::of(setting).micro_batch_size,
            smallest: self.smallest_share,
        };
        pace::margin(reading, self.largest_error_in_seconds, self.disturbed_share(played))
    }

    /// The share of a stage's seconds by which quiet ones may differ from them: the mean of its recordings, weighed by their seconds.
    fn disturbed_share(&self, played: &Played) -> f64 {
        if self.disturbed.iter().all(|&(share, _)| share == 0.0) {
            return 0.0;
        }
        let own = played.sources.iter().filter_map(|&source| self.disturbed.get(source));
        let (doubted, all) = own
            .fold((0.0, 0.0), |(doubted, all), (share, seconds)| (doubted + share * seconds, all + seconds));
        if all > 0.0 { doubted / all } else { 0.0 }
    }

    fn played(&self, setting: &StageSetting) -> Result<Arc<Played>, PredictionError> {
        let key = self.key(setting)?;
        self.played.get(key, || self.play(key))
    }

    fn key(&self, setting: &StageSetting) -> Result<PlayedKey, PredictionError> {
        let StageConfig { first_layer: first, last_layer: last, data_degree, tensor_degree, .. } =
            setting.stage;
        let layers = self.contents.len();
        if setting.stage.sequence_parallel {
            return Err(PredictionError::NoSequence { predictor: NAME });
        }
        if first > last || last >= layers {
            return Err(PredictionError::NoSuchStage { first, last, layers });
        }
        let TrainingSpec { precision, optimizer, .. } = setting.training;
        if precision != self.training.precision || !same_rule(&optimizer, &self.training.optimizer) {
            return Err(PredictionError::NotProfiled(
                "the profile was measured with another precision or optimizer than requested. Both change the memory \
                 of a layer. Profile with the requested settings"
                    .to_owned(),
            ));
        }
        let whole = setting.training.micro_batch_size;
        if data_degree == 0 || !whole.is_multiple_of(data_degree) {
            return Err(PredictionError::NotProfiled(format!(
                "a micro-batch of {whole} samples is not divisible by data-parallel size {data_degree}. Use a multiple of \
                 {data_degree}"
            )));
        }
        let size = whole / data_degree;
        let (first, last) = self.runs.stand_in(first, last);
        let (recompute, parts) = (setting.training.recompute, setting.stage.optimizer_parts());
        Ok(PlayedKey { first, last, tensor_degree, parts, size, recompute })
    }
}

/// What each layer of a model is, by which recordings are found.
fn contents(model: &Model) -> Vec<String> {
    let of = |layer| LayerContent::of(model, layer).map(|content| content.fingerprint());
    (0..model.layers().len()).filter_map(of).collect()
}

/// The fewest samples that every one of these layers was recorded with; none unless all were.
fn smallest_share(contents: &[String], library: &Library) -> Option<u32> {
    let smallest: Option<Vec<u32>> = contents.iter().map(|content| library.smallest_size(content)).collect();
    smallest.and_then(|sizes| sizes.into_iter().max())
}

/// About how much an allocation trace takes: of its passages, the largest part.
fn about_bytes(trace: &LayerTrace) -> usize {
    let untrained = trace.untrained_input.iter().flat_map(|passages| passages.iter());
    let passages = [&trace.first, &trace.later, &trace.without_graph].into_iter().chain(untrained);
    let of = |passage: &Passage| {
        let events: usize = passage.slots.iter().map(Vec::len).sum();
        size_of_val(passage) + size_of::<u64>() * passage.blocks.len() + size_of::<Event>() * events
    };
    passages.map(of).sum()
}

/// A margin as people read it: a share of the bytes, in bytes where it is more than they are.
fn margin_of(bytes: Bytes, share: f64) -> String {
    if share > 1.0 {
        Bytes(Interval::around(bytes, share).high.0 - bytes.0).to_string()
    } else {
        format!("{:.1} %", 100.0 * share)
    }
}

/// Whether two optimizers allocate the same: numbers such as the learning rate do not matter, but
/// whether there is momentum does.
fn same_rule(one: &Optimizer, other: &Optimizer) -> bool {
    std::mem::discriminant(one) == std::mem::discriminant(other)
        && one.state_scalars() == other.state_scalars()
}

impl Component {
    /// What a stage needs whose kinds of passes need these bytes: as recorded, and with as much scratch memory as kernels
    /// may take.
    fn prediction(
        &self,
        setting: &StageSetting,
        played: &Played,
        (bytes, most): (StageBytes, Option<StageBytes>),
        seconds: StageSeconds,
    ) -> Prediction {
        let place = Place {
            schedule: setting.training.schedule,
            stages: setting.stage_count,
            stage: setting.stage_index,
            micro_batches: setting.training.micro_batches,
        };
        let peak = bytes.peak(place, played.synchronisation(setting.stage.data_degree));
        let fixed = played.fixed;
        let older = played.older_versions(setting.training.schedule, setting.in_flight());
        let part = |class: BlockClass| peak.of(class).min(MOST_BYTES);
        let breakdown = Breakdown {
            weights: fixed.parameters.saturating_add(fixed.buffers).saturating_add(older).min(MOST_BYTES),
            gradients: part(BlockClass::Gradient),
            optimizer: fixed.optimizer.min(MOST_BYTES),
            activations: part(BlockClass::Activation),
            edges: part(BlockClass::Edge),
            communication: part(BlockClass::Communication),
            transient: part(BlockClass::Transient),
            overhead: played.overhead.min(MOST_BYTES),
        };
        let bytes = breakdown.total();
        let most = most.map_or(0, |most| {
            let peak = most.peak(place, played.synchronisation(setting.stage.data_degree)).total();
            let constant = played.constant().saturating_add(older);
            constant.saturating_add(peak).saturating_add(played.unseen).min(MOST_BYTES)
        });
        let least = margin::margin(played.origin, played.is_aligned, self.largest_error);
        Prediction {
            bytes: Bytes(bytes),
            breakdown: Some(breakdown),
            seconds: Some(seconds),
            seconds_margin: self.seconds_margin(played, setting),
            margin: Some(least.max(margin_up_to(bytes, most))),
            predictor: NAME,
            origin: played.origin,
        }
    }
}

impl Predictor for Component {
    fn name(&self) -> &'static str {
        NAME
    }

    fn layers(&self) -> usize {
        self.contents.len()
    }

    fn stage(&self, setting: &StageSetting) -> Result<Prediction, PredictionError> {
        let played = self.played(setting)?;
        Ok(self.prediction(setting, &played, (played.bytes, played.most), played.seconds))
    }

    fn knows_steps(&self) -> bool {
        true
    }

    fn acted(
        &self,
        setting: &StageSetting,
        actions: &StageActions,
    ) -> Result<ActionsPrediction, PredictionError> {
        self.with_actions(setting, actions, self.steps(setting, actions))
    }

    fn acted_in(
        &self,
        setting: &StageSetting,
        actions: &StageActions,
        steps: Steps,
    ) -> Result<ActionsPrediction, PredictionError> {
        self.with_actions(setting, actions, steps)
    }

    fn knows_chunks(&self) -> bool {
        true
    }

    fn moments(
        &self,
        setting: &StageSetting,
        chunks: &Chunks,
        actions: &StageActions,
    ) -> Result<Moments, PredictionError> {
        self.in_chunks(setting, chunks, actions)
    }

    fn sources(&self, setting: &StageSetting) -> Vec<String> {
        let Ok(played) = self.played(setting) else { return Vec::new() };
        let names: BTreeSet<&String> =
            played.sources.iter().filter_map(|&source| self.names.get(source)).collect();
        names.into_iter().cloned().collect()
    }

    fn layer_costs(&self, share: Share) -> Vec<Option<LayerCost>> {
        self.costs(share)
    }

    fn curves(&self, setting: &StageSetting, last: usize) -> Option<Vec<PeakCurve>> {
        let of = |last_layer| {
            let stage = StageConfig { last_layer, ..setting.stage };
            let played = self.played(&StageSetting { stage, ..*setting }).ok()?;
            let synchronisation = played.synchronisation(stage.data_degree).total();
            let curve = |bytes: &StageBytes, constant: u64| {
                let TrainingSpec { schedule, micro_batches, .. } = setting.training;
                bytes.curve((schedule, micro_batches), synchronisation, constant, played.version)
            };
            let most = played.most.map(|most| {
                let most = curve(&most, played.constant().saturating_add(played.unseen));
                [most.least, most.one, most.one_of_last]
            });
            let margin = margin::margin(played.origin, played.is_aligned, self.largest_error);
            Some(PeakCurve { margin: Some(margin), most, ..curve(&played.bytes, played.constant()) })
        };
        let end = self.contents.len().min(last.saturating_add(1));
        Some((setting.stage.first_layer..end).map_while(of).collect())
    }

    fn remembered_bytes(&self) -> usize {
        // Sources of the layers that a stage has are the most of it.
        let played = size_of::<Played>() + 2 * size_of::<usize>() * self.contents.len();
        let traces = self.read.len().saturating_mul(self.trace_bytes);
        traces.saturating_add(self.played.len().saturating_mul(played))
    }

    fn smallest_share(&self) -> Option<u32> {
        self.smallest_share
    }

    fn tied_bytes(&self, tensor_degree: u32) -> u64 {
        self.tied(tensor_degree)
    }

    fn waiting_share(&self, replicas: u32) -> f64 {
        if self.on_slots { pace::waiting(replicas) } else { 0.0 }
    }

    fn warnings(&self, setting: &StageSetting) -> Vec<Warning> {
        let Ok(played) = self.played(setting) else { return Vec::new() };
        let unaligned = self.unaligned(setting, &played);
        let margin = margin::margin(played.origin, played.is_aligned, self.largest_error);
        let said = self.stage(setting).ok();
        let wider =
            said.and_then(|said| Some((said.bytes, said.margin?))).filter(|&(_, wider)| wider > margin);
        let scratch = wider.map(|(bytes, wider)| {
            format!(
                "the scratch memory of kernels depends on the micro-batch size, and the requested size was not \
                 profiled. The safety margin is {} instead of {:.1} % to cover this memory. Profile at the requested \
                 micro-batch size",
                margin_of(bytes, wider),
                margin * 100.0
            )
        });
        let disturbed = self.disturbance.warnings();
        let own = unaligned.into_iter().chain(scratch).chain(self.other_threads());
        own.map(|why| WarningCode::ScratchMemoryEstimated.says(why)).chain(disturbed).collect()
    }
}

impl Component {
    /// What to know where bytes depend on threads.
    fn other_threads(&self) -> Option<String> {
        let [fewest, most] = self.threads?;
        let recorded = if fewest == most { fewest.to_string() } else { format!("{fewest} to {most}") };
        Some(format!(
            "the profile was measured with {recorded} threads per device. In bf16 each thread of a CPU slot needs \
             scratch memory of its own, so training with more threads needs more memory than predicted"
        ))
    }

    /// What to know of layers whose recordings have different events.
    fn unaligned(&self, setting: &StageSetting, played: &Played) -> Option<String> {
        let (&first, count) = (played.unaligned.first()?, played.unaligned.len());
        let first = setting.stage.first_layer + first;
        let name = self.model.layers().get(first).map_or("", |layer| layer.name.as_str());
        let others = if count > 1 { format!(" and {} more", count - 1) } else { String::new() };
        Some(format!(
            "the scratch memory of layer {first} ({name}){others} is an estimate. The order of allocations differs \
             between micro-batch sizes, or only larger sizes were profiled. Profile at the requested micro-batch size"
        ))
    }
}
