//! The planner of chunks against slow programs that share no rule of its with it.

mod baselines;
mod chosen;
mod clock;
mod draw;
mod outliers;
mod room;
mod slides;
mod spans;
mod tight;
mod weighed;
