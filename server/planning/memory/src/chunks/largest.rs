//! The largest model of a family that there is room for.

use super::question::{ChunkQuestion, Passes};
use super::refusal::NoChunks;
use super::room::fits;

/// The largest of these parameters whose model there is room for; none where there is room for none. Families grow with their
/// parameter, so about as many of them are looked at as the range has bits, and none is simulated. A parameter without a
/// question has no room.
///
/// # Errors
/// A question makes no sense, or what steps cost is not known.
pub fn largest<P: Passes>(
    parameters: std::ops::RangeInclusive<u64>,
    question: impl Fn(u64) -> Option<(ChunkQuestion, P)>,
) -> Result<Option<u64>, NoChunks> {
    let (mut low, mut high) = parameters.into_inner();
    let mut found = None;
    while low <= high {
        let middle = low + (high - low) / 2;
        let has_room =
            question(middle).map(|(question, passes)| fits(&question, &passes, &|| false)).transpose()?;
        if has_room.unwrap_or(false) {
            found = Some(middle);
            let Some(above) = middle.checked_add(1) else { break };
            low = above;
        } else {
            let Some(below) = middle.checked_sub(1) else { break };
            high = below;
        }
    }
    Ok(found)
}
