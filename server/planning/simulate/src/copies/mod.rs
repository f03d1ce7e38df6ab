//! How long an iteration takes whose stages also move blocks of memory away and back (MPress).
//!
//! | module | question |
//! |---|---|
//! | `device_steps` | what does each device do one after another, what does it hand on, and which blocks are away? |
//! | `links` | which ways do copies go, and what do ways share? |
//! | `slots` | how many CPU slots compute at once, and what does a copy take of that? |
//! | `rates` | how does a plan tell of that? |
//! | `stage_steps` | which steps does a stage, or a device of several chunks, do? |
//! | `endless` | which does a stage of PipeDream do, and what do all of them do in the long run? |
//! | `check` | which numbers make no sense? |
//! | `tables` | which number has each trip, parcel and way, and what is due at which boundary? |
//! | `concurrent_copies` | which lanes change each other's speed? |
//! | `event_loop` | when does each step start, and when does its output arrive? |
//! | `lanes` | when does each copy begin and end? |
//! | `sharing` | how fast do copies and steps go that share something? |
//! | `jobs` | how far have they come? |
//! | `max_min_fair` | who gets how much of what is shared? |
//! | `simulate` | how long does an iteration take, and in the long run? |
//! | `outcome` | what comes of it? |
//! | `picture` | what does that look like? |
//!
//! The rules are those of [`loadmaster_proto::training::actions`]: a device does its steps in a fixed order, and acts at
//! boundaries between them alone. It has a lane for computing, one for each direction of its host link, and one for each
//! ordered pair of peers.
//!
//! A lane carries one copy at a time, in the order in which boundaries ask. Those of one boundary
//! in the order of the trips, of those back what is needed first before all others; those of one moment in the order of the
//! devices. A copy takes `latency + bytes / rate`; the
//! stripes of a block go side by side, and it has arrived with the slowest.
//!
//! Ways that share an uplink, or both directions of one that is not full duplex, share its rate max-min fairly
//! ([`Shared`]). Activations between stages go first: they take the seconds of their edge, and copies have what they
//! leave of a way ([`Route`]). On a node of CPU slots, steps and copies at work at once share its cores equally
//! ([`Cores`]).
//!
//! # How it is computed
//!
//! Where a copy's speed cannot change its end is known when it is asked for, so one walk over the steps gives all times,
//! as without copies. Only ways that share something, and those that two devices ask for, are simulated from event to
//! event.
//!
//! The walk stops where it waits for one of them, and goes on when its end is known. Rates and cores are shared out
//! anew once all that happens at a moment has happened, among what is at work on the same lanes and cores alone. What ends at
//! a moment ends before anything begins at it, and moments that differ by rounding alone are one.
//!
//! # What holds
//!
//! Where nothing is shared and each way has one device that asks for it, the order of all is fixed and times are those of a
//! longest path. No second or byte more anywhere makes an iteration shorter.
//!
//! Where rates or cores are shared, or two devices
//! swap blocks to each other, that is not so: what is over earlier may meet what it would have missed. But sharing
//! only adds seconds, so that a simulation over [`Links::alone`] is a bound of one over the links themselves, as long as each
//! way has one device that asks for it.
//!
//! # Iterations
//!
//! Devices begin an iteration together, when all have ended the one before, as in [`iteration::simulate`](super::simulate()). Where
//! no block stays away from one iteration to the next one, each is like the first, and one is simulated. Otherwise
//! they are simulated one after another until one leaves to the next what the one before left, or [`MOST_ITERATIONS`]
//! times: then the mean of the last half is what is said.
//!
//! What is left is looked at once all has happened that does before
//! the end, also what no one waited for: a copy that was asked for later ends later. Of a copy that stands still for
//! activations at that moment, what it has left is compared.

mod check;
mod concurrent_copies;
mod device_steps;
mod endless;
mod event_loop;
mod jobs;
mod lanes;
mod links;
mod max_min_fair;
mod outcome;
mod picture;
mod rates;
mod sharing;
mod simulate;
mod slots;
mod stage_steps;
mod tables;
#[cfg(test)]
mod tests;

pub use check::CopiesError;
pub use device_steps::{CopyPipeline, DeviceSteps, Handover, Parcel, Place, TimedStep, Trip};
pub use endless::{Done, Endless, LongRun, long_run};
pub use links::{Cores, Links, Rate, Route, Shared, Way};
pub use outcome::{Copied, DeviceTimes, TimedCopy, TimedWait, WaitSeconds, WayTimes};
pub use picture::{LaneOf, Shown, ShownLane, Span};
pub use simulate::{Keep, Limit, MOST_ITERATIONS, simulate, simulate_within};
pub use slots::{CORE_COPIES, SlotCores};
pub use stage_steps::{LayerSeconds, StageSteps, device_of_chunks, pass_of};
