//! How long history is kept: a rule that says what may go, and the schedule that applies it.

use std::time::Duration;

use loadmaster_filter::{NO_FIELD, Query};
use loadmaster_proto::error::Invalid;
use tokio_util::sync::CancellationToken;

use crate::store::records::PageRequest;
use crate::store::{Collection, KeptRow, MOST_TAKEN, Prunable, Pruned, Result, Store};

/// Shortest age of what may go: plans know to the hour when they were asked for, and a call that is repeated must find what it
/// stored.
pub const LEAST_AGE: Duration = Duration::from_secs(86_400);

/// Time between two looks at whether it is time: planners that share a database take turns.
const LOOK: Duration = Duration::from_secs(60);
/// Names in a line of the log.
const NAMES: usize = 50;
/// Rows of a page that are told with what keeps them.
const MOST_REASONS: usize = 10;
/// The planners' name for it.
const SCHEDULE: &str = "retention";

/// What may go: rows that are older than an age, of some collections, that fit a filter.
#[derive(Debug, Clone, PartialEq)]
pub struct Rule {
    pub age: Duration,
    pub of: Vec<Prunable>,
}

impl Rule {
    /// The rule of a request. Without collections those that the filter can be asked of.
    ///
    /// # Errors
    /// Violations of `older_than`, `collections` and `filter`.
    pub fn new(age: Duration, filter: &str, collections: &[Collection]) -> Result<Self, Invalid> {
        if age < LEAST_AGE {
            let days = age.as_secs_f64() / LEAST_AGE.as_secs_f64();
            return Err(Invalid::field("older_than", format!("is {days:.3} days, must be at least 1 day")));
        }
        let mut of = Vec::new();
        let mut refused = Vec::new();
        for collection in Collection::ALL {
            if !collections.is_empty() && !collections.contains(&collection) {
                continue;
            }
            match Query::parse(collection.fields(), filter, "") {
                Ok(Query { condition, .. }) => of.push(Prunable { collection, condition }),
                Err(invalid) => refused.push((collection, invalid)),
            }
        }
        let told = |invalid: &Invalid| {
            invalid.violations().first().map_or_else(String::new, |of| of.description.clone())
        };
        // Of lists that were not asked for by name, one that has the fields says best what is wrong with the rest.
        let has_fields = |(_, invalid): &&(Collection, Invalid)| !told(invalid).contains(NO_FIELD);
        match refused.iter().find(has_fields).or_else(|| refused.first()) {
            Some((collection, invalid)) if of.is_empty() || !collections.is_empty() => {
                Err(Invalid::field("filter", format!("of {}: {}", collection.word(), told(invalid))))
            }
            _ => Ok(Self { age, of }),
        }
    }
}

/// A rule that is applied from time to time.
#[derive(Debug, Clone, PartialEq)]
pub struct Schedule {
    pub rule: Rule,
    /// From one time to the next.
    pub period: Duration,
}

impl Schedule {
    /// Applies the rule until `stop` is cancelled. What fails is tried again a period later.
    pub async fn run(self, store: Store, stop: CancellationToken) {
        loop {
            match store.take_turn(SCHEDULE, self.period).await {
                Ok(true) => {
                    tokio::select! {
                        () = stop.cancelled() => return,
                        done = self.apply(&store) => {
                            if let Err(error) = done {
                                tracing::warn!(%error, "history could not be pruned");
                            }
                        }
                    }
                }
                Ok(false) => {}
                Err(error) => tracing::warn!(%error, "cannot tell whether history is to be pruned"),
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(LOOK.min(self.period)) => {}
            }
        }
    }

    async fn apply(&self, store: &Store) -> Result<()> {
        let (mut taken, mut kept) = (0, 0);
        let mut page = PageRequest { size: MOST_TAKEN, after: None };
        loop {
            let (became, next) = store.prune(self.rule.age, &self.rule.of, &page).await?;
            taken += became.iter().map(|of| of.taken_count).sum::<u64>();
            kept += became.iter().map(|of| of.kept_count).sum::<u64>();
            for line in became.iter().flat_map(told) {
                tracing::info!("{line}");
            }
            if next.is_none() {
                tracing::info!(taken, kept, "history was pruned as scheduled");
                return Ok(());
            }
            page.after = next;
        }
    }
}

