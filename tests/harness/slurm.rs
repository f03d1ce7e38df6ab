//! A cluster of Slurm on this machine: a real controller, and four nodes with eight GPUs each.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::sys::stat::{Mode, SFlag, makedev, mknod};
use tempfile::TempDir;

use crate::cli::Output;
use crate::process::{Program, binary, wait_until};

/// Nodes, `gpu001` to `gpu004`.
const NODES: usize = 4;
/// Times that other ports are tried where somebody took one meanwhile.
const TRIES: usize = 5;

/// Runs a program in the root `$1` with its cluster's folder `$2`, and `$3`, where the project's programs are, as /opt. What it mounts
/// is seen by nobody else, and ends with it.
const ENTER: &str = r#"root=$1 folder=$2 programs=$3; shift 3
mount -t tmpfs tmpfs "$root/tmp" && mkdir -p "$root$folder" && mount --bind "$folder" "$root$folder" &&
mount --bind "$programs" "$root/opt" && mount -t proc proc "$root/proc" && mount --rbind /dev "$root/dev" &&
exec chroot "$root" env --chdir="$folder" "$@""#;

/// A running cluster; its jobs and daemons end with it. `gpu[001-002]` are on one switch, or a block, `gpu[003-004]` on another.
#[derive(Debug)]
pub struct SlurmCluster {
    /// In the order in which they end: jobs need them all.
    daemons: Vec<Program>,
    /// Address of the planner that users and jobs ask.
    address: String,
    /// What its users have set besides, which their jobs inherit.
    variables: Vec<(String, String)>,
    /// Where another system is whose Slurm this is, and its network is blocks; none for the Slurm of this one, and switches.
    root: Option<PathBuf>,
    folder: TempDir,
}

impl SlurmCluster {
    /// A cluster whose users and jobs ask the planner with this address, and whose hooks are those that we ship. Nothing, and
    /// why, where Slurm cannot be started here: its tests are skipped.
    ///
    /// # Errors
    /// Slurm is not installed, or this is not root.
    ///
    /// # Panics
    /// When it does not come up.
    pub fn start(address: &str) -> Result<Self, String> {
        for program in ["slurmctld", "slurmd", "sbatch"] {
            let is_there = Command::new("sh")
                .args(["-c", &format!("command -v {program}")])
                .output()
                .is_ok_and(|of| of.status.success());
            if !is_there {
                return Err(format!("{program} is not installed: deploy/setup/packages.sh slurm"));
            }
        }
        Self::start_in(None, address)
    }

    /// The same of a newer Slurm whose network is blocks of nodes, which tests/slurm/root.sh has made.
    ///
    /// # Errors
    /// It has not, or this is not root.
    ///
    /// # Panics
    /// When it does not come up.
    pub fn start_with_blocks(address: &str) -> Result<Self, String> {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/slurm/root.sh");
        let told = Output::of(Command::new(script).arg("--path"));
        let root = PathBuf::from(told.stdout.trim());
        if told.code != 0 || !root.join("complete").exists() {
            return Err("there is no Slurm that knows blocks of nodes: tests/slurm/root.sh".to_owned());
        }
        Self::start_in(Some(root), address)
    }

    fn start_in(root: Option<PathBuf>, address: &str) -> Result<Self, String> {
        if !nix::unistd::geteuid().is_root() {
            return Err("daemons of Slurm that start jobs are root's".to_owned());
        }
        // Below /tmp, which another system's root has as its own: nothing is left in that.
        let folder = tempfile::Builder::new().prefix("ls").tempdir_in("/tmp").expect("a folder can be made");
        let mut cluster =
            Self { daemons: Vec::new(), address: address.to_owned(), variables: Vec::new(), root, folder };
        cluster.write_files();
        for _ in 0..TRIES {
            if cluster.launch() {
                return Ok(cluster);
            }
        }
        panic!("Slurm did not start {TRIES} times:\n{}", cluster.logs());
    }

    /// Its folder, for jobs: what they submit from and write to.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Sets a variable of all users.
    pub fn set(&mut self, name: &str, value: &str) {
        self.variables.push((name.to_owned(), value.to_owned()));
    }

