//! Long-running operations.

use loadmaster_proto::wire::longrunning::{ListOperationsResponse, Operation, operation};
use loadmaster_proto::wire::v1::{RunCounts, RunMetadata};
use prost::Message;
use tonic::Code;

use super::grid::Side::{Left, Right};
use super::grid::{Facts, Grid};
use super::{id, or_none};
use crate::Show;
use crate::json::without_unknown;
use crate::table::plan::trial;
use crate::text::terminal_abilities::Look;
use crate::text::{percent, plural, time};

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

/// The progress that an operation of ours carries.
pub fn metadata_of(operation: &Operation) -> Option<RunMetadata> {
    let any = operation.metadata.as_ref()?;
    any.type_url
        .ends_with("/loadmaster.v1.RunMetadata")
        .then(|| RunMetadata::decode(any.value.as_slice()).ok())
        .flatten()
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

    use super::*;

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
