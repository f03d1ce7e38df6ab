//! Settings: from options, then environment variables, then the configuration file, then defaults.

use std::path::PathBuf;
use std::time::Duration;

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::measure::offload::CopyPace;
use loadmaster_proto::name::WorkerName;
use tonic::transport::Uri;

use crate::cli::Args;
use crate::config::command::Commands;
use crate::config::value::{CpuSlots, GpuSelection};
use crate::config::{ConfigError, ConfigFile};
use crate::logging::LogFormat;

/// See `--gpu-shares`.
const GPU_SHARES: u32 = 1;
/// See `--drain-timeout`.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(60);
/// See `--hang-timeout`.
const HANG_TIMEOUT: Duration = Duration::from_secs(120);

/// All settings of the daemon. What each means is said at the option of the same name.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) server: Uri,
    pub(crate) name: Option<WorkerName>,
    pub(crate) cpu_slots: Option<CpuSlots>,
    /// Memory of the host for memory actions.
    pub(crate) host_memory: Bytes,
    /// How fast copies of CPU slots may be; none where no one says.
    pub(crate) cpu_links: Option<CopyPace>,
    pub(crate) gpus: Option<GpuSelection>,
    pub(crate) gpu_shares: u32,
    pub(crate) allow_shared_devices: bool,
    pub(crate) rank: Option<PathBuf>,
    pub(crate) work_dir: Option<PathBuf>,
    pub(crate) drain_timeout: Duration,
    pub(crate) hang_timeout: Duration,
    pub(crate) log_format: LogFormat,
    /// Training commands that the worker offers.
    pub(crate) commands: Commands,
}

impl Settings {
    /// The settings that options and the file that they name make together.
    pub(crate) fn of(args: Args) -> Result<Self, ConfigError> {
        let file = args.config.as_deref().map(ConfigFile::read).transpose()?.unwrap_or_default();
        Self::merged(args, file)
    }

    fn merged(args: Args, file: ConfigFile) -> Result<Self, ConfigError> {
        Ok(Self {
            server: args.server.or(file.server).ok_or(ConfigError::NoServer)?,
            name: args.name.or(file.name),
            cpu_slots: args.cpu_slots.or(file.cpu_slots),
            host_memory: args.host_memory.or(file.host_memory).unwrap_or_default(),
            cpu_links: args.cpu_links.or(file.cpu_links),
            gpus: args.gpus.or(file.gpus),
            gpu_shares: args.gpu_shares.or(file.gpu_shares).unwrap_or(GPU_SHARES),
            allow_shared_devices: args.allow_shared_devices.or(file.allow_shared_devices).unwrap_or_default(),
            rank: args.rank.or(file.rank),
            work_dir: args.work_dir.or(file.work_dir),
            drain_timeout: args.drain_timeout.or(file.drain_timeout).unwrap_or(DRAIN_TIMEOUT),
            hang_timeout: args.hang_timeout.or(file.hang_timeout).unwrap_or(HANG_TIMEOUT),
            log_format: args.log_format.or(file.log_format).unwrap_or(LogFormat::Text),
            commands: file.custom_profilers,
        })
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[test]
    fn an_option_beats_the_file_and_the_file_the_default() {
        let file =
            || ConfigFile::parse("server = 'http://file:1'\nhang_timeout = '7s'\ngpu_shares = 2").unwrap();
        let args = |line: &str| Args::try_parse_from(line.split_whitespace()).unwrap();
        let settings = Settings::merged(args("x --server http://option:1 --gpu-shares 3"), file()).unwrap();
        assert_eq!(settings.server.host(), Some("option"));
        assert_eq!((settings.gpu_shares, settings.hang_timeout), (3, Duration::from_secs(7)));
        assert_eq!((settings.drain_timeout, settings.allow_shared_devices), (DRAIN_TIMEOUT, false));
        let settings = Settings::merged(args("x --allow-shared-devices"), file()).unwrap();
        assert_eq!((settings.server.host(), settings.allow_shared_devices), (Some("file"), true));
        assert_eq!(
            (settings.host_memory, settings.cpu_links),
            (Bytes(0), None),
            "nothing of the host is offered"
        );
        let file =
            || ConfigFile::parse("server = 'x'\nhost_memory = '1GiB'\ncpu_links = 'host=1GB/s'").unwrap();
        let settings = Settings::merged(args("x --host-memory 2GiB --cpu-links peer=8GB/s"), file()).unwrap();
        let pace = CopyPace { host: None, peer: Some(8e9) };
        assert_eq!((settings.host_memory, settings.cpu_links), (Bytes(2 << 30), Some(pace)));
        let settings = Settings::merged(args("x"), file()).unwrap();
        let pace = CopyPace { host: Some(1e9), peer: None };
        assert_eq!((settings.host_memory, settings.cpu_links), (Bytes(1 << 30), Some(pace)));
        let error = Settings::merged(args("x"), ConfigFile::default()).unwrap_err();
        assert!(error.to_string().contains("--server"), "{error}");
    }
}
