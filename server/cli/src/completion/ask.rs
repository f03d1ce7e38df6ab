//! Resources of the planner whose names have a prefix: one call to the address that is typed, with a short time limit. Failures are
//! not shown.

use std::time::Duration;

use loadmaster_proto::name::is_valid_id;
use loadmaster_proto::wire::longrunning::{ListOperationsRequest, operation};
use loadmaster_proto::wire::v1;
use loadmaster_show::choice::Choice;
use loadmaster_show::text::plain;
use tonic::Status;

use crate::session::client::Client;
use crate::session::context::USUAL_ADDRESS;

/// Time limit of all calls of one completion.
const PATIENCE: Duration = Duration::from_millis(700);
/// Names that are offered at most, the newest: more than anybody reads.
const ROWS: i32 = 100;

/// What names are of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Collection {
    Placements,
    Clusters,
    Frameworks,
    Models,
    Operations,
    Plans,
    Profiles,
    Runs,
    Workers,
}

impl Collection {
    /// What full names begin with; frameworks have none.
    pub(super) fn prefix(self) -> &'static str {
        match self {
            Self::Placements => "placements/",
            Self::Clusters => "clusters/",
            Self::Frameworks => "",
            Self::Models => "models/",
            Self::Operations => "operations/",
            Self::Plans => "plans/",
            Self::Profiles => "profiles/",
            Self::Runs => "runs/",
            Self::Workers => "workers/",
        }
    }
}

/// The typed beginning of a name.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Begun {
    of: Collection,
    /// As far as the id goes.
    id: String,
    /// It is typed in full, with its collection.
    is_full: bool,
}

impl Begun {
    /// What was typed as the beginning of a name; nothing if no name begins so.
    fn read(of: Collection, typed: &str) -> Option<Self> {
        let in_full = typed.strip_prefix(of.prefix()).filter(|_| !of.prefix().is_empty());
        let id = in_full.unwrap_or(typed);
        let may_be_id = match of {
            Collection::Frameworks => id.bytes().all(|byte| byte.is_ascii_graphic()),
            _ => id.is_empty() || is_valid_id(id.strip_suffix('-').unwrap_or(id)),
        };
        may_be_id.then(|| Self { of, id: id.to_owned(), is_full: in_full.is_some() })
    }

    /// What lists are asked for.
    fn filter(&self) -> String {
        if self.id.is_empty() { String::new() } else { format!("name = \"{}*\"", self.id) }
    }

    /// A resource, named as it was typed; none if its name begins otherwise. A shell prints the planner's response, and may run it:
    /// only a valid name is taken.
    fn found(&self, name: &str, about: &str) -> Option<Found> {
        let prefix = self.of.prefix();
        let id = name.strip_prefix(prefix).unwrap_or(name);
        let is_sound = match self.of {
            Collection::Frameworks => {
                id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.@".contains(&byte))
            }
            _ => is_valid_id(id),
        };
        let written = if self.is_full { format!("{prefix}{id}") } else { id.to_owned() };
        (is_sound && id.starts_with(&self.id)).then(|| Found { name: written, about: plain(about) })
    }
}

/// A thing that there is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Found {
    /// In full, or the id alone, as it was begun.
    pub(super) name: String,
    /// A few words about it, for shells that show some.
    pub(super) about: String,
}

/// What there is with names that begin so, the newest of each collection first; nothing where no planner responds in time.
pub(super) fn now(collections: &[Collection], typed: &str) -> Vec<Found> {
    let begun: Vec<Begun> = collections.iter().filter_map(|&of| Begun::read(of, typed)).collect();
    if begun.is_empty() {
        return Vec::new();
    }
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
        return Vec::new();
    };
    let words = std::env::args_os().filter_map(|word| word.into_string().ok());
    let address = address_of(words, std::env::var("LOADMASTER_ADDRESS").ok());
    let mut found = Vec::new();
    runtime.block_on(async {
        let Ok(client) = Client::new(&address, PATIENCE, false) else { return };
        let asked = async {
            for begun in &begun {
                found.extend(list(&client, begun).await.unwrap_or_default());
            }
        };
        // What has arrived until then is offered.
        let _ = tokio::time::timeout(PATIENCE, asked).await;
    });
    // The look-up of a host's name may still hold a thread.
    runtime.shutdown_background();
    found
}

