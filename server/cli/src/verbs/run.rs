//! `loadmaster run`.

use clap::Subcommand;
use loadmaster_proto::wire::v1;

use super::help;
use crate::failure::{Failure, options};
use crate::input::choice::choice;
use crate::input::parse;
use crate::session::client::profiles;
use crate::session::context::Context;
use crate::session::list::{Asked, ListArgs};
use crate::session::watch;

#[derive(Debug, Subcommand)]
pub(crate) enum RunVerb {
    /// Runs, newest first.
    #[command(after_help = help::RUN_LIST)]
    List {
        /// Only runs of this operation: `operations/ID` or the id alone.
        #[arg(long, value_name = "OPERATION", value_parser = parse::operation)]
        operation: Option<String>,
        /// Only runs in this state.
        #[arg(long, value_parser = choice::<v1::run::State>())]
        state: Option<v1::run::State>,
        #[command(flatten)]
        list: ListArgs,
    },
    /// One run with its failures and measurements.
    #[command(visible_alias = "get", after_help = help::RUN_SHOW)]
    Show {
        /// The run: `runs/ID` or the id alone.
        #[arg(value_parser = parse::run)]
        name: String,
    },
}

impl RunVerb {
    /// The options that fill the fields of its request.
    pub(crate) fn options(&self) -> options::OptionTable {
        match self {
            Self::List { .. } => options::RUN_LIST,
            Self::Show { .. } => options::NAME,
        }
    }
}

pub(crate) async fn run(context: &Context, verb: RunVerb) -> Result<(), Failure> {
    match verb {
        RunVerb::List { operation, state, list } => {
            let Asked { filter, order_by, shown } = list.asked()?;
            let state = state.unwrap_or_default();
            watch::print(context, shown, async |page_size, page_token| {
                let operation = operation.clone().unwrap_or_default();
                let request = v1::ListRunsRequest {
                    page_size,
                    page_token,
                    operation,
                    state: state.into(),
                    filter: filter.clone(),
                    order_by: order_by.clone(),
                };
                context.client.call(request, async |channel, q| profiles(channel).list_runs(q).await).await
            })
            .await
        }
        RunVerb::Show { name } => {
            let request = v1::GetRunRequest { name };
            let run =
                context.client.call(request, async |channel, q| profiles(channel).get_run(q).await).await?;
            context.output.print(&run)
        }
    }
}
