//! A cache of immutable or validated values, limited by their number.
//!
//! Must stay true: the number of entries is bounded; what was not used for long is evicted first.

use quick_cache::{UnitWeighter, sync};

/// So small an estimate makes the cache one shard, whose limit is exact.
const ENTRIES_ESTIMATE: usize = 32;

/// A bounded map from name to value.
#[derive(Debug)]
pub(crate) struct Cache<V>(sync::Cache<String, V>);

impl<V: Clone> Cache<V> {
    pub(crate) fn new(most: usize) -> Cache<V> {
        Cache(sync::Cache::with_weighter(ENTRIES_ESTIMATE, most as u64, UnitWeighter))
    }

    pub(crate) fn get(&self, name: &str) -> Option<V> {
        self.0.get(name)
    }

    pub(crate) fn put(&self, name: &str, value: V) {
        self.0.insert(name.to_owned(), value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_entries_is_bounded() {
        let cache = Cache::new(2);
        for number in 0..100 {
            cache.put(&number.to_string(), number);
            assert!(cache.0.len() <= 2);
        }
        assert_eq!(cache.get("99"), Some(99));
    }
}
