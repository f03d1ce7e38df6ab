//! What a command tells of one rank: `rank-N.json` in the folder for results.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use loadmaster_proto::accounting::{Accounting, of_device};
use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::cluster::device::Device;
use loadmaster_proto::measure::environment::Environment;
use loadmaster_proto::measure::failure::{OutOfMemory, Phase};
use loadmaster_proto::measure::measurement::{LayerTimes, Measurement};
use loadmaster_proto::measure::run::{RankPosition, RunSpec, Work};
use loadmaster_proto::name::CommandName;
use loadmaster_proto::training::StaticBytes;
use nix::libc;
use serde::Deserialize;

/// First key of the file.
const FORMAT: &str = "loadmaster.rank/1";
/// Longest file, bytes: times of the most layers fit.
const MAX_FILE: u64 = 4 << 20;
/// Longest text in it, bytes.
const MAX_TEXT: usize = 128;
const MAX_LOSSES: usize = 1_000;

/// The file of a rank as it is written. Unknown keys are errors: a misspelt one would be a lost number.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RankFile {
    format: String,
    rank: usize,
    #[serde(deserialize_with = "of_device")]
    ledger: Accounting,
    #[serde(default)]
    framework: String,
    #[serde(default)]
    framework_version: String,
    #[serde(default)]
    cuda_version: String,
    /// Exactly one of this and `out_of_memory`.
    peak_bytes: Option<u64>,
    out_of_memory: Option<DidNotFit>,
    peak_reserved_bytes: Option<u64>,
    #[serde(default)]
    parameter_bytes: u64,
    #[serde(default)]
    gradient_bytes: u64,
    #[serde(default)]
    optimizer_bytes: u64,
    iteration_seconds: Option<f64>,
    #[serde(default)]
    step_seconds: f64,
    #[serde(default)]
    layers: Vec<LayerTimes>,
    /// JSON has no word for a loss that is no number: null.
    #[serde(default)]
    losses: Vec<Option<f64>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct DidNotFit {
    phase: Phase,
    layer: Option<usize>,
    /// 0 where the framework does not say.
    #[serde(default)]
    asked_bytes: u64,
    /// 0 where the framework does not say.
    #[serde(default)]
    held_bytes: u64,
    allowed_bytes: Option<u64>,
}

/// What became of a rank.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum RankReport {
    Measured(Box<Measurement>),
    /// Its device was too small.
    OutOfMemory(OutOfMemory),
}

/// Where a rank's file belongs.
pub(super) fn path(results: &Path, rank: usize) -> PathBuf {
    results.join(format!("rank-{rank}.json"))
}

/// Reads the file of a rank. `None` where it is not there; an error says what is wrong with it.
pub(super) fn read(results: &Path, rank: usize) -> Result<Option<RankFile>, String> {
    let path = path(results, rank);
    // A pipe in its place would keep the daemon waiting for ever.
    let flags = libc::O_NONBLOCK | libc::O_NOFOLLOW;
    let file = match OpenOptions::new().read(true).custom_flags(flags).open(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(|error| error.to_string())?,
    };
    let found = file.metadata().map_err(|error| error.to_string())?;
    if !found.is_file() {
        return Err("is not a regular file".to_owned());
    }
    if found.len() > MAX_FILE {
        return Err(format!("the file has {} bytes, more than the limit of {MAX_FILE}", found.len()));
    }
    let mut text = Vec::new();
    file.take(MAX_FILE).read_to_end(&mut text).map_err(|error| error.to_string())?;
    parse(&text).map(Some)
}

fn parse(text: &[u8]) -> Result<RankFile, String> {
    let mut reader = serde_json::Deserializer::from_slice(text);
    let file: RankFile = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        let path = error.path().to_string();
        if path == "." { error.inner().to_string() } else { format!("{path}: {}", error.inner()) }
    })?;
    reader.end().map_err(|error| error.to_string())?;
    Ok(file)
}

impl RankFile {
    /// Whether it reports that its device was too small.
    pub(super) fn is_out_of_memory(&self) -> bool {
        self.out_of_memory.is_some()
    }

    /// What it says of rank `rank` of a run, checked: errors name the key.
    pub(super) fn result(
        self,
        command: &CommandName,
        ledger: Accounting,
        spec: &RunSpec,
        (rank, place, device): (usize, RankPosition, &Device),
    ) -> Result<RankReport, String> {
        if self.format != FORMAT {
            return Err(format!("format: {:?} is not supported. Use {FORMAT:?}.", self.format));
        }
        if self.rank != rank {
            return Err(format!("rank: {} differs from the rank in the file name. Use {rank}.", self.rank));
        }
        if self.ledger != ledger {
            return Err(format!(
                "ledger: {} is not the memory accounting (allocated, reserved or device) of {command} in the worker's \
                 configuration. Use {}.",
                self.ledger.as_str(),
                ledger.as_str()
            ));
        }
        match (self.peak_bytes, &self.out_of_memory) {
            (None, Some(lack)) => lack.checked(ledger, device).map(RankReport::OutOfMemory),
            (Some(peak), None) => {
                self.measured(command, spec, place, device, peak).map(Box::new).map(RankReport::Measured)
            }
            (None, None) => Err("peak_bytes: is missing".to_owned()),
            (Some(_), Some(_)) => Err("peak_bytes: not valid together with out_of_memory".to_owned()),
        }
    }

