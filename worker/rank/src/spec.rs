//! Reading and checking what the daemon asks for.

use std::io::Read;
use std::path::Path;

use loadmaster_proto::chunks::activations;
use loadmaster_proto::cluster::device::Backend;
use loadmaster_proto::error::{Invalid, in_range};
use loadmaster_proto::measure::offload::CopyPace;
use loadmaster_proto::measure::rank::{Edges, LinkSpec, RankDevice, RankSpec};
use loadmaster_proto::measure::run::{RunSpec, SoloStage};
use loadmaster_proto::training::actions::ActionContext;
use loadmaster_proto::training::stage::StageConfig;
use serde::de::DeserializeOwned;

use crate::error::RankError;

/// Longest specification, bytes.
const MAX_SPEC_BYTES: u64 = 64 << 20;
/// Longest path of a Unix socket on Linux, without the zero at its end.
const MAX_SOCKET_PATH: usize = 107;
/// Most threads of a rank.
const MAX_THREADS: u32 = 1_024;
/// Longest wait for a neighbour, seconds: a day.
const MAX_TIMEOUT_SECONDS: f64 = 86_400.0;

/// Reads the specification of a rank that trains as JSON.
///
/// # Errors
/// Names the field that is missing or wrong.
pub fn read(input: impl Read) -> Result<RankSpec, RankError> {
    let spec = parse(input)?;
    check(&spec)?;
    Ok(spec)
}

/// Reads the specification of a rank that measures links as JSON.
///
/// # Errors
/// Names the field that is missing or wrong.
pub fn read_links(input: impl Read) -> Result<LinkSpec, RankError> {
    let spec = parse(input)?;
    check_links(&spec)?;
    Ok(spec)
}

fn parse<T: DeserializeOwned>(input: impl Read) -> Result<T, RankError> {
    let mut text = String::new();
    input
        .take(MAX_SPEC_BYTES)
        .read_to_string(&mut text)
        .map_err(|error| Invalid::field("", format!("the specification cannot be read: {error}")))?;
    let mut json = serde_json::Deserializer::from_str(&text);
    let spec = serde_path_to_error::deserialize(&mut json)
        .map_err(|error| Invalid::field(error.path().to_string(), error.inner().to_string()))?;
    json.end().map_err(|error| Invalid::field("", format!("text follows the specification: {error}")))?;
    Ok(spec)
}

fn check_links(spec: &LinkSpec) -> Result<(), Invalid> {
    let work = spec.work.clone().checked().map_err(|invalid| invalid.under("work"))?;
    in_range("index", spec.index, 0..=work.devices - 1)?;
    in_range("threads", spec.threads, 1..=MAX_THREADS)?;
    in_range("neighbour_timeout_seconds", spec.neighbour_timeout_seconds, 0.0..=MAX_TIMEOUT_SECONDS)?;
    check_device(&spec.device).map_err(|invalid| invalid.under("device"))?;
    check_pace(spec.pace, spec.device.backend).map_err(|invalid| invalid.under("pace"))?;
    check_folder(&spec.folder, (0, work.devices))
}

/// Checks what the types do not.
///
/// # Errors
/// Names the field.
pub fn check(spec: &RankSpec) -> Result<(), Invalid> {
    spec.training.checked().map_err(|invalid| invalid.under("training"))?;
    spec.training.check_model(&spec.model).map_err(|invalid| invalid.under("training"))?;
    in_range("iterations", spec.iterations, 1..=RunSpec::MAX_ITERATIONS)?;
    in_range("threads", spec.threads, 1..=MAX_THREADS)?;
    in_range("neighbour_timeout_seconds", spec.neighbour_timeout_seconds, 0.0..=MAX_TIMEOUT_SECONDS)?;
    check_position(spec).map_err(|invalid| invalid.under("position"))?;
    in_range("shard", spec.shard, 0..=spec.position.stage.devices() - 1)?;
    check_device(&spec.device).map_err(|invalid| invalid.under("device"))?;
    check_actions(spec).map_err(|invalid| invalid.under("actions"))?;
    check_chunks(spec)?;
    check_pace(spec.pace, spec.device.backend).map_err(|invalid| invalid.under("pace"))?;
    check_edges(spec)
}

