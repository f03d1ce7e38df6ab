//! The verbs, a file or a folder per noun.

mod cluster;
mod help;
mod hints;
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

use std::collections::BTreeSet;
use std::path::Path;

use clap::parser::ValueSource;
use clap::{ArgMatches, Command, FromArgMatches, Subcommand};

use crate::failure::options::{self, OptionTable};
use crate::failure::{Exit, Failure};
use crate::input::parse::other_words;
use crate::session::context::{ClientArgs, Context};
pub use hints::hinted;

/// A verb that asks a planner, as it was typed.
#[derive(Debug)]
pub struct Verb {
    noun: Noun,
    /// The options that were typed.
    typed: BTreeSet<String>,
}

/// The verbs, by what they are about.
#[derive(Debug, Subcommand)]
enum Noun {
    /// The same as `plan recommend`: the best plan for a profile on devices or a cluster.
    #[command(after_help = help::PLAN_RECOMMEND_SHORT, allow_negative_numbers = true,
              after_long_help = options::with_exclusions(help::PLAN_RECOMMEND, options::PLAN_RECOMMEND))]
    Recommend(Box<plan::Recommend>),
    /// The same as `plan predict`: the memory and the time of a pipeline or a plan.
    #[command(after_help = help::PLAN_PREDICT_SHORT, after_long_help = help::PLAN_PREDICT, allow_negative_numbers = true)]
    Predict(Box<plan::Predict>),
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

/// Gives nouns and verbs the words of other tools as hidden aliases.
fn with_aliases(command: Command) -> Command {
    command.mut_subcommands(|below| {
        let known: Vec<String> = below.get_all_aliases().map(str::to_owned).collect();
        let others = other_words(below.get_name()).filter(|word| !known.iter().any(|of| of == word));
        with_aliases(below.aliases(others))
    })
}

// As derived for `Noun`, which stays private with its verbs and their options.
impl Subcommand for Verb {
    fn augment_subcommands(command: Command) -> Command {
        with_aliases(Noun::augment_subcommands(command))
    }

    fn augment_subcommands_for_update(command: Command) -> Command {
        with_aliases(Noun::augment_subcommands_for_update(command))
    }

    fn has_subcommand(name: &str) -> bool {
        Noun::has_subcommand(name)
    }
}

impl FromArgMatches for Verb {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut verb = matches;
        while let Some((_, below)) = verb.subcommand() {
            verb = below;
        }
        let is_typed = |id: &clap::Id| verb.value_source(id.as_str()) == Some(ValueSource::CommandLine);
        let option = |id: &clap::Id| format!("--{}", id.as_str().replace('_', "-"));
        let typed = verb.ids().filter(|id| is_typed(id)).map(option).collect();
        let noun = match Noun::from_arg_matches(matches)? {
            Noun::Recommend(recommend) => Noun::Plan(plan::PlanVerb::Recommend(recommend)),
            Noun::Predict(predict) => Noun::Plan(plan::PlanVerb::Predict(predict)),
            noun => noun,
        };
        Ok(Self { noun, typed })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.noun.update_from_arg_matches(matches)
    }
}

impl Verb {
    /// Does what the command line says, reports a failure on standard error, and says how to exit.
    pub async fn run(self, client: &ClientArgs) -> Exit {
        let Self { noun, typed } = self;
        let options = noun.options();
        let document = noun.document().map(Path::to_owned);
        let request = noun.request_file().map(|path| (path.to_owned(), typed));
        let done = match client.check_output(noun.draws(), noun.shows_a_model()) {
            Ok(()) => Box::pin(noun.ask(client, options)).await,
            Err(failure) => Err(failure),
        };
        client.end(done.map_err(|failure| failure.in_options(options, document.as_deref(), request.as_ref())))
    }
}

impl Noun {
    async fn ask(self, client: &ClientArgs, options: OptionTable) -> Result<(), Failure> {
        let context = Context::new(client, options)?;
        match self {
            Self::Profile(verb) => context.interruptible(profile::run(&context, verb)).await,
            Self::Recommend(verb) => Box::pin(context.interruptible(verb.run(&context))).await,
            Self::Predict(verb) => Box::pin(context.interruptible(verb.run(&context))).await,
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
    fn document(&self) -> Option<&Path> {
        match self {
            Self::Profile(verb) => verb.document(),
            Self::Model(verb) => verb.document(),
            Self::Cluster(verb) => verb.document(),
            _ => None,
        }
    }

    /// The file whose fields its options replace, if one is given.
    fn request_file(&self) -> Option<&Path> {
        if let Self::Plan(verb) = self { verb.request_file() } else { None }
    }

    /// The options that fill the fields of its request.
    fn options(&self) -> options::OptionTable {
        match self {
            Self::Profile(verb) => verb.options(),
            Self::Recommend(verb) => verb.options(),
            Self::Predict(verb) => verb.options(),
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

    /// Nouns and verbs of other tools.
    #[test]
    fn other_words_are_aliases() {
        #[derive(Debug, Parser)]
        struct Words {
            #[command(flatten)]
            client: ClientArgs,
            #[command(subcommand)]
            verb: Verb,
        }
        for (theirs, ours) in [
            ("recommend --profile p --gpus 8xH100", "plan recommend --profile p --gpus 8xH100"),
            ("predict --plan a", "plan predict --plan a"),
            ("plans ls", "plan list"),
            ("profiles list", "profile list"),
            ("models describe m", "model show m"),
            ("clusters get c", "cluster show c"),
            ("workers view w", "worker show w"),
            ("runs get r", "run show r"),
            ("operations ls", "operation list"),
            ("plan rm a", "plan delete a"),
            ("plan describe a", "plan show a"),
        ] {
            let parsed = |line: &str| {
                let words = Words::try_parse_from(format!("loadmaster {line}").split(' '));
                format!("{:?}", words.unwrap_or_else(|error| panic!("{line}: {error}")).verb.noun)
            };
            assert_eq!(parsed(theirs), parsed(ours));
        }
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
        assert!(draws("loadmaster plan compare 7f3c 8a4d -o plan.html --overwrite"));
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
