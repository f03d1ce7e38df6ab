//! Runs that a training command of another framework works on, instead of Loadmaster's rank.
//!
//! The command gets the run as a JSON file ([`run_file`]) and its devices through
//! `CUDA_VISIBLE_DEVICES`; it writes a JSON file per rank ([`rank_file`]) and, if it likes, lines of
//! progress ([`process`]). Around it everything is as for ranks: lease, deadline, processes that are
//! gone before the devices are free ([`descendants`] finds those that left the group), and running out of
//! memory as a result.

mod collect;
mod descendants;
mod process;
mod rank_file;
mod run_file;
#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::path::Path;
use std::process::Stdio;
use std::{fs, io};

use descendants::Descendants;
use loadmaster_proto::cluster::device::Device;
use loadmaster_proto::measure::run::RunSpec;
use loadmaster_proto::name::CommandName;
use process::Work;
use run_file::RunFile;
use tokio::process::Command;

use crate::config::command::TrainingCommand;
use crate::run::{Contact, Job, Outcome, not_started};

/// The variable that names the file with the run.
const RUN_VARIABLE: &str = "LOADMASTER_RUN";
/// The file, in the run's folder.
const RUN_FILE: &str = "run.json";
/// The folder for results, in the run's folder.
const RESULTS: &str = "results";
/// What stands for the number of ranks in an argument.
const RANKS: &str = "{ranks}";

/// Ends what commands of a dead daemon left, whose runs were in this folder of its.
pub(crate) fn end_left(folder: &Path) {
    descendants::kill_left(RUN_VARIABLE, folder);
}

/// Lets a command work on a run until none of its processes is left. `folder` is the run's own, private
/// and empty.
pub(crate) async fn run(
    name: &CommandName,
    command: &TrainingCommand,
    job: &Job<RunSpec>,
    folder: &Path,
    contact: &Contact,
) -> Outcome {
    let deadline = command.timeout.map_or(job.lease.deadline, |timeout| timeout.min(job.lease.deadline));
    let results = folder.join(RESULTS);
    let prepared = match prepare(command, job, folder, &results, deadline.as_secs_f64()) {
        Ok(prepared) => prepared,
        Err(error) => {
            return Outcome::Failed(not_started(format!("cannot prepare the profiler {name}: {error}")));
        }
    };
    let offspring = Descendants::new(RUN_VARIABLE, &folder.join(RUN_FILE));
    let work = Work { results: &results, ranks: job.lease.devices.len(), deadline, contact };
    let end = work.until_gone(prepared, offspring).await;
    collect::outcome(name, command.ledger, job, &results, end)
}

/// Writes the run for the command and makes the command line.
fn prepare(
    command: &TrainingCommand,
    job: &Job<RunSpec>,
    folder: &Path,
    results: &Path,
    deadline_seconds: f64,
) -> io::Result<Command> {
    fs::create_dir(results)?;
    let visible = visible_devices(&job.lease.devices);
    let run_file = folder.join(RUN_FILE);
    let run = RunFile::of(job, results, command.ledger, &visible, deadline_seconds);
    fs::write(&run_file, serde_json::to_vec_pretty(&run)?)?;

    let ranks = job.lease.devices.len().to_string();
    let mut words = command.argv.iter().map(|word| OsString::from(word.replace(RANKS, &ranks)));
    let mut line = Command::new(words.next().unwrap_or_default());
    line.args(words)
        .current_dir(command.working_directory.as_deref().unwrap_or(folder))
        .env("TMPDIR", folder)
        .envs(&command.environment)
        .env("CUDA_VISIBLE_DEVICES", visible.join(","))
        .env(RUN_VARIABLE, &run_file)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    Ok(line)
}

/// UUIDs of GPUs in their order, each once. A GPU's place here is the index that CUDA gives it in a process that sees these.
pub(crate) fn visible_devices<'a>(devices: impl IntoIterator<Item = &'a Device>) -> Vec<&'a str> {
    let mut uuids: Vec<&str> = Vec::new();
    for uuid in devices.into_iter().map(|device| device.uuid.as_str()).filter(|uuid| !uuid.is_empty()) {
        if !uuids.contains(&uuid) {
            uuids.push(uuid);
        }
    }
    uuids
}
