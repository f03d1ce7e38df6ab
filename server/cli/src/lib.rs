//! The client verbs of the `loadmaster` program: they know the wire alone.
//!
//! The shape is `loadmaster NOUN VERB`. The rooms, each of which sees only those below it:
//!
//! * `completion`: the names that a shell offers for arguments of verbs.
//! * `verbs`: a file or a folder per noun, with its options and what it asks for.
//! * `session`: what verbs work with: the channel, deadlines and retries of every call; pages of lists; waiting for
//!   long-running operations, and how far they are.
//! * `output`: where a message goes: standard output in a format, or a file of pictures. What it looks like is
//!   `loadmaster_show`'s.
//! * `input`: values of the command line and files as parts of requests.
//! * `failure`: what a failure prints on standard error, and the exit code that it maps to.
//!
//! Data goes to standard output, everything else to standard error.

mod completion;
mod failure;
mod input;
mod output;
mod session;
mod verbs;

pub use completion::with_names;
pub use failure::{Exit, Failure, report_startup};
pub use input::parse::{age, duration};
pub use output::write_stdout;
pub use session::context::ClientArgs;
pub use verbs::version::show as show_version;
pub use verbs::{Verb, hinted};
