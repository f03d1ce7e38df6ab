//! Child processes that never outlive their test.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;

use crate::leftovers;

/// Longest wait for anything. Generous: a test that passes never comes near it.
const PATIENCE: Duration = Duration::from_secs(180);

/// Path of one of the project's programs, built into the same folder as this program or test.
///
/// # Panics
/// When it was not built.
pub fn binary(name: &str) -> PathBuf {
    let own = std::env::current_exe().expect("a program knows its own path");
    // `target/PROFILE/PROGRAM` or `target/PROFILE/deps/TEST`.
    let folders = own.ancestors().skip(1).take(2);
    let mut paths = folders.map(|folder| folder.join(name));
    let found = paths.find(|path| path.exists());
    found.unwrap_or_else(|| {
        panic!("{name} is not beside {}: run `cargo build --workspace` first", own.display())
    })
}

/// Waits until `condition` yields a value.
///
/// # Panics
/// When it takes too long; names `what`.
pub fn wait_until<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(start.elapsed() < PATIENCE, "waited too long until {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A running program in a process group of its own, with its output in a file.
#[derive(Debug)]
pub struct Program {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Program {
    /// Starts `command`; standard output and error go to `log`.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn start(name: &str, mut command: Command, log: PathBuf) -> Self {
        let file = File::create(&log).expect("the log can be made");
        let child = command
            .stdin(Stdio::null())
            .stdout(file.try_clone().expect("a file can be cloned"))
            .stderr(file)
            .process_group(0)
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start {name}: {error}"));
        let program = Self { name: name.to_owned(), child, log };
        leftovers::begins(program.pid());
        program
    }

    /// Its process id.
    pub fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).expect("process ids are positive"))
    }

    /// All that it wrote.
    pub fn output(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Where its output goes.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// Whether it still runs.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Sends a signal to the program alone, not to its group.
    pub fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).expect("the program can be signalled");
    }

    /// Waits for its end.
    pub fn wait(&mut self) -> ExitStatus {
        let name = self.name.clone();
        wait_until(&format!("{name} ends"), || self.child.try_wait().expect("a child can be waited for"))
    }

    /// SIGTERM, then the end.
    pub fn stop(&mut self) -> ExitStatus {
        self.signal(Signal::SIGTERM);
        self.wait()
    }

    /// SIGKILL, then the end.
    pub fn kill(&mut self) {
        self.signal(Signal::SIGKILL);
        self.wait();
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if self.is_running() {
            // Politely first: a planner stops its database, a worker its ranks.
            let _ = kill(self.pid(), Signal::SIGTERM);
            let start = Instant::now();
            while self.is_running() && start.elapsed() < Duration::from_secs(20) {
                std::thread::sleep(Duration::from_millis(20));
            }
            let _ = killpg(self.pid(), Signal::SIGKILL);
            let _ = self.child.wait();
        }
        leftovers::ended(self.pid());
        if std::thread::panicking() {
            eprintln!("--- output of the {} ---\n{}", self.name, self.output());
        }
    }
}
