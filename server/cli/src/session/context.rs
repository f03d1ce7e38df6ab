//! What every client verb works with: the planner's address, the output, and what Ctrl-C leaves
//! behind.

use std::future::Future;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use clap::{ArgAction, Args};
use loadmaster_proto::wire::call::UnaryRequest;
use loadmaster_proto::wire::longrunning::CancelOperationRequest;
use loadmaster_show::Show;
use loadmaster_show::text::terminal_abilities::Look;

use super::client::Client;
use crate::failure::options::OptionTable;
use crate::failure::{Exit, Failure};
use crate::input::parse;
use crate::output::picture_file::PictureFile;
use crate::output::{Format, Output, Target, TargetParser, to_stderr};

/// Where a planner is that was told nothing else.
pub(crate) const USUAL_ADDRESS: &str = "http://127.0.0.1:7433";

/// Longest wait for the cancellation of an operation.
const CANCEL: Duration = Duration::from_secs(5);

/// Options of all client verbs.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Client options")]
pub struct ClientArgs {
    /// Address of the planner: `HOST`, `HOST:PORT` or a URL. The default port is 7433.
    #[arg(
        long,
        global = true,
        env = "LOADMASTER_ADDRESS",
        value_name = "URL",
        default_value = USUAL_ADDRESS,
        display_order = 900
    )]
    address: String,

    /// Format of the output. For pictures, a file that ends with .svg or .html.
    #[arg(short, long, global = true, value_name = "FORMAT", default_value = "table", value_parser = TargetParser,
          display_order = 901)]
    output: Target,

    /// Time limit of one call, for example 30s or 2m. It does not limit the wait for an operation, which takes many calls.
    #[arg(long, global = true, env = "LOADMASTER_TIMEOUT", value_name = "DURATION", default_value = "30s",
          value_parser = parse::duration, display_order = 902)]
    timeout: Duration,

    /// Print only errors on standard error: no progress and no remarks.
    #[arg(short, long, global = true, conflicts_with = "verbose", display_order = 903)]
    quiet: bool,

    /// Print each call and its duration on standard error.
    #[arg(short, long, global = true, action = ArgAction::Count, display_order = 904)]
    verbose: u8,
}

impl ClientArgs {
    /// Refuses an output that a verb does not have: only some draw, and few answer with a model's layers.
    ///
    /// # Errors
    /// Names the verbs that have it.
    pub fn check_output(&self, draws: bool, shows_a_model: bool) -> Result<(), Failure> {
        if let Some(file) = self.picture().filter(|_| !draws) {
            return Failure::usage(format!(
                "--output {}: this command draws no pictures. Use `loadmaster plan show` or `loadmaster plan compare`.",
                file.path().display()
            ));
        }
        if self.lists_layers() && !shows_a_model {
            return Failure::usage(
                "--output layers: this command prints no list of layers. Use `loadmaster model show`, `create` or `import`.",
            );
        }
        Ok(())
    }

    /// Reports a failure on standard error, and says how to exit.
    pub fn end(&self, done: Result<(), Failure>) -> Exit {
        match done {
            Ok(()) => Exit::Ok,
            Err(failure) => failure.report(self.look_of_stderr()),
        }
    }

    pub(crate) fn look_of_stderr(&self) -> Look {
        Look::of(&std::io::stderr())
    }

    pub(crate) fn output(&self, options: OptionTable) -> Output {
        let format = match self.output {
            Target::Print(format) => format,
            Target::Draw(_) | Target::Layers => Format::Table,
        };
        Output { format, look: Look::of(&std::io::stdout()), options }
    }

    /// Where the planner is, as it was typed, and whether calls are reported.
    pub(super) fn planner(&self) -> (&str, bool) {
        (&self.address, self.verbose > 0)
    }

    /// The file that pictures are to be drawn into, if one is named.
    pub(crate) fn picture(&self) -> Option<&PictureFile> {
        match &self.output {
            Target::Print(_) | Target::Layers => None,
            Target::Draw(file) => Some(file),
        }
    }

    /// Whether a model is to be printed as the list of layers that it can be imported from.
    pub(crate) fn lists_layers(&self) -> bool {
        self.output == Target::Layers
    }
}

#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) client: Client,
    pub(crate) output: Output,
    /// The file for pictures; only verbs that draw are run with one.
    pub(crate) picture: Option<PictureFile>,
    /// Print the model as a list of layers; only verbs that can are run so.
    pub(crate) lists_layers: bool,
    pub(crate) quiet: bool,
    left_behind: Mutex<LeftBehind>,
}

/// What goes on at the planner when this program is interrupted.
#[derive(Debug, Clone)]
pub(crate) enum LeftBehind {
    Nothing,
    /// Nothing either: a search ends with the call that waits for it.
    Search,
    /// Perhaps the work of a call whose answer has not arrived.
    Request {
        request_id: String,
    },
    /// A long-running operation.
    Operation {
        name: String,
    },
    /// A search that is an operation: it is cancelled.
    LongSearch {
        name: String,
    },
}

