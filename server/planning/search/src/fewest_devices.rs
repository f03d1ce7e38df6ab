//! The fewest devices that hold a chain, wherever they are.
//!
//! A dynamic program from the last layer to the first: how many micro-batches a stage holds depends on the stages
//! after it alone. Nothing is said about nodes and links, so no part of a fleet with fewer devices holds the chain,
//! and one with as many may still not.

use super::{Cuts, Schedule, StageAt, StageCosts, Stop};

/// Work of asking for a stage.
const STAGE: u64 = 10;

/// What is asked.
#[derive(Debug)]
pub struct Chain<'a, C> {
    /// Bytes of stages on the best of the devices.
    pub costs: &'a C,
    /// A stage on them, whatever its layers and choice.
    pub at: StageAt,
    /// Bytes that the largest device allows.
    pub capacity: u64,
    /// The most bytes of any device besides.
    pub most_bytes: u64,
    /// Which of the costs' choices a stage may make, by index.
    pub choices: &'a [usize],
    /// Order of the passes.
    pub schedule: Schedule,
    /// Stage passes per iteration.
    pub micro_batches: u32,
    pub most_stages: usize,
    /// Where the chain may be cut; pins do not count.
    pub cuts: &'a Cuts,
}

/// The fewest devices, if they are fewer than `below`; none where no such number is enough, or when stopped: then
/// `stop` says so.
pub fn fewest<C: StageCosts>(chain: &Chain<'_, C>, below: u32, stop: &Stop) -> Option<u32> {
    let layers = chain.costs.layers();
    // Beyond as many stages as there are micro-batches nothing more is held.
    let told_apart = match chain.schedule {
        Schedule::Gpipe => 1,
        Schedule::OneFOneB => (chain.micro_batches as usize).clamp(1, layers.max(1)),
        Schedule::PipeDream => layers.max(1),
    };
    let mut least: Option<u32> = None;
    // By first layer: the fewest devices for it and all layers after it in exactly so many stages, or in that many at
    // least where they are not told apart any more.
    let mut after: Vec<Option<u32>> = vec![None; layers + 1];
    *after.last_mut()? = Some(0);
    for count in 0..chain.most_stages.min(layers) {
        let in_flight = match chain.schedule {
            Schedule::Gpipe => chain.micro_batches,
            Schedule::OneFOneB => chain.micro_batches.min(u32::try_from(count + 1).unwrap_or(u32::MAX)),
            Schedule::PipeDream => u32::try_from(count + 1).unwrap_or(u32::MAX),
        };
        let mut now: Vec<Option<u32>> = vec![None; layers + 1];
        for first in (0..layers).filter(|&first| first == 0 || chain.cuts.may_end(first - 1)) {
            if !stop.take(STAGE * ((layers - first) * chain.choices.len()) as u64) || stop.is_requested() {
                return None;
            }
            for last in first..layers {
                if let Some(rest) = after[last + 1].filter(|_| chain.cuts.may_end(last)) {
                    // Before it is one more device at least, if anything is.
                    let most = least.unwrap_or(below).min(below).saturating_sub(u32::from(first > 0));
                    let most = now[first].map_or(most, |known: u32| known.min(most));
                    let own = chain.choices.iter().filter_map(|&choice| {
                        let devices = chain.costs.choices().get(choice)?.devices();
                        // Only what would be fewer is asked for.
                        if devices.saturating_add(rest) >= most {
                            return None;
                        }
                        let stage = StageAt { first, last, choice, ..chain.at };
                        let peak = chain.costs.peak(&stage, in_flight)?;
                        (peak.needed <= chain.capacity && peak.bytes <= chain.most_bytes).then_some(devices)
                    });
                    let whole = own.min().map(|own| own.saturating_add(rest));
                    now[first] = now[first].into_iter().chain(whole).min();
                }
                if chain.cuts.must_end(last) {
                    break;
                }
            }
        }
        if count + 1 >= told_apart {
            // Fewer stages hold no more.
            now.iter_mut().zip(&after).for_each(|(now, after)| {
                *now = now.iter().chain(after).copied().min();
            });
        }
        let is_settled = now.iter().all(Option::is_none) || (count + 1 >= told_apart && now == after);
        least = least.into_iter().chain(now[0]).min();
        after = now;
        if is_settled {
            break;
        }
    }
    least
}
