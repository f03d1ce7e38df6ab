//! The command line of the `loadmaster` program: the planner itself, and the verbs that ask one.

mod completion;
mod help;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::{CommandFactory, Parser, Subcommand};
pub use completion::answer as answer_shell;
use loadmaster_cli::{ClientArgs, Exit, Failure, Verb, hinted, show_version, write_stdout};

use crate::config::{MigrateArgs, ServeArgs};
use crate::serve;

/// Plans how neural networks are trained on many GPUs, from real measurements of their memory.
#[derive(Debug, Parser)]
#[command(name = "loadmaster", version, max_term_width = 110, after_help = help::ROOT)]
pub struct Program {
    #[command(flatten)]
    client: ClientArgs,

    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    #[command(flatten)]
    Ask(Verb),
    #[command(flatten)]
    Own(Own),
}

/// What needs no planner that answers.
#[derive(Debug, Subcommand)]
enum Own {
    // Named here: clap would take the text of the flattened settings instead.
    #[command(about = "Run the planner", long_about = None, after_help = help::SERVE)]
    Serve(Box<ServeArgs>),
    #[command(about = "Migrate the database to this version's schema and exit", long_about = None)]
    #[command(after_help = help::MIGRATE)]
    Migrate(Box<MigrateArgs>),
    /// Show the versions of this program and of the planner.
    #[command(after_help = help::VERSION)]
    Version,
    /// Write the manual pages of this program and of all its verbs into a folder.
    #[command(after_help = help::MAN)]
    Man {
        /// The folder, which is made where it is not there.
        #[arg(long, value_name = "DIR")]
        to: PathBuf,
    },
    /// Print a script that lets a shell complete verbs, options and the planner's names.
    #[command(after_help = help::COMPLETION)]
    Completion {
        /// The shell.
        shell: clap_complete::Shell,
    },
}

impl Program {
    /// Reads the command line. Ends the process where it is wrong, or asks for help.
    #[must_use]
    pub fn read() -> Self {
        let words: Vec<String> =
            std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
        Self::try_parse().unwrap_or_else(|error| hinted(error, &words).exit())
    }

    /// Does what the command line says, reports a failure on standard error, and says how to exit.
    pub async fn run(self) -> Exit {
        match self.command {
            Command::Ask(verb) => verb.run(&self.client).await,
            Command::Own(own) => {
                let done = Box::pin(own.run(&self.client)).await;
                self.client.end(done)
            }
        }
    }
}

impl Own {
    async fn run(self, client: &ClientArgs) -> Result<(), Failure> {
        client.check_output(false, false)?;
        match self {
            Self::Serve(args) => {
                args.check().map_err(|error| Failure::Usage(format!("{error:#}")))?;
                Ok(serve::run(*args).await?)
            }
            Self::Migrate(args) => Ok(serve::migrate(*args).await?),
            Self::Version => show_version(client).await,
            Self::Man { to } => write_manual(&to),
            Self::Completion { shell } => complete(shell),
        }
    }
}

/// A page for each verb: `man loadmaster-plan-recommend`.
fn write_manual(folder: &Path) -> Result<(), Failure> {
    let write = || {
        std::fs::create_dir_all(folder)?;
        clap_mangen::generate_to(Program::command(), folder)
    };
    Ok(write().with_context(|| format!("cannot write manual pages into {}", folder.display()))?)
}

fn complete(shell: clap_complete::Shell) -> Result<(), Failure> {
    let script = completion::script(shell).context("the completion script cannot be written")?;
    write_stdout(&script)
}
