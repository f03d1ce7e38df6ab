//! "Will it fit?" of a stage that trains in given chunks.

use loadmaster_predict::forecast::{Forecast, ForecastError, check_devices, of_predictions};
use loadmaster_predict::{Margin, Moments, Prediction, Predictor, StageSetting, check_size};
use loadmaster_proto::amounts::plural;
use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::chunks::activations;
use loadmaster_proto::chunks::packing::ChunkLayout;
use loadmaster_proto::chunks::residency::paging_intervals::Paging;
use loadmaster_proto::chunks::stage::{ChunkResidency, ChunkedStage, Chunks};
use loadmaster_proto::error::Invalid;
use loadmaster_proto::measure::chunked::ChunkRun;
use loadmaster_proto::measure::offload::Offload;
use loadmaster_proto::model::Model;
use loadmaster_proto::training::actions::{ActionContext, StageActions};
use loadmaster_proto::warning::{Warning, WarningCode};

use super::plan::offload;
use super::step_memory::{StepMemory, interval, resident};

/// What a stage needs that trains in chunks.
#[derive(Debug, Clone)]
pub struct ChunkedForecast {
    /// The device of each of its replicas.
    pub forecast: Forecast,
    /// What its chunks move and hold: without any seconds, which follow from links and updates.
    pub run: ChunkRun,
    /// What it does besides, with the pool that it needs.
    pub actions: StageActions,
    /// What that moves, without seconds; none where it does nothing.
    pub offload: Option<Offload>,
}

/// Forecasts the whole model of `setting` in these chunks and with these actions, whose pool is as large as needed where it is
/// left out, on a device of the given capacity or of none. Where a rule decides
/// what is there, it has what the capacity leaves beside predicted bytes, or, if that is too little, what steps need at once.
///
/// # Errors
/// Chunks or actions that cannot be, by their path in a request; a rule without a capacity; what the profile lacks.
pub fn in_chunks(
    predictor: &(impl Predictor + ?Sized),
    model: Option<&Model>,
    setting: &StageSetting,
    (stage, actions): (&ChunkedStage, &StageActions),
    capacities: &[Bytes],
    margin: Margin,
) -> Result<ChunkedForecast, ForecastError> {
    let settings = [*setting];
    check_devices(&settings, capacities)?;
    let Some(model) = model else {
        let why = "needs the model's tensors, but the profile has only the names of the layers. Store the model, and \
            profile it";
        return Err(Invalid::field("memory.chunked_training", why).into());
    };
    check_size(setting)?;
    let chunks = stage.lay_out_stage(model, &setting.training, (&setting.stage, setting.stage_count))?;
    let of = ActionContext {
        model: Some(model),
        training: &setting.training,
        stage: &setting.stage,
        index: setting.stage_index,
        count: setting.stage_count,
    };
    activations::check(actions, of)
        .map_err(|invalid| invalid.under("memory.stage_memory_optimizations[0]"))?;
    let moments: Moments = predictor.moments(setting, &chunks, actions)?;
    let actions = with_pool(actions, moments.pool_bytes())?;
    let needed = moments.needed(margin);
    let intervals = match (&stage.residency, capacities) {
        (ChunkResidency::Planned(intervals), _) => intervals.clone(),
        (ChunkResidency::Paged, []) => {
            let why =
                "needs the memory capacity of the device, which is not known. Set the capacity of the device";
            return Err(Invalid::field("memory.chunked_training.on_demand", why).into());
        }
        (ChunkResidency::Paged, [capacity, ..]) => {
            let room: Vec<u64> = needed.iter().map(|needed| capacity.0.saturating_sub(*needed)).collect();
            match stage.paged(Paging::AT_NEED, &chunks, &room) {
                Ok(intervals) => intervals,
                Err(_) => stage
                    .bare_intervals(&chunks)
                    .map_err(|invalid| invalid.under("memory.chunked_training"))?,
            }
        }
    };
    let told = stage.told(&chunks, &intervals).map_err(|invalid| invalid.under("memory.chunked_training"))?;
    let resident = resident(&chunks, &told);
    let other: Vec<u64> = moments.curve.iter().map(|step| step.most.total()).collect();
    let held = StepMemory { other: &other, resident: &resident };
    let (step, peak) = held.highest();
    let besides = moments.curve.get(step).map(|step| step.most).unwrap_or_default();
    let most = StepMemory { other: &needed, resident: &resident }.highest().1;
    let expected = interval(peak, most);
    let prediction = Prediction {
        bytes: Bytes(peak),
        breakdown: Some(held.breakdown(step, besides, &chunks)),
        seconds: None,
        margin: moments.margin.map(|_| expected.margin),
        seconds_margin: None,
        predictor: predictor.name(),
        origin: moments.origin,
    };
    let mut forecast = of_predictions(predictor, &settings, vec![prediction], capacities, margin);
    for stage in &mut forecast.stages {
        stage.interval = stage.interval.map(|_| expected);
    }
    forecast.warnings.extend(predictor.besides_chunks().map(|why| WarningCode::TableIncomplete.says(why)));
    forecast.warnings.extend(larger(stage, &chunks));
    let moved = chunks.moved(&told);
    Ok(ChunkedForecast {
        offload: offload(&actions, &moments.away, 0.0),
        actions,
        forecast,
        run: ChunkRun {
            host_bytes: Bytes(chunks.host.bytes),
            other_bytes: other,
            payload_bytes: resident,
            ..ChunkRun::moving(&moved)
        },
    })
}

/// Which chunks are larger than their size, human-readable; none where none is.
pub fn larger(stage: &ChunkedStage, chunks: &Chunks) -> Option<Warning> {
    // In others a parameter group that is larger is refused, and a group of ranks counts as one.
    if stage.layout != ChunkLayout::Aligned {
        return None;
    }
    let (size, all) = (chunks.layout.chunk_elements(), chunks.layout.chunks());
    let larger = all.iter().filter(|chunk| chunk.capacity > size);
    let most = larger.clone().map(|chunk| chunk.capacity).max()?;
    Some(WarningCode::ChunksOversized.says(format!(
        "of {}, {} larger than the chunk size of {}, because single tensors are larger. The largest chunk has {most} \
         elements",
        plural(all.len(), "chunk"),
        match larger.count() {
            1 => "1 is".to_owned(),
            several => format!("{several} are"),
        },
        plural(size, "element")
    )))
}

/// The actions with a pool of so many bytes, where they have none.
fn with_pool(actions: &StageActions, needed: Bytes) -> Result<StageActions, Invalid> {
    let given = actions.host_pool;
    if given.0 > 0 && given < needed {
        let why = format!(
            "{} is less than the {} bytes that the memory optimizations need at the same time. Use at least this \
             number, or remove this field",
            given.0, needed.0
        );
        return Err(Invalid::field("memory.stage_memory_optimizations[0].host_pool_bytes", why));
    }
    Ok(StageActions { host_pool: given.max(needed), ..actions.clone() })
}
