//! What would make a plan with memory actions possible: each remedy is asked for before it is told.

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::training::Schedule;
use loadmaster_proto::training::actions::{Allowed, Block, Way};

use super::room::{Found, Room};
use super::{ActionsQuestion, KnownAlone};
use crate::recommend::acted::Choice;
use crate::recommend::acted::nodes::most_at_a_host;
use crate::recommend::answer::{RecommendError, Remedy};

/// Host memory that is as good as any.
const AMPLE: Bytes = Bytes(1 << 50);
/// A step of the host memory that is told.
const STEP: u64 = 1 << 20;

/// Changes of what is allowed, or of the limit on time, after which a plan was found.
pub(super) fn remedies(question: &ActionsQuestion<'_>, error: &RecommendError, room: &Room) -> Vec<Remedy> {
    let mut found = Vec::new();
    let allowed = question.choice.allowed;
    let mut check = |what: &str, option: &str, other: Allowed| {
        if question.stop.is_requested() {
            return;
        }
        let choice = Choice { allowed: &other, ..question.choice };
        let other = ActionsQuestion { choice, known: &KnownAlone::default(), ..*question };
        if let Ok(Found { plan, candidate, .. }) = other.fastest(room) {
            let host = Bytes(most_at_a_host(&plan).0.div_ceil(STEP).saturating_mul(STEP));
            let told = |text: &str| text.replace("HOST", &host.to_string());
            let option = option.replace("HOST", &format!("{}MiB", host.0 / STEP));
            found.push(Remedy { what: told(what), option, plan: candidate });
        }
    };
    let is_launched = question.wish.rules.is_some();
    let lacks_ways = Way::ALL.iter().any(|way| !allowed.ways.contains(way));
    if lacks_ways && !is_launched {
        check(
            "all ways to hold less",
            "--actions recompute,host,peer",
            Allowed { ways: Way::ALL.to_vec(), ..allowed.clone() },
        );
    }
    // No more than the cluster says that there is.
    let ample = question.writer.fleet.host_memory().map_or(AMPLE, |there| there.min(AMPLE));
    if allowed.ways.contains(&Way::Host) && allowed.host_memory < ample {
        check(
            "HOST of the host's memory",
            "--host-memory HOST",
            Allowed { host_memory: ample, ..allowed.clone() },
        );
    }
    let blocks = blocks_of(&question.wish.schedules);
    if blocks.iter().any(|block| !allowed.blocks.contains(block)) && !is_launched {
        let names: Vec<&str> = blocks.iter().map(|block| block.as_str()).collect();
        let option = format!("--swap {}", names.join(","));
        check("all blocks", &option, Allowed { blocks: blocks.clone(), ..allowed.clone() });
    }
    if let (RecommendError::Limits { .. }, Some(_)) = (error, question.wish.constraints.max_iteration_seconds)
        && !question.stop.is_requested()
    {
        let mut wish = question.wish.clone();
        wish.constraints.max_iteration_seconds = None;
        let other = ActionsQuestion { wish: &wish, ..*question };
        if let Ok(Found { plan, candidate, .. }) = other.fastest(room)
            && let Some(seconds) = plan.iteration_seconds()
        {
            let seconds = format!("{:.0}ms", (seconds * 1_000.0).ceil());
            let what = format!("iterations of {seconds}");
            found.push(Remedy { what, option: format!("--max-iteration {seconds}"), plan: candidate });
        }
    }
    found
}

/// The blocks that may leave under any of these schedules.
fn blocks_of(schedules: &[Schedule]) -> Vec<Block> {
    let may_leave = |block: &Block| schedules.iter().any(|&schedule| block.may_leave(schedule));
    Block::ALL.into_iter().filter(may_leave).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nobody is told to have leave what cannot, or not told of what can.
    #[test]
    fn blocks_are_those_of_the_schedule() {
        let told = |schedules: &[Schedule]| {
            blocks_of(schedules).iter().map(|block| block.as_str()).collect::<Vec<_>>().join(",")
        };
        assert_eq!(told(&[Schedule::OneFOneB]), "activations,inputs,weights,gradients,optimizer");
        assert_eq!(told(&[Schedule::PipeDream]), "activations,inputs,versions,optimizer");
        let both = [Schedule::Gpipe, Schedule::PipeDream];
        assert_eq!(told(&both), "activations,inputs,versions,weights,gradients,optimizer");
    }
}