async fn list(client: &Client, begun: &Begun) -> Result<Vec<Found>, Status> {
    let filter = begun.filter();
    let page_size = ROWS;
    let about = |name: &str, about: String| begun.found(name, &about);
    let found: Vec<Option<Found>> = match begun.of {
        Collection::Placements => {
            let request = v1::ListPlacementsRequest { page_size, ..Default::default() };
            let answer = client.attempt(request, PATIENCE).await?;
            answer.placements.into_iter().map(|one| about(&one.name, one.plan)).collect()
        }
        Collection::Clusters => {
            let request = v1::ListClustersRequest { page_size, filter, ..Default::default() };
            let answer = client.attempt(request, PATIENCE).await?;
            answer.clusters.into_iter().map(|one| about(&one.name, String::new())).collect()
        }
        Collection::Frameworks => {
            let request = v1::ListFrameworksRequest { page_size, ..Default::default() };
            let answer = client.attempt(request, PATIENCE).await?;
            let named = |one: &v1::Framework| format!("{}@{}", one.id, one.first_version);
            answer.frameworks.iter().map(|one| about(&named(one), String::new())).collect()
        }
        Collection::Models => {
            let request = v1::ListModelsRequest { page_size, filter, ..Default::default() };
            let answer = client.attempt(request, PATIENCE).await?;
            answer.models.into_iter().map(|one| about(&one.name, one.family)).collect()
        }
        Collection::Operations => {
            let name = "operations".to_owned();
            let request = ListOperationsRequest { name, page_size, filter, ..Default::default() };
            let answer = client.attempt(request, PATIENCE).await?;
            let ended = |result: &Option<operation::Result>| match result {
                None => "running",
                Some(operation::Result::Response(_)) => "succeeded",
                Some(operation::Result::Error(_)) => "failed",
            };
            answer.operations.iter().map(|one| about(&one.name, ended(&one.result).to_owned())).collect()
        }
        Collection::Plans => {
            let request = v1::ListPlansRequest { page_size, filter, ..Default::default() };
            let answer = client.attempt(request, PATIENCE).await?;
            answer.plans.into_iter().map(|one| about(&one.name, one.profile)).collect()
        }
        Collection::Profiles => {
            let request = v1::ListProfilesRequest { page_size, filter, ..Default::default() };
            let answer = client.attempt(request, PATIENCE).await?;
            let told = |one: &v1::Profile| format!("{}, {}", one.model, word(one.state().as_str_name()));
            answer.profiles.iter().map(|one| about(&one.name, told(one))).collect()
        }
        Collection::Runs => {
            let request = v1::ListRunsRequest { page_size, filter, ..Default::default() };
            let answer = client.attempt(request, PATIENCE).await?;
            answer.runs.iter().map(|one| about(&one.name, one.state().word())).collect()
        }
        Collection::Workers => {
            let request = v1::ListWorkersRequest { page_size, filter, ..Default::default() };
            let answer = client.attempt(request, PATIENCE).await?;
            answer.workers.iter().map(|one| about(&one.name, word(one.state().as_str_name()))).collect()
        }
    };
    Ok(found.into_iter().flatten().collect())
}

/// A constant of the protocol as words.
fn word(constant: &str) -> String {
    constant.to_ascii_lowercase().replace('_', " ")
}

/// The planner's address: of `--address` if that was typed, else of the environment, else the usual one.
fn address_of(words: impl Iterator<Item = String>, environment: Option<String>) -> String {
    // What asks for completions has the words behind a `--`.
    let mut words = words.skip_while(|word| word != "--").skip(1).take_while(|word| word != "--");
    let mut typed = None;
    while let Some(word) = words.next() {
        match word.strip_prefix("--address") {
            Some("") => typed = words.next().or(typed),
            Some(rest) => typed = rest.strip_prefix('=').map(str::to_owned).or(typed),
            None => {}
        }
    }
    let given = [typed, environment].into_iter().flatten();
    given.into_iter().find(|address| !address.is_empty()).unwrap_or_else(|| USUAL_ADDRESS.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_written_as_they_were_begun() {
        let written = |of, typed: &str| {
            let begun = Begun::read(of, typed)?;
            Some((begun.filter(), begun.found("plans/7f3c", "").map(|found| found.name)))
        };
        let some = |filter: &str, name: &str| Some((filter.to_owned(), Some(name.to_owned())));
        assert_eq!(written(Collection::Plans, ""), some("", "7f3c"));
        assert_eq!(written(Collection::Plans, "7"), some("name = \"7*\"", "7f3c"));
        assert_eq!(written(Collection::Plans, "plans/"), some("", "plans/7f3c"));
        assert_eq!(written(Collection::Plans, "plans/7f"), some("name = \"7f*\"", "plans/7f3c"));
        assert_eq!(written(Collection::Plans, "pla"), Some(("name = \"pla*\"".to_owned(), None)));
        assert_eq!(written(Collection::Profiles, "plans/7f"), None);
        // Nothing of it may become a part of a filter.
        assert_eq!(written(Collection::Plans, "7\" OR name:*"), None);
    }

    #[test]
    fn what_a_planner_answers_is_no_more_than_a_name() {
        let begun = Begun::read(Collection::Plans, "7").unwrap();
        let found = begun.found("plans/7f3c", "of\u{1b}[31m small").unwrap();
        assert_eq!(found.name, "7f3c");
        assert!(!found.about.contains('\u{1b}'), "{:?}", found.about);
        for wrong in ["plans/8f3c", "plans/7f3c; rm -rf", "7$(id)", "7\u{1b}[31m", "plans/7/../x"] {
            assert_eq!(begun.found(wrong, ""), None, "{wrong}");
        }
        let begun = Begun::read(Collection::Frameworks, "deep").unwrap();
        assert_eq!(begun.found("deepspeed@0.19", "").unwrap().name, "deepspeed@0.19");
        assert_eq!(begun.found("deepspeed@$(id)", ""), None);
    }

    #[test]
    fn the_planner_is_the_one_that_the_verb_would_ask() {
        let address = |line: &str, environment: Option<&str>| {
            address_of(line.split(' ').map(str::to_owned), environment.map(str::to_owned))
        };
        assert_eq!(address("loadmaster -- loadmaster plan show ", None), USUAL_ADDRESS);
        assert_eq!(address("loadmaster -- loadmaster plan show ", Some("db:1")), "db:1");
        assert_eq!(address("loadmaster -- loadmaster --address a:2 plan show ", Some("db:1")), "a:2");
        assert_eq!(address("loadmaster -- loadmaster plan --address=a:2 show ", Some("db:1")), "a:2");
        assert_eq!(address("loadmaster -- loadmaster plan --address a:1 --address b:2 x", None), "b:2");
        assert_eq!(address("loadmaster -- loadmaster plan show --address ", Some("db:1")), "db:1");
        assert_eq!(
            address("loadmaster --address x:1 -- loadmaster slurm exec -- --address y:1", None),
            USUAL_ADDRESS
        );
    }
}
