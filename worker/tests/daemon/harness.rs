//! Starts the real daemon with a fake rank program and looks at what it leaves behind.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};

use crate::planner::{Connection, PATIENCE, Planner};

pub(crate) struct Daemon {
    child: Child,
    folder: TempDir,
}

/// How to start a daemon.
pub(crate) struct Setup<'a> {
    /// What its ranks do; see `fake-rank.sh`.
    pub(crate) rank: &'a str,
    /// What its rank program answers to `probe`.
    pub(crate) probe: &'a str,
    /// Further arguments.
    pub(crate) args: &'a [&'a str],
    /// Its CPU slots.
    pub(crate) slots: &'a str,
    /// Its rank program, if not the fake one.
    pub(crate) program: Option<PathBuf>,
}

impl Default for Setup<'_> {
    fn default() -> Self {
        Self { rank: "measure", probe: "", args: &[], slots: "2x64MiB", program: None }
    }
}

/// Two CPU slots whose ranks do this.
impl<'a> From<&'a str> for Setup<'a> {
    fn from(rank: &'a str) -> Self {
        Self { rank, ..Setup::default() }
    }
}

/// A planner, a daemon that is started so, and its connection.
pub(crate) async fn welcomed<'a>(setup: impl Into<Setup<'a>>) -> (Planner, Daemon, Connection) {
    let mut planner = Planner::start().await;
    let daemon = Daemon::start_with(&planner, setup.into());
    let connection = planner.welcome().await;
    (planner, daemon, connection)
}

impl Daemon {
    /// A daemon with two CPU slots whose ranks do `rank`.
    pub(crate) fn start(planner: &Planner, rank: &str) -> Self {
        Self::start_with(planner, rank.into())
    }

    pub(crate) fn start_with(planner: &Planner, setup: Setup<'_>) -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), &format!("http://{}", planner.address), setup)
    }

    pub(crate) fn start_in(folder: TempDir, server: &str, setup: Setup<'_>) -> Self {
        let fake_dir = folder.path().join("fake");
        fs::create_dir_all(&fake_dir).unwrap();
        let child =
            Command::new(env!("CARGO_BIN_EXE_loadmaster-worker"))
                .env_clear()
                .env("PATH", std::env::var_os("PATH").unwrap_or_default())
                .env("RUST_LOG", "debug,h2=info,hyper=info,hyper_util=info,tower=info")
                .env("FAKE_RANK", setup.rank)
                .env("FAKE_PROBE", setup.probe)
                .env("FAKE_DIR", &fake_dir)
                .args(["--server", server, "--name", "node-1", "--cpu-slots", setup.slots, "--rank"])
                .arg(setup.program.unwrap_or_else(|| {
                    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/daemon/fake-rank.sh")
                }))
                .arg("--work-dir")
                .arg(folder.path().join("work"))
                .args(setup.args)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(fs::File::create(folder.path().join("log")).unwrap())
                .kill_on_drop(true)
                .spawn()
                .unwrap();
        Self { child, folder }
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap()
    }

    /// Waits until the log has this text.
    pub(crate) async fn logged(&self, text: &str) {
        eventually(&format!("{text:?} is logged"), || self.log().contains(text)).await;
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().expect("it has ended").cast_signed()), signal).unwrap();
    }

    /// Waits for the daemon's end.
    pub(crate) async fn exit_code(&mut self) -> i32 {
        let status = timeout(PATIENCE, self.child.wait()).await.expect("the daemon does not end").unwrap();
        status.code().unwrap_or(-1)
    }

    /// Kills the daemon without giving it a chance, and hands over what it leaves.
    pub(crate) async fn murder(mut self) -> TempDir {
        self.child.kill().await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        std::mem::replace(&mut self.folder, folder)
    }

    /// A file that the fake ranks write, once it is there.
    pub(crate) async fn written(&self, name: &str) -> String {
        let path = self.fake_dir().join(name);
        eventually(&format!("a rank writes {name}"), || path.exists()).await;
        fs::read_to_string(path).unwrap()
    }

    /// The pid of a stage's rank (`pid-0`) or of a child of it (`child-0`).
    pub(crate) async fn pid(&self, name: &str) -> i32 {
        self.written(name).await.trim().parse().unwrap()
    }

    /// Lets ranks that `wait` go on.
    pub(crate) fn go(&self) {
        fs::write(self.fake_dir().join("go"), "").unwrap();
    }

    fn fake_dir(&self) -> PathBuf {
        self.folder.path().join("fake")
    }

    /// Folders of living and dead daemons, and below them those of runs.
    pub(crate) fn folders(&self) -> Vec<PathBuf> {
        folders(&self.folder.path().join("work"))
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- log of the daemon ---\n{}", self.log());
        }
    }
}

/// All folders below `path`.
pub(crate) fn folders(path: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    let below = entries.map(|entry| entry.path()).filter(|path| path.is_dir());
    below.flat_map(|path| [folders(&path), vec![path]].concat()).collect()
}

/// Whether a process is there and no zombie.
pub(crate) fn is_alive(pid: i32) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
    !stat.rsplit(')').next().unwrap_or_default().trim_start().starts_with(['Z', 'X'])
}

/// Waits for something to become true.
pub(crate) async fn eventually(what: &str, mut is_true: impl FnMut() -> bool) {
    let wait = async {
        while !is_true() {
            sleep(Duration::from_millis(10)).await;
        }
    };
    assert!(timeout(PATIENCE, wait).await.is_ok(), "never happened: {what}");
}

pub(crate) async fn gone(pid: i32) {
    eventually(&format!("process {pid} is gone"), || !is_alive(pid)).await;
}
