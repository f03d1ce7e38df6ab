//! The command line. What it does not say, the configuration file may: see [`crate::settings`].

use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::measure::offload::CopyPace;
use loadmaster_proto::name::WorkerName;
use tonic::transport::Uri;

use crate::config::value::{CpuSlots, GpuSelection, MAX_GPU_SHARES, duration, host_memory, server, wait};
use crate::fatal::EXIT_CODES;
use crate::logging::LogFormat;

const EXAMPLES: &str = "\
Examples:
  Offer every GPU of this node:
    loadmaster-worker --server http://planner:7433

  Two ranks on each of the first two GPUs, half of the memory each:
    loadmaster-worker --server http://planner:7433 --gpus 0,1 --gpu-shares 2

  Without a GPU: four CPU slots, each limited to 2 GiB:
    loadmaster-worker --server http://planner:7433 --cpu-slots 4x2GiB

  CPU slots with CPU memory for offload. Limited copy rates give the trade-offs of a GPU server:
    loadmaster-worker --server http://planner:7433 --cpu-slots 4x2GiB --host-memory 8GiB \\
        --cpu-links host=1GB/s,peer=8GB/s

  Settings and custom profilers from a file (an example is in deploy/worker.toml):
    loadmaster-worker --config /etc/loadmaster/worker.toml

A setting is taken from its option, else from its environment variable, else from the file.

Stopping: after SIGTERM or SIGINT the worker accepts no more runs. It completes its current runs within
--drain-timeout. A second signal aborts the current runs, and the planner gives them to other workers.
Logs go to standard error; RUST_LOG sets the level.";

/// Offers this node's devices to a Loadmaster planner, and executes its runs.
#[derive(Debug, Parser)]
#[command(version, after_long_help = format!("{EXAMPLES}\n\n{EXIT_CODES}"))]
#[command(after_help = "Use --help for examples and exit codes.")]
pub(crate) struct Args {
    /// Print this program's manual page, for packages.
    #[arg(long, hide = true, exclusive = true)]
    pub(crate) man: bool,

    /// File with settings (TOML): the long options with `_` for `-`, and the custom profilers that this worker
    /// offers. Only its owner may have permission to write it.
    #[arg(long, env = "LOADMASTER_WORKER_CONFIG", value_name = "PATH")]
    pub(crate) config: Option<PathBuf>,

    /// Address of the planner. Required, here or in the file.
    #[arg(long, env = "LOADMASTER_ADDRESS", value_name = "http://HOST:PORT", value_parser = server)]
    pub(crate) server: Option<Uri>,

    /// Name of this worker, the same after a restart: 1 to 63 of a-z, 0-9 and '-'. Each worker needs its own.
    ///
    /// Default: the host name.
    #[arg(long, env = "LOADMASTER_WORKER_NAME", value_parser = |id: &str| WorkerName::from_id(id))]
    pub(crate) name: Option<WorkerName>,

    /// Offer CPU slots: their number, and the memory of each, for example 4x2GiB. GPUs are then offered only with
    /// --gpus. Slots share the cores evenly, with at least one thread each. As many slots run at once as have cores
    /// for their threads. A run that needs more slots runs alone.
    ///
    /// Default without an NVIDIA driver: a slot per two cores, which share 80% of the memory.
    #[arg(long, env = "LOADMASTER_CPU_SLOTS", value_name = "COUNTxBYTES")]
    pub(crate) cpu_slots: Option<CpuSlots>,

    /// Offer CPU (host) memory besides the devices, for example 64GiB, to runs that offload to it. A run gets the
    /// memory of its plan before it starts, and shares it with no other run. Leave enough for CPU slots and the
    /// system.
    ///
    /// Default: none, and such runs go to other workers.
    #[arg(long, env = "LOADMASTER_HOST_MEMORY", value_name = "BYTES", value_parser = host_memory)]
    pub(crate) host_memory: Option<Bytes>,

    /// Limit the copy rates of CPU slots, each way: `host` to and from CPU memory, `peer` to and from other slots,
    /// for example host=1GB/s,peer=8GB/s (also GiB/s). One of them may be left out. With limits, a few cores show
    /// the trade-offs of a GPU server.
    ///
    /// Default: no limit.
    #[arg(long, env = "LOADMASTER_CPU_LINKS", value_name = "host=RATE,peer=RATE")]
    pub(crate) cpu_links: Option<CopyPace>,

    /// Offer these GPUs: `all`, or indices and UUIDs as nvidia-smi shows them, separated by commas.
    ///
    /// Default: those of `CUDA_VISIBLE_DEVICES`, else all; none with --cpu-slots.
    #[arg(long, env = "LOADMASTER_GPUS", value_name = "all|LIST")]
    pub(crate) gpus: Option<GpuSelection>,

    /// Slots per GPU. Each gets an equal part of its memory.
    ///
    /// Default: 1.
    #[arg(long, env = "LOADMASTER_GPU_SHARES", value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=MAX_GPU_SHARES))]
    pub(crate) gpu_shares: Option<u32>,

    /// Execute runs on GPUs that other processes use. Their measurements are marked as contended.
    ///
    /// Default: such a run is returned to the planner.
    #[arg(long, env = "LOADMASTER_ALLOW_SHARED_DEVICES", num_args = 0..=1, default_missing_value = "true")]
    pub(crate) allow_shared_devices: Option<bool>,

    /// Path of the rank program.
    ///
    /// Default: `loadmaster-rank` in the folder of this program, else in PATH.
    #[arg(long, env = "LOADMASTER_RANK", value_name = "PATH")]
    pub(crate) rank: Option<PathBuf>,

    /// Folder for the private folders of runs. Only its owner may have permission to write it. Keep its path short:
    /// it contains sockets.
    ///
    /// Default: `loadmaster-worker` in `XDG_RUNTIME_DIR`, else `loadmaster-worker-UID` in the folder for temporary
    /// files.
    #[arg(long, env = "LOADMASTER_WORK_DIR", value_name = "PATH")]
    pub(crate) work_dir: Option<PathBuf>,

    /// Longest wait of a stopping worker for its runs.
    ///
    /// Default: 60s.
    #[arg(long, env = "LOADMASTER_DRAIN_TIMEOUT", value_name = "DURATION", value_parser = duration)]
    pub(crate) drain_timeout: Option<Duration>,

    /// Time after which a rank without progress is stopped.
    ///
    /// Default: 120s.
    #[arg(long, env = "LOADMASTER_HANG_TIMEOUT", value_name = "DURATION", value_parser = wait)]
    pub(crate) hang_timeout: Option<Duration>,

    /// Format of log lines.
    ///
    /// Default: text.
    #[arg(long, env = "LOADMASTER_LOG_FORMAT", value_enum)]
    pub(crate) log_format: Option<LogFormat>,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    /// Pins that clap accepts its own definition and that `--help` names every exit code.
    #[test]
    fn help_teaches_exit_codes_and_examples() {
        let mut command = Args::command();
        command.clone().debug_assert();
        let help = command.render_long_help().to_string();
        for text in [
            "Exit codes:",
            "  4  the rank program",
            "4x2GiB",
            "--gpu-shares 2",
            "--config",
            "--host-memory 8GiB",
            "peer=8GB/s",
        ] {
            assert!(help.contains(text), "{text:?} is not in:\n{help}");
        }
    }
}
