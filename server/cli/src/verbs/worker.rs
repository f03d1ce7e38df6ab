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
    /// Give a worker no more runs. Its current runs end normally.
    #[command(visible_alias = "drain", after_help = help::WORKER_CORDON)]
    Cordon {
        /// The worker: `workers/ID` or the id alone.
        #[arg(value_parser = parse::worker)]
        name: String,
        /// What `worker uncordon` does.
        #[arg(long, hide = true)]
        undo: bool,
    },
    /// Let a cordoned worker take runs again.
    #[command(after_help = help::WORKER_UNCORDON)]
    Uncordon {
        /// The worker: `workers/ID` or the id alone.
        #[arg(value_parser = parse::worker)]
        name: String,
    },
    /// Delete a worker that is gone or lost. Its measurements stay.
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
            Self::Show { .. } | Self::Cordon { .. } | Self::Uncordon { .. } | Self::Delete { .. } => {
                options::NAME
            }
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
        WorkerVerb::Cordon { undo: true, .. } => {
            Err(Failure::Usage("--undo does not exist: use `loadmaster worker uncordon NAME`".to_owned()))
        }
        WorkerVerb::Cordon { name, undo: false } => context.show(v1::CordonWorkerRequest { name }).await,
        WorkerVerb::Uncordon { name } => context.show(v1::UncordonWorkerRequest { name }).await,
    }
}
