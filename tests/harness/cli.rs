//! The command line as users run it.

use std::io::{self, Read};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::planner::Planner;
use crate::process::binary;
use crate::worker::{Worker, WorkerOptions};

/// What a command printed and how it ended.
#[derive(Debug)]
pub struct Output {
    /// Exit code; -1 when a signal ended it.
    pub code: i32,
    /// Data.
    pub stdout: String,
    /// Messages.
    pub stderr: String,
}

/// Options of a model that trains in milliseconds: 6 layers.
pub const TINY_GPT2: &str =
    "--model gpt2 --blocks 3 --hidden-size 32 --heads 2 --sequence-length 16 --vocabulary-size 100";

/// Options of a model that trains quickly and whose layers can be sharded.
pub const SMALL_GPT2: &str =
    "--model gpt2 --blocks 4 --hidden-size 64 --heads 4 --sequence-length 32 --vocabulary-size 500";

/// What is typed behind `loadmaster`: a text whose words have no spaces, or its words.
pub trait CommandLine {
    /// The words.
    fn words(&self) -> Vec<&str>;
}

impl CommandLine for str {
    fn words(&self) -> Vec<&str> {
        self.split_whitespace().collect()
    }
}

impl CommandLine for String {
    fn words(&self) -> Vec<&str> {
        self.as_str().words()
    }
}

impl CommandLine for [&str] {
    fn words(&self) -> Vec<&str> {
        self.to_vec()
    }
}

impl<const N: usize> CommandLine for [&str; N] {
    fn words(&self) -> Vec<&str> {
        self.to_vec()
    }
}

impl CommandLine for Vec<&str> {
    fn words(&self) -> Vec<&str> {
        self.clone()
    }
}

impl Output {
    /// Runs a program to its end.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn of(command: &mut Command) -> Self {
        let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        Self {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Runs a program to its end, or until `is_over`: then it is killed, and nothing is known of it.
    ///
    /// # Errors
    /// It cannot be started or waited for.
    pub fn unless(command: &mut Command, is_over: impl Fn() -> bool) -> io::Result<Option<Self>> {
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        // Both are read as they come: a full pipe would stop the program.
        let [stdout, stderr] = [read(child.stdout.take()), read(child.stderr.take())];
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break status;
            }
            if is_over() {
                child.kill()?;
                child.wait()?;
                return Ok(None);
            }
            thread::sleep(Duration::from_millis(5));
        };
        let text = |of: thread::JoinHandle<Vec<u8>>| {
            String::from_utf8_lossy(&of.join().unwrap_or_default()).into_owned()
        };
        Ok(Some(Self { code: status.code().unwrap_or(-1), stdout: text(stdout), stderr: text(stderr) }))
    }

    /// Data that are JSON.
    ///
    /// # Panics
    /// When they are not.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout)
            .unwrap_or_else(|error| panic!("{error}:\n{}{}", self.stdout, self.stderr))
    }

    /// Data and messages.
    pub fn text(&self) -> String {
        [self.stdout.as_str(), &self.stderr].concat()
    }
}

/// Reads all of a pipe beside this thread.
fn read(pipe: Option<impl Read + Send + 'static>) -> thread::JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        // What cannot be read is missing from what the program is said to have printed.
        let _ = pipe.map(|mut pipe| pipe.read_to_end(&mut bytes));
        bytes
    })
}

/// Whether this is the path of a field of a request for a plan: `memory.blocks`.
fn is_of_request(path: &str) -> bool {
    const GROUPS: [&str; 6] = ["problem", "objective", "constraints", "memory", "search", "output"];
    path.split_once('.').is_some_and(|(group, _)| GROUPS.contains(&group))
}

