//! The planner: its versions and features, and its status.

use std::collections::BTreeMap;

use loadmaster_proto::wire::longrunning::{Operation, operation};
use loadmaster_proto::wire::v1::server_info::Database;
use loadmaster_proto::wire::v1::{ServerInfo, Worker};

use super::grid::Side::{Left, Right};
use super::grid::{Facts, Grid};
use super::{id, operation as operations, or_none};
use crate::show;
use crate::text::terminal_abilities::Look;
use crate::text::{plain, time, word};

show!(@ ServerInfo, self, look, Vec::new(), facts(self, look).render());
show!(@ WatchChangesResponse, self, look, vec![self.collection.clone()],
    format!("{}  {}  change {}", time(self.change_time.as_ref(), look), plain(&self.collection), self.change_number));

fn facts(info: &ServerInfo, look: Look) -> Facts {
    let mut facts = Facts::default();
    facts.add("version", versions(info));
    facts.add("started", time(info.start_time.as_ref(), look));
    facts.add("database", database(info));
    facts.add("features", or_none(&info.features.join(", "), look));
    let predictors: Vec<&str> = info.predictors.iter().map(|of| of.version.as_str()).collect();
    facts.add("predictors", or_none(&predictors.join(", "), look));
    facts
}

/// `0.1.0, API v1, worker protocol 10`.
pub fn versions(info: &ServerInfo) -> String {
    let (version, api) = (plain(&info.version), plain(&info.api_version));
    format!("{version}, API {api}, worker protocol {}", info.worker_protocol_version)
}

fn database(info: &ServerInfo) -> String {
    Database::try_from(info.database)
        .map_or_else(|_| "unknown".to_owned(), |known| word(known.as_str_name(), "DATABASE_"))
}

/// What [`status`] shows.
#[derive(Debug)]
pub struct Status<'a> {
    /// Address of the planner.
    pub address: &'a str,
    /// The planner.
    pub info: &'a ServerInfo,
    /// Its workers.
    pub workers: &'a [Worker],
    /// Operations in progress, newest first.
    pub running: &'a [Operation],
    /// Failed operations, newest first.
    pub failed: &'a [Operation],
}

/// The planner, its workers by state, its operations in progress and its newest failures.
pub fn status(status: &Status<'_>, look: Look) -> String {
    let mut head = Facts::default();
    head.add("planner", plain(status.address));
    let mut text = head.render() + &facts(status.info, look).render();
    text.push_str("\nWorkers\n");
    text.push_str(&workers(status.workers, look));
    text.push_str("\nOperations in progress\n");
    text.push_str(&match status.running {
        [] => "none\n".to_owned(),
        running => operations::grid(running, look).render(),
    });
    text.push_str("\nNewest failures\n");
    text.push_str(&match status.failed {
        [] => "none\n".to_owned(),
        failed => failures(failed, look).render(),
    });
    text
}

/// A row for each state, with the devices of its workers by kind.
fn workers(workers: &[Worker], look: Look) -> String {
    let mut states: BTreeMap<i32, (usize, BTreeMap<&str, usize>)> = BTreeMap::new();
    for worker in workers {
        let (count, kinds) = states.entry(worker.state).or_default();
        *count += 1;
        for device in &worker.devices {
            *kinds.entry(device.kind.as_str()).or_default() += 1;
        }
    }
    if states.is_empty() {
        return "none\n".to_owned();
    }
    let mut grid = Grid::new(&[("state", Left), ("workers", Right), ("devices", Left)], look);
    for (state, (count, kinds)) in states {
        let state = Worker { state, ..Worker::default() }.state();
        let devices: Vec<String> = kinds
            .into_iter()
            .map(|(kind, count)| format!("{count} {} {}", look.times(), plain(kind)))
            .collect();
        let state = word(state.as_str_name(), "STATE_");
        grid.row([state, count.to_string(), or_none(&devices.join(", "), look)]);
    }
    grid.render()
}

fn failures(failed: &[Operation], look: Look) -> Grid {
    let mut grid = Grid::new(&[("operation", Left), ("ended", Left), ("error", Left)], look);
    for operation in failed {
        let metadata = operations::metadata_of(operation).unwrap_or_default();
        let error = match &operation.result {
            Some(operation::Result::Error(error)) => error.message.as_str(),
            _ => "",
        };
        let ended = time(metadata.end_time.as_ref(), look);
        grid.row([id(&operation.name), ended, or_none(error, look)]);
    }
    grid
}

#[cfg(test)]
mod tests {
    use loadmaster_proto::wire::google::rpc;
    use loadmaster_proto::wire::v1::{Device, worker};

    use super::*;

    fn worker(state: worker::State, kinds: &[&str]) -> Worker {
        let device = |kind: &&str| Device { kind: (*kind).to_owned(), ..Device::default() };
        Worker { state: state.into(), devices: kinds.iter().map(device).collect(), ..Worker::default() }
    }

    #[test]
    fn a_status_counts_workers_by_state_and_names_failures() {
        let info = ServerInfo {
            version: "1.2.3".to_owned(),
            api_version: "v1".to_owned(),
            worker_protocol_version: 10,
            database: Database::Embedded.into(),
            features: vec!["reflection".to_owned(), "web".to_owned()],
            ..ServerInfo::default()
        };
        let error = rpc::Status { code: 9, message: "runs/r failed".to_owned(), details: Vec::new() };
        let failed = Operation {
            name: "operations/o".to_owned(),
            done: true,
            result: Some(operation::Result::Error(error)),
            ..Operation::default()
        };
        let text = status(
            &Status {
                address: "http://planner:7433",
                info: &info,
                workers: &[
                    worker(worker::State::Alive, &["cpu", "NVIDIA H200"]),
                    worker(worker::State::Alive, &["cpu"]),
                    worker(worker::State::Cordoned, &["cpu"]),
                ],
                running: &[],
                failed: &[failed],
            },
            Look { width: Some(80), ..Look::UNICODE },
        );
        for line in [
            "1.2.3, API v1, worker protocol 10",
            "embedded",
            "reflection, web",
            "1 × NVIDIA H200, 2 × cpu",
            "runs/r failed",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
        assert!(text.contains("Operations in progress\nnone\n"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    }
}
