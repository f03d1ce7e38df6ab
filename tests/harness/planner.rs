//! A planner with its embedded Postgres.

use std::path::{Path, PathBuf};
use std::process::Command;

use nix::sys::signal::Signal;
use nix::unistd::Pid;
use tempfile::TempDir;
use tonic::transport::{Channel, Endpoint};

use crate::process::{Program, binary, wait_until};

/// How a planner is started.
#[derive(Debug, Clone, Default)]
pub struct PlannerOptions {
    /// More arguments of `loadmaster serve`.
    pub arguments: Vec<String>,
}

/// A running planner; stopped and cleaned up on drop.
#[derive(Debug)]
pub struct Planner {
    program: Program,
    address: String,
    options: PlannerOptions,
    wrapper: Vec<String>,
    folder: TempDir,
    starts: u32,
}

impl Planner {
    /// A planner on a free port with short leases, so that tests of lost workers take seconds.
    pub fn start() -> Self {
        let arguments = ["--lease", "3", "--heartbeat", "0.5"];
        Self::start_with(PlannerOptions { arguments: arguments.map(str::to_owned).to_vec() })
    }

    /// A planner with these options.
    pub fn start_with(options: PlannerOptions) -> Self {
        Self::start_under(&[], options)
    }

    /// A planner that another program starts: `wrapper` is that program with its arguments, which ends by being
    /// the planner, such as `env NAME=VALUE`.
    pub fn start_under(wrapper: &[&str], options: PlannerOptions) -> Self {
        let wrapper: Vec<String> = wrapper.iter().map(ToString::to_string).collect();
        let folder = tempfile::Builder::new().prefix("lm").tempdir().expect("a folder can be made");
        make_traversable(folder.path());
        let (program, address) = launch(folder.path(), &wrapper, &options, "127.0.0.1:0", 0);
        Self { program, address, options, wrapper, folder, starts: 0 }
    }

    /// Its address, `http://127.0.0.1:PORT`.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Its data directory.
    pub fn data_dir(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// Process id of its embedded Postgres, while there is one.
    pub fn postmaster(&self) -> Option<Pid> {
        let text = std::fs::read_to_string(self.data_dir().join("postgres").join("postmaster.pid")).ok()?;
        text.lines().next()?.trim().parse().ok().map(Pid::from_raw)
    }

    /// The running program.
    pub fn program(&mut self) -> &mut Program {
        &mut self.program
    }

    /// SIGKILLs the planner.
    pub fn kill(&mut self) {
        self.program.signal(Signal::SIGKILL);
        self.program.wait();
    }

    /// Starts it again on the same data and port after it ended.
    pub fn restart(&mut self) {
        self.starts += 1;
        let listen = self.address.trim_start_matches("http://").to_owned();
        let (program, address) =
            launch(self.folder.path(), &self.wrapper, &self.options, &listen, self.starts);
        assert_eq!(address, self.address);
        self.program = program;
    }

    /// A channel for generated clients.
    pub async fn channel(&self) -> Channel {
        Endpoint::from_shared(self.address.clone())
            .expect("the address is a URI")
            .connect()
            .await
            .expect("the planner accepts connections")
    }
}

/// The embedded Postgres runs as another user when the test runs as root.
fn make_traversable(folder: &Path) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755)).expect("permissions can be set");
}

fn launch(
    folder: &Path,
    wrapper: &[String],
    options: &PlannerOptions,
    listen: &str,
    number: u32,
) -> (Program, String) {
    let address_file = folder.join(format!("address{number}"));
    let mut command = match wrapper {
        [] => Command::new(binary("loadmaster")),
        [program, arguments @ ..] => {
            let mut command = Command::new(program);
            command.args(arguments).arg(binary("loadmaster"));
            command
        }
    };
    command
        .arg("serve")
        .args(["--listen", listen])
        .arg("--address-file")
        .arg(&address_file)
        .arg("--data-dir")
        .arg(folder.join("data"))
        .args(&options.arguments)
        .env_remove("DATABASE_URL")
        .env_remove("DATABASE_URL_FILE");
    let mut program = Program::start("planner", command, folder.join(format!("planner{number}.log")));
    let address = wait_until("the planner serves", || {
        assert!(program.is_running(), "the planner ended early:\n{}", program.output());
        std::fs::read_to_string(&address_file).ok()
    });
    (program, address.trim().to_owned())
}
