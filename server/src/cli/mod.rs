//! The verbs of the `loadmaster` program.
//!
//! The shape is `loadmaster NOUN VERB`, with one file per noun. Around them:
//!
//! * `client`: the channel, deadlines and retries of every call.
//! * `follow`: waits for long-running operations; `progress` shows how far they are.
//! * `output`: a message as a table, JSON, YAML or names, on standard output.
//! * `table`: pure functions from messages to text; `picture`: from messages to pictures.
//! * `error`: what a failure prints on standard error, and the exit code that it maps to.
//!
//! Data goes to standard output, everything else to standard error.

mod campaign;
mod client;
mod cluster;
mod context;
mod document;
mod error;
mod file;
mod follow;
mod help;
mod look;
mod model;
mod next;
mod operation;
mod options;
mod output;
mod page;
mod parse;
mod picture;
mod plan;
mod profile;
mod progress;
mod run;
mod show;
mod table;
mod target;
mod text;
mod training;
mod version;
mod worker;

use clap::{CommandFactory, Parser, Subcommand};

use crate::config::{MigrateArgs, ServeArgs};
pub use context::ClientArgs;
use context::Context;
use error::Failure;
pub use error::{Exit, report_startup};

/// Plans how neural networks are trained on many GPUs, from real measurements of their memory.
#[derive(Debug, Parser)]
#[command(name = "loadmaster", version, max_term_width = 110, after_help = help::ROOT)]
pub struct Cli {
    #[command(flatten)]
    client: ClientArgs,

    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Measure models by training pieces of them.
    #[command(subcommand)]
    Profile(profile::Verb),
    /// Recommend plans and check them by training.
    #[command(subcommand)]
    Plan(plan::Verb),
    /// Store and show models.
    #[command(subcommand)]
    Model(model::Verb),
    /// Describe, discover and measure clusters: nodes, devices and links.
    #[command(subcommand)]
    Cluster(cluster::Verb),
    /// Look at the single runs that profiles and validations are made of.
    #[command(subcommand)]
    Run(run::Verb),
    /// See, drain and forget the daemons that have the devices.
    #[command(subcommand)]
    Worker(worker::Verb),
    /// Watch, await and cancel slow work.
    #[command(subcommand)]
    Operation(operation::Verb),
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

impl Command {
    /// Whether it can draw into a file.
    fn draws(&self) -> bool {
        matches!(self, Self::Plan(verb) if verb.draws())
    }

    /// The options that fill the fields of its request.
    fn options(&self) -> options::Table {
        match self {
            Self::Profile(verb) => verb.options(),
            Self::Plan(verb) => verb.options(),
            Self::Model(verb) => verb.options(),
            Self::Cluster(verb) => verb.options(),
            Self::Run(verb) => verb.options(),
            Self::Worker(verb) => verb.options(),
            Self::Operation(_)
            | Self::Serve(_)
            | Self::Migrate(_)
            | Self::Version
            | Self::Completion { .. } => &[],
        }
    }

    /// Whether its answer is one model with its layers.
    fn shows_a_model(&self) -> bool {
        matches!(self, Self::Model(verb) if verb.shows_a_model())
    }
}

impl Cli {
    /// Does what the command line says, reports a failure on standard error, and says how to exit.
    pub async fn run(self) -> Exit {
        let look = self.client.look_of_stderr();
        let options = self.command.options();
        match Box::pin(self.dispatch()).await {
            Ok(()) => Exit::Ok,
            Err(failure) => failure.in_options(options).report(look),
        }
    }

    async fn dispatch(self) -> Result<(), Failure> {
        if let Some(file) = self.client.picture().filter(|_| !self.command.draws()) {
            return Err(Failure::Usage(format!(
                "--output {}: pictures are drawn by `loadmaster plan show` and `loadmaster plan compare`",
                file.path().display()
            )));
        }
        if self.client.lists_layers() && !self.command.shows_a_model() {
            return Err(Failure::Usage(
                "--output layers: lists of layers are printed by `loadmaster model show`, `create` and `import`"
                    .to_owned(),
            ));
        }
        match self.command {
            Command::Serve(args) => Ok(crate::serve::run(*args).await?),
            Command::Migrate(args) => Ok(crate::serve::migrate(*args).await?),
            Command::Completion { shell } => completion(shell),
            Command::Version => version::show(&self.client),
            Command::Profile(verb) => {
                let context = Context::new(&self.client)?;
                context.interruptible(profile::run(&context, verb)).await
            }
            Command::Plan(verb) => {
                let context = Context::new(&self.client)?;
                context.interruptible(plan::run(&context, verb)).await
            }
            Command::Model(verb) => {
                let context = Context::new(&self.client)?;
                context.interruptible(model::run(&context, verb)).await
            }
            Command::Cluster(verb) => {
                let context = Context::new(&self.client)?;
                context.interruptible(cluster::run(&context, verb)).await
            }
            Command::Run(verb) => {
                let context = Context::new(&self.client)?;
                context.interruptible(run::run(&context, verb)).await
            }
            Command::Worker(verb) => {
                let context = Context::new(&self.client)?;
                context.interruptible(worker::run(&context, verb)).await
            }
            Command::Operation(verb) => {
                let context = Context::new(&self.client)?;
                context.interruptible(operation::run(&context, verb)).await
            }
        }
    }
}

fn completion(shell: clap_complete::Shell) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "loadmaster", &mut script);
    output::write_stdout(&script)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_verb_teaches_by_example() {
        fn check(command: &clap::Command) {
            let leaf = command.get_subcommands().next().is_none();
            assert!(
                !leaf || command.get_name() == "help" || command.get_after_help().is_some(),
                "`{}` has no examples",
                command.get_name()
            );
            command.get_subcommands().for_each(check);
        }
        check(&Cli::command());
    }

    /// A file for pictures is an output of verbs that draw, and of no others.
    #[test]
    fn only_verbs_that_draw_take_a_file() {
        let draws = |line: &str| {
            let cli = Cli::try_parse_from(line.split(' ')).unwrap();
            cli.client.picture().is_some() && cli.command.draws()
        };
        assert!(draws("loadmaster plan show 7f3c --picture=memory,front --output plan.svg"));
        assert!(draws("loadmaster plan compare 7f3c 8a4d -o plan.html --force"));
        assert!(!draws("loadmaster plan list -o plan.svg"));
        assert!(!draws("loadmaster plan show 7f3c -o json"));
        assert!(Cli::try_parse_from("loadmaster plan show 7f3c -o plan.png".split(' ')).is_err());
    }

    /// A list of layers is an output of verbs that answer with one model.
    #[test]
    fn only_verbs_that_show_a_model_list_its_layers() {
        let lists = |line: &str| {
            let cli = Cli::try_parse_from(line.split(' ')).unwrap();
            cli.client.lists_layers() && cli.command.shows_a_model()
        };
        assert!(lists("loadmaster model show vgg11-1f3a -o layers"));
        assert!(lists("loadmaster model import config.json --dry-run -o layers"));
        assert!(!lists("loadmaster model list -o layers"));
        assert!(!lists("loadmaster plan show 7f3c -o layers"));
    }

    #[test]
    fn client_options_stand_before_or_after_the_verb() {
        for line in ["loadmaster -o json plan list", "loadmaster plan list -o json"] {
            assert!(Cli::try_parse_from(line.split(' ')).is_ok(), "{line}");
        }
    }
}
