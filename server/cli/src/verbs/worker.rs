//! `loadmaster worker`.

use clap::{Args, Subcommand};
use loadmaster_proto::wire::v1;

use super::help;
use crate::failure::{Failure, options};
use crate::input::parse;
use crate::session::address;
use crate::session::context::Context;
use crate::session::list::{ListArgs, ListOptions};
use crate::session::watch;

#[derive(Debug, Subcommand)]
pub(crate) enum WorkerVerb {
    /// List workers, newest first.
    #[command(after_help = help::WORKER_LIST)]
    List(ListArgs),
    /// Show a worker and its devices.
    #[command(visible_alias = "get", after_help = help::WORKER_SHOW)]
    Show(WorkerName),
    /// Cordon a worker: it gets no more runs. Its current runs end normally.
    #[command(visible_alias = "drain", after_help = help::WORKER_CORDON)]
    Cordon(WorkerName),
    /// Uncordon a worker: it gets runs.
    #[command(after_help = help::WORKER_UNCORDON)]
    Uncordon(WorkerName),
    /// Delete a worker that is disconnected. Its measurements stay.
    #[command(after_help = help::WORKER_DELETE)]
    Delete(WorkerName),
}

/// The name of a worker.
#[derive(Debug, Args)]
pub(crate) struct WorkerName {
    /// The worker: `workers/ID` or the id alone.
    #[arg(value_parser = parse::worker)]
    name: String,
}

impl WorkerVerb {
    /// The options that fill the fields of its request.
    pub(crate) fn options(&self) -> options::OptionTable {
        match self {
            Self::List(_) => options::LIST,
            Self::Show(_) | Self::Cordon(_) | Self::Uncordon(_) | Self::Delete(_) => options::NAME,
        }
    }
}

pub(crate) async fn run(context: &Context, verb: WorkerVerb) -> Result<(), Failure> {
    match verb {
        WorkerVerb::List(list) => {
            let ListOptions { filter, order_by, shown } = list.asked()?;
            let page = address::of_list("workers", &filter, &order_by);
            let request = v1::ListWorkersRequest { filter, order_by, ..Default::default() };
            watch::print(context, shown, request).await?;
            context.link(&page);
            Ok(())
        }
        WorkerVerb::Show(WorkerName { name }) => {
            context.show(v1::GetWorkerRequest { name, ..Default::default() }).await
        }
        WorkerVerb::Delete(WorkerName { name }) => {
            context.delete(v1::DeleteWorkerRequest { name: name.clone() }, &name).await
        }
        WorkerVerb::Cordon(WorkerName { name }) => context.show(v1::CordonWorkerRequest { name }).await,
        WorkerVerb::Uncordon(WorkerName { name }) => context.show(v1::UncordonWorkerRequest { name }).await,
    }
}