    /// Whether its times are times, and of the layers that the rank has.
    fn check_times(&self, place: &RankPosition) -> Result<(), String> {
        let stage = place.position.stage;
        for (index, times) in self.layers.iter().enumerate() {
            if !stage.layers().contains(&times.layer) {
                return Err(format!(
                    "layers[{index}].layer: {} is not among the layers of the rank's stage, {stage}",
                    times.layer
                ));
            }
            seconds(&format!("layers[{index}].forward_seconds"), times.forward_seconds)?;
            seconds(&format!("layers[{index}].backward_seconds"), times.backward_seconds)?;
            seconds(&format!("layers[{index}].recompute_seconds"), times.recompute_seconds)?;
        }
        if self.losses.len() > MAX_LOSSES {
            return Err(format!("losses: {} entries are more than {MAX_LOSSES}", self.losses.len()));
        }
        Ok(())
    }

    fn measured(
        self,
        command: &CommandName,
        spec: &RunSpec,
        place: RankPosition,
        device: &Device,
        peak: u64,
    ) -> Result<Measurement, String> {
        if peak == 0 {
            return Err("peak_bytes: 0 is not a measured peak".to_owned());
        }
        let peak = bytes("peak_bytes", peak)?;
        let peak_reserved = match (self.peak_reserved_bytes, self.ledger) {
            (Some(reserved), _) => Some(bytes("peak_reserved_bytes", reserved)?),
            (None, Accounting::Reserved) => Some(peak),
            (None, _) => None,
        };
        let iteration_seconds = self.iteration_seconds.ok_or("iteration_seconds: is missing")?;
        self.check_times(&place)?;
        let RankPosition { position, shard } = place;
        Ok(Measurement {
            stage: position.stage,
            stage_index: position.stage_index,
            shard,
            stage_count: position.stage_count,
            solo: matches!(spec.strategy.work, Work::Solo(_)),
            micro_batch_size: spec.strategy.training.micro_batch_size,
            in_flight: spec.strategy.training.schedule.in_flight(
                position.stage_count,
                position.stage_index,
                spec.strategy.training.micro_batches,
            ),
            peak_allocated: peak,
            recompute: spec.strategy.training_at(&position).recompute,
            peak_ledger: self.ledger,
            peak_reserved,
            static_bytes: self.static_bytes()?,
            offload: None,
            chunks: None,
            capacity: device.capacity,
            iteration_seconds: seconds("iteration_seconds", iteration_seconds)?,
            step_seconds: seconds("step_seconds", self.step_seconds)?,
            environment: self.environment(command, device)?,
            layers: self.layers,
            trace: None,
            losses: self.losses.into_iter().map(|loss| loss.unwrap_or(f64::NAN)).collect(),
        })
    }

    fn static_bytes(&self) -> Result<StaticBytes, String> {
        Ok(StaticBytes {
            parameters: bytes("parameter_bytes", self.parameter_bytes)?.0,
            gradients: bytes("gradient_bytes", self.gradient_bytes)?.0,
            optimizer: bytes("optimizer_bytes", self.optimizer_bytes)?.0,
            // Frameworks count them with the parameters.
            buffers: 0,
        })
    }

    fn environment(&self, command: &CommandName, device: &Device) -> Result<Environment, String> {
        Ok(Environment {
            device_kind: device.kind.clone(),
            cuda_version: text("cuda_version", &self.cuda_version)?,
            driver_version: device.driver_version.clone(),
            loadmaster_version: env!("CARGO_PKG_VERSION").to_owned(),
            command: command.to_string(),
            framework: text("framework", &self.framework)?,
            framework_version: text("framework_version", &self.framework_version)?,
            ..Environment::default()
        })
    }
}

impl DidNotFit {
    fn checked(&self, ledger: Accounting, device: &Device) -> Result<OutOfMemory, String> {
        Ok(OutOfMemory {
            asked: bytes("out_of_memory.asked_bytes", self.asked_bytes)?,
            held: bytes("out_of_memory.held_bytes", self.held_bytes)?,
            allowed: match self.allowed_bytes {
                Some(allowed) => bytes("out_of_memory.allowed_bytes", allowed)?,
                None => device.capacity,
            },
            ledger,
            phase: self.phase,
            layer: self.layer,
        })
    }
}

fn bytes(field: &str, value: u64) -> Result<Bytes, String> {
    if i64::try_from(value).is_ok() {
        Ok(Bytes(value))
    } else {
        Err(format!("{field}: {value} is not a number of bytes"))
    }
}

fn seconds(field: &str, value: f64) -> Result<f64, String> {
    if value.is_finite() && value >= 0.0 {
        Ok(value)
    } else {
        Err(format!("{field}: {value} is out of range. Use 0 seconds or more."))
    }
}

fn text(field: &str, value: &str) -> Result<String, String> {
    if value.len() > MAX_TEXT || value.contains(char::is_control) {
        return Err(format!(
            "{field}: is too long or has control characters. Use one line of at most {MAX_TEXT} bytes."
        ));
    }
    Ok(value.to_owned())
}
