//! `loadmaster worker`.

use clap::Subcommand;
use loadmaster_proto::wire::v1;

use super::help;
use crate::failure::{Failure, options};
use crate::input::parse;
use crate::session::address;
use crate::session::client::workers;
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
            watch::print(context, shown, async |page_size, page_token| {
                let request = v1::ListWorkersRequest {
                    page_size,
                    page_token,
                    filter: filter.clone(),
                    order_by: order_by.clone(),
                };
                context.client.call(request, async |channel, q| workers(channel).list_workers(q).await).await
            })
            .await?;
            context.link(&address::of_list("workers", &filter, &order_by));
            Ok(())
        }
        WorkerVerb::Show { name } => {
            let request = v1::GetWorkerRequest { name };
            let worker =
                context.client.call(request, async |channel, q| workers(channel).get_worker(q).await).await?;
            print(context, &worker)
        }
        WorkerVerb::Delete { name } => {
            let request = v1::DeleteWorkerRequest { name: name.clone() };
            context.client.call(request, async |channel, q| workers(channel).delete_worker(q).await).await?;
            context.remark(&format!("{name} is deleted"));
            Ok(())
        }
        WorkerVerb::Drain { name, undo } => {
            let request = v1::DrainWorkerRequest { name, undo };
            let worker = context
                .client
                .call(request, async |channel, q| workers(channel).drain_worker(q).await)
                .await?;
            print(context, &worker)
        }
    }
}

fn print(context: &Context, worker: &v1::Worker) -> Result<(), Failure> {
    context.output.print(worker)?;
    context.link(&worker.name);
    Ok(())
}
