//! A worker daemon with CPU slots.

use std::path::{Path, PathBuf};
use std::process::Command;

use loadmaster_proto::cluster::device::CPU_KIND;
use loadmaster_proto::wire::{v1, worker_v1};
use loadmaster_proto::{LIBTORCH_VERSION, WORKER_PROTOCOL_VERSION};
use nix::unistd::Pid;
use tempfile::TempDir;

use crate::cli::json;
use crate::kernel::children;
use crate::planner::Planner;
use crate::process::{Program, binary, wait_until};

/// Variable that has ranks report the seconds of another machine: a factor of the measured ones, or `fixed`.
pub const SECONDS_OF_RANKS: &str = "LOADMASTER_TEST_SECONDS";

/// The rank program of tests that name none.
fn default_rank() -> PathBuf {
    binary(if std::env::var_os(SECONDS_OF_RANKS).is_some() { "scaled-rank" } else { "loadmaster-rank" })
}

/// How a worker is started.
#[derive(Debug, Clone)]
pub struct WorkerOptions {
    pub name: String,
    /// Its slots, `COUNTxBYTES`.
    pub slots: String,
    /// Its rank program.
    pub rank: PathBuf,
    /// More arguments.
    pub arguments: Vec<String>,
}

impl Default for WorkerOptions {
    fn default() -> Self {
        Self {
            name: "test".to_owned(),
            slots: "4x1GiB".to_owned(),
            rank: default_rank(),
            arguments: Vec::new(),
        }
    }
}

impl WorkerOptions {
    /// A worker with these slots, `COUNTxBYTES`.
    pub fn slots(slots: &str) -> Self {
        Self { slots: slots.to_owned(), ..Self::default() }
    }

    /// The same with more arguments, none of which has a space.
    #[must_use]
    pub fn with(mut self, arguments: &str) -> Self {
        self.arguments.extend(arguments.split_whitespace().map(str::to_owned));
        self
    }
}

/// A running worker; stopped on drop.
#[derive(Debug)]
pub struct Worker {
    program: Program,
    name: String,
    folder: TempDir,
}

impl Worker {
    /// Starts a worker and waits until the planner lists it as alive.
    pub fn start(planner: &Planner, options: &WorkerOptions) -> Self {
        let mut worker = Self::launch(planner.address(), options);
        wait_until("the worker is connected", || {
            assert!(worker.program.is_running(), "the worker ended early:\n{}", worker.program.output());
            worker.is_alive(planner).then_some(())
        });
        worker
    }

    /// Starts a worker without waiting for anything.
    pub fn launch(address: &str, options: &WorkerOptions) -> Self {
        let folder = tempfile::Builder::new().prefix("lw").tempdir().expect("a folder can be made");
        let mut command = Command::new(binary("loadmaster-worker"));
        command
            .args(["--server", address, "--name", &options.name, "--cpu-slots", &options.slots])
            .arg("--rank")
            .arg(&options.rank)
            .arg("--work-dir")
            .arg(folder.path().join("w"))
            .args(&options.arguments);
        let program = Program::start("worker", command, folder.path().join("worker.log"));
        Self { program, name: options.name.clone(), folder }
    }

    fn is_alive(&self, planner: &Planner) -> bool {
        let workers = json(planner, &["worker", "list"]);
        workers["workers"].as_array().is_some_and(|workers| {
            workers.iter().any(|worker| {
                worker["name"] == format!("workers/{}", self.name) && worker["state"] == "ALIVE"
            })
        })
    }

    /// The running program.
    pub fn program(&mut self) -> &mut Program {
        &mut self.program
    }

    /// Its private folder for runs.
    pub fn work_dir(&self) -> PathBuf {
        self.folder.path().join("w")
    }

    /// Process ids of its ranks.
    pub fn ranks(&self) -> Vec<Pid> {
        children(self.program.pid())
    }
}

/// Writes an executable shell script and returns its path.
pub fn script(folder: &Path, name: &str, body: &str) -> PathBuf {
    use std::os::unix::fs::PermissionsExt;
    let path = folder.join(name);
    std::fs::write(&path, format!("#!/bin/sh\n{body}\n")).expect("a script can be written");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("permissions can be set");
    path
}

/// What a worker with so many CPU slots of 1 GiB says first; for tests and programs that play one.
pub fn hello(name: &str, slots: i32) -> worker_v1::Hello {
    let slot = |ordinal: i32| v1::Device {
        id: format!("cpu{ordinal}"),
        backend: v1::Backend::Cpu.into(),
        kind: CPU_KIND.to_owned(),
        capacity_bytes: 1 << 30,
        physical_bytes: 1 << 30,
        ordinal,
        ..v1::Device::default()
    };
    worker_v1::Hello {
        protocol_version: WORKER_PROTOCOL_VERSION,
        worker: format!("workers/{name}"),
        host: name.to_owned(),
        version: "0.1.0".to_owned(),
        libtorch_version: LIBTORCH_VERSION.to_owned(),
        session_id: name.to_owned(),
        devices: (0..slots).map(slot).collect(),
        core_count: slots,
        thread_count: 1,
        ..worker_v1::Hello::default()
    }
}
