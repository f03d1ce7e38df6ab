//! The parts of planning requests, each with its defaults where a request leaves it out, and the plan of a response.

use std::sync::LazyLock;

use super::v1::{
    Constraints, MemoryOptions, ObjectiveOptions, OutputOptions, Plan, PredictPlanRequest, Problem,
    RecommendPlanRequest, RecommendPlanResponse, SearchOptions, recommend_plan_response,
};

macro_rules! parts {
    ($($request:ident { $($part:ident / $change:ident: $type:ident,)+ })+) => {$(
        impl $request {
            $(
                #[doc = concat!("Returns its `", stringify!($part), "`, or the defaults.")]
                #[must_use]
                pub fn $part(&self) -> &$type {
                    static DEFAULT: LazyLock<$type> = LazyLock::new($type::default);
                    self.$part.as_ref().unwrap_or(&DEFAULT)
                }

                #[doc = concat!("Returns its `", stringify!($part), "` to change.")]
                pub fn $change(&mut self) -> &mut $type {
                    self.$part.get_or_insert_default()
                }
            )+
        }
    )+};
}

parts! {
    RecommendPlanRequest {
        problem / problem_mut: Problem,
        objective / objective_mut: ObjectiveOptions,
        constraints / constraints_mut: Constraints,
        memory / memory_mut: MemoryOptions,
        search / search_mut: SearchOptions,
        output / output_mut: OutputOptions,
    }
    PredictPlanRequest {
        problem / problem_mut: Problem,
        memory / memory_mut: MemoryOptions,
    }
}

impl RecommendPlanResponse {
    /// Returns its plan; none where it is infeasible.
    #[must_use]
    pub fn into_plan(self) -> Option<Plan> {
        match self.result? {
            recommend_plan_response::Result::Plan(plan) => Some(plan),
            recommend_plan_response::Result::Infeasible(_) => None,
        }
    }
}

/// Returns a request like another one, with other values of some fields: of its parts, or its own.
///
/// ```
/// use loadmaster_proto::changed;
/// use loadmaster_proto::wire::v1;
///
/// let request = v1::RecommendPlanRequest::default();
/// let changed = changed!(request, problem.micro_batch_size = 4, search.seed = 7, validate_only = true);
/// assert_eq!(changed.problem().micro_batch_size, 4);
/// ```
#[macro_export]
macro_rules! changed {
    ($base:expr, $($change:tt)*) => {{
        let mut request = $base;
        $crate::changed!(@ request $($change)*);
        request
    }};
    (@ $request:ident $part:ident . $field:ident = $value:expr $(, $($rest:tt)*)?) => {
        $request.$part.get_or_insert_default().$field = $value;
        $($crate::changed!(@ $request $($rest)*);)?
    };
    (@ $request:ident $field:ident = $value:expr $(, $($rest:tt)*)?) => {
        $request.$field = $value;
        $($crate::changed!(@ $request $($rest)*);)?
    };
    (@ $request:ident) => {};
}