/// Whether the ranks up to this shard of this stage can listen in the folder.
fn check_folder(folder: &Path, (stage, shard): (u32, u32)) -> Result<(), Invalid> {
    let longest = folder.join(format!("rank-{stage}-{shard}.sock"));
    if longest.as_os_str().len() > MAX_SOCKET_PATH {
        return Err(Invalid::field(
            "folder",
            format!(
                "is too long: its socket path {} has more than {MAX_SOCKET_PATH} bytes. Use a shorter path.",
                longest.display()
            ),
        ));
    }
    Ok(())
}

fn check_position(spec: &RankSpec) -> Result<(), Invalid> {
    let layers = spec.model.layers().len();
    let position = spec.position;
    position.stage.checked().map_err(|invalid| invalid.under("stage"))?;
    in_range("stage.last_layer", position.stage.last_layer, 0..=layers - 1)?;
    in_range("stage_count", position.stage_count, 1..=u32::try_from(layers).unwrap_or(u32::MAX))?;
    in_range("stage_index", position.stage_index, 0..=position.stage_count - 1)?;
    spec.model
        .check_stage(&position.stage, spec.training.micro_batch_size)
        .map_err(|invalid| invalid.under("stage"))?;
    Ok(())
}

fn check_actions(spec: &RankSpec) -> Result<(), Invalid> {
    let SoloStage { stage, stage_count: count, stage_index: index } = &spec.position;
    let of = ActionContext {
        model: Some(&spec.model),
        training: &spec.training,
        stage,
        index: *index,
        count: *count,
    };
    match &spec.chunks {
        None => spec.actions.check(of),
        Some(_) => activations::check(&spec.actions, of),
    }
}

fn check_chunks(spec: &RankSpec) -> Result<(), Invalid> {
    let Some(chunks) = &spec.chunks else { return Ok(()) };
    let position = (&spec.position.stage, spec.position.stage_count);
    chunks.lay_out_stage(&spec.model, &spec.training, position).map(drop)
}

fn check_pace(pace: CopyPace, backend: Backend) -> Result<(), Invalid> {
    for (field, rate) in [("host", pace.host), ("peer", pace.peer)] {
        if let Some(rate) = rate {
            if backend == Backend::Cuda {
                return Err(Invalid::field(field, "is only for CPU slots. Remove it for a GPU."));
            }
            in_range(field, rate, 1.0..=f64::MAX)?;
        }
    }
    Ok(())
}

fn check_device(device: &RankDevice) -> Result<(), Invalid> {
    in_range("capacity", device.capacity.0, 1..=u64::MAX)?;
    if device.backend == Backend::Cuda && device.physical < device.capacity {
        return Err(Invalid::field(
            "physical",
            format!(
                "{} is less than capacity {}. Use at least the capacity.",
                device.physical, device.capacity
            ),
        ));
    }
    Ok(())
}

/// Whether a rank trains a stage with nothing else.
pub(crate) fn is_alone(spec: &RankSpec) -> bool {
    spec.edges == Edges::Synthetic && spec.position.stage.devices() == 1
}

fn check_edges(spec: &RankSpec) -> Result<(), Invalid> {
    if !is_alone(spec) {
        let most_devices = StageConfig::MAX_DATA_DEGREE * StageConfig::MAX_TENSOR_DEGREE;
        check_folder(&spec.folder, (spec.position.stage_count, most_devices))?;
    }
    // A connected stage anywhere else would wait for ever for neighbours that never come.
    let Edges::Sockets { partitioning } = &spec.edges else { return Ok(()) };
    let position = spec.position;
    let stages = partitioning.stages();
    let count_differs = u32::try_from(stages.len()) != Ok(position.stage_count);
    let layers_differ = partitioning.layer_count() != spec.model.layers().len();
    if count_differs || layers_differ || stages.get(position.stage_index as usize) != Some(&position.stage) {
        return Err(Invalid::field(
            "position.stage_index",
            format!(
                "{} with position.stage_count {} and position.stage {} does not match edges.partitioning \
                 {partitioning}. Use the index, count and stage of this partitioning, which must cover all layers \
                 of the model.",
                position.stage_index, position.stage_count, position.stage
            ),
        ));
    }
    for (index, stage) in stages.iter().enumerate() {
        spec.model
            .check_stage(stage, spec.training.micro_batch_size)
            .map_err(|invalid| invalid.under(&format!("edges.partitioning.stages[{index}]")))?;
    }
    Ok(())
}
