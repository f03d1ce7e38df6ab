//! The brute-force oracle of all tests: every plan there is, priced by its caller, and simulated by code of its own.
//!
//! The planner's crates use it in their tests, and `bench certificates` holds a running planner to it over the wire. It depends on
//! none of the crates that it checks.
//!
//! | module | content |
//! |---|---|
//! | `words` | objectives, shapes, schedules and policies, with their numbers on the wire |
//! | `fleet` | devices, and the links between them |
//! | `routes` | the orders in which a pipeline may take devices |
//! | `space` | the plans that rules allow |
//! | `simulator` | the seconds of an iteration |
//! | `truth` | the best of all plans, and what lacks where none fits |
//! | `choices` | arrangements, compositions and combinations |
//! | `dice` | prices that tests draw |

mod choices;
mod dice;
mod fleet;
mod routes;
mod simulator;
mod space;
mod truth;
mod words;

pub use choices::{arrangements, combinations, compositions, recomputed_runs};
pub use dice::{Draws, mixed};
pub use fleet::{Class, Device, Fleet, Link, Node, Pinned, Slot, groups_at_once, groups_through, rings};
pub use simulator::{Edge, Pass, Pipeline, Seconds, in_flight};
pub use space::{Batch, Bytes, Memory, Placed, Plan, PlanRules, Prices, Space, Stage, TooMany};
pub use truth::{Goal, SAME, Truth, front};
pub use words::{CommunicationOverlap, Objective, Recompute, Schedule, Shape, Sharding, Spanning, Unit};
