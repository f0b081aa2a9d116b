//! A bounded FIFO cache of immutable or validated values.
//!
//! Must stay true: the number of entries is bounded; the oldest is evicted first.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};

/// A bounded map from name to value.
#[derive(Debug)]
pub(crate) struct Cache<V> {
    entries: Mutex<Entries<V>>,
    most: usize,
}

#[derive(Debug)]
struct Entries<V> {
    values: HashMap<String, V>,
    order: VecDeque<String>,
}

impl<V: Clone> Cache<V> {
    pub(crate) fn new(most: usize) -> Cache<V> {
        Cache { entries: Mutex::new(Entries { values: HashMap::new(), order: VecDeque::new() }), most }
    }

    pub(crate) fn get(&self, name: &str) -> Option<V> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner).values.get(name).cloned()
    }

    pub(crate) fn put(&self, name: &str, value: V) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        if entries.values.insert(name.to_owned(), value).is_some() {
            return;
        }
        entries.order.push_back(name.to_owned());
        if entries.order.len() > self.most
            && let Some(oldest) = entries.order.pop_front()
        {
            entries.values.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_goes_first() {
        let cache = Cache::new(2);
        for (name, value) in [("a", 1), ("b", 2), ("a", 3), ("c", 4)] {
            cache.put(name, value);
        }
        assert_eq!((cache.get("a"), cache.get("b"), cache.get("c")), (None, Some(2), Some(4)));
    }
}
