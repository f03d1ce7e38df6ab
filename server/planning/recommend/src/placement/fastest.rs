//! The fastest way to put a plan's ranks on nodes.

use super::Placement;
use super::needs::PlacementError;
use super::price::Price;
use super::visits::Parting;
use super::ways::{Seat, Ways};
use loadmaster_search::Stop;

/// Work that may go into a search, in ranks that are priced: what a few thousand ways of eight ranks take.
const WORK: u64 = 1 << 17;
/// Most ways that are priced, and the least.
const LOOKS: std::ops::RangeInclusive<u64> = 24..=2_048;
/// Machines that are taken to come by a way, per look.
const STEPS: u64 = 64;
/// How close to a bound is on it, as a share.
const SAME: f64 = 1e-12;

/// The fastest of all ways, if there are not too many; else the best of some, and of swapping machines of it. None where no way
/// has seconds.
///
/// # Errors
/// There is no way.
pub(super) fn fastest(
    ways: &Ways<'_>,
    pricer: &impl Price,
    stop: &Stop,
) -> Result<Option<(Vec<Seat>, Placement)>, PlacementError> {
    let first = ways.some().ok_or_else(|| ways.torn())?;
    let all = looks(pricer.work(ways));
    let Some((first, seconds)) = some_priced(ways, pricer, first, all, stop) else { return Ok(None) };
    let least = pricer.least(ways, &first).map(|least| least.min(seconds));
    let mut best = BestPlacement { way: first, seconds, least, looks: all };
    // Half is for swapping, which finds more than the last machines of the first way in another order.
    let mut are_all = best.look_at_all(ways, pricer, Parting::ByRule, all / 2, stop);
    if !are_all {
        best.swap(ways, pricer, stop);
    } else if ways.have_parts() {
        are_all = best.look_at_all(ways, pricer, Parting::InAllWays, 0, stop);
    }
    let is_proven = are_all && pricer.tells_all() || best.is_least();
    let BestPlacement { way, seconds, least, .. } = best;
    let least = if is_proven { Some(seconds) } else { least };
    let bound = Placement {
        stages: pricer.devices(ways, &way),
        seconds: Some(seconds),
        least,
        is_proven,
        notes: Vec::new(),
    };
    Ok(Some((way, bound)))
}

/// A way that has seconds: this one, or else the first one that is come by within so many looks.
fn some_priced(
    ways: &Ways<'_>,
    pricer: &impl Price,
    first: Vec<Seat>,
    mut looks: u64,
    stop: &Stop,
) -> Option<(Vec<Seat>, f64)> {
    if let Some(seconds) = pricer.seconds(ways, &first) {
        return Some((first, seconds));
    }
    let mut found = None;
    ways.each(Parting::InAllWays, looks.saturating_mul(STEPS), &mut |way| {
        looks = looks.saturating_sub(1);
        found = pricer.seconds(ways, way).map(|seconds| (way.to_vec(), seconds));
        found.is_none() && looks > 0 && !stop.is_requested()
    });
    found
}

fn looks(work: u64) -> u64 {
    (WORK / work.max(1)).clamp(*LOOKS.start(), *LOOKS.end())
}

/// The best way so far.
struct BestPlacement {
    way: Vec<Seat>,
    seconds: f64,
    least: Option<f64>,
    /// How many more may be priced.
    looks: u64,
}

impl BestPlacement {
    fn is_least(&self) -> bool {
        self.least.is_some_and(|least| self.seconds <= least * (1.0 + SAME))
    }

    fn is_over(&self) -> bool {
        self.looks == 0 || self.is_least()
    }

    /// Looks at the ways until so many looks are left. Whether those were all.
    fn look_at_all(
        &mut self,
        ways: &Ways<'_>,
        pricer: &impl Price,
        parting: Parting,
        left: u64,
        stop: &Stop,
    ) -> bool {
        let steps = self.looks.saturating_mul(STEPS).saturating_add(ways.ranks() as u64);
        let mut seen = 0_u64;
        ways.each(parting, steps, &mut |way| {
            seen += 1;
            // The first one is priced already.
            if seen > 1 || way != self.way {
                self.look(ways, pricer, way);
            }
            !self.is_over() && self.looks > left && !stop.is_requested()
        })
    }

    /// Prices a way, and keeps it if it is faster.
    fn look(&mut self, ways: &Ways<'_>, pricer: &impl Price, way: &[Seat]) -> bool {
        self.looks = self.looks.saturating_sub(1);
        let Some(seconds) = pricer.seconds(ways, way).filter(|&seconds| seconds < self.seconds) else {
            return false;
        };
        self.seconds = seconds;
        self.way = way.to_vec();
        true
    }

    /// Swaps any two machines, one of which may have no rank, as long as that helps.
    fn swap(&mut self, ways: &Ways<'_>, pricer: &impl Price, stop: &Stop) {
        loop {
            let mut machines = ways.taken(&self.way);
            let seated = machines.len();
            let idle: Vec<usize> =
                (0..ways.machines.len()).filter(|machine| !machines.contains(machine)).collect();
            machines.extend(idle);
            let mut has_helped = false;
            // Near ones first: neighbours of a pipeline are what links are between.
            'pairs: for apart in 1..machines.len() {
                for one in 0..seated.min(machines.len() - apart) {
                    if self.is_over() || stop.is_requested() {
                        return;
                    }
                    if ways.are_alike(machines[one], machines[one + apart]) {
                        continue;
                    }
                    machines.swap(one, one + apart);
                    let way = ways.along(machines.iter().copied());
                    has_helped = way.is_some_and(|way| self.look(ways, pricer, &way));
                    if has_helped {
                        break 'pairs;
                    }
                    machines.swap(one, one + apart);
                }
            }
            if !has_helped {
                return;
            }
        }
    }
}
