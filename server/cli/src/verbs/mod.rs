//! The verbs, a file or a folder per noun.

mod cluster;
mod help;
mod history;
mod model;
mod operation;
mod plan;
mod profile;
mod run;
mod slurm;
mod status;
pub(crate) mod version;
mod worker;

use clap::{ArgMatches, FromArgMatches, Subcommand};

use crate::failure::{Exit, Failure, options};
use crate::session::context::{ClientArgs, Context};

/// A verb that asks a planner, as it was typed.
#[derive(Debug)]
pub struct Verb(Noun);

/// The verbs, by what they are about.
#[derive(Debug, Subcommand)]
enum Noun {
    /// Measure models by training pieces of them.
    #[command(subcommand)]
    Profile(profile::ProfileVerb),
    /// Recommend plans and check them by training.
    #[command(subcommand)]
    Plan(plan::PlanVerb),
    /// Store and show models.
    #[command(subcommand)]
    Model(model::ModelVerb),
    /// Describe, discover and measure clusters: nodes, devices and links.
    #[command(subcommand)]
    Cluster(cluster::ClusterVerb),
    /// Run plans as Slurm's jobs: what to ask for, and who is which rank.
    #[command(subcommand)]
    Slurm(slurm::SlurmVerb),
    /// Look at the single runs that profiles and validations are made of.
    #[command(subcommand)]
    Run(run::RunVerb),
    /// List, cordon and delete the daemons on the nodes with devices.
    #[command(subcommand)]
    Worker(worker::WorkerVerb),
    /// Delete old resources that nothing references.
    #[command(subcommand)]
    History(history::HistoryVerb),
    /// Watch, await and cancel slow work.
    #[command(subcommand)]
    Operation(operation::OperationVerb),
    /// Show the planner: its version, workers, running operations and newest failures.
    #[command(after_help = help::STATUS)]
    Status,
}

// As derived for `Noun`, whose verbs and their options are nobody else's business.
impl Subcommand for Verb {
    fn augment_subcommands(command: clap::Command) -> clap::Command {
        Noun::augment_subcommands(command)
    }

    fn augment_subcommands_for_update(command: clap::Command) -> clap::Command {
        Noun::augment_subcommands_for_update(command)
    }

    fn has_subcommand(name: &str) -> bool {
        Noun::has_subcommand(name)
    }
}

impl FromArgMatches for Verb {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        Noun::from_arg_matches(matches).map(Self)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.0.update_from_arg_matches(matches)
    }
}

impl Verb {
    /// Does what the command line says, reports a failure on standard error, and says how to exit.
    pub async fn run(self, client: &ClientArgs) -> Exit {
        let Self(noun) = self;
        let options = noun.options();
        let document = noun.document().map(std::path::Path::to_owned);
        let done = match client.check_output(noun.draws(), noun.shows_a_model()) {
            Ok(()) => Box::pin(noun.ask(client)).await,
            Err(failure) => Err(failure),
        };
        client.end(done.map_err(|failure| failure.in_options(options, document.as_deref())))
    }
}

impl Noun {
    async fn ask(self, client: &ClientArgs) -> Result<(), Failure> {
        let context = Context::new(client)?;
        match self {
            Self::Profile(verb) => context.interruptible(profile::run(&context, verb)).await,
            Self::Plan(verb) => Box::pin(context.interruptible(plan::run(&context, verb))).await,
            Self::Model(verb) => context.interruptible(model::run(&context, verb)).await,
            Self::Cluster(verb) => context.interruptible(cluster::run(&context, verb)).await,
            Self::Slurm(verb) => context.interruptible(slurm::run(&context, verb)).await,
            Self::Run(verb) => context.interruptible(run::run(&context, verb)).await,
            Self::Worker(verb) => context.interruptible(worker::run(&context, verb)).await,
            Self::History(verb) => context.interruptible(history::run(&context, verb)).await,
            Self::Operation(verb) => context.interruptible(operation::run(&context, verb)).await,
            Self::Status => context.interruptible(status::run(&context)).await,
        }
    }

    /// Whether it can draw into a file.
    fn draws(&self) -> bool {
        matches!(self, Self::Plan(verb) if verb.draws())
    }

    /// Whether its answer is one model with its layers.
    fn shows_a_model(&self) -> bool {
        matches!(self, Self::Model(verb) if verb.shows_a_model())
    }

    /// The file that its request carries, where a positional argument names it.
    fn document(&self) -> Option<&std::path::Path> {
        match self {
            Self::Profile(verb) => verb.document(),
            Self::Model(verb) => verb.document(),
            Self::Cluster(verb) => verb.document(),
            _ => None,
        }
    }

    /// The options that fill the fields of its request.
    fn options(&self) -> options::OptionTable {
        match self {
            Self::Profile(verb) => verb.options(),
            Self::Plan(verb) => verb.options(),
            Self::Model(verb) => verb.options(),
            Self::Cluster(verb) => verb.options(),
            Self::Slurm(verb) => verb.options(),
            Self::Run(verb) => verb.options(),
            Self::Worker(verb) => verb.options(),
            Self::History(verb) => verb.options(),
            Self::Operation(verb) => verb.options(),
            Self::Status => &[],
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use clap::Parser;

    use super::*;

    /// A command line of client verbs alone.
    #[derive(Debug, Parser)]
    pub(crate) struct Cli {
        #[command(flatten)]
        client: ClientArgs,
        #[command(subcommand)]
        noun: Noun,
    }

    #[derive(Debug, Parser)]
    struct Line<A: clap::Args> {
        #[command(flatten)]
        options: A,
    }

    /// The options of a part of a command line.
    pub(crate) fn parsed<A: clap::Args>(line: &str) -> Result<A, clap::Error> {
        Line::try_parse_from(["x"].into_iter().chain(line.split_whitespace())).map(|line| line.options)
    }

    /// A file for pictures is an output of verbs that draw, and of no others.
    #[test]
    fn only_verbs_that_draw_take_a_file() {
        let draws = |line: &str| {
            let cli = Cli::try_parse_from(line.split(' ')).unwrap();
            cli.client.picture().is_some() && cli.noun.draws()
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
            cli.client.lists_layers() && cli.noun.shows_a_model()
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
