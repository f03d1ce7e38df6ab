//! One rank: feeds it its specification, listens to it, and waits for its end.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::pin::pin;
use std::process::{ExitStatus, Stdio};

use loadmaster_proto::cluster::device::Device;
use loadmaster_proto::measure::failure::Phase;
use loadmaster_proto::measure::rank::{HUGE_PAGES, RankEvent};
use tokio::io::{AsyncRead, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::select;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tracing::{debug, warn};

use super::assignment::RankId;
use super::root_cause::{Exit, RankEnd, RankOutput, RankResult};
use crate::command::visible_devices;
use crate::process::tail::{LAST_WORDS, Tail, read_line};

/// Longest event; the measurement of a model with the most layers fits easily.
const MAX_EVENT: usize = 8 << 20;
/// How much of a line that is no event is kept.
const GARBAGE: usize = 200;
/// A sign of life.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Heard {
    pub(super) rank: RankId,
    /// How far it is, where it said so.
    pub(super) progress: Option<(f64, Phase)>,
}

/// UUIDs of the GPUs that a rank on `device` sees, its own first: a driver opens memory of another one only where it sees that.
/// Empty on CPU slots, which hides all.
fn visible(device: &Device, devices: &[Device]) -> String {
    let others = devices.iter().filter(|other| other.backend == device.backend);
    visible_devices([device].into_iter().chain(others)).join(",")
}

/// The command that starts a rank on `device`, beside others on `devices`, without the verb that says what for.
pub(super) fn command(
    program: &Path,
    (device, devices): (&Device, &[Device]),
    threads: u32,
    folder: &Path,
) -> Command {
    let threads = threads.to_string();
    let mut command = Command::new(program);
    command
        // By UUID, so that no other setting changes which GPU is meant.
        .env("CUDA_VISIBLE_DEVICES", visible(device, devices))
        .env("OMP_NUM_THREADS", &threads)
        .env("MKL_NUM_THREADS", &threads)
        .env(HUGE_PAGES.0, huge_pages(std::env::var_os(HUGE_PAGES.0)))
        .env("TMPDIR", folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// The value of [`HUGE_PAGES`], before what this process was given: the C library heeds the last of what says the same.
fn huge_pages(given: Option<OsString>) -> OsString {
    let mut value = OsString::from(HUGE_PAGES.1);
    if let Some(given) = given.filter(|given| !given.is_empty()) {
        value.push(":");
        value.push(given);
    }
    value
}

/// Waits for a rank's end. Never waits for anything but the process.
pub(super) async fn drive(
    mut child: Child,
    rank: RankId,
    input: Vec<u8>,
    heard: mpsc::Sender<Heard>,
) -> RankEnd {
    let (mut said, mut tail) = (RankOutput::default(), Tail::default());
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let status = {
        let mut pipes = pin!(async {
            tokio::join!(
                feed(stdin, &input),
                listen(stdout, rank, &mut said, &heard),
                tail.listen(stderr, |line| {
                    debug!(%rank, "rank: {line}");
                    true
                })
            )
        });
        select! {
            status = child.wait() => {
                // Too late is no loss: the process is gone.
                let _ = timeout(LAST_WORDS, pipes).await;
                status
            }
            _ = &mut pipes => child.wait().await,
        }
    };
    let exit = match status {
        Ok(status) => exit(status),
        Err(error) => Exit::NotSpawned(format!("its exit status is unknown: {error}")),
    };
    debug!(%rank, ?exit, "a rank ended");
    said.tail = tail;
    RankEnd { rank, exit, said }
}

fn exit(status: ExitStatus) -> Exit {
    match (status.code(), status.signal()) {
        (Some(code), _) => Exit::Code(code),
        (None, Some(signal)) => Exit::Signal(signal),
        (None, None) => Exit::NotSpawned(format!("it ended with the unknown status {status}")),
    }
}

async fn feed(stdin: Option<ChildStdin>, input: &[u8]) {
    if let Some(mut stdin) = stdin
        && let Err(error) = stdin.write_all(input).await
    {
        // A rank that dies while it reads says more through its exit.
        debug!("a rank did not read its specification: {error}");
    }
}

async fn listen(
    stdout: Option<impl AsyncRead + Unpin>,
    rank: RankId,
    said: &mut RankOutput,
    heard: &mpsc::Sender<Heard>,
) {
    let Some(stdout) = stdout else { return };
    let mut reader = BufReader::new(stdout);
    let mut line = Vec::new();
    while let Ok(Some(cut)) = read_line(&mut reader, &mut line, MAX_EVENT).await {
        let event = if cut { None } else { serde_json::from_slice::<RankEvent>(&line).ok() };
        let understood = event.and_then(|event| note(event, rank, said));
        match understood {
            // The run's loop may have ended already.
            Some(heard_now) => drop(heard.send(heard_now).await),
            None if line.trim_ascii().is_empty() => {}
            None => garbage(&line, rank, said),
        }
    }
}

/// Keeps what an event says. `None` if it makes no sense for this rank.
fn note(event: RankEvent, rank: RankId, said: &mut RankOutput) -> Option<Heard> {
    let mut progress = None;
    match event {
        RankEvent::Progress { fraction, phase } => progress = Some((fraction, phase)),
        RankEvent::Measured { measurement }
            if (measurement.stage_index, measurement.shard) != (rank.stage_index, rank.shard) =>
        {
            return None;
        }
        RankEvent::LinksMeasured { links } if links.index != rank.shard => return None,
        RankEvent::Measured { measurement } => said.result = Some(RankResult::Stage(measurement)),
        RankEvent::LinksMeasured { links } => said.result = Some(RankResult::Links(links)),
        RankEvent::OutOfMemory { out_of_memory } => said.out_of_memory = Some(out_of_memory),
        RankEvent::Error { message } => said.error = Some(message),
    }
    said.events += 1;
    Some(Heard { rank, progress })
}

fn garbage(line: &[u8], rank: RankId, said: &mut RankOutput) {
    if said.garbage == 0 {
        let start = String::from_utf8_lossy(&line[..line.len().min(GARBAGE)]).into_owned();
        warn!(%rank, line = start, "a rank wrote a line to standard output that is not a valid event");
        said.first_garbage = start;
    }
    said.garbage += 1;
}

#[cfg(test)]
mod tests {
    use loadmaster_proto::bytes::Bytes;
    use loadmaster_proto::cluster::device::Backend;

    use super::*;

    fn device(uuid: &str) -> Device {
        Device {
            id: "device".to_owned(),
            backend: if uuid.is_empty() { Backend::Cpu } else { Backend::Cuda },
            kind: "a kind".to_owned(),
            uuid: uuid.to_owned(),
            ordinal: 0,
            capacity: Bytes(1),
            physical: Bytes(1),
            driver_version: String::new(),
            pci_bus_id: String::new(),
        }
    }

    /// A rank's own GPU is the first that it sees, those of its run come behind it, and a CPU slot sees none.
    #[test]
    fn a_rank_sees_its_own_gpu_first() {
        let gpus = ["GPU-a", "GPU-b", "GPU-b", "GPU-c"].map(device);
        assert_eq!(visible(&gpus[2], &gpus), "GPU-b,GPU-a,GPU-c");
        assert_eq!(visible(&device(""), &gpus), "");
    }
}
