//! The command line.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::Parser;
use jiff::SignedDuration;
use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::name::WorkerName;
use tonic::transport::Uri;

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

Stopping: SIGTERM or SIGINT takes no more runs and ends those it holds (--drain-timeout); a second
signal stops them at once and hands them back. Logs go to standard error; RUST_LOG says how much.";

/// Offers this node's devices to a Loadmaster planner and works on the runs that it leases.
#[derive(Debug, Parser)]
#[command(version, after_long_help = format!("{EXAMPLES}\n\n{EXIT_CODES}"))]
#[command(after_help = "Use --help for examples and exit codes.")]
pub(crate) struct Args {
    /// The planner's address.
    #[arg(long, env = "LOADMASTER_ADDRESS", value_name = "http://HOST:PORT", value_parser = server)]
    pub(crate) server: Uri,

    /// Name of this worker, the same after a restart: 1 to 63 of a-z, 0-9 and '-'. Two workers may
    /// not share one.
    ///
    /// Default: the host name.
    #[arg(long, env = "LOADMASTER_WORKER_NAME", value_parser = |id: &str| WorkerName::from_id(id))]
    pub(crate) name: Option<WorkerName>,

    /// Offer this many CPU slots of this many bytes each, for example 4x2GiB. GPUs are then offered
    /// only if --gpus is given too.
    ///
    /// Default where there is no NVIDIA driver: a slot per two cores, which share 80% of the memory.
    #[arg(long, env = "LOADMASTER_CPU_SLOTS", value_name = "COUNTxBYTES")]
    pub(crate) cpu_slots: Option<CpuSlots>,

    /// Offer these GPUs: `all`, or indices and UUIDs as nvidia-smi shows them, separated by commas.
    ///
    /// Default: those of `CUDA_VISIBLE_DEVICES`, or else all; none if --cpu-slots is given.
    #[arg(long, env = "LOADMASTER_GPUS", value_name = "all|LIST")]
    pub(crate) gpus: Option<GpuSelection>,

    /// Slots per GPU; each rank may use this share of its memory.
    #[arg(long, env = "LOADMASTER_GPU_SHARES", value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) gpu_shares: u32,

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
    #[arg(long, env = "LOADMASTER_DRAIN_TIMEOUT", value_name = "TIME", default_value = "60s")]
    #[arg(value_parser = duration)]
    pub(crate) drain_timeout: Duration,

    /// A rank that reports nothing for this long is stopped.
    #[arg(long, env = "LOADMASTER_HANG_TIMEOUT", value_name = "TIME", default_value = "120s")]
    #[arg(value_parser = wait)]
    pub(crate) hang_timeout: Duration,

    /// How log lines look.
    #[arg(long, env = "LOADMASTER_LOG_FORMAT", value_enum, default_value_t = LogFormat::Text)]
    pub(crate) log_format: LogFormat,
}

/// `--cpu-slots`: how many of what size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CpuSlots {
    /// Slots.
    pub(crate) count: u32,
    /// Bytes of each.
    pub(crate) capacity: Bytes,
}

impl CpuSlots {
    /// Most slots of a worker.
    pub(crate) const MAX: u32 = 1_024;
    /// Smallest slot; libtorch alone needs more than this.
    const MIN_CAPACITY: Bytes = Bytes(1 << 20);
}

impl FromStr for CpuSlots {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (count, bytes) = text
            .split_once(['x', 'X'])
            .ok_or("write the number of slots, an x and the size of each, for example 4x2GiB")?;
        let count = count
            .trim()
            .parse()
            .ok()
            .filter(|count| (1..=Self::MAX).contains(count))
            .ok_or_else(|| format!("{count:?} is not a number of slots from 1 to {}", Self::MAX))?;
        let capacity: Bytes = bytes.parse().map_err(|error| format!("{error}"))?;
        if capacity < Self::MIN_CAPACITY || i64::try_from(capacity.0).is_err() {
            return Err(format!("a slot must have {} or more", Self::MIN_CAPACITY));
        }
        Ok(Self { count, capacity })
    }
}

/// `--gpus`: which.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum GpuSelection {
    /// Every one.
    All,
    /// Those with these indices or UUIDs.
    Listed(Vec<String>),
}

impl FromStr for GpuSelection {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "all" {
            return Ok(Self::All);
        }
        let parts: Vec<String> = text.split(',').map(|part| part.trim().to_owned()).collect();
        let valid = |part: &String| part.parse::<u32>().is_ok() || part.starts_with("GPU-");
        match parts.iter().find(|part| !valid(part)) {
            Some(part) => Err(format!("{part:?} is neither an index nor a UUID (GPU-…) of a GPU")),
            None => Ok(Self::Listed(parts)),
        }
    }
}

fn server(text: &str) -> Result<Uri, String> {
    let text = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
    let uri: Uri = text.parse().map_err(|error| format!("{error}"))?;
    match uri.scheme_str() {
        Some("http") => {}
        Some(other) => return Err(format!("{other} is not supported, write http://HOST:PORT")),
        None => return Err("write http://HOST:PORT".to_owned()),
    }
    if uri.port().is_none() {
        return Err("the port is missing, write http://HOST:PORT".to_owned());
    }
    Ok(uri)
}

fn duration(text: &str) -> Result<Duration, String> {
    let hint = "write a number and a unit, for example 90s or 5m, at most 24h";
    let span: SignedDuration = text.parse().map_err(|_| hint.to_owned())?;
    Duration::try_from(span)
        .ok()
        .filter(|time| *time <= Duration::from_secs(86_400))
        .ok_or_else(|| hint.to_owned())
}

/// A duration that something can happen in.
fn wait(text: &str) -> Result<Duration, String> {
    duration(text).and_then(|time| {
        if time < Duration::from_millis(100) { Err("must be 100ms or more".to_owned()) } else { Ok(time) }
    })
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
        for text in ["Exit codes:", "  4  the rank program", "4x2GiB", "--gpu-shares 2"] {
            assert!(help.contains(text), "{text:?} is not in:\n{help}");
        }
    }

    #[test]
    fn slots_are_a_count_and_a_size() {
        assert_eq!("4x2GiB".parse(), Ok(CpuSlots { count: 4, capacity: Bytes(2 << 30) }));
        for wrong in ["4", "x2GiB", "0x2GiB", "4x", "4x1", "4x2parsecs", "9999x1GiB"] {
            assert!(wrong.parse::<CpuSlots>().is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn gpus_are_indices_or_uuids() {
        assert_eq!("all".parse(), Ok(GpuSelection::All));
        assert_eq!("0, GPU-1f".parse(), Ok(GpuSelection::Listed(vec!["0".into(), "GPU-1f".into()])));
        for wrong in ["", "0,", "first", "-1"] {
            assert!(wrong.parse::<GpuSelection>().is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_server_has_a_port_and_may_lack_the_scheme() {
        assert_eq!(server("planner:7433").map(|uri| uri.to_string()), Ok("http://planner:7433/".to_owned()));
        for wrong in ["", "http://planner", "https://planner:1", "ftp://x:1"] {
            assert!(server(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn times_have_units_and_an_upper_bound() {
        assert_eq!(duration("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert!(wait("0s").is_err() && wait("1s").is_ok());
        for wrong in ["", "90", "-1s", "48h"] {
            assert!(duration(wrong).is_err(), "{wrong:?}");
        }
    }
}
