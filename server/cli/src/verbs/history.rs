//! `loadmaster history`.

use std::time::Duration;

use clap::Subcommand;
use loadmaster_proto::wire::v1;

use super::help;
use crate::failure::{Failure, options};
use crate::input::parse;
use crate::session::context::Context;

/// Rows that an answer tells with what keeps them.
const MOST_KEPT: usize = 100;

#[derive(Debug, Subcommand)]
pub(crate) enum HistoryVerb {
    /// Delete what is old and what nothing that stays refers to.
    #[command(after_help = help::HISTORY_PRUNE)]
    Prune(PruneArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct PruneArgs {
    /// Age of what may go, at least a day: 90d. Plans are as old as the last question that they answered.
    #[arg(long, value_name = "DURATION", value_parser = parse::age, allow_hyphen_values = true)]
    older_than: Duration,

    /// Only what fits this filter, as in the lists: 'NOT labels:keep'.
    #[arg(
        long,
        value_name = "FILTER",
        default_value = "",
        hide_default_value = true,
        allow_hyphen_values = true
    )]
    filter: String,

    /// Only these. Default: those whose lists know the filter's fields.
    #[arg(long = "of", value_name = "COLLECTION", value_delimiter = ',',
          value_parser = ["plans", "profiles", "workers", "runs", "operations", "models"])]
    collections: Vec<String>,

    /// Only tell what would be deleted, and what not and why.
    #[arg(long)]
    dry_run: bool,
}

impl HistoryVerb {
    /// The options that fill the fields of its request.
    pub(crate) fn options(&self) -> options::OptionTable {
        match self {
            Self::Prune(_) => options::HISTORY_PRUNE,
        }
    }
}

pub(crate) async fn run(context: &Context, verb: HistoryVerb) -> Result<(), Failure> {
    let HistoryVerb::Prune(PruneArgs { older_than, filter, collections, dry_run }) = verb;
    let older_than = prost_types::Duration::try_from(older_than).map_err(|_| {
        Failure::Usage("--older-than is too long: give a shorter time, for example 90d".to_owned())
    })?;
    let mut request = v1::PruneHistoryRequest {
        older_than: Some(older_than),
        filter,
        collections,
        validate_only: dry_run,
        ..v1::PruneHistoryRequest::default()
    };
    let mut all = v1::PruneHistoryResponse::default();
    loop {
        let page = context.client.call(request.clone()).await?;
        let next = page.next_page_token.clone();
        page.collections.into_iter().for_each(|of| add(&mut all.collections, of));
        if next.is_empty() {
            break;
        }
        if next == request.page_token {
            return Err(anyhow::anyhow!("the planner names a page as its own successor").into());
        }
        request.page_token = next;
        let sum = |count: fn(&v1::PrunedCollection) -> i64| all.collections.iter().map(count).sum::<i64>();
        context.remark(&format!(
            "{} deleted and {} kept so far; what is deleted stays so if this is stopped",
            sum(|of| of.taken_count),
            sum(|of| of.kept_count)
        ));
    }
    context.output.print(&all)?;
    if dry_run {
        context.remark("nothing was deleted: without --dry-run it is");
    }
    Ok(())
}

/// One page more of what became of a collection.
fn add(all: &mut Vec<v1::PrunedCollection>, page: v1::PrunedCollection) {
    let Some(of) = all.iter_mut().find(|of| of.collection == page.collection) else {
        all.push(page);
        return;
    };
    of.taken_count = of.taken_count.saturating_add(page.taken_count);
    of.kept_count = of.kept_count.saturating_add(page.kept_count);
    of.taken.extend(page.taken);
    of.kept.extend(page.kept);
    of.kept.truncate(MOST_KEPT);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_add_up() {
        let page = |collection: &str, taken: &[&str], kept_count| v1::PrunedCollection {
            collection: collection.to_owned(),
            taken_count: taken.len() as i64,
            kept_count,
            taken: taken.iter().map(|&name| name.to_owned()).collect(),
            kept: vec![v1::KeptRow::default(); 60],
        };
        let mut all = Vec::new();
        for of in [page("plans", &["plans/a"], 60), page("runs", &[], 60), page("plans", &["plans/b"], 70)] {
            add(&mut all, of);
        }
        let told: Vec<_> =
            all.iter().map(|of| (of.taken.len(), of.taken_count, of.kept_count, of.kept.len())).collect();
        assert_eq!(told, [(2, 2, 130, MOST_KEPT), (0, 0, 60, 60)]);
    }
}
