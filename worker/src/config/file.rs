//! The configuration file: TOML, unknown keys are errors.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::measure::offload::CopyPace;
use loadmaster_proto::name::WorkerName;
use nix::unistd::geteuid;
use serde::Deserialize;
use tonic::transport::Uri;

use super::command::{self, Commands, RawCommand};
use super::value::{CpuSlots, GpuSelection, MAX_GPU_SHARES, duration, host_memory, server, wait};
use crate::logging::LogFormat;

/// Longest file, bytes.
const MAX_FILE: u64 = 1 << 20;

/// Settings that make no worker.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfigError {
    /// The file is not there, or may not be read.
    #[error("the configuration file {} cannot be read: {error}", path.display())]
    Unreadable {
        path: PathBuf,
        /// The system's words.
        error: io::Error,
    },
    /// Others could make this worker run anything.
    #[error(
        "the configuration file {} names programs to run, but another user can change the file ({why}). Use \
         chown and chmod 644, so that only this worker's user or root can change the file.",
        path.display()
    )]
    NotPrivate {
        path: PathBuf,
        /// Who may.
        why: String,
    },
    /// It says something that cannot be.
    #[error("the configuration file {}: {why}", path.display())]
    Invalid {
        path: PathBuf,
        /// Which key, and what would be right.
        why: String,
    },
    /// Neither options nor file say where the planner is.
    #[error("the planner's address is missing. Use --server http://HOST:PORT, or `server` in the file.")]
    NoServer,
    /// More of the host than there is.
    #[error(
        "--host-memory {offered} ({} bytes) exceeds the CPU memory of this host, {has} ({} bytes). Use a smaller \
         value.",
        offered.0,
        has.0
    )]
    HostMemory {
        /// What was to be offered.
        offered: Bytes,
        /// What there is, or what a control group lets this process use.
        has: Bytes,
    },
    /// Copies of GPUs are as fast as their links.
    #[error(
        "--cpu-links sets the speed of copies of CPU slots, but this worker offers no CPU slots. Remove --cpu-links, \
         or add --cpu-slots 4x2GiB."
    )]
    NoSlots,
}

/// What a configuration file says.
#[derive(Debug, Default)]
pub(crate) struct ConfigFile {
    pub(crate) server: Option<Uri>,
    pub(crate) name: Option<WorkerName>,
    pub(crate) cpu_slots: Option<CpuSlots>,
    pub(crate) host_memory: Option<Bytes>,
    pub(crate) cpu_links: Option<CopyPace>,
    pub(crate) gpus: Option<GpuSelection>,
    pub(crate) gpu_shares: Option<u32>,
    pub(crate) allow_shared_devices: Option<bool>,
    pub(crate) rank: Option<PathBuf>,
    pub(crate) work_dir: Option<PathBuf>,
    pub(crate) drain_timeout: Option<Duration>,
    pub(crate) hang_timeout: Option<Duration>,
    pub(crate) log_format: Option<LogFormat>,
    pub(crate) custom_profilers: Commands,
}

/// As it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    server: Option<String>,
    name: Option<String>,
    cpu_slots: Option<String>,
    host_memory: Option<String>,
    cpu_links: Option<String>,
    gpus: Option<String>,
    gpu_shares: Option<u32>,
    allow_shared_devices: Option<bool>,
    rank: Option<PathBuf>,
    work_dir: Option<PathBuf>,
    drain_timeout: Option<String>,
    hang_timeout: Option<String>,
    log_format: Option<String>,
    #[serde(default)]
    custom_profilers: BTreeMap<String, RawCommand>,
}

impl ConfigFile {
    /// Reads a file that only its owner can write.
    pub(crate) fn read(path: &Path) -> Result<Self, ConfigError> {
        let unreadable = |error| ConfigError::Unreadable { path: path.to_owned(), error };
        let invalid = |why| ConfigError::Invalid { path: path.to_owned(), why };
        let file = File::open(path).map_err(unreadable)?;
        let found = file.metadata().map_err(unreadable)?;
        if !found.is_file() {
            return Err(invalid("is not a regular file".to_owned()));
        }
        if found.mode() & 0o022 != 0 {
            let why = format!("mode {:o}", found.mode() & 0o777);
            return Err(ConfigError::NotPrivate { path: path.to_owned(), why });
        }
        if found.uid() != 0 && found.uid() != geteuid().as_raw() {
            let why = format!("it belongs to uid {}", found.uid());
            return Err(ConfigError::NotPrivate { path: path.to_owned(), why });
        }
        let mut text = String::new();
        file.take(MAX_FILE + 1).read_to_string(&mut text).map_err(unreadable)?;
        if text.len() as u64 > MAX_FILE {
            return Err(invalid(format!("the file has more than {MAX_FILE} bytes")));
        }
        Self::parse(&text).map_err(invalid)
    }

    /// What a text says; errors name the key, or line and column.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let raw: Raw = toml::from_str(text).map_err(|error| error.to_string())?;
        Ok(Self {
            server: field("server", raw.server, server)?,
            name: field("name", raw.name, |id| {
                WorkerName::from_id(id).map_err(|invalid| invalid.to_string())
            })?,
            cpu_slots: field("cpu_slots", raw.cpu_slots, str::parse)?,
            host_memory: field("host_memory", raw.host_memory, host_memory)?,
            cpu_links: field("cpu_links", raw.cpu_links, str::parse)?,
            gpus: field("gpus", raw.gpus, str::parse)?,
            gpu_shares: match raw.gpu_shares {
                Some(shares) if !(1..=MAX_GPU_SHARES).contains(&i64::from(shares)) => {
                    return Err(format!("gpu_shares: {shares} is out of range. Use 1 to {MAX_GPU_SHARES}."));
                }
                shares => shares,
            },
            allow_shared_devices: raw.allow_shared_devices,
            rank: raw.rank,
            work_dir: raw.work_dir,
            drain_timeout: field("drain_timeout", raw.drain_timeout, duration)?,
            hang_timeout: field("hang_timeout", raw.hang_timeout, wait)?,
            log_format: field("log_format", raw.log_format, |text| match text {
                "text" => Ok(LogFormat::Text),
                "json" => Ok(LogFormat::Json),
                other => Err(format!("{other:?} is not a log format. Use text or json.")),
            })?,
            custom_profilers: command::checked(raw.custom_profilers)?,
        })
    }
}

fn field<T>(
    name: &str,
    text: Option<String>,
    parse: impl Fn(&str) -> Result<T, String>,
) -> Result<Option<T>, String> {
    text.map(|text| parse(&text).map_err(|why| format!("{name}: {why}"))).transpose()
}
