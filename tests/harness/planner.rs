//! A planner with its embedded Postgres.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use loadmaster_proto::wire::address::PAGES_HEADER;
use loadmaster_proto::wire::{call, v1};
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use tempfile::TempDir;
use tonic::Request;
use tonic::transport::{Channel, Endpoint};

use crate::cluster::prepare_cluster;
use crate::process::{Program, binary, wait_until};

/// A running planner; stopped and cleaned up on drop.
#[derive(Debug)]
pub struct Planner {
    program: Program,
    address: String,
    /// What starts it, but for where it listens and keeps its data.
    line: Line,
    folder: TempDir,
    starts: u32,
}

impl Planner {
    /// A planner on a free port with short leases, so that tests of lost workers take seconds.
    pub fn start() -> Self {
        Self::start_with(&["--lease-duration", "3s", "--heartbeat-interval", "0.5s"])
    }

    /// A planner on a free port with more arguments of `loadmaster serve`; without any, as a user has it.
    pub fn start_with(arguments: &[&str]) -> Self {
        Self::start_under(&[], arguments)
    }

    /// A planner that another program starts: `wrapper` is that program with its arguments, which ends by being
    /// the planner, such as `env NAME=VALUE`.
    pub fn start_under(wrapper: &[&str], arguments: &[&str]) -> Self {
        let wrapper = wrapper.iter().map(OsString::from);
        let line = Line::new(wrapper.chain([binary("loadmaster").into()]), arguments);
        let folder = tempfile::Builder::new().prefix("lm").tempdir().expect("a folder can be made");
        make_traversable(folder.path());
        prepare_cluster(&folder.path().join("data")).expect("a cluster can be copied");
        let (program, address) = launch(folder.path(), &line, "127.0.0.1:0", 0);
        Self { program, address, line, folder, starts: 0 }
    }

    /// Its address, `http://127.0.0.1:PORT`.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Its data directory.
    pub fn data_dir(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// Process id of the server of its embedded Postgres, while there is one.
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
        let (program, address) = launch(self.folder.path(), &self.line, &listen, self.starts);
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

    /// The address of its pages, `HOST:PORT`, as every answer says it.
    pub async fn pages(&self) -> String {
        let request = Request::new(v1::ListModelsRequest::default());
        let answer = call::call(self.channel().await, request).await.expect("models are listed");
        let pages = answer.metadata().get(PAGES_HEADER).expect("an answer says where the pages are");
        pages.to_str().expect("an address is text").to_owned()
    }
}

/// The embedded Postgres runs as another user when the test runs as root.
fn make_traversable(folder: &Path) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755)).expect("permissions can be set");
}

/// What is typed to start a planner.
#[derive(Debug)]
struct Line {
    /// The program, after those that start it.
    programs: Vec<OsString>,
    arguments: Vec<String>,
}

impl Line {
    fn new(programs: impl IntoIterator<Item = OsString>, arguments: &[&str]) -> Self {
        let arguments = arguments.iter().map(ToString::to_string).collect();
        Self { programs: programs.into_iter().collect(), arguments }
    }
}

fn launch(folder: &Path, line: &Line, listen: &str, number: u32) -> (Program, String) {
    let address_file = folder.join(format!("address{number}"));
    let [first, more @ ..] = line.programs.as_slice() else { panic!("no program") };
    let mut command = Command::new(first);
    command
        .args(more)
        .arg("serve")
        .args(["--listen", listen])
        .arg("--address-file")
        .arg(&address_file)
        .arg("--data-dir")
        .arg(folder.join("data"))
        .args(&line.arguments)
        // Tests that look at pages name an address: others of this machine want the usual one.
        .env("LOADMASTER_NO_WEB", "true")
        .env_remove("DATABASE_URL")
        .env_remove("DATABASE_URL_FILE");
    let mut program = Program::start("planner", command, folder.join(format!("planner{number}.log")));
    let address = wait_until("the planner serves", || {
        assert!(program.is_running(), "the planner ended early:\n{}", program.output());
        std::fs::read_to_string(&address_file).ok()
    });
    (program, address.trim().to_owned())
}

/// A planner to ask: one that somebody else runs, or one of one's own, which ends with this.
#[derive(Debug)]
pub enum AnyPlanner {
    /// The address of one that runs already.
    Running(String),
    /// Our own.
    Own(Box<Planner>),
}

impl AnyPlanner {
    /// The planner with this address; without one, a new one as a user has it.
    pub fn at(address: Option<&str>) -> Self {
        match address {
            Some(address) => Self::Running(address.to_owned()),
            None => Self::Own(Box::new(Planner::start_with(&[]))),
        }
    }

    /// Its address, `http://HOST:PORT`.
    pub fn address(&self) -> &str {
        match self {
            Self::Running(address) => address,
            Self::Own(planner) => planner.address(),
        }
    }
}
