//! Retention: the rule that says which old rows may be deleted, the schedule that requests purges, and the work on them.

mod purges;
mod schedule;

use std::time::Duration;

use loadmaster_filter::{NO_FIELD, Query};
use loadmaster_proto::error::{Invalid, in_range};

use crate::store::{Collection, PurgeSettings, Purgeable};

pub use purges::Purges;
pub use schedule::Schedule;

/// Smallest age of a row that is deleted: the age of a plan is known to the hour, and a repeated call must find the plan that it
/// stored.
pub const LEAST_AGE: Duration = Duration::from_secs(86_400);
/// Largest age: times before Postgres's do not exist.
const MOST_AGE: Duration = Duration::from_secs(31_556_952_000);

/// Rows that may be deleted: those that are older than an age, of some collections, that match a filter.
#[derive(Debug, Clone, PartialEq)]
pub struct Rule {
    pub age: Duration,
    pub of: Vec<Purgeable>,
}

impl Rule {
    /// The rule of a request. Its collections are named by words.
    ///
    /// # Errors
    /// Violations of `older_than`, `collections` and `filter`.
    pub fn of(settings: &PurgeSettings) -> Result<Self, Invalid> {
        let named = |(position, word): (usize, &String)| {
            Collection::of_word(word).ok_or_else(|| {
                let all = Collection::ALL.map(Collection::word).join(", ");
                let word: String = word.chars().take(80).collect();
                Invalid::field(
                    format!("collections[{position}]"),
                    format!("{word:?} is not a collection. Use one of {all}."),
                )
            })
        };
        in_range("collections", settings.collections.len(), 0..=Collection::ALL.len())?;
        let collections =
            settings.collections.iter().enumerate().map(named).collect::<Result<Vec<_>, _>>()?;
        Self::new(settings.older_than, &settings.filter, &collections)
    }

    /// A rule for these collections; for an empty list those that have the filter's fields.
    ///
    /// # Errors
    /// Violations of `older_than`, `collections` and `filter`.
    pub fn new(age: Duration, filter: &str, collections: &[Collection]) -> Result<Self, Invalid> {
        if age < LEAST_AGE || age > MOST_AGE {
            let days = age.as_secs_f64() / LEAST_AGE.as_secs_f64();
            return Err(Invalid::field(
                "older_than",
                format!("{days:.3} days is out of range. Use 1 day to 1,000 years."),
            ));
        }
        let mut of = Vec::new();
        let mut refused = Vec::new();
        for collection in Collection::ALL {
            if !collections.is_empty() && !collections.contains(&collection) {
                continue;
            }
            match Query::parse(collection.fields(), filter, "") {
                Ok(Query { condition, .. }) => of.push(Purgeable { collection, condition }),
                Err(invalid) => refused.push((collection, invalid)),
            }
        }
        let text = |invalid: &Invalid| {
            invalid.violations().first().map_or_else(String::new, |of| of.description.clone())
        };
        // Of collections that the request does not name, the error of one that has the fields is the most useful.
        let has_fields = |(_, invalid): &&(Collection, Invalid)| !text(invalid).contains(NO_FIELD);
        match refused.iter().find(has_fields).or_else(|| refused.first()) {
            Some((collection, invalid)) if of.is_empty() || !collections.is_empty() => {
                Err(Invalid::field("filter", format!("of {}: {}", collection.word(), text(invalid))))
            }
            _ => Ok(Self { age, of }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(of("state = failed", &[]).unwrap(), ["runs", "operations"]);
        let refused = of("state = failed", &[Collection::Profiles, Collection::Runs]).unwrap_err();
        assert!(refused.contains("of profiles") && refused.contains("failed"), "{refused}");
        // Of a field that some of them have, one of these tells.
        let refused = of("state = canceled", &[]).unwrap_err();
        assert!(
            refused.contains("\"canceled\" is not a value") && !refused.contains("not a field"),
            "{refused}"
        );
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
