//! `loadmaster run`.

use clap::Subcommand;
use loadmaster_proto::wire::v1;
use loadmaster_show::choice::Choice;

use super::help;
use crate::failure::{Failure, options};
use crate::input::parse;
use crate::input::parse::choice;
use crate::session::context::Context;
use crate::session::list::{ListArgs, ListOptions};
use crate::session::{address, watch};

#[derive(Debug, Subcommand)]
pub(crate) enum RunVerb {
    /// List runs, newest first.
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
    /// Show a run with its failures and measurements.
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
            let ListOptions { filter, order_by, shown } = list.asked()?;
            let state = state.unwrap_or_default();
            let page = page(operation.as_deref(), state, &filter, &order_by);
            let request = v1::ListRunsRequest {
                operation: operation.unwrap_or_default(),
                state: state.into(),
                filter,
                order_by,
                ..Default::default()
            };
            watch::print(context, shown, request).await?;
            context.link(&page);
            Ok(())
        }
        RunVerb::Show { name } => context.show(v1::GetRunRequest { name, ..Default::default() }).await,
    }
}

/// The path of the page that lists the same runs. It has no operation and no state besides its filter.
fn page(operation: Option<&str>, state: v1::run::State, filter: &str, order_by: &str) -> String {
    let operation = operation.map_or("", |name| name.strip_prefix("operations/").unwrap_or(name));
    let state = if state == v1::run::State::Unspecified { String::new() } else { state.word() };
    let filter = address::narrowed(&[("operation", operation), ("state", &state)], filter);
    address::of_list("runs", &filter, order_by)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_that_were_asked_for_have_an_address() {
        assert_eq!(page(None, v1::run::State::Unspecified, "", ""), "runs");
        assert_eq!(
            page(Some("operations/0197"), v1::run::State::OutOfMemory, "attempts > 2", "attempts desc"),
            "runs?filter=operation+%3D+%220197%22+AND+state+%3D+%22out-of-memory%22+AND+attempts+%3E+2\
             &order_by=attempts+desc"
        );
    }
}
