//! Reading and checking what the daemon asks for.

use std::io::Read;

use loadmaster_proto::device::Backend;
use loadmaster_proto::error::{Invalid, in_range};
use loadmaster_proto::rank::{Edges, RankSpec};
use loadmaster_proto::run::RunSpec;
use loadmaster_proto::stage::StageConfig;

use crate::error::RankError;

/// Longest specification, bytes.
const MAX_SPEC_BYTES: u64 = 64 << 20;
/// Longest path of a Unix socket on Linux, without the zero at its end.
const MAX_SOCKET_PATH: usize = 107;
/// Most threads of a rank.
const MAX_THREADS: u32 = 1_024;
/// Longest wait for a neighbour, seconds: a day.
const MAX_TIMEOUT_SECONDS: f64 = 86_400.0;

/// Reads a specification as JSON.
///
/// # Errors
/// Names the field that is missing or wrong.
pub fn read(input: impl Read) -> Result<RankSpec, RankError> {
    let mut text = String::new();
    input
        .take(MAX_SPEC_BYTES)
        .read_to_string(&mut text)
        .map_err(|error| Invalid::field("", format!("the specification cannot be read: {error}")))?;
    let mut json = serde_json::Deserializer::from_str(&text);
    let spec: RankSpec = serde_path_to_error::deserialize(&mut json)
        .map_err(|error| Invalid::field(error.path().to_string(), error.inner().to_string()))?;
    json.end().map_err(|error| Invalid::field("", format!("something follows it: {error}")))?;
    check(&spec)?;
    Ok(spec)
}

/// Checks what the types do not.
///
/// # Errors
/// Names the field.
pub fn check(spec: &RankSpec) -> Result<(), Invalid> {
    spec.training.checked().map_err(|invalid| invalid.under("training"))?;
    in_range("iterations", spec.iterations, 1..=RunSpec::MAX_ITERATIONS)?;
    in_range("threads", spec.threads, 1..=MAX_THREADS)?;
    in_range("neighbour_timeout_seconds", spec.neighbour_timeout_seconds, 0.0..=MAX_TIMEOUT_SECONDS)?;
    check_position(spec).map_err(|invalid| invalid.under("position"))?;
    in_range("shard", spec.shard, 0..=spec.position.stage.degree - 1)?;
    check_device(spec).map_err(|invalid| invalid.under("device"))?;
    check_edges(spec)
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

fn check_device(spec: &RankSpec) -> Result<(), Invalid> {
    let device = &spec.device;
    in_range("capacity", device.capacity.0, 1..=u64::MAX)?;
    if device.backend == Backend::Cuda && device.physical < device.capacity {
        return Err(Invalid::field(
            "physical",
            format!("is {}, must be at least the capacity, {}", device.physical, device.capacity),
        ));
    }
    Ok(())
}

fn check_edges(spec: &RankSpec) -> Result<(), Invalid> {
    let is_alone = spec.edges == Edges::Synthetic && spec.position.stage.degree == 1;
    let longest = format!("rank-{}-{}.sock", spec.position.stage_count, StageConfig::MAX_DEGREE);
    let longest = spec.folder.join(longest);
    if !is_alone && longest.as_os_str().len() > MAX_SOCKET_PATH {
        return Err(Invalid::field(
            "folder",
            format!("makes socket paths longer than {MAX_SOCKET_PATH} bytes: {}", longest.display()),
        ));
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
                "is {} of {}, but the stages of edges.partitioning are {partitioning} and this one is {}",
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