    /// A program of Slurm's user, in the cluster's folder.
    pub fn command(&self, program: &str, arguments: &[&str]) -> Command {
        let programs = binary("loadmaster").parent().expect("a program is in a folder").to_owned();
        let mut command = match &self.root {
            None => Command::new(program),
            Some(root) => {
                let mut command = Command::new("unshare");
                command.args(["--mount", "sh", "-c", ENTER, "sh"]);
                command.arg(root).arg(self.folder()).arg(&programs).arg(program);
                command
            }
        };
        let mut path = vec![if self.root.is_some() { "/opt".into() } else { programs }];
        path.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()));
        command
            .args(arguments)
            .current_dir(self.folder())
            .env("SLURM_CONF", self.file("slurm.conf"))
            .env("PATH", std::env::join_paths(path).expect("paths have no colons"))
            .env("LOADMASTER_ADDRESS", &self.address)
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            // Slurm calls the GPUs of the tests' plans so.
            .env("LOADMASTER_SLURM_GPU_TYPES", "NVIDIA H200=h200");
        command
    }

    /// Runs a program of Slurm's user.
    pub fn run(&self, program: &str, arguments: &[&str]) -> Output {
        Output::of(&mut self.command(program, arguments))
    }

    /// Submits a job with the text of a script, waits for its end, and returns what it printed.
    ///
    /// # Panics
    /// When it is refused or fails.
    pub fn job(&self, name: &str, script: &str) -> String {
        fs::write(self.file(name), script).expect("a script can be written");
        let log = format!("{name}.log");
        let submitted = self.run("sbatch", &["--parsable", "--output", &log, name]);
        assert_eq!(submitted.code, 0, "{}", submitted.stderr);
        let id = submitted.stdout.trim().to_owned();
        let read = || fs::read_to_string(self.file(&log)).unwrap_or_default();
        let state = wait_until(&format!("job {id} ends"), || {
            let told = self.run("scontrol", &["show", "job", &id]).stdout;
            let states: Vec<&str> =
                told.split_whitespace().filter_map(|word| word.strip_prefix("JobState=")).collect();
            let is_over = |state: &&str| !["PENDING", "RUNNING", "CONFIGURING", "COMPLETING"].contains(state);
            (!states.is_empty() && states.iter().all(is_over)).then(|| states.join(" "))
        });
        assert!(
            state.split(' ').all(|of| of == "COMPLETED"),
            "job {id} is {state}:\n{}{}",
            read(),
            self.logs()
        );
        read()
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder().join(name)
    }

    /// What does not depend on ports: GPUs, which are character devices or Slurm gives no index of them out, switches and hooks.
    fn write_files(&self) {
        let d = self.folder().display();
        for gpu in 0..8 {
            let path = self.file(&format!("nvidia{gpu}"));
            mknod(&path, SFlag::S_IFCHR, Mode::from_bits_truncate(0o666), makedev(1, 3))
                .expect("root makes devices");
        }
        let write = |name: &str, text: &str| fs::write(self.file(name), text).expect("files can be written");
        write("gres.conf", &format!("NodeName=gpu[001-004] Name=gpu Type=h200 File={d}/nvidia[0-7]\n"));
        let network = if self.root.is_some() {
            // Its nodes are no machines that a kernel could divide.
            write("cgroup.conf", "CgroupPlugin=disabled\n");
            "BlockName=block0 Nodes=gpu[001-002]\nBlockName=block1 Nodes=gpu[003-004]\nBlockSizes=2\n"
        } else {
            "SwitchName=leaf0 Nodes=gpu[001-002]\nSwitchName=leaf1 Nodes=gpu[003-004]\n\
             SwitchName=spine Switches=leaf[0-1]\n"
        };
        write("topology.conf", network);
        write("cli_filter.lua", include_str!("../../deploy/slurm/cli_filter.lua"));
        write("job_submit.lua", include_str!("../../deploy/slurm/job_submit.lua"));
    }

    /// Starts all daemons on free ports, and waits until all nodes take jobs. Whether they did: a port may be somebody else's by then.
    fn launch(&mut self) -> bool {
        self.daemons.clear();
        let _ = fs::remove_dir_all(self.file("state"));
        let free: Vec<TcpListener> =
            (0..=NODES).map(|_| TcpListener::bind("127.0.0.1:0").expect("a port is free")).collect();
        let ports: Vec<u16> = free.iter().map(|of| of.local_addr().expect("it is bound").port()).collect();
        drop(free);
        fs::write(self.file("slurm.conf"), self.configuration(&ports)).expect("files can be written");
        for folder in ["state", "spool"] {
            fs::create_dir_all(self.file(folder)).expect("a folder can be made");
        }
        for node in 1..=NODES {
            let name = format!("gpu{node:03}");
            self.start_daemon("slurmd", &["-D", "-N", &name], &name);
        }
        self.start_daemon("slurmctld", &["-D", "-c"], "slurmctld");
        wait_until("the nodes of Slurm are idle", || {
            if self.daemons.iter_mut().any(|daemon| !daemon.is_running()) {
                return Some(false);
            }
            let idle = self.run("sinfo", &["-h", "-t", "idle", "-o", "%D"]);
            (idle.stdout.trim() == NODES.to_string()).then_some(true)
        })
    }

    fn start_daemon(&mut self, program: &str, arguments: &[&str], name: &str) {
        let mut command = self.command(program, arguments);
        command.arg("-f").arg(self.file("slurm.conf"));
        self.daemons.push(Program::start(name, command, self.file(&format!("{name}.out"))));
    }

    /// Limits of time are long: whoever measures something on this machine may stop all others for minutes.
    fn configuration(&self, ports: &[u16]) -> String {
        let d = self.folder().display();
        // A newer one has no plugin for no switch.
        let network = match self.root {
            Some(_) => "TopologyPlugin=topology/block",
            None => "TopologyPlugin=topology/tree\nSwitchType=switch/none",
        };
        let mut text = format!(
            "ClusterName=test\nSlurmctldHost=localhost\nSlurmctldPort={}\nSlurmUser=root\nSlurmdUser=root\n\
             AuthType=auth/none\nCredType=cred/none\nStateSaveLocation={d}/state\nSlurmdSpoolDir={d}/spool/%n\n\
             SlurmctldPidFile={d}/slurmctld.pid\nSlurmdPidFile={d}/%n.pid\nSlurmctldLogFile={d}/slurmctld.log\n\
             SlurmdLogFile={d}/%n.log\nProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\n\
             MpiDefault=none\nReturnToService=2\nSelectType=select/cons_tres\nSelectTypeParameters=CR_Core\n\
             SchedulerType=sched/backfill\nSchedulerParameters=batch_sched_delay=0,bf_interval=1\nJobAcctGatherType=jobacct_gather/none\n\
             AccountingStorageType=accounting_storage/none\nGresTypes=gpu\n{network}\n\
             CliFilterPlugins=lua\nJobSubmitPlugins=lua\nSlurmdParameters=config_overrides\nSlurmdTimeout=0\n\
             BatchStartTimeout=300\nMessageTimeout=90\n",
            ports[0]
        );
        for (index, port) in ports[1..].iter().enumerate() {
            text += &format!(
                "NodeName=gpu{:03} NodeHostname=localhost NodeAddr=127.0.0.1 Port={port} CPUs=16 RealMemory=1000 \
                 Gres=gpu:h200:8 State=UNKNOWN\n",
                index + 1
            );
        }
        text + "PartitionName=train Nodes=ALL Default=YES MaxTime=INFINITE State=UP\n"
    }

    fn logs(&self) -> String {
        let log = |name: &str| {
            format!("--- {name} ---\n{}", fs::read_to_string(self.file(name)).unwrap_or_default())
        };
        ["slurmctld.log", "slurmctld.out", "gpu001.log", "gpu001.out"].map(log).concat()
    }
}

impl Drop for SlurmCluster {
    fn drop(&mut self) {
        if self.daemons.is_empty() {
            return;
        }
        // A step outlives the daemon that started it.
        self.run("scancel", &["--user=root", "--signal=KILL", "--full"]);
        self.run("scancel", &["--user=root"]);
        for _ in 0..100 {
            let jobs = self.run("squeue", &["-h"]);
            if jobs.code != 0 || jobs.stdout.trim().is_empty() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
    }
}
