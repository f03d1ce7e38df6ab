//! Whether the rank program can run, found out before the planner counts on it.

use std::env;
use std::ffi::OsStr;
use std::io::{self, ErrorKind};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use loadmaster_proto::LIBTORCH_VERSION;
use loadmaster_proto::measure::rank::{EXIT_WRONG_LIBTORCH, Probe};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Command;
use tokio::time::timeout;

use crate::process::exit::signal_name;
use crate::process::spawn::spawn;
use crate::process::tail::Tail;

const RANK: &str = "loadmaster-rank";
/// Loading libtorch with CUDA from a cold disk takes tens of seconds.
const TIMEOUT: Duration = Duration::from_secs(120);
/// Longest answer.
const MAX_ANSWER: u64 = 64 << 10;
/// What the dynamic loader says when a library is missing.
const LIBRARY_MISSING: &str = "error while loading shared libraries";
/// What it says when a library is there and is another one than the program was linked with.
const SYMBOLS_MISSING: [&str; 3] = ["symbol lookup error", "undefined symbol", "version `"];

/// The rank program is of no use.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProbeError {
    /// It is not there.
    #[error("the rank program {0} is missing. Install it beside loadmaster-worker, or use --rank.")]
    Missing(String),
    /// It cannot be executed.
    #[error("the rank program {} cannot be started: {error}. Use another program with --rank.", path.display())]
    NotExecutable {
        path: PathBuf,
        /// The system's words.
        error: io::Error,
    },
    /// The loader does not find a library.
    #[error(
        "the rank program finds no libtorch: {0}. Install libtorch {LIBTORCH_VERSION}, or add the lib folder of \
         libtorch to LD_LIBRARY_PATH."
    )]
    NoLibtorch(String),
    /// The loader finds other libraries than the program was linked with.
    #[error(
        "the rank program does not match the libraries that it loads: {0}. Install libtorch {LIBTORCH_VERSION}, and \
         remove any other libtorch from LD_LIBRARY_PATH."
    )]
    Symbols(String),
    /// Another libtorch.
    #[error(
        "the rank program finds libtorch {found}, but needs libtorch {LIBTORCH_VERSION}. Install libtorch \
         {LIBTORCH_VERSION}, and remove any other libtorch from LD_LIBRARY_PATH."
    )]
    WrongLibtorch { found: String },
    /// Another Loadmaster.
    #[error(
        "the rank program belongs to Loadmaster {found}, and this worker to Loadmaster {}. Install the same \
         release of both.",
        env!("CARGO_PKG_VERSION")
    )]
    WrongRelease { found: String },
    /// It says nothing.
    #[error("the rank program did not answer within {} s (`{RANK} probe`)", TIMEOUT.as_secs())]
    Silent,
    /// It fails.
    #[error("the rank program failed (`{RANK} probe`, {how}): {said}")]
    Failed {
        /// Exit code or signal.
        how: String,
        said: String,
    },
    /// It says something else.
    #[error(
        "the rank program's answer is not valid: {0}. Install {RANK} and loadmaster-worker of the same release."
    )]
    Nonsense(String),
}

/// The rank program: as named, or beside this program, or through PATH.
pub(crate) fn rank_program(named: Option<&Path>) -> Result<PathBuf, ProbeError> {
    if let Some(path) = named {
        return path.canonicalize().map_err(|error| match error.kind() {
            ErrorKind::NotFound => ProbeError::Missing(path.display().to_string()),
            _ => ProbeError::NotExecutable { path: path.to_owned(), error },
        });
    }
    let beside = env::current_exe().ok().and_then(|own| own.parent().map(Path::to_path_buf));
    let through_path = env::var_os("PATH").unwrap_or_default();
    let folders = beside.into_iter().chain(env::split_paths(&through_path));
    folders
        .map(|folder| folder.join(RANK))
        .find(|candidate| candidate.is_file())
        .ok_or_else(|| ProbeError::Missing(RANK.to_owned()))
}

/// Asks the rank program what it links and finds, and checks it. It sees the GPUs of these UUIDs.
pub(crate) async fn probe(program: &Path, gpu_uuids: &[&str]) -> Result<Probe, ProbeError> {
    let mut command = Command::new(OsStr::new(program));
    command.env("CUDA_VISIBLE_DEVICES", gpu_uuids.join(","));
    command.arg("probe").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = spawn(command, None).map_err(|error| match error.kind() {
        ErrorKind::NotFound => ProbeError::Missing(program.display().to_string()),
        _ => ProbeError::NotExecutable { path: program.to_owned(), error },
    })?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let answer = async { tokio::try_join!(child.wait(), read(stdout), read(stderr)) };
    let output = timeout(TIMEOUT, answer)
        .await
        .map_err(|_| ProbeError::Silent)?
        .map(|(status, stdout, stderr)| Output { status, stdout, stderr })
        .map_err(|error| ProbeError::NotExecutable { path: program.to_owned(), error })?;
    understand(&output)
}

