//! `loadmaster history`.

use std::time::Duration;

use clap::Subcommand;
use loadmaster_proto::wire::v1;

use super::help;
use crate::failure::{Failure, options};
use crate::input::parse::{self, request_id};
use crate::session::context::{Context, LeftBehind};
use crate::session::follow::{self, Wait};

#[derive(Debug, Subcommand)]
pub(crate) enum HistoryVerb {
    /// Delete old resources that no remaining resource references. Without --force it is a dry run.
    #[command(alias = "prune", after_help = help::HISTORY_PURGE)]
    Purge(PurgeArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct PurgeArgs {
    /// Smallest age of a deleted resource, at least a day: 90d. The age of a plan counts from the last request that returned it.
    #[arg(long, value_name = "DURATION", value_parser = parse::age, allow_hyphen_values = true)]
    older_than: Duration,

    /// Only resources that match this filter, as in the lists: 'NOT labels:keep'.
    #[arg(
        long,
        value_name = "FILTER",
        default_value = "",
        hide_default_value = true,
        allow_hyphen_values = true
    )]
    filter: String,

    /// Only these collections. Default: those whose lists have the filter's fields.
    #[arg(long = "of", value_name = "COLLECTION", value_delimiter = ',',
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
        }
    }
}

pub(crate) async fn run(context: &Context, verb: HistoryVerb) -> Result<(), Failure> {
    let HistoryVerb::Purge(PurgeArgs {
        older_than,
        filter,
        collections,
        force,
        dry_run: _,
        request_id: given,
        wait,
    }) = verb;
    let older_than = prost_types::Duration::try_from(older_than).map_err(|_| {
        Failure::Usage("--older-than is too long: give a shorter time, for example 90d".to_owned())
    })?;
    let request = v1::PurgeHistoryRequest {
        older_than: Some(older_than),
        filter,
        collections,
        force,
        request_id: request_id(given.as_ref()),
    };
    context.leaves(LeftBehind::Request { request_id: request.request_id.clone() });
    let operation = context.client.call(request).await?;
    follow::begun(context, operation, &wait).await
}
