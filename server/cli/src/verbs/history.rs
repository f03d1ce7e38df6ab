//! `loadmaster history`.

use std::collections::HashMap;
use std::time::Duration;

use clap::Subcommand;
use loadmaster_proto::wire::v1;

use super::help;
use crate::failure::{Failure, options};
use crate::input::parse::{self, request_id};
use crate::session::context::{Context, LeftBehind};
use crate::session::follow::{self, Wait};
use crate::session::list::FilterArg;

#[derive(Debug, Subcommand)]
pub(crate) enum HistoryVerb {
    /// Delete old resources that no remaining resource references. Without --force it is a dry run.
    #[command(alias = "prune", after_help = help::HISTORY_PURGE)]
    Purge(PurgeArgs),
    /// Print a line for each change of a collection, until Ctrl-C.
    #[command(after_help = help::HISTORY_WATCH)]
    Watch {
        /// Only these collections, separated by commas. Default: all of them.
        #[arg(long, value_name = "COLLECTION,…", value_delimiter = ',',
              value_parser = ["operations", "runs", "plans", "profiles", "workers", "reports", "placements"])]
        collections: Vec<String>,
    },
}

/// Pause before a stream is opened anew.
const PAUSE: Duration = Duration::from_secs(2);

#[derive(Debug, clap::Args)]
pub(crate) struct PurgeArgs {
    /// Smallest age of deleted resources, at least a day: 90d. A plan's age counts from the last request that returned it.
    #[arg(long, value_name = "DURATION", value_parser = parse::age, allow_hyphen_values = true)]
    older_than: Duration,

    #[command(flatten)]
    resources: FilterArg,

    /// Only these collections, separated by commas. Default: those whose lists have the filter's fields.
    #[arg(long, value_name = "COLLECTION,…", value_delimiter = ',',
          value_parser = ["plans", "profiles", "workers", "runs", "operations", "models"])]
    collections: Vec<String>,

    /// Delete the resources. Default: report which ones would be deleted, and which references keep the others.
    #[arg(long)]
    force: bool,

    /// The default.
    #[arg(long, hide = true, conflicts_with = "force")]
    dry_run: bool,

    /// UUID that makes a repeated command return the first one's operation.
    #[arg(long, value_name = "UUID", value_parser = parse::uuid)]
    request_id: Option<String>,

    #[command(flatten)]
    wait: Wait,
}

impl HistoryVerb {
    /// The options that fill the fields of its request.
    pub(crate) fn options(&self) -> options::OptionTable {
        match self {
            Self::Purge(_) => options::HISTORY_PURGE,
            Self::Watch { .. } => options::HISTORY_WATCH,
        }
    }
}

pub(crate) async fn run(context: &Context, verb: HistoryVerb) -> Result<(), Failure> {
    match verb {
        HistoryVerb::Purge(purge) => purge.run(context).await,
        HistoryVerb::Watch { collections } => watch(context, collections).await,
    }
}

/// Prints changes as they come. A stream ends after an hour, or with its planner; then another one is opened.
async fn watch(context: &Context, collections: Vec<String>) -> Result<(), Failure> {
    let request = v1::WatchChangesRequest { collections };
    let mut stream = context.client.changes(request.clone()).await?;
    let mut printed = HashMap::new();
    loop {
        match stream.message().await.map_err(|status| context.client.failure(status)) {
            Ok(Some(change)) => {
                // A new stream begins with the newest change of each collection.
                let number = change.change_number;
                if printed.insert(change.collection.clone(), number) != Some(number) {
                    context.output.print_line(&change)?;
                }
                continue;
            }
            Err(failure) if !failure.may_pass() => return Err(failure),
            Err(_) => context.remark("the planner does not respond. Retrying until it does."),
            Ok(None) => {}
        }
        stream = loop {
            tokio::time::sleep(PAUSE).await;
            match context.client.changes(request.clone()).await {
                Ok(stream) => break stream,
                Err(failure) if failure.may_pass() => {}
                Err(failure) => return Err(failure),
            }
        };
    }
}

impl PurgeArgs {
    async fn run(self, context: &Context) -> Result<(), Failure> {
        let Self { older_than, resources, collections, force, dry_run: _, request_id: given, wait } = self;
        let older_than = prost_types::Duration::try_from(older_than).map_err(|_| {
            Failure::Usage(
                "--older-than: the age is too long. Use a shorter age, for example 90d.".to_owned(),
            )
        })?;
        let request = v1::PurgeHistoryRequest {
            older_than: Some(older_than),
            filter: resources.filter,
            collections,
            force,
            request_id: request_id(given.as_ref()),
        };
        context.leaves(LeftBehind::Request { request_id: request.request_id.clone() });
        let operation = context.client.call(request).await?;
        follow::begun(context, operation, &wait).await
    }
}
