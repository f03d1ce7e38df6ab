//! Names of the planner's resources, offered after Tab: `loadmaster plan show 7f<Tab>`.

mod ask;

use std::ffi::OsStr;

use clap::{Arg, Command};
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate, PathCompleter, ValueCompleter};
use loadmaster_proto::model::zoo::FAMILIES;

use ask::{Collection, Found};

/// What an argument takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Takes {
    /// A name.
    Name(Collection),
    /// The name of a profile, or the path of a document.
    ProfileOrFile,
    /// A family of the zoo, or the name of a model.
    Model,
    /// A plan's name, or a placement's.
    PlanOrPlacement,
}

/// Which arguments of which verbs take names: the beginning of the verb, the argument's id, what it takes. The first row counts.
const NAMED: &[(&str, &str, Takes)] = &[
    ("plan placements", "name", Takes::PlanOrPlacement),
    ("plan delete", "name", Takes::PlanOrPlacement),
    ("plan export", "placement", Takes::Name(Collection::Placements)),
    ("plan export", "framework", Takes::Name(Collection::Frameworks)),
    ("plan recommend", "framework", Takes::Name(Collection::Frameworks)),
    ("slurm", "framework", Takes::Name(Collection::Frameworks)),
    ("plan predict", "profile", Takes::ProfileOrFile),
    ("plan recommend", "profile", Takes::ProfileOrFile),
    ("plan", "other_profiles", Takes::Name(Collection::Profiles)),
    ("plan", "cluster", Takes::Name(Collection::Clusters)),
    ("slurm", "cluster", Takes::Name(Collection::Clusters)),
    ("plan", "plan", Takes::Name(Collection::Plans)),
    ("plan", "name", Takes::Name(Collection::Plans)),
    ("plan", "names", Takes::Name(Collection::Plans)),
    ("slurm", "name", Takes::Name(Collection::Plans)),
    ("profile", "name", Takes::Name(Collection::Profiles)),
    ("profile run", "model", Takes::Model),
    ("model create", "model", Takes::Model),
    ("model chunks", "model", Takes::Model),
    ("model", "name", Takes::Name(Collection::Models)),
    ("cluster", "name", Takes::Name(Collection::Clusters)),
    ("cluster", "worker", Takes::Name(Collection::Workers)),
    ("cluster", "workers", Takes::Name(Collection::Workers)),
    ("run", "operation", Takes::Name(Collection::Operations)),
    ("run", "name", Takes::Name(Collection::Runs)),
    ("worker", "name", Takes::Name(Collection::Workers)),
    ("operation", "name", Takes::Name(Collection::Operations)),
];

/// The command line with the names that a shell may offer. A completion requests them from the planner, with a short time limit,
/// and shows no failure.
#[must_use]
pub fn with_names(program: Command) -> Command {
    named(program, "")
}

fn named(command: Command, verb: &str) -> Command {
    command
        .mut_args(|arg| match takes(verb, arg.get_id().as_str()) {
            Some(takes) => with_completer(arg, takes),
            None => arg,
        })
        .mut_subcommands(|below| {
            // Both are verbs of plans at the top, too.
            let is_of_plans = verb.is_empty() && matches!(below.get_name(), "recommend" | "predict");
            let verb = format!("{} {}", if is_of_plans { "plan" } else { verb }, below.get_name());
            named(below, verb.trim_start())
        })
}

fn takes(verb: &str, id: &str) -> Option<Takes> {
    let is_of = |of: &str| verb.strip_prefix(of).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '));
    NAMED.iter().find(|(of, named, _)| *named == id && is_of(of)).map(|(_, _, takes)| *takes)
}

fn with_completer(arg: Arg, takes: Takes) -> Arg {
    arg.add(ArgValueCompleter::new(move |typed: &OsStr| offers(takes, typed)))
}

fn offers(takes: Takes, typed: &OsStr) -> Vec<CompletionCandidate> {
    match takes {
        Takes::Name(of) => names(&[of], typed),
        Takes::PlanOrPlacement => names(&[Collection::Plans, Collection::Placements], typed),
        Takes::Model => {
            let typed_bytes = typed.as_encoded_bytes();
            let families = FAMILIES.iter().filter(|family| family.as_bytes().starts_with(typed_bytes));
            both(families.map(CompletionCandidate::new).collect(), names(&[Collection::Models], typed))
        }
        Takes::ProfileOrFile => {
            let documents =
                PathCompleter::file().filter(|path| path.extension().is_some_and(|end| end == "json"));
            // Before anything is typed, files of the folder would only stand between the names.
            let files = if typed.is_empty() { Vec::new() } else { documents.complete(typed) };
            both(names(&[Collection::Profiles], typed), files)
        }
    }
}

fn both(mut some: Vec<CompletionCandidate>, others: Vec<CompletionCandidate>) -> Vec<CompletionCandidate> {
    some.extend(others);
    some
}

/// Names of the planner that begin so, written as they were begun: in full, or as ids alone.
fn names(of: &[Collection], typed: &OsStr) -> Vec<CompletionCandidate> {
    let Some(typed) = typed.to_str() else {
        return Vec::new();
    };
    let candidate = |Found { name, about }| {
        let about = Some(about).filter(|about| !about.is_empty());
        CompletionCandidate::new(name).help(about.map(Into::into))
    };
    let found: Vec<_> = ask::now(of, typed).into_iter().map(candidate).collect();
    if !found.is_empty() || typed.is_empty() {
        return found;
    }
    // `pla` begins no id of a plan, but all full names.
    let prefixes = of.iter().map(|of| of.prefix()).filter(|prefix| prefix.starts_with(typed));
    prefixes.map(CompletionCandidate::new).collect()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::verbs::tests::Cli;

    /// All arguments of all verbs: the verb, and the argument.
    fn arguments(command: &Command, verb: &str) -> Vec<(String, Arg)> {
        let own = command.get_arguments().filter(|arg| !arg.is_global_set());
        let mut all: Vec<_> = own.map(|arg| (verb.to_owned(), arg.clone())).collect();
        for below in command.get_subcommands() {
            all.extend(arguments(below, format!("{verb} {}", below.get_name()).trim_start()));
        }
        all
    }

    /// The help says what is a name: `plans/ID` or the id alone.
    #[test]
    fn every_argument_that_takes_a_name_offers_names() {
        let all = arguments(&with_names(Cli::command()), "");
        assert!(all.len() > 200, "{}", all.len());
        for (verb, arg) in &all {
            let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
            let is_named = help.contains("/ID") && help.contains("the id alone");
            let offers = arg.get::<ArgValueCompleter>().is_some();
            assert!(offers || !is_named, "`{verb}` offers no names for {}: {help}", arg.get_id());
        }
    }

    #[test]
    fn every_row_is_of_an_argument() {
        let all = arguments(&Cli::command(), "");
        for row in NAMED {
            let is_used = all.iter().any(|(verb, arg)| {
                let (of, id, taken) = row;
                arg.get_id() == *id && verb.starts_with(of) && takes(verb, id) == Some(*taken)
            });
            assert!(is_used, "no argument for {row:?}");
        }
    }
}
