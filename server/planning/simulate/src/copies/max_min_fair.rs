//! Who gets how much of what is shared.

/// A flow that wants as much as it can get.
#[derive(Debug, Clone, Copy)]
pub(super) struct Flow<'t> {
    /// The most that it can take.
    pub(super) most: f64,
    /// What it shares with others, each once.
    pub(super) groups: &'t [u32],
}

/// Max-min fair rates: a flow can only get more if a flow that has no more gets less.
#[derive(Debug, Default)]
pub(super) struct MaxMin {
    /// What each flow gets.
    pub(super) rates: Vec<f64>,
    limits: Vec<f64>,
    /// By group: flows that have no rate yet.
    open: Vec<u32>,
}

impl MaxMin {
    /// Shares out what each group has `left`.
    pub(super) fn share(&mut self, flows: &[Flow<'_>], left: &mut [f64]) {
        let Self { rates, limits, open } = self;
        rates.clear();
        rates.resize(flows.len(), f64::NAN);
        if let Some((&[group], others)) = flows.split_first().map(|(first, others)| (first.groups, others))
            && others.iter().all(|flow| flow.groups == [group])
        {
            share_one(flows, left[group as usize], rates);
            return;
        }
        open.resize(left.len(), 0);
        flows.iter().flat_map(|flow| flow.groups).for_each(|&group| open[group as usize] += 1);
        let mut waiting = flows.len();
        while waiting > 0 {
            limits.clear();
            limits.extend(flows.iter().zip(rates.iter()).map(|(flow, rate)| {
                if !rate.is_nan() {
                    return f64::INFINITY;
                }
                let share =
                    |&group: &u32| left[group as usize].max(0.0) / f64::from(open[group as usize].max(1));
                flow.groups.iter().map(share).fold(flow.most, f64::min)
            }));
            let lowest = limits.iter().copied().fold(f64::INFINITY, f64::min);
            // All that are held back most, by the state before any of them is served.
            for (index, flow) in flows.iter().enumerate() {
                if rates[index].is_nan() && limits[index] <= lowest {
                    rates[index] = lowest;
                    waiting -= 1;
                    for &group in flow.groups {
                        left[group as usize] -= lowest;
                        open[group as usize] -= 1;
                    }
                }
            }
        }
    }
}

/// The same where all flows share one rate and nothing else, as those of most uplinks do.
fn share_one(flows: &[Flow<'_>], mut left: f64, rates: &mut [f64]) {
    let mut open = flows.len();
    let share = left.max(0.0) / open as f64;
    if flows.iter().all(|flow| flow.most >= share) {
        rates.fill(share);
        return;
    }
    while open > 0 {
        let share = left.max(0.0) / open as f64;
        let waiting = || flows.iter().zip(rates.iter()).filter(|(_, rate)| rate.is_nan());
        let lowest = waiting().fold(share, |lowest, (flow, _)| lowest.min(flow.most));
        for (flow, rate) in flows.iter().zip(rates.iter_mut()) {
            if rate.is_nan() && flow.most.min(share) <= lowest {
                (*rate, left, open) = (lowest, left - lowest, open - 1);
            }
        }
    }
}

/// What is at work on cores, in several slots alike.
#[derive(Debug, Clone, Copy)]
pub(super) struct Want {
    /// The share of a core that each of them wants.
    pub(super) of_slot: f64,
    pub(super) slots: f64,
}

/// The most that each slot of those who want these shares of cores gets. A slot that wants less gets what it wants, and
/// the others share the rest equally.
pub(super) fn level(wants: impl Iterator<Item = Want> + Clone, cores: f64) -> f64 {
    // Mostly all want more than an equal share, or all less.
    let (mut all, mut least, mut most) = (0.0, f64::INFINITY, 0.0_f64);
    for want in wants.clone() {
        all += want.slots;
        least = if want.of_slot < least { want.of_slot } else { least };
        most = if want.of_slot > most { want.of_slot } else { most };
    }
    let equal = cores.max(0.0) / all;
    if least > 0.0 && equal > 0.0 {
        if least > equal {
            return equal;
        }
        if most <= equal {
            return f64::INFINITY;
        }
    }
    let mut level = 0.0;
    loop {
        let (mut small, mut others) = (0.0, 0.0);
        for want in wants.clone() {
            if want.of_slot <= level {
                small += want.of_slot * want.slots;
            } else {
                others += want.slots;
            }
        }
        if others == 0.0 {
            return f64::INFINITY;
        }
        let higher = (cores - small).max(0.0) / others;
        if higher <= level {
            return level;
        }
        level = higher;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// No flow gets more than there is. A flow that gets less than it wants is held back by a used-up group in which
        /// no other flow has more: that is what max-min fair means.
        #[test]
        fn who_is_held_back_shares_with_none_who_has_more(
            wants in prop_oneof![
                prop::collection::vec((0.0..9.0_f64, prop::collection::btree_set(0_u32..4, 0..3)), 1..8),
                prop::collection::vec((0.0..9.0_f64, Just(std::collections::BTreeSet::from([2]))), 1..8),
            ],
            rates_of_groups in prop::collection::vec(0.0..12.0_f64, 4),
        ) {
            let groups: Vec<Vec<u32>> = wants.iter().map(|(_, groups)| groups.iter().copied().collect()).collect();
            let flows: Vec<Flow<'_>> =
                wants.iter().zip(&groups).map(|(&(most, _), groups)| Flow { most, groups }).collect();
            let mut fair = MaxMin::default();
            // What one sharing leaves behind is nothing to the next one.
            for _ in 0..2 {
                fair.share(&flows, &mut rates_of_groups.clone());
            }
            let rates = fair.rates;
            let members = |group: u32| {
                let of = flows.iter().zip(&rates).filter(move |(flow, _)| flow.groups.contains(&group));
                of.map(|(_, &rate)| rate)
            };
            for (group, &all) in (0..).zip(&rates_of_groups) {
                prop_assert!(members(group).sum::<f64>() <= all + 1e-9);
            }
            for (flow, &rate) in flows.iter().zip(&rates) {
                let holds_back = |&group: &u32| {
                    let is_used_up = members(group).sum::<f64>() >= rates_of_groups[group as usize] - 1e-9;
                    is_used_up && members(group).all(|other| other <= rate + 1e-9)
                };
                prop_assert!((0.0..=flow.most).contains(&rate));
                prop_assert!(rate >= flow.most - 1e-9 || flow.groups.iter().any(holds_back), "{flow:?} {rate}");
            }
        }

        /// All cores are used as far as they are wanted, and a slot with less than it wants has no less than any other
        /// slot.
        #[test]
        fn cores_are_shared_equally(
            slots in prop::collection::vec((0.01..1.0_f64, 1_u32..4), 1..8), cores in 0.1..8.0_f64,
        ) {
            let of = |&(of_slot, slots): &(f64, u32)| Want { of_slot, slots: f64::from(slots) };
            let level = level(slots.iter().map(of), cores);
            let each = |&(of_slot, slots): &(f64, u32)| vec![of_slot; slots as usize];
            let wants: Vec<f64> = slots.iter().flat_map(each).collect();
            let shares: Vec<f64> = wants.iter().map(|want| want.min(level)).collect();
            let used: f64 = shares.iter().sum();
            prop_assert!((used - cores.min(wants.iter().sum())).abs() < 1e-9);
            for (&share, &want) in shares.iter().zip(&wants) {
                prop_assert!(share <= want);
                prop_assert!(share >= want - 1e-9 || shares.iter().all(|&other| other <= share + 1e-9));
            }
        }
    }
}
