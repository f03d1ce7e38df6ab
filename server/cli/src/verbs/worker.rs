//! `loadmaster worker`.

use clap::Subcommand;
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
    /// Workers that ever connected, newest first.
    #[command(after_help = help::WORKER_LIST)]
    List(ListArgs),
    /// One worker with its devices.
    #[command(visible_alias = "get", after_help = help::WORKER_SHOW)]
    Show {
        /// The worker: `workers/ID` or the id alone.
        #[arg(value_parser = parse::worker)]
        name: String,
    },
    /// Give a worker no more runs; those that it holds end normally.
    #[command(after_help = help::WORKER_DRAIN)]
    Drain {
        /// The worker: `workers/ID` or the id alone.
        #[arg(value_parser = parse::worker)]
        name: String,
        /// Let it take runs again.
        #[arg(long)]
        undo: bool,
    },
    /// Forget a worker that is gone or lost; what it measured stays.
    #[command(after_help = help::WORKER_DELETE)]
    Delete {
        /// The worker: `workers/ID` or the id alone.
        #[arg(value_parser = parse::worker)]
        name: String,
    },
}

impl WorkerVerb {
    /// The options that fill the fields of its request.
    pub(crate) fn options(&self) -> options::OptionTable {
        match self {
            Self::List(_) => options::LIST,
            Self::Show { .. } | Self::Delete { .. } => options::NAME,
            Self::Drain { .. } => options::WORKER_DRAIN,
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
        WorkerVerb::Show { name } => context.show(v1::GetWorkerRequest { name, ..Default::default() }).await,
        WorkerVerb::Delete { name } => {
            context.delete(v1::DeleteWorkerRequest { name: name.clone() }, &name).await
        }
        WorkerVerb::Drain { name, undo } => context.show(v1::DrainWorkerRequest { name, undo }).await,
    }
}
