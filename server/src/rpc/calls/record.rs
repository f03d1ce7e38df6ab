//! The line that a call leaves in the log.

use std::net::IpAddr;
use std::time::Instant;

use loadmaster_proto::reason::code_name;
use tonic::{Code, Status};
use tonic_types::StatusExt;

use super::names::Names;

/// Methods that are called repeatedly while a client waits; their calls are logged at the level `debug`.
const POLLED: [&str; 8] = [
    "google.longrunning.Operations/GetOperation",
    "google.longrunning.Operations/WaitOperation",
    "loadmaster.v1.ProfileService/ListRuns",
    "loadmaster.v1.HistoryService/WatchChanges",
    "grpc.health.v1.Health/Check",
    "grpc.health.v1.Health/Watch",
    "grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
    "grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
];
/// How methods begin that change nothing: thousands of their calls an hour concern no operator, unless they fail or are slow.
const READS: [&str; 2] = ["Get", "List"];
/// Seconds from which on a call is slow.
const SLOW: f64 = 1.0;
/// Longest name of a method that is told, and longest message of an error, characters.
const LONGEST_METHOD: usize = 120;
const LONGEST_MESSAGE: usize = 300;

/// A call that is under way. One that is dropped was given up by its client.
#[derive(Debug)]
pub(in crate::rpc) struct Record {
    method: String,
    peer: IpAddr,
    began: Instant,
    names: Names,
    told: bool,
}

impl Record {
    /// A call of the method at this path, by a peer.
    pub(in crate::rpc) fn begin(path: &str, peer: IpAddr) -> Self {
        let method = path.trim_start_matches('/').chars().take(LONGEST_METHOD).collect();
        Self { method, peer, began: Instant::now(), names: Names::default(), told: false }
    }

    /// Where names go that the call concerns.
    pub(in crate::rpc) fn names(&self) -> Names {
        self.names.clone()
    }

    /// The call has its answer.
    pub(super) fn end(mut self, status: &Status) {
        self.tell(status);
    }

    fn tell(&mut self, status: &Status) {
        self.told = true;
        // To the microsecond: a line is no longer than what it says.
        let seconds = (self.began.elapsed().as_secs_f64() * 1e6).round() / 1e6;
        let names = Some(self.names.joined()).filter(|names| !names.is_empty());
        let (method, code) = (self.method.as_str(), code_name(status.code()));
        let peer = tracing::field::display(self.peer);
        let failed = status.code() != Code::Ok;
        let reason = failed.then(|| status.get_details_error_info().map(|info| info.reason)).flatten();
        // As text with quotes: it may repeat what a client sent.
        let error: Option<String> = failed.then(|| status.message().chars().take(LONGEST_MESSAGE).collect());
        let error = error.as_deref().map(tracing::field::debug);
        if POLLED.contains(&method) || !failed && seconds < SLOW && is_read(method) {
            tracing::debug!(method, code, seconds, names, peer, reason, error, "call ended");
        } else {
            tracing::info!(method, code, seconds, names, peer, reason, error, "call ended");
        }
    }
}

/// Whether a method changes nothing.
fn is_read(method: &str) -> bool {
    let name = method.rsplit('/').next().unwrap_or_default();
    READS.iter().any(|begin| name.starts_with(begin))
}

impl Drop for Record {
    fn drop(&mut self) {
        if !self.told {
            self.tell(&Status::cancelled("the client cancelled the call"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_that_change_something_are_no_reads() {
        for read in ["loadmaster.v1.PlanService/GetPlan", "loadmaster.v1.WorkerService/ListWorkers"] {
            assert!(is_read(read), "{read}");
        }
        for other in [
            "loadmaster.v1.PlanService/RecommendPlan",
            "loadmaster.v1.ModelService/CreateModel",
            "x",
            "/",
            "",
        ] {
            assert!(!is_read(other), "{other}");
        }
    }
}
