//! `loadmaster operation`.

use clap::{Args, Subcommand};
use loadmaster_proto::wire::longrunning::{
    CancelOperationRequest, DeleteOperationRequest, GetOperationRequest, ListOperationsRequest,
};

use super::help;
use crate::failure::{Failure, options};
use crate::input::parse;
use crate::session::address;
use crate::session::context::{Context, LeftBehind};
use crate::session::follow::{self, WaitLimit};
use crate::session::list::{ListArgs, ListOptions};
use crate::session::watch;

#[derive(Debug, Subcommand)]
pub(crate) enum OperationVerb {
    /// List operations, newest first.
    #[command(after_help = help::OPERATION_LIST)]
    List(ListArgs),
    /// Show an operation as it is now.
    #[command(visible_alias = "get", after_help = help::OPERATION_SHOW)]
    Show(OperationName),
    /// Wait for the end of an operation, and print its result.
    #[command(after_help = help::OPERATION_WAIT)]
    Wait {
        /// The operation: `operations/ID` or the id alone.
        #[arg(value_parser = parse::operation)]
        name: String,
        #[command(flatten)]
        limit: WaitLimit,
    },
    /// Cancel an operation. Its runs end; their measurements stay.
    #[command(after_help = help::OPERATION_CANCEL)]
    Cancel(OperationName),
    /// Delete an operation that is done. Its result stays.
    #[command(after_help = help::OPERATION_DELETE)]
    Delete(OperationName),
}

/// The name of an operation.
#[derive(Debug, Args)]
pub(crate) struct OperationName {
    /// The operation: `operations/ID` or the id alone.
    #[arg(value_parser = parse::operation)]
    name: String,
}

impl OperationVerb {
    /// The options that fill the fields of its request.
    pub(crate) fn options(&self) -> options::OptionTable {
        match self {
            Self::List(_) => options::LIST,
            Self::Show(_) | Self::Wait { .. } | Self::Cancel(_) | Self::Delete(_) => options::NAME,
        }
    }
}

pub(crate) async fn run(context: &Context, verb: OperationVerb) -> Result<(), Failure> {
    match verb {
        OperationVerb::List(list) => {
            let ListOptions { filter, order_by, shown } = list.asked()?;
            if !order_by.is_empty() {
                return Failure::usage(
                    "--order-by: operations are always listed newest first. Leave --order-by out.",
                );
            }
            let page = address::of_list("operations", &filter, "");
            let request =
                ListOperationsRequest { name: "operations".to_owned(), filter, ..Default::default() };
            watch::print(context, shown, request).await?;
            context.link(&page);
            Ok(())
        }
        OperationVerb::Show(OperationName { name }) => context.show(GetOperationRequest { name }).await,
        OperationVerb::Wait { name, limit } => {
            context.leaves(LeftBehind::Operation { name: name.clone() });
            let operation = context.client.call(GetOperationRequest { name }).await?;
            follow::to_result(context, operation, limit).await
        }
        OperationVerb::Cancel(OperationName { name }) => {
            context.client.call(CancelOperationRequest { name: name.clone() }).await?;
            context.show(GetOperationRequest { name }).await
        }
        OperationVerb::Delete(OperationName { name }) => {
            context.delete(DeleteOperationRequest { name: name.clone() }, &name).await
        }
    }
}
