//! Long-running operations.

use loadmaster_proto::wire::longrunning::{ListOperationsResponse, Operation, operation};
use loadmaster_proto::wire::v1::{PurgeHistoryMetadata, RunCounts, RunMetadata, StartRecommendationMetadata};
use prost::Message;
use tonic::Code;

use super::grid::Side::{Left, Right};
use super::grid::{Facts, Grid};
use super::{id, or_none};
use crate::Show;
use crate::json::without_unknown;
use crate::table::plan::trial;
use crate::text::terminal_abilities::Look;
use crate::text::{count, percent, plural, seconds, time, word};

impl Show for Operation {
    const TYPE: &'static str = "google.longrunning.Operation";

    fn names(&self) -> Vec<String> {
        vec![self.name.clone()]
    }

    fn table(&self, look: Look) -> String {
        one(self, look)
    }

    fn translatable(&self) -> Vec<u8> {
        without_unknown(self).encode_to_vec()
    }
}

impl Show for ListOperationsResponse {
    const TYPE: &'static str = "google.longrunning.ListOperationsResponse";

    fn names(&self) -> Vec<String> {
        self.operations.iter().map(|operation| operation.name.clone()).collect()
    }

    fn table(&self, look: Look) -> String {
        list(&self.operations, look)
    }

    fn translatable(&self) -> Vec<u8> {
        let operations = self.operations.iter().map(without_unknown).collect();
        Self { operations, ..self.clone() }.encode_to_vec()
    }
}

fn one(operation: &Operation, look: Look) -> String {
    let mut facts = Facts::default();
    let mut trials = None;
    facts.add("operation", or_none(&operation.name, look));
    facts.add("state", state(operation));
    if let Some(operation::Result::Error(error)) = &operation.result {
        facts.add("error", &error.message);
    }
    if let Some(metadata) = metadata_of(operation) {
        facts.add("makes", or_none(&metadata.target, look));
        facts.add("progress", percent(metadata.progress));
        if let Some(counts) = &metadata.run_counts {
            facts.add("runs", runs(counts));
        }
        facts.add("message", or_none(&metadata.message, look));
        facts.add("created", time(metadata.create_time.as_ref(), look));
        facts.add("ended", time(metadata.end_time.as_ref(), look));
        trials = metadata.trials.filter(|trials| !trials.trials.is_empty());
    }
    facts.render() + &trials.map_or_else(String::new, |trials| format!("\n{}", trial::all(&trials, look)))
}

fn list(operations: &[Operation], look: Look) -> String {
    if operations.is_empty() {
        return "no operations\n".to_owned();
    }
    grid(operations, look).render()
}

/// A row for each.
pub fn grid(operations: &[Operation], look: Look) -> Grid {
    let mut grid = Grid::new(
        &[
            ("operation", Left),
            ("state", Left),
            ("makes", Left),
            ("progress", Right),
            ("runs", Left),
            ("created", Left),
        ],
        look,
    );
    for operation in operations {
        let metadata = metadata_of(operation).unwrap_or_default();
        grid.row([
            id(&operation.name),
            state(operation),
            or_none(&metadata.target, look),
            percent(metadata.progress),
            metadata.run_counts.as_ref().map_or_else(|| look.none().to_owned(), runs),
            time(metadata.create_time.as_ref(), look),
        ]);
    }
    grid
}

fn state(operation: &Operation) -> String {
    match (&operation.result, operation.done) {
        (Some(operation::Result::Error(error)), _) if Code::from_i32(error.code) == Code::Cancelled => {
            "cancelled".to_owned()
        }
        (Some(operation::Result::Error(_)), _) => "failed".to_owned(),
        (Some(operation::Result::Response(_)) | None, true) => "succeeded".to_owned(),
        (Some(operation::Result::Response(_)) | None, false) => "running".to_owned(),
    }
}

/// The progress of an operation of ours. Purges and searches have no runs.
pub fn metadata_of(operation: &Operation) -> Option<RunMetadata> {
    let any = operation.metadata.as_ref()?;
    match any.type_url.rsplit('/').next()? {
        "loadmaster.v1.RunMetadata" => RunMetadata::decode(any.value.as_slice()).ok(),
        "loadmaster.v1.PurgeHistoryMetadata" => {
            PurgeHistoryMetadata::decode(any.value.as_slice()).ok().map(|of| purge(of, operation.done))
        }
        "loadmaster.v1.StartRecommendationMetadata" => {
            StartRecommendationMetadata::decode(any.value.as_slice())
                .ok()
                .map(|search| of_search(&search, operation.done))
        }
        _ => None,
    }
}

fn purge(metadata: PurgeHistoryMetadata, is_done: bool) -> RunMetadata {
    let PurgeHistoryMetadata { candidate_count, purge_count, referenced_count, collection, .. } = metadata;
    let examined = purge_count.saturating_add(referenced_count);
    let is_dry_run = metadata.request.is_none_or(|request| !request.force);
    let deleted = if is_dry_run { "to delete" } else { "deleted" };
    let at = if collection.is_empty() { String::new() } else { format!(", now {collection}") };
    RunMetadata {
        target: if is_dry_run { "purge (dry run)" } else { "purge" }.to_owned(),
        progress: match candidate_count {
            _ if is_done => 1.0,
            ..=0 => 0.0,
            all => (examined as f64 / all as f64).min(1.0),
        },
        message: format!("{} {deleted}, {} referenced{at}", count(purge_count), count(referenced_count)),
        create_time: metadata.create_time,
        end_time: metadata.end_time,
        ..RunMetadata::default()
    }
}

