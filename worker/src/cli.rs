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

  No GPU: four CPU slots of 2 GiB, enforced:
    loadmaster-worker --server http://planner:7433 --cpu-slots 4x2GiB

  The same, with memory of the host beside the slots for plans that move blocks there, and with copies as slow
  beside the computing as those of a server:
    loadmaster-worker --server http://planner:7433 --cpu-slots 4x2GiB --host-memory 8GiB \\
        --cpu-links host=1GB/s,peer=8GB/s

  Settings and training commands from a file (an example is in deploy/worker.toml):
    loadmaster-worker --config /etc/loadmaster/worker.toml

A setting is taken from its option, else from its environment variable, else from the file.

Stopping: SIGTERM or SIGINT takes no more runs and ends those it holds (--drain-timeout); a second
signal stops them at once and hands them back. Logs go to standard error; RUST_LOG says how much.";

/// Offers this node's devices to a Loadmaster planner and works on the runs that it leases.
#[derive(Debug, Parser)]
#[command(version, after_long_help = format!("{EXAMPLES}\n\n{EXIT_CODES}"))]
#[command(after_help = "Use --help for examples and exit codes.")]
pub(crate) struct Args {
    /// Print this program's manual page, for packages.
    #[arg(long, hide = true, exclusive = true)]
    pub(crate) man: bool,

    /// A file with settings (TOML): the long options with `_` for `-`, and the training commands that this
    /// worker offers. Nobody but its owner may be able to write to it.
    #[arg(long, env = "LOADMASTER_WORKER_CONFIG", value_name = "PATH")]
    pub(crate) config: Option<PathBuf>,

    /// The planner's address. Required, here or in the file.
    #[arg(long, env = "LOADMASTER_ADDRESS", value_name = "http://HOST:PORT", value_parser = server)]
    pub(crate) server: Option<Uri>,

    /// Name of this worker, the same after a restart: 1 to 63 of a-z, 0-9 and '-'. Two workers may
    /// not share one.
    ///
    /// Default: the host name.
    #[arg(long, env = "LOADMASTER_WORKER_NAME", value_parser = |id: &str| WorkerName::from_id(id))]
    pub(crate) name: Option<WorkerName>,

    /// Offer this many CPU slots of this many bytes each, for example 4x2GiB. GPUs are then offered
    /// only if --gpus is given too. Slots share the cores evenly, a thread at least; no more of them work
    /// side by side than have cores for their threads, but for a run that needs more: it works alone.
    ///
    /// Default where there is no NVIDIA driver: a slot per two cores, which share 80% of the memory.
    #[arg(long, env = "LOADMASTER_CPU_SLOTS", value_name = "COUNTxBYTES")]
    pub(crate) cpu_slots: Option<CpuSlots>,

    /// Offer so much of this host's memory beside the devices, for example 64GiB: runs whose memory actions
    /// move blocks to the host take what their plan says from it, all at once before they begin, and share it
    /// with nobody. No more than the host has; leave what CPU slots and the system need.
    ///
    /// Default: none, and such runs go to other workers.
    #[arg(long, env = "LOADMASTER_HOST_MEMORY", value_name = "BYTES", value_parser = host_memory)]
    pub(crate) host_memory: Option<Bytes>,

    /// Copies of CPU slots are no faster than this, each way: `host` to and from the host's memory, `peer` to
    /// and from each other slot, for example host=1GB/s,peer=8GB/s (also GiB/s); one of them may be missing. So
    /// a few cores show the trade-offs of a server, whose links are slow beside its devices.
    ///
    /// Default: as fast as they can.
    #[arg(long, env = "LOADMASTER_CPU_LINKS", value_name = "host=RATE,peer=RATE")]
    pub(crate) cpu_links: Option<CopyPace>,

    /// Offer these GPUs: `all`, or indices and UUIDs as nvidia-smi shows them, separated by commas.
    ///
    /// Default: those of `CUDA_VISIBLE_DEVICES`, or else all; none if --cpu-slots is given.
    #[arg(long, env = "LOADMASTER_GPUS", value_name = "all|LIST")]
    pub(crate) gpus: Option<GpuSelection>,

    /// Slots per GPU; each rank may use this share of its memory.
    ///
    /// Default: 1.
    #[arg(long, env = "LOADMASTER_GPU_SHARES", value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=MAX_GPU_SHARES))]
    pub(crate) gpu_shares: Option<u32>,

    /// Work on GPUs that other processes use as well. Measurements made there are marked as contended.
    ///
    /// Default: a run on such a GPU is handed back.
    #[arg(long, env = "LOADMASTER_ALLOW_SHARED_DEVICES", num_args = 0..=1, default_missing_value = "true")]
    pub(crate) allow_shared_devices: Option<bool>,

    /// The rank program.
    ///
    /// Default: `loadmaster-rank` beside this program, or else the one found through PATH.
    #[arg(long, env = "LOADMASTER_RANK", value_name = "PATH")]
    pub(crate) rank: Option<PathBuf>,

    /// Folder for the private folders of runs; nobody else may write to it. Keep its path short, there
    /// are sockets in it.
    ///
    /// Default: `loadmaster-worker` in `XDG_RUNTIME_DIR`, or else `loadmaster-worker-UID` in the
    /// folder for temporary files.
    #[arg(long, env = "LOADMASTER_WORK_DIR", value_name = "PATH")]
    pub(crate) work_dir: Option<PathBuf>,

    /// How long to wait for the runs it holds when asked to stop.
    ///
    /// Default: 60s.
    #[arg(long, env = "LOADMASTER_DRAIN_TIMEOUT", value_name = "TIME", value_parser = duration)]
    pub(crate) drain_timeout: Option<Duration>,

    /// A rank that reports nothing for this long is stopped.
    ///
    /// Default: 120s.
    #[arg(long, env = "LOADMASTER_HANG_TIMEOUT", value_name = "TIME", value_parser = wait)]
    pub(crate) hang_timeout: Option<Duration>,

    /// How log lines look.
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
