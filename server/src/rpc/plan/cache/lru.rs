//! Values by key, the least recently used of which make room.

use std::fmt;
use std::hash::Hash;
use std::sync::{Mutex, PoisonError};

use hashlink::LinkedHashMap;

/// Values whose weights add up to a limit at most.
pub(super) struct Lru<Key, Value> {
    most: usize,
    shelf: Mutex<LruEntries<Key, Value>>,
}

struct LruEntries<Key, Value> {
    /// With their weights, the least recently used first.
    entries: LinkedHashMap<Key, (Value, usize)>,
    weight: usize,
}

impl<Key, Value> fmt::Debug for Lru<Key, Value> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shelf = self.shelf.lock().unwrap_or_else(PoisonError::into_inner);
        f.debug_struct("Lru").field("weight", &shelf.weight).field("most", &self.most).finish_non_exhaustive()
    }
}

impl<Key: Eq + Hash, Value: Clone> Lru<Key, Value> {
    /// Nothing yet, and at most this weight.
    pub(super) fn new(most: usize) -> Self {
        Self { most, shelf: Mutex::new(LruEntries { entries: LinkedHashMap::new(), weight: 0 }) }
    }

    /// The value of a key.
    pub(super) fn get(&self, key: &Key) -> Option<Value> {
        self.with(|shelf| Some(shelf.entries.to_back(key)?.0.clone()))
    }

    /// The value of a key if it is still good, else another one of this weight in its place.
    pub(super) fn get_or(
        &self,
        key: &Key,
        is_good: impl Fn(&Value) -> bool,
        weight: usize,
        make: impl FnOnce() -> Value,
    ) -> Value
    where
        Key: Clone,
    {
        self.with(|shelf| match shelf.entries.to_back(key).filter(|(value, _)| is_good(value)) {
            Some((value, _)) => value.clone(),
            None => {
                let value = make();
                shelf.put(key.clone(), value.clone(), weight, self.most);
                value
            }
        })
    }

    /// Keeps a value of this weight in place of any other of its key; not one that is too heavy by itself.
    pub(super) fn put(&self, key: Key, value: Value, weight: usize) {
        self.with(|shelf| shelf.put(key, value, weight, self.most));
    }

    /// Says what a value weighs by now.
    pub(super) fn weigh(&self, key: &Key, weight: usize) {
        self.with(|shelf| {
            let Some((_, known)) = shelf.entries.get_mut(key) else { return };
            shelf.weight = shelf.weight - *known + weight;
            *known = weight;
            shelf.make_room(self.most);
        });
    }

    /// Drops a key.
    pub(super) fn forget(&self, key: &Key) {
        self.with(|shelf| {
            if let Some((_, weight)) = shelf.entries.remove(key) {
                shelf.weight -= weight;
            }
        });
    }

    fn with<T>(&self, act: impl FnOnce(&mut LruEntries<Key, Value>) -> T) -> T {
        // A panic elsewhere cannot leave an entry half written.
        act(&mut self.shelf.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl<Key: Eq + Hash, Value> LruEntries<Key, Value> {
    fn put(&mut self, key: Key, value: Value, weight: usize, most: usize) {
        self.weight += weight;
        if let Some((_, replaced)) = self.entries.insert(key, (value, weight)) {
            self.weight -= replaced;
        }
        self.make_room(most);
    }

    /// Drops what was not used for longest.
    fn make_room(&mut self, most: usize) {
        while self.weight > most
            && let Some((_, (_, weight))) = self.entries.pop_front()
        {
            self.weight -= weight;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept<const N: usize>(kept: &Lru<u32, u32>, keys: [u32; N]) -> [bool; N] {
        keys.map(|key| kept.with(|shelf| shelf.entries.contains_key(&key)))
    }

    /// What was used last stays, and the weights never add up to more than the limit.
    #[test]
    fn the_least_recently_used_makes_room() {
        let shelf = Lru::new(8);
        (0..8).for_each(|key| shelf.put(key, 10 * key, 1));
        assert_eq!(shelf.get(&0), Some(0));
        shelf.put(8, 80, 1);
        assert_eq!(kept(&shelf, [0, 1, 2, 7, 8]), [true, false, true, true, true]);
        assert_eq!(shelf.with(|shelf| shelf.weight), 8);
        shelf.put(9, 90, 100);
        assert_eq!(shelf.get(&9), None, "too heavy by itself");
        assert_eq!(shelf.with(|shelf| (shelf.weight, shelf.entries.len())), (0, 0));
    }

    /// A value that grew is weighed again, and its room counts no more once it is gone.
    #[test]
    fn weights_follow_their_values() {
        let shelf = Lru::new(10);
        shelf.put(1, 1, 4);
        shelf.put(2, 2, 4);
        shelf.weigh(&2, 9);
        assert_eq!(kept(&shelf, [1, 2]), [false, true], "13 is too much");
        shelf.put(2, 22, 5);
        assert_eq!((shelf.get(&2), shelf.with(|shelf| shelf.weight)), (Some(22), 5));
        shelf.forget(&2);
        assert_eq!(shelf.with(|shelf| shelf.weight), 0);
    }

    #[test]
    fn what_is_no_longer_good_is_replaced() {
        let shelf = Lru::new(10);
        assert_eq!(shelf.get_or(&1, |_| true, 1, || 5), 5);
        assert_eq!(shelf.get_or(&1, |&value| value == 5, 1, || 6), 5);
        assert_eq!(shelf.get_or(&1, |&value| value == 7, 1, || 7), 7);
        assert_eq!(shelf.with(|shelf| (shelf.weight, shelf.entries.len())), (1, 1));
    }
}
