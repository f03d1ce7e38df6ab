//! `loadmaster operation`.

use clap::Subcommand;
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
    /// Operations, newest first.
    #[command(after_help = help::OPERATION_LIST)]
    List(ListArgs),
    /// One operation as it stands now.
    #[command(visible_alias = "get", after_help = help::OPERATION_SHOW)]
    Show {
        /// The operation: `operations/ID` or the id alone.
        #[arg(value_parser = parse::operation)]
        name: String,
    },
    /// Wait for the end of an operation and print what it made.
    #[command(after_help = help::OPERATION_WAIT)]
    Wait {
        /// The operation: `operations/ID` or the id alone.
        #[arg(value_parser = parse::operation)]
        name: String,
        #[command(flatten)]
        limit: WaitLimit,
    },
    /// Stop an operation; its runs end, what they measured stays.
    #[command(after_help = help::OPERATION_CANCEL)]
    Cancel {
        /// The operation: `operations/ID` or the id alone.
        #[arg(value_parser = parse::operation)]
        name: String,
    },
    /// Forget an operation that is done; what it made stays.
    #[command(after_help = help::OPERATION_DELETE)]
    Delete {
        /// The operation: `operations/ID` or the id alone.
        #[arg(value_parser = parse::operation)]
        name: String,
    },
}

impl OperationVerb {
    /// The options that fill the fields of its request.
    pub(crate) fn options(&self) -> options::OptionTable {
        match self {
            Self::List(_) => options::LIST,
            Self::Show { .. } | Self::Wait { .. } | Self::Cancel { .. } | Self::Delete { .. } => {
                options::NAME
            }
        }
    }
}

pub(crate) async fn run(context: &Context, verb: OperationVerb) -> Result<(), Failure> {
    match verb {
        OperationVerb::List(list) => {
            let ListOptions { filter, order_by, shown } = list.asked()?;
            if !order_by.is_empty() {
                return Err(Failure::Usage(
                    "--order-by: operations have one order, the newest first: the standard request has no field for another"
                        .to_owned(),
                ));
            }
            let page = address::of_list("operations", &filter, "");
            let request =
                ListOperationsRequest { name: "operations".to_owned(), filter, ..Default::default() };
            watch::print(context, shown, request).await?;
            context.link(&page);
            Ok(())
        }
        OperationVerb::Show { name } => context.show(GetOperationRequest { name }).await,
        OperationVerb::Wait { name, limit } => {
            context.leaves(LeftBehind::Operation { name: name.clone() });
            let operation = context.client.call(GetOperationRequest { name }).await?;
            follow::to_result(context, operation, limit).await
        }
        OperationVerb::Cancel { name } => {
            context.client.call(CancelOperationRequest { name: name.clone() }).await?;
            context.show(GetOperationRequest { name }).await
        }
        OperationVerb::Delete { name } => {
            context.delete(DeleteOperationRequest { name: name.clone() }, &name).await
        }
    }
}