/// What a pipe has to say, within limits: whoever says more finds the pipe closed.
async fn read(pipe: Option<impl AsyncRead + Unpin>) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(pipe) = pipe {
        pipe.take(MAX_ANSWER).read_to_end(&mut bytes).await?;
    }
    Ok(bytes)
}

fn understand(output: &Output) -> Result<Probe, ProbeError> {
    let said = last_words(&output.stderr);
    if !output.status.success() {
        return Err(match output.status.code() {
            _ if said.contains(LIBRARY_MISSING) => ProbeError::NoLibtorch(said),
            _ if SYMBOLS_MISSING.iter().any(|words| said.contains(words)) => ProbeError::Symbols(said),
            Some(EXIT_WRONG_LIBTORCH) => match serde_json::from_slice::<Probe>(output.stdout.trim_ascii()) {
                Ok(probe) => ProbeError::WrongLibtorch { found: probe.libtorch_version },
                Err(_) => ProbeError::WrongLibtorch { found: format!("of another version ({said})") },
            },
            Some(code) => ProbeError::Failed { how: format!("exit code {code}"), said },
            None => {
                let signal = output.status.signal().map_or_else(|| "no exit code".to_owned(), signal_name);
                ProbeError::Failed { how: signal, said }
            }
        });
    }
    let probe: Probe = serde_json::from_slice(output.stdout.trim_ascii())
        .map_err(|error| ProbeError::Nonsense(format!("{error} in {:?}", last_words(&output.stdout))))?;
    if probe.loadmaster_version != env!("CARGO_PKG_VERSION") {
        return Err(ProbeError::WrongRelease { found: probe.loadmaster_version });
    }
    // `2.11.0+cu130` is 2.11.0, built for CUDA 13.0.
    if probe.libtorch_version.split('+').next() != Some(LIBTORCH_VERSION) {
        return Err(ProbeError::WrongLibtorch { found: probe.libtorch_version });
    }
    Ok(probe)
}

fn last_words(bytes: &[u8]) -> String {
    let mut tail = Tail::default();
    tail.push_line(bytes);
    tail.text()
}

#[cfg(test)]
mod tests {
    use std::process::ExitStatus;

    use super::*;

    fn output(status: i32, stdout: &str, stderr: &str) -> Output {
        Output { status: ExitStatus::from_raw(status), stdout: stdout.into(), stderr: stderr.into() }
    }

    fn answer(loadmaster: &str, libtorch: &str) -> String {
        format!(
            r#"{{"loadmaster_version":"{loadmaster}","libtorch_version":"{libtorch}","cuda_version":"","cuda_devices":0}}"#
        )
    }

    const OWN: &str = env!("CARGO_PKG_VERSION");

    #[test]
    fn the_right_libtorch_is_accepted_whatever_it_was_built_for() {
        for libtorch in [LIBTORCH_VERSION.to_owned(), format!("{LIBTORCH_VERSION}+cu130")] {
            assert!(understand(&output(0, &answer(OWN, &libtorch), "")).is_ok(), "{libtorch}");
        }
    }

    /// Pins that every way in which a rank program is of no use is told with its remedy.
    #[test]
    fn each_defect_is_told_apart_and_names_a_remedy() {
        let loader = "loadmaster-rank: error while loading shared libraries: libtorch_cpu.so: cannot open";
        for (output, remedy) in [
            (output(0, &answer(OWN, "2.10.0"), ""), "finds libtorch 2.10.0"),
            (output(0, &answer("0.0.9", LIBTORCH_VERSION), ""), "the same release of both"),
            (output(127 << 8, "", loader), "LD_LIBRARY_PATH"),
            (output(127 << 8, "", "symbol lookup error: undefined symbol: _ZN2at"), "does not match"),
            (output(EXIT_WRONG_LIBTORCH << 8, &answer(OWN, "2.13.0"), ""), "finds libtorch 2.13.0"),
            (output(EXIT_WRONG_LIBTORCH << 8, "", "found 2.13.0"), "found 2.13.0"),
            (output(3 << 8, "", "boom"), "exit code 3): boom"),
            (output(11, "", ""), "SIGSEGV"),
            (output(0, "hello", ""), "is not valid"),
        ] {
            let error = understand(&output).unwrap_err().to_string();
            assert!(error.contains(remedy), "{error:?} lacks {remedy:?}");
        }
    }

    #[test]
    fn a_named_program_must_exist() {
        let error = rank_program(Some(Path::new("/does/not/exist"))).unwrap_err().to_string();
        assert!(error.contains("/does/not/exist") && error.contains("--rank"), "{error}");
    }
}
