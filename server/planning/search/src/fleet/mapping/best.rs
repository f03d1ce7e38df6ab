//! The best mapping.

use super::LinkGraph;

/// The best mapping that was found.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    /// By stage, its device.
    pub mapping: Vec<usize>,
    /// Its value.
    pub value: f64,
    /// How many mappings the links tell apart; none where they are too many to list.
    pub classes: Option<usize>,
    /// Of how many the value was asked.
    pub valued: usize,
    /// Whether no other mapping has a smaller value.
    pub is_exact: bool,
}

/// What is known of a mapping before it is valued.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Promise {
    /// Its value is at least this.
    pub bound: f64,
    /// That with less of this is looked at first.
    pub guess: f64,
}

/// The mapping of so many stages with the smallest value, of equally good ones the one that was valued first: stages in the
/// order of the devices come before all others. `promise` says quickly what to expect, `value` what it is; none of a
/// mapping that is impossible. No mapping at all: nothing is possible.
///
/// Exact on nodes of up to [`LinkGraph::MOST_LISTED`] devices if at most `most` values have to be asked for. On larger ones
/// stages change places by twos as long as that helps, from the order of the devices on.
pub fn best(
    graph: &LinkGraph,
    stages: usize,
    most: usize,
    mut promise: impl FnMut(&[usize]) -> Promise,
    mut value: impl FnMut(&[usize]) -> Option<f64>,
) -> Option<Found> {
    let Some(all) = graph.classes(stages) else { return exchanged(graph.devices(), stages, most, value) };
    let classes = all.len();
    let mut promised: Vec<(Promise, Vec<usize>)> =
        all.into_iter().map(|mapping| (promise(&mapping), mapping)).collect();
    // The first of all is in order; what is likely to be best comes next, so that the rest is soon left out.
    if let Some((_, others)) = promised.split_first_mut() {
        others.sort_by(|(a, _), (b, _)| a.guess.total_cmp(&b.guess));
    }
    let mut found: Option<Found> = None;
    let (mut valued, mut is_exact) = (0, true);
    for (promise, mapping) in promised {
        if found.as_ref().is_some_and(|found| promise.bound >= found.value) {
            continue;
        }
        if valued == most {
            is_exact = false;
            break;
        }
        valued += 1;
        let Some(value) = value(&mapping) else { continue };
        if found.as_ref().is_none_or(|found| value < found.value) {
            found = Some(Found { mapping, value, classes: Some(classes), valued, is_exact: true });
        }
    }
    found.map(|found| Found { valued, is_exact, ..found })
}

/// Exchanges the devices of two places, used or not, as long as that makes the value smaller and at most so many are asked for;
/// from the order of the devices on.
pub fn exchanged(
    devices: usize,
    stages: usize,
    most: usize,
    mut value: impl FnMut(&[usize]) -> Option<f64>,
) -> Option<Found> {
    let mut order: Vec<usize> = (0..devices).collect();
    let mut least = value(order.get(..stages)?);
    let mut valued = 1;
    loop {
        let before = least;
        for one in 0..stages {
            for other in one + 1..devices {
                if valued >= most {
                    break;
                }
                order.swap(one, other);
                valued += 1;
                let changed = order.get(..stages).and_then(&mut value);
                if changed.is_some_and(|changed| least.is_none_or(|least| changed < least)) {
                    least = changed;
                } else {
                    order.swap(one, other);
                }
            }
        }
        if least == before {
            break;
        }
    }
    let mapping = order.get(..stages)?.to_vec();
    least.map(|value| Found { mapping, value, classes: None, valued, is_exact: false })
}
