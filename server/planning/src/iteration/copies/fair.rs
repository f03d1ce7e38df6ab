//! Who gets how much of what is shared.

/// A flow that wants as much as it can get.
#[derive(Debug, Clone, Default)]
pub(super) struct Flow {
    /// The most that it can take.
    pub(super) most: f64,
    /// What it shares with others, as indices of `left`.
    pub(super) groups: Vec<u32>,
}

/// Max-min fair rates: nobody can have more without somebody who has no more having less. `left` is what each group
/// has; `rates` becomes what each flow gets.
pub(super) fn max_min(flows: &[Flow], left: &mut [f64], rates: &mut Vec<f64>) {
    rates.clear();
    rates.resize(flows.len(), f64::NAN);
    let mut open = vec![0_u32; left.len()];
    flows.iter().flat_map(|flow| &flow.groups).for_each(|&group| open[group as usize] += 1);
    loop {
        let limit = |flow: &Flow, left: &[f64], open: &[u32]| {
            let share = |&group: &u32| left[group as usize].max(0.0) / f64::from(open[group as usize].max(1));
            flow.groups.iter().map(share).fold(flow.most, f64::min)
        };
        let still = || flows.iter().enumerate();
        let lowest = still()
            .filter(|&(index, _)| rates[index].is_nan())
            .map(|(_, flow)| limit(flow, left, &open))
            .fold(f64::INFINITY, f64::min);
        if lowest == f64::INFINITY {
            return;
        }
        // All that are at the limit now, by the state before any of them is served.
        let served: Vec<usize> = still()
            .filter(|&(index, flow)| rates[index].is_nan() && limit(flow, left, &open) <= lowest)
            .map(|(index, _)| index)
            .collect();
        for index in served {
            rates[index] = lowest;
            for &group in &flows[index].groups {
                left[group as usize] -= lowest;
                open[group as usize] -= 1;
            }
        }
    }
}

/// The shares of cores that jobs get which want these: equal ones, and what one does not want goes to the others.
pub(super) fn equally(wants: &[f64], cores: f64, shares: &mut Vec<f64>) {
    shares.clear();
    shares.extend_from_slice(wants);
    if wants.iter().sum::<f64>() <= cores {
        return;
    }
    let mut order: Vec<usize> = (0..wants.len()).collect();
    order.sort_by(|&one, &other| wants[one].total_cmp(&wants[other]));
    let mut left = cores;
    for (served, &index) in order.iter().enumerate() {
        let share = wants[index].min(left.max(0.0) / (wants.len() - served) as f64);
        shares[index] = share;
        left -= share;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Nobody has more than there is, and whoever has less than wanted is held back by a group that is used up and in
        /// which no other has more: that is what max-min fair means.
        #[test]
        fn who_is_held_back_shares_with_none_who_has_more(
            wants in prop::collection::vec((0.0..9.0_f64, prop::collection::btree_set(0_u32..4, 0..3)), 1..8),
            rates_of_groups in prop::collection::vec(0.0..12.0_f64, 4),
        ) {
            let flows: Vec<Flow> =
                wants.into_iter().map(|(most, groups)| Flow { most, groups: groups.into_iter().collect() }).collect();
            let (mut left, mut rates) = (rates_of_groups.clone(), Vec::new());
            max_min(&flows, &mut left, &mut rates);
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

        /// All cores are used as far as they are wanted, and whoever has less than wanted has no less than any other.
        #[test]
        fn cores_are_shared_equally(wants in prop::collection::vec(0.01..1.0_f64, 1..8), cores in 0.1..8.0_f64) {
            let mut shares = Vec::new();
            equally(&wants, cores, &mut shares);
            let used: f64 = shares.iter().sum();
            prop_assert!((used - cores.min(wants.iter().sum())).abs() < 1e-9);
            for (&share, &want) in shares.iter().zip(&wants) {
                prop_assert!(share <= want);
                prop_assert!(share >= want - 1e-9 || shares.iter().all(|&other| other <= share + 1e-9));
            }
        }
    }
}
