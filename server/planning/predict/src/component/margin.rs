//! How sure a prediction is.
//!
//! A replay at recorded sizes repeats what was measured, so on CPU slots it errs by nothing at all, in any
//! precision. The margins below are for what no recording shows, such as rounding of a caching allocator. Between
//! and beyond recorded sizes they are all that fp32 on CPU slots has needed.
//!
//! They are the least margins. Two things widen them: what kernels may take for themselves in bf16 and on GPUs at
//! sizes that were not recorded, up to the peak of a second replay (`scratch.rs`). And the profile's checks (stages
//! of several layers that nothing was learnt from), whose largest error and a quarter more is the least margin.

use crate::Origin;

/// Least margin where everything was recorded.
pub const PROFILED: f64 = 0.005;
/// Least margin between recorded sizes or degrees.
pub const INTERPOLATED: f64 = 0.01;
/// Least margin beyond recorded sizes or degrees.
pub const EXTRAPOLATED: f64 = 0.05;
/// Least margin where kernels chose other algorithms: recordings at two sizes have different events, or a
/// size of one is read from larger ones. Twice what any other reading needs.
pub const UNALIGNED: f64 = 0.1;
/// What the largest error of the checks is multiplied by: later stages are others.
pub const ALLOWANCE: f64 = 1.25;

/// The margin of a prediction; `largest_error` is that of the checks.
pub(super) fn margin(origin: Origin, is_aligned: bool, largest_error: Option<f64>) -> f64 {
    let base = match origin {
        _ if !is_aligned => UNALIGNED,
        Origin::Profiled | Origin::Imported => PROFILED,
        Origin::Interpolated => INTERPOLATED,
        Origin::Extrapolated => EXTRAPOLATED,
    };
    base.max(ALLOWANCE * largest_error.unwrap_or_default())
}