impl Context {
    pub(crate) fn new(args: &ClientArgs, options: OptionTable) -> Result<Self, Failure> {
        Ok(Self {
            client: Client::of(args, args.timeout)?,
            output: args.output(options),
            picture: args.picture().cloned(),
            lists_layers: args.lists_layers(),
            quiet: args.quiet,
            left_behind: Mutex::new(LeftBehind::Nothing),
        })
    }

    /// A remark on standard error, unless these are not wanted.
    pub(crate) fn remark(&self, text: &str) {
        if !self.quiet {
            to_stderr(&format!("{text}\n"));
        }
    }

    /// Says on standard error where a browser finds a resource, or another page by its path, where the planner has pages.
    pub(crate) fn link(&self, path: &str) {
        if let Some(pages) = self.client.pages().filter(|_| self.output.format == Format::Table) {
            self.remark(&format!("page:  {pages}/{}", loadmaster_show::text::plain(path)));
        }
    }

    /// Prints a resource and, unless it is not stored, says where its page is.
    pub(crate) fn print(&self, resource: &impl Show, is_stored: bool) -> Result<(), Failure> {
        self.output.print(resource)?;
        if is_stored {
            resource.names().iter().for_each(|name| self.link(name));
        }
        Ok(())
    }

    /// Prints the resource that a request is answered with, and says where its page is.
    pub(crate) async fn show(&self, request: impl UnaryRequest<Answer: Show>) -> Result<(), Failure> {
        self.print(&self.client.call(request).await?, true)
    }

    /// Deletes what is named.
    pub(crate) async fn delete(
        &self,
        request: impl UnaryRequest<Answer = ()>,
        name: &str,
    ) -> Result<(), Failure> {
        self.client.call(request).await?;
        self.remark(&format!("{name} is deleted"));
        Ok(())
    }

    /// Says what an interruption would leave behind from now on.
    pub(crate) fn leaves(&self, left_behind: LeftBehind) {
        *self.left_behind.lock().unwrap_or_else(PoisonError::into_inner) = left_behind;
    }

    /// Runs a verb until it ends or the user presses Ctrl-C. Dropping the verb's future ends its
    /// calls and clears its progress bar; work at the planner goes on, and the user learns how to
    /// come back to it.
    pub(crate) async fn interruptible(
        &self,
        verb: impl Future<Output = Result<(), Failure>>,
    ) -> Result<(), Failure> {
        let interrupted = {
            let mut verb = Box::pin(verb);
            tokio::select! {
                outcome = &mut verb => return outcome,
                signal = tokio::signal::ctrl_c() => signal,
            }
        };
        interrupted.map_err(|error| anyhow::Error::new(error).context("cannot listen for Ctrl-C"))?;
        let left_behind = self.left_behind.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let LeftBehind::LongSearch { name } = &left_behind {
            let cancel = CancelOperationRequest { name: name.clone() };
            if let Err(status) = self.client.attempt(cancel, CANCEL).await {
                let why = loadmaster_show::text::plain(status.message());
                let text = format!("interrupted; {name} could not be cancelled: {why}\n{}", come_back(name));
                return Err(Failure::Interrupted(text));
            }
        }
        Err(Failure::Interrupted(left_behind.text()))
    }
}

impl LeftBehind {
    fn text(&self) -> String {
        match self {
            Self::Nothing => "interrupted".to_owned(),
            Self::Search => {
                "interrupted: the planner stops the search.\n  to get the best plan found within 2 \
                seconds:  repeat the command with --search-time 2s"
                    .to_owned()
            }
            Self::Request { request_id } => format!(
                "interrupted before the planner responded. The planner may have started the request.\n  to follow this \
                 request without starting it twice:  repeat the command with --request-id {request_id}"
            ),
            Self::LongSearch { name } => format!("interrupted: {name} is cancelled"),
            Self::Operation { name } => format!("detached: {name} continues.\n{}", come_back(name)),
        }
    }
}

/// Commands that return to an operation.
pub(crate) fn come_back(operation: &str) -> String {
    format!(
        "  wait for the operation:  loadmaster operation wait {operation}\n  \
         cancel the operation:    loadmaster operation cancel {operation}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What goes on is named with the command that comes back to it; what ends is said to end.
    #[test]
    fn an_interruption_says_what_goes_on() {
        let operation = LeftBehind::Operation { name: "operations/7f".to_owned() }.text();
        assert!(operation.contains("operations/7f continues"), "{operation}");
        assert!(operation.contains("loadmaster operation wait operations/7f"), "{operation}");
        let request = LeftBehind::Request { request_id: "67e55044".to_owned() }.text();
        assert!(
            request.contains("may have started") && request.contains("--request-id 67e55044"),
            "{request}"
        );
        let search = LeftBehind::Search.text();
        assert!(search.contains("stops the search") && search.contains("--search-time"), "{search}");
    }
}
