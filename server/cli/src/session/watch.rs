//! Lists that go on: what is new or has changed is printed as it comes.

use std::collections::HashSet;
use std::time::Duration;

use loadmaster_proto::wire::longrunning::Operation;
use loadmaster_proto::wire::v1;
use loadmaster_show::Show;
use prost::Message;

use super::context::Context;
use super::page::{self, Limit, Page, PageRequest};
use crate::failure::Failure;

/// Time between two looks.
const LOOK: Duration = Duration::from_secs(2);

/// How a list is printed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shown {
    pub(crate) limit: Limit,
    /// Until it is interrupted.
    pub(crate) watch: bool,
}

/// A row that is printed whenever it has changed.
pub(crate) trait Row: Message + Sized {
    /// The row without fields that change all the time.
    fn told(&self) -> Vec<u8> {
        self.encode_to_vec()
    }
}

impl Row for v1::Worker {
    fn told(&self) -> Vec<u8> {
        Self { heartbeat_time: None, ..self.clone() }.encode_to_vec()
    }
}
impl Row for v1::Run {}
impl Row for v1::Plan {}
impl Row for v1::Model {}
impl Row for v1::Cluster {}
impl Row for v1::Profile {}
impl Row for v1::Report {}
impl Row for v1::Placement {}
impl Row for v1::LinkMeasurement {}
impl Row for Operation {}

/// Prints a list; what changes in it, too, where that is wanted.
pub(crate) async fn print<R: PageRequest<Answer: Show + Page<Row: Row>>>(
    context: &Context,
    Shown { limit, watch }: Shown,
    request: R,
) -> Result<(), Failure> {
    let mut seen = HashSet::new();
    let mut answer = page::all(context, limit, &request).await?;
    news(answer.rows(), &mut seen);
    context.output.print(&answer)?;
    if !watch {
        return Ok(());
    }
    let mut is_away = false;
    loop {
        tokio::time::sleep(LOOK).await;
        match page::fetch_all(context, limit, &request).await {
            Ok((looked, _)) => (answer, is_away) = (looked, false),
            // A planner that restarts, or its database, is back soon.
            Err(failure) if failure.may_pass() => {
                if !std::mem::replace(&mut is_away, true) {
                    context.remark("the planner does not respond. Retrying until it does.");
                }
                continue;
            }
            Err(failure) => return Err(failure),
        }
        news(answer.rows(), &mut seen);
        if !answer.rows().is_empty() {
            context.output.print(&answer)?;
        }
    }
}

/// Leaves the rows that were not seen as they are now, and notes all.
fn news<R: Row>(rows: &mut Vec<R>, seen: &mut HashSet<Vec<u8>>) {
    let told: Vec<Vec<u8>> = rows.iter().map(Row::told).collect();
    let mut position = 0;
    rows.retain(|_| {
        let is_new = told.get(position).is_some_and(|told| !seen.contains(told));
        position += 1;
        is_new
    });
    *seen = told.into_iter().collect();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn worker(name: &str, runs: &[&str], seconds: i64) -> v1::Worker {
        v1::Worker {
            name: name.to_owned(),
            runs: runs.iter().map(|&run| run.to_owned()).collect(),
            heartbeat_time: Some(prost_types::Timestamp { seconds, nanos: 0 }),
            ..v1::Worker::default()
        }
    }

    #[test]
    fn only_what_changed_is_told_again() {
        let mut seen = HashSet::new();
        let mut told = |rows: &[v1::Worker]| {
            let mut rows = rows.to_vec();
            news(&mut rows, &mut seen);
            rows.into_iter().map(|row| row.name).collect::<Vec<_>>()
        };
        assert_eq!(told(&[worker("a", &[], 1), worker("b", &[], 1)]), ["a", "b"]);
        assert!(told(&[worker("a", &[], 2), worker("b", &[], 2)]).is_empty(), "a heartbeat is no news");
        assert_eq!(told(&[worker("a", &[], 3), worker("b", &["r"], 3), worker("c", &[], 3)]), ["b", "c"]);
        assert_eq!(told(&[worker("b", &[], 4)]), ["b"], "it is as it was, which is a change");
    }
}