/// Writes a request file with these fields, each as `PATH=VALUE` with a value in YAML, and returns its path.
fn request_file(planner: &Planner, fields: &[&str]) -> PathBuf {
    static FILES: AtomicU32 = AtomicU32::new(0);
    let mut request = Value::Null;
    for field in fields {
        let (path, value) = field.split_once('=').expect("a field has a value");
        let mut at = &mut request;
        for name in path.split('.') {
            at = &mut at[name];
        }
        *at = Value::String(value.to_owned());
    }
    let path =
        planner.data_dir().with_file_name(format!("request-{}.yaml", FILES.fetch_add(1, Ordering::Relaxed)));
    std::fs::write(&path, yaml(&request)).expect("a request file can be written");
    path
}

/// A tree of fields, whose leaves are YAML already.
fn yaml(tree: &Value) -> String {
    match tree {
        Value::Object(fields) => {
            let fields = fields.iter().map(|(name, value)| format!("{name}: {}", yaml(value)));
            format!("{{{}}}", fields.collect::<Vec<_>>().join(", "))
        }
        Value::String(value) => value.clone(),
        other => other.to_string(),
    }
}

/// `loadmaster ARGUMENTS` against a planner. Words `PATH=VALUE` are fields of a request file, for those that have no option:
/// `memory.blocks=[MEMORY_BLOCK_WEIGHTS]`.
///
/// Searches give way to everything else on their machine, and where that is busy take twenty times as long. What is found must
/// not depend on it: unless it says otherwise a search may take as long as any.
pub(crate) fn command(planner: &Planner, arguments: &[&str]) -> Command {
    let mut command = Command::new(binary("loadmaster"));
    let is_field = |word: &&&str| word.split_once('=').is_some_and(|(path, _)| is_of_request(path));
    let fields: Vec<&str> = arguments.iter().filter(is_field).copied().collect();
    command.args(arguments.iter().filter(|word| !is_field(word)));
    if !fields.is_empty() {
        command.arg("-f").arg(request_file(planner, &fields));
    }
    command.env("LOADMASTER_ADDRESS", planner.address());
    command.env("NO_COLOR", "1").env("LC_ALL", "C.UTF-8");
    let is_limited = arguments.contains(&"--search-time");
    if arguments.starts_with(&["plan", "recommend"]) && !is_limited {
        command.args(["--search-time", "50s"]).env("LOADMASTER_TIMEOUT", "3m");
    }
    command
}

/// Runs `loadmaster LINE` against a planner.
pub fn cli(planner: &Planner, line: &(impl CommandLine + ?Sized)) -> Output {
    Output::of(&mut command(planner, &line.words()))
}

/// Runs `loadmaster LINE -o json` and parses what it prints.
///
/// # Panics
/// When it fails.
pub fn json(planner: &Planner, line: &(impl CommandLine + ?Sized)) -> Value {
    json_of(planner, line.words(), 0)
}

/// The same of a plan that is not certain to fit: exit code 8.
///
/// # Panics
/// When it is certain, or fails.
pub fn uncertain(planner: &Planner, line: &(impl CommandLine + ?Sized)) -> Value {
    json_of(planner, line.words(), 8)
}

fn json_of(planner: &Planner, mut words: Vec<&str>, code: i32) -> Value {
    words.extend(["-o", "json"]);
    let output = cli(planner, &words);
    assert_eq!(output.code, code, "{words:?}:\n{}", output.stderr);
    output.json()
}

/// Runs `loadmaster profile run` with these options to the end, and returns the profile.
///
/// # Panics
/// When it is not complete.
pub fn profile(
    planner: &Planner,
    model: &(impl CommandLine + ?Sized),
    options: &(impl CommandLine + ?Sized),
) -> Value {
    let profile = json(planner, &[vec!["profile", "run"], model.words(), options.words()].concat());
    assert_eq!(profile["state"], "COMPLETE", "{profile}");
    profile
}

/// A planner and a worker, with a profile of [`SMALL_GPT2`] by these options.
///
/// # Panics
/// When it is not complete.
pub fn profiled(worker: &WorkerOptions, options: &str) -> (Planner, Worker) {
    let planner = Planner::start();
    let worker = Worker::start(&planner, worker);
    profile(&planner, SMALL_GPT2, options);
    (planner, worker)
}