fn of_search(search: &StartRecommendationMetadata, done: bool) -> RunMetadata {
    let elapsed = search.elapsed.as_ref().map_or(0.0, in_seconds);
    let limit = search.time_limit.as_ref().map_or(0.0, in_seconds);
    let share = if limit > 0.0 { (elapsed / limit).clamp(0.0, 1.0) } else { 0.0 };
    RunMetadata {
        target: "recommendation".to_owned(),
        progress: if done { 1.0 } else { share },
        message: search_message(search, done),
        remaining_seconds: Some((limit - elapsed).max(0.0)).filter(|_| !done),
        create_time: search.create_time,
        end_time: search.end_time,
        ..RunMetadata::default()
    }
}

/// `searching, 12,400 states, best 0.512 s, bound 0.498 s (gap 2.7 %)`.
fn search_message(search: &StartRecommendationMetadata, done: bool) -> String {
    let mut facts = Vec::new();
    if !done {
        facts.push(word(search.phase().as_str_name(), "PHASE_"));
    }
    if search.state_count > 0 {
        facts.push(format!("{} states", count(search.state_count)));
    }
    if let Some(value) = search.value {
        facts.push(format!("best {}", seconds(value)));
    }
    if let Some(bound) = search.bound {
        let gap = search.value.filter(|value| *value > 0.0).map(|value| (value - bound) / value);
        let gap = gap.map_or_else(String::new, |gap| format!(" (gap {:.1} %)", gap * 100.0));
        facts.push(format!("bound {}{gap}", seconds(bound)));
    }
    facts.join(", ")
}

fn in_seconds(duration: &prost_types::Duration) -> f64 {
    duration.seconds as f64 + f64::from(duration.nanos) / 1e9
}

/// `6 of 12 runs done, 1 failed`. What did not fit is a result, so it is done and named.
pub fn runs(counts: &RunCounts) -> String {
    let done =
        counts.succeeded_count.saturating_add(counts.out_of_memory_count).saturating_add(counts.failed_count);
    let mut text = format!("{done} of {} done", plural(counts.total_count, "run"));
    for (number, what) in [
        (counts.failed_count, "failed"),
        (counts.out_of_memory_count, "out of memory"),
        (counts.cancelled_count, "cancelled"),
    ] {
        if number != 0 {
            text.push_str(&format!(", {number} {what}"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use loadmaster_proto::wire::google::rpc::Status;
    use loadmaster_proto::wire::v1;

    use super::*;

    #[test]
    fn a_purge_has_its_counts_in_its_message() {
        let metadata = PurgeHistoryMetadata {
            candidate_count: 2_000,
            purge_count: 900,
            referenced_count: 100,
            collection: "runs".to_owned(),
            request: Some(v1::PurgeHistoryRequest { force: true, ..Default::default() }),
            ..PurgeHistoryMetadata::default()
        };
        let metadata = prost_types::Any {
            type_url: "type.googleapis.com/loadmaster.v1.PurgeHistoryMetadata".to_owned(),
            value: metadata.encode_to_vec(),
        };
        let operation = Operation { metadata: Some(metadata), ..Operation::default() };
        let shown = metadata_of(&operation).unwrap();
        assert_eq!((shown.target.as_str(), shown.progress), ("purge", 0.5));
        assert_eq!(shown.message, "900 deleted, 100 referenced, now runs");
    }

    #[test]
    fn a_search_says_what_it_has_found() {
        use loadmaster_proto::wire::v1::start_recommendation_metadata::Phase;
        let duration = |seconds| Some(prost_types::Duration { seconds, nanos: 0 });
        let search = StartRecommendationMetadata {
            phase: Phase::Searching.into(),
            state_count: 12_400,
            value: Some(0.5),
            bound: Some(0.48),
            elapsed: duration(30),
            time_limit: duration(120),
            ..StartRecommendationMetadata::default()
        };
        let shown = of_search(&search, false);
        assert_eq!((shown.progress, shown.remaining_seconds), (0.25, Some(90.0)));
        for fact in ["searching", "400 states", "best 500.0 ms", "bound 480.0 ms (gap 4.0 %)"] {
            assert!(shown.message.contains(fact), "{fact} is not in {}", shown.message);
        }
    }

    #[test]
    fn an_operation_says_how_it_ended() {
        let error =
            Status { code: Code::Unavailable.into(), message: "no worker".to_owned(), details: vec![] };
        let operation = Operation {
            name: "operations/1".to_owned(),
            done: true,
            result: Some(operation::Result::Error(error)),
            ..Operation::default()
        };
        assert_eq!(
            one(&operation, Look::PLAIN),
            "operation  operations/1\nstate      failed\nerror      no worker\n"
        );
        assert_eq!(
            list(&[operation], Look::PLAIN),
            "operation  state   makes  progress  runs  created\n\
             1          failed  -         0.0 %  -     -\n"
        );
        assert_eq!(list(&[], Look::PLAIN), "no operations\n");
    }
}
