//! The command line of the `loadmaster` program: the planner itself, and the verbs that ask one.

mod help;
#[cfg(test)]
mod tests;

use clap::{CommandFactory, Parser, Subcommand};
use loadmaster_cli::{ClientArgs, Exit, Failure, Verb, show_version, write_stdout};

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
    #[command(about = "Bring the database to this version's schema and exit", long_about = None)]
    #[command(after_help = help::MIGRATE)]
    Migrate(Box<MigrateArgs>),
    /// Show the versions of this program.
    #[command(after_help = help::VERSION)]
    Version,
    /// Print a completion script for a shell.
    #[command(after_help = help::COMPLETION)]
    Completion {
        /// The shell.
        shell: clap_complete::Shell,
    },
}

impl Program {
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
            Self::Serve(args) => Ok(serve::run(*args).await?),
            Self::Migrate(args) => Ok(serve::migrate(*args).await?),
            Self::Version => show_version(client),
            Self::Completion { shell } => complete(shell),
        }
    }
}

fn complete(shell: clap_complete::Shell) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Program::command(), "loadmaster", &mut script);
    write_stdout(&script)
}
