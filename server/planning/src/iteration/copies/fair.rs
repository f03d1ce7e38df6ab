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
