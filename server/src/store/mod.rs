//! All durable state, in Postgres.
//!
//! # What is stored
//!
//! | table | one row is | written by | afterwards |
//! |---|---|---|---|
//! | `models` | a model and what it was built from | callers | never changes: its id is its content's |
//! | `clusters` | nodes, devices and links | callers | with every update |
//! | `link_measurements` | how fast the devices of a worker exchange bytes | workers | never changes |
//! | `profiles` | a profiling campaign | callers | ends, and may be resumed |
//! | `plans` | a recommended plan | callers | never changes: its id is its content's |
//! | `plan_facts` | what a plan is found by, and its labels | triggers, callers | with its trials and labels |
//! | `placements` | a plan on the nodes that a scheduler gave | callers | never changes: its id is its content's |
//! | `operations` | a caller's wait for a profile, a validation, measured links, a purge, or a long search | callers | ends once |
//! | `runs` | one unit of work in the queue | callers, workers | see below |
//! | `profile_runs` | a run that serves a profile: its own, or made for another | callers, workers | never changes |
//! | `measurements` | what one device of one stage of one run needed | workers | never changes |
//! | `reports` | what a user's own training run of a plan needed | callers | never changes |
//! | `workers` | a daemon that ever connected | workers | with every heartbeat |
//! | `schedules` | when something that is done from time to time was last begun | planners | each time |
//!
//! Callers delete models, clusters, profiles, plans, placements and reports that nothing references. They do not delete runs and
//! measurements, which later profiles reuse. Only retention deletes these, on request: `purge`.
//!
//! Everything that must survive a planner is here, and a planner keeps nothing else that matters:
//! the device ledger of a connected worker is rebuilt from its next `hello`. So any planner may be
//! killed at any time, and several may share one database. The only rows that could be lost without
//! harm are those of `workers`; they are kept so that operators see who was there.
//!
//! # The life of a run
//!
//! ```text
//!            claim: lease_token + 1, attempts + 1
//!   queued ───────────────────────────────────────► running ──► succeeded      measurements stored
//!     │  ▲                                            │    ╰──► out_of_memory  a result too: never retried
//!     │  ╰── failed, lease expired, deadline passed ──┤
//!     │      (not before a back-off), handed back     ├──────► failed         after MAX_ATTEMPTS
//!     ╰──────────────► cancelled ◄────────────────────╯         cancel was requested
//! ```
//!
//! `lease_token` is the fence: it grows with every claim, and heartbeats, results and failures name
//! it. Whoever comes with an old one is refused and changes nothing ([`Fenced::Stale`]). The token
//! stays current until the next claim, so a result that arrives after the lease expired is still
//! taken when no one began the run again. Sending the same report twice is harmless: the second
//! call finds the first one's rows and says [`Fenced::Applied`].
//!
//! What did not fit is repeated at a smaller micro-batch size by a *new* run of its profile, which the
//! statement that ends the first one inserts. Results serve every profile that needs the same: a run's
//! `work_key` says what it measures, and `profile_runs` which runs a profile is made of.
//!
//! Three guards end a dead attempt: the lease, which heartbeats renew; the deadline, which nothing
//! renews, because a live worker can hold a dead run; and cancellation. [`Store::expire_leases`] is the
//! reaper; every planner runs it, and they skip each other's locked rows.
//!
//! # How it is written
//!
//! * Every write is **one statement**, mostly with CTEs. There is no `begin` anywhere in this folder:
//!   in sqlx 0.9 it is not cancel-safe, and request handlers are cancelled by design. Nothing is held
//!   open during slow work: claim, commit, then train.
//! * What must follow a write but is not part of it is derived from the rows: an operation becomes `cancelled` when its
//!   last run lets go. It is done again by the next sweep if a planner dies between.
//! * Several rows are locked in order of their ids, and what still deadlocks is retried a few times.
//! * Time is the database's `now()`, and `clock` makes up for its jumps. NOTIFY is a hint; polling is the truth.
//!
//! # Hot queries
//!
//! Claim, renew, complete and the reaper's look. Their states are literals, not parameters, because a
//! partial index is only used where the planner can prove that it applies; a test pins the claim's
//! plan. Finished rows are in none of the indexes that these use, so history costs them nothing.
//! Heartbeats change no indexed column. Counting the runs of an operation reads all of its runs and is
//! the price of keeping no counters that could drift.

mod clock;
mod clusters;
mod columns;
mod connect;
mod delete;
mod documents;
mod error;
pub mod fields;
mod find;
mod finish;
mod idempotency;
mod labels;
mod lease;
mod links;
mod listen;
mod migrate;
mod models;
mod operations;
mod page;
mod placements;
mod plans;
mod profiles;
mod purge;
mod put_plans;
pub mod records;
mod reports;
mod reuse;
mod runs;
mod searches;
mod states;
mod submit;
mod trials;
mod workers;

use std::fmt;

use sqlx::PgPool;
use sqlx::postgres::PgConnectOptions;

pub use clock::DatabaseClock;
pub use connect::ConnectOptions;
pub use documents::DocumentRow;
pub use error::{Dependent, Result, StoreError, check_etag};
pub use finish::{MAX_ATTEMPTS, MAX_HAND_BACKS};
pub use labels::labels_etag;
#[doc(hidden)]
pub use lease::CLAIM;
pub use listen::RunListener;
pub use migrate::MigrationReport;
pub use purge::{
    Collection, DuePurge, MAX_PAGE, MAX_PURGES, PurgeSettings, Purgeable, Purged, ReferencedRow,
};
pub use put_plans::{PlanGlance, PutPlan};
#[cfg(doc)]
use records::Fenced;
pub use records::RunFilter;
pub use reports::MAX_REPORTS;
pub use searches::RESTARTED;

/// Most runs that may wait at once.
pub const MAX_QUEUED_RUNS: i64 = 100_000;

/// Access to all durable state. Cheap to clone.
#[derive(Clone)]
pub struct Store {
    pool: PgPool,
    /// For filtered and ordered lists: a part of all connections, with a time limit of their own.
    lists: PgPool,
    /// For connections outside the pool: without its time limits.
    bare: PgConnectOptions,
}

/// Without the options: they hold the password.
impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store")
            .field("connections", &self.pool.size())
            .field("idle", &self.pool.num_idle())
            .finish_non_exhaustive()
    }
}