/// What became of a page of rows, as lines of a log: nobody waits for an answer that says it, and what is deleted is named nowhere
/// else afterwards. Of what stays the first are told, for it is looked at again each time.
fn told(of: &Pruned) -> Vec<String> {
    let deleted = of.taken.chunks(NAMES).map(|names| format!("deleted as scheduled: {}", names.join(" ")));
    let kept = of.kept.iter().take(MOST_REASONS).map(|KeptRow { name, by, count }| {
        let more = match count.saturating_sub(by.len() as u64) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        format!("kept: {name}, needed by {}{more}", by.join(", "))
    });
    let told = of.kept.len().min(MOST_REASONS) as u64;
    let rest = of.kept_count.saturating_sub(told);
    let rest = (rest > 0).then(|| format!("kept: {rest} {} more", of.collection.word()));
    deleted.chain(kept).chain(rest).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All that is deleted is named; of what stays the first are, with what needs them.
    #[test]
    fn a_schedule_says_what_went_and_what_stays_for_whom() {
        let kept = |number: usize, count| KeptRow {
            name: format!("plans/k{number}"),
            by: vec!["plans/a/observations/1".to_owned(), "runs/2".to_owned()],
            count,
        };
        let of = Pruned {
            collection: Collection::Plans,
            taken_count: 120,
            kept_count: 40,
            taken: (0..120).map(|number| format!("plans/p{number}")).collect(),
            kept: (0..30).map(|number| kept(number, if number == 0 { 7 } else { 2 })).collect(),
        };
        let lines = told(&of);
        assert_eq!(lines.len(), 3 + MOST_REASONS + 1);
        let deleted: Vec<&str> = lines[..3].iter().flat_map(|line| line.split(' ').skip(3)).collect();
        assert_eq!(deleted, of.taken);
        assert_eq!(lines[3], "kept: plans/k0, needed by plans/a/observations/1, runs/2 and 5 more");
        assert_eq!(lines[4], "kept: plans/k1, needed by plans/a/observations/1, runs/2");
        assert_eq!(lines.last().unwrap(), "kept: 30 plans more");
        assert!(told(&Pruned { taken: vec![], kept: vec![], kept_count: 0, ..of }).is_empty());
    }

    fn of(filter: &str, collections: &[Collection]) -> Result<Vec<&'static str>, String> {
        let rule = Rule::new(LEAST_AGE, filter, collections).map_err(|invalid| invalid.to_string())?;
        Ok(rule.of.iter().map(|of| of.collection.word()).collect())
    }

    /// A filter that a collection does not know leaves it out; one that none knows is a mistake.
    #[test]
    fn a_filter_says_what_it_is_about() {
        assert_eq!(of("", &[]).unwrap(), ["plans", "profiles", "workers", "runs", "operations", "models"]);
        assert_eq!(of("NOT labels:keep", &[]).unwrap(), ["plans", "profiles"]);
        assert_eq!(of("solver = given", &[]).unwrap(), ["plans"]);
        assert_eq!(of("state = out-of-memory", &[]).unwrap(), ["runs"]);
        let refused = of("state = out-of-memory", &[Collection::Profiles, Collection::Runs]).unwrap_err();
        assert!(refused.contains("of profiles") && refused.contains("out-of-memory"), "{refused}");
        // Of a field that some of them have, one of these tells.
        let refused = of("state = canceled", &[]).unwrap_err();
        assert!(refused.contains("\"canceled\" is none of") && !refused.contains("no field"), "{refused}");
        let refused = of("slover = given", &[]).unwrap_err();
        assert!(refused.contains("of plans") && refused.contains("slover"), "{refused}");
    }

    #[test]
    fn nothing_young_may_go() {
        let refused = Rule::new(Duration::from_secs(43_200), "", &[]).unwrap_err();
        assert_eq!(refused.violations()[0].field, "older_than");
        assert!(refused.to_string().contains("0.500 days"), "{refused}");
    }
}
