//! Pictures of plans: the stages on the devices, the memory of the devices, an iteration as a timeline, the
//! front between memory and time; of one plan, or of several side by side.
//!
//! * [`figure`]: what a picture shows, made from messages: values with every text, grouping and omission
//!   decided. Names come from users and workers and are made safe here.
//! * [`sheet`]: the pictures of one page.
//! * [`terminal`], [`svg`], [`html`]: three ways to draw a sheet. All of them pure.
//!
//! However large a plan is, a picture stays small: what is equal is drawn as one, what does not fit is left out,
//! and a note says so.

mod axis;
mod figure;
pub mod html;
pub mod sheet;
pub mod svg;
pub mod terminal;
mod tint;
mod xml;

use loadmaster_proto::wire::v1::{ComparePlansResponse, Plan, SimulatePlanRequest};

use crate::Show;
use crate::text::terminal_abilities::Look;
use sheet::{Sheet, Which};

impl Show for ComparePlansResponse {
    const TYPE: &'static str = "loadmaster.v1.ComparePlansResponse";

    fn names(&self) -> Vec<String> {
        self.plans.iter().map(|plan| plan.name.clone()).collect()
    }

    /// The table of a comparison, without pictures, as wide as a table may be.
    fn table(&self, look: Look) -> String {
        let width = look.width.unwrap_or(terminal::WIDEST);
        terminal::render(&Sheet::of_comparison(self, Which::NONE, look), width, look)
    }
}

#[cfg(test)]
mod tests;

/// Passes that a picture is made of. More of them than this are not told apart anywhere.
const MOST_PASSES: i32 = 50_000;
/// Predictors of memory step by step, whatever their version.
const BY_STEPS: [&str; 2] = ["component/", "table/"];

/// The plan's own iteration, with memory over time where recordings tell it.
pub fn simulation(plan: &Plan) -> SimulatePlanRequest {
    SimulatePlanRequest {
        name: plan.name.clone(),
        max_pass_count: MOST_PASSES,
        include_memory: is_known_by_steps(plan),
        ..SimulatePlanRequest::default()
    }
}

/// Whether it is told what is held in every step.
pub fn is_known_by_steps(plan: &Plan) -> bool {
    plan.predicted_peak
        .as_ref()
        .is_some_and(|peak| BY_STEPS.iter().any(|name| peak.producer.starts_with(name)))
}
