//! The collections that retention deletes from: their tables, ages and references.

use loadmaster_filter::Field;

use crate::store::delete::{plans_deleted, profiles_deleted};
use crate::store::fields;

/// Collections with retention, in the order in which they reference each other: a collection comes before those that it references.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Collection {
    Plans,
    Profiles,
    Workers,
    Runs,
    Operations,
    Models,
}

impl Collection {
    /// All of them, in their order.
    pub const ALL: [Self; 6] =
        [Self::Plans, Self::Profiles, Self::Workers, Self::Runs, Self::Operations, Self::Models];

    /// As in the names of its rows.
    pub fn word(self) -> &'static str {
        match self {
            Self::Plans => "plans",
            Self::Profiles => "profiles",
            Self::Workers => "workers",
            Self::Runs => "runs",
            Self::Operations => "operations",
            Self::Models => "models",
        }
    }

    /// The collection of this word.
    pub fn of_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|of| of.word() == word)
    }

    /// What its rows are found by.
    pub fn fields(self) -> &'static [Field] {
        match self {
            Self::Plans => fields::PLANS,
            Self::Profiles => fields::PROFILES,
            Self::Workers => fields::WORKERS,
            Self::Runs => fields::RUNS,
            Self::Operations => fields::OPERATIONS,
            Self::Models => fields::MODELS,
        }
    }

    /// The table that the fields are columns of.
    pub(super) fn table(self) -> &'static str {
        match self {
            Self::Plans => "plan_facts",
            of => of.word(),
        }
    }

    /// The time that a row's age counts from, behind its creation; none while it has not ended.
    pub(super) fn time(self) -> &'static str {
        match self {
            Self::Plans => "asked_time",
            Self::Profiles => "CASE WHEN state <> 'running' THEN coalesce(end_time, create_time) END",
            Self::Workers => "CASE WHEN state IN ('lost', 'gone') THEN heartbeat_time END",
            Self::Runs => "end_time",
            Self::Operations => "CASE WHEN state <> 'running' THEN end_time END",
            Self::Models => "create_time",
        }
    }

    /// Which rows of the table are looked at: trials that measured something stay with their plan, which stays for them.
    pub(super) fn of_its_own(self) -> &'static str {
        match self {
            Self::Runs => " AND (plan_id IS NULL OR state IN ('failed', 'cancelled'))",
            Self::Plans | Self::Profiles | Self::Workers | Self::Operations | Self::Models => "",
        }
    }

    /// What refers to its rows: the row's id, and the name of what refers to it. `candidate` has the rows, `cut.time` is the end
    /// of what is old.
    pub(super) fn references(self) -> &'static str {
        match self {
            Self::Plans => {
                "SELECT candidate.id, 'plans/' || plans.id FROM candidate
                   JOIN plans ON plans.names @> ARRAY[candidate.id] WHERE collection = 'plans'
                 UNION ALL
                 SELECT candidate.id, 'plans/' || plan_id || '/reports/' || reports.id FROM candidate
                   JOIN reports ON plan_id = candidate.id WHERE collection = 'plans'
                 UNION ALL
                 SELECT candidate.id, 'runs/' || runs.id FROM candidate
                   JOIN runs ON plan_id = candidate.id AND state NOT IN ('failed', 'cancelled') WHERE collection = 'plans'
                 UNION ALL
                 SELECT candidate.id, 'operations/' || operations.id FROM candidate
                   JOIN operations ON plan_id = candidate.id AND state = 'running' WHERE collection = 'plans'
                 UNION ALL
                 SELECT candidate.id, 'placements/' || placements.id FROM candidate
                   JOIN placements ON plan_id = candidate.id
                   JOIN cut ON placements.create_time >= cut.time WHERE collection = 'plans'"
            }
            Self::Profiles => {
                "SELECT candidate.id, 'plans/' || plans.id FROM candidate
                   JOIN plans ON profile_id = candidate.id WHERE collection = 'profiles'
                 UNION ALL
                 SELECT candidate.id, 'plans/' || plans.id FROM candidate
                   JOIN plans ON other_profiles @> ARRAY[candidate.id] WHERE collection = 'profiles'
                 UNION ALL
                 SELECT candidate.id, 'operations/' || operations.id FROM candidate
                   JOIN operations ON profile_id = candidate.id AND state = 'running' WHERE collection = 'profiles'"
            }
            // What it was heard of last is younger than what was measured of its links.
            Self::Workers => {
                "SELECT candidate.id, 'runs/' || runs.id FROM candidate
                   JOIN runs ON worker_id = candidate.id AND state = 'running' WHERE collection = 'workers'
                 UNION ALL
                 SELECT candidate.id, 'runs/' || runs.id FROM candidate
                   JOIN runs ON only_worker_id = candidate.id AND state = 'queued' WHERE collection = 'workers'"
            }
            Self::Runs => {
                "SELECT candidate.id, 'profiles/' || profile_runs.profile_id FROM candidate
                   JOIN profile_runs ON run_id = candidate.id WHERE collection = 'runs'
                 UNION
                 SELECT candidate.id, 'profiles/' || profile_id FROM candidate
                   JOIN runs ON runs.id = candidate.id AND profile_id IS NOT NULL WHERE collection = 'runs'
                 UNION ALL
                 SELECT candidate.id, 'plans/' || plan_id FROM candidate
                   JOIN runs ON runs.id = candidate.id AND plan_id IS NOT NULL WHERE collection = 'runs'
                 UNION ALL
                 SELECT candidate.id, 'runs/' || runs.id FROM candidate
                   JOIN runs ON shrunk_from = candidate.id WHERE collection = 'runs'
                 UNION ALL
                 SELECT candidate.id, 'workers/' || worker_id FROM candidate
                   JOIN link_measurements ON run_id = candidate.id WHERE collection = 'runs'"
            }
            Self::Operations => {
                "SELECT candidate.id, 'runs/' || runs.id FROM candidate
                   JOIN runs ON operation_id = candidate.id WHERE collection = 'operations'
                 UNION ALL
                 SELECT candidate.id, coalesce('profiles/' || profile_id, 'plans/' || plan_id) FROM candidate
                   JOIN operations ON operations.id = candidate.id AND num_nonnulls(profile_id, plan_id) > 0
                   WHERE collection = 'operations'"
            }
            Self::Models => {
                "SELECT candidate.id, 'profiles/' || profiles.id FROM candidate
                   JOIN profiles ON model_id = candidate.id WHERE collection = 'models'
                 UNION ALL
                 SELECT candidate.id, 'plans/' || plans.id FROM candidate
                   JOIN plans ON model_id = candidate.id WHERE collection = 'models'
                 UNION ALL
                 SELECT candidate.id, 'runs/' || runs.id FROM candidate
                   JOIN runs ON model_id = candidate.id WHERE collection = 'models'"
            }
        }
    }

    /// Deletes the rows in `taken` with what is theirs alone; `deleted` are their ids.
    pub(super) fn deletion(self) -> &'static str {
        match self {
            Self::Plans => concat!(", ", plans_deleted!()),
            Self::Profiles => concat!(", ", profiles_deleted!()),
            Self::Workers => {
                ", unlinked AS (
                     DELETE FROM link_measurements USING taken WHERE worker_id = taken.id
                 ), deleted AS (
                     DELETE FROM workers USING taken WHERE workers.id = taken.id RETURNING workers.id
                 )"
            }
            Self::Runs => {
                ", unmeasured AS (
                     DELETE FROM measurements USING taken WHERE measurements.run_id = taken.id
                 ), deleted AS (
                     DELETE FROM runs USING taken WHERE runs.id = taken.id RETURNING runs.id
                 )"
            }
            Self::Operations => {
                ", deleted AS (
                     DELETE FROM operations USING taken WHERE operations.id = taken.id RETURNING operations.id
                 )"
            }
            Self::Models => {
                ", deleted AS (
                     DELETE FROM models USING taken WHERE models.id = taken.id RETURNING models.id
                 )"
            }
        }
    }
}
