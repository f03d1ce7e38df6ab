//! What stages hold that were replayed, as far as there is memory to keep it.

use std::collections::BTreeMap;
use std::rc::Rc;

use loadmaster_predict::ActionsPrediction;

/// Most steps of all replays that are kept: some 100 bytes each.
const MOST_STEPS: usize = 1_000_000;

/// Replays by what they are of.
#[derive(Debug)]
pub(super) struct ReplayCache<K> {
    known: BTreeMap<K, Rc<ActionsPrediction>>,
    steps: usize,
}

impl<K> Default for ReplayCache<K> {
    fn default() -> Self {
        Self { known: BTreeMap::new(), steps: 0 }
    }
}

impl<K: Ord> ReplayCache<K> {
    pub(super) fn get(&self, key: &K) -> Option<Rc<ActionsPrediction>> {
        self.known.get(key).map(Rc::clone)
    }

    /// Keeps one; where it would be too many, in place of all others.
    pub(super) fn keep(&mut self, key: K, acted: &Rc<ActionsPrediction>) {
        let steps = acted.curve.len();
        if self.steps.saturating_add(steps) > MOST_STEPS {
            self.known.clear();
            self.steps = 0;
        }
        self.steps += steps;
        self.known.insert(key, Rc::clone(acted));
    }
}
