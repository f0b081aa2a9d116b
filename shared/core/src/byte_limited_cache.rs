//! An in-memory cache with a limit in bytes.
//!
//! Must stay true: the values never exceed the limit together; a value larger than 97 % of the limit is not stored.

use std::hash::Hash;

use quick_cache::Weighter;
use quick_cache::sync::{Cache, EntryAction, EntryResult};

/// The estimated number of entries. So small a number makes it one shard, in which one value may take all of the limit.
const ENTRIES_ESTIMATE: usize = 32;

/// A map that evicts what was not used for long when a new value would exceed its limit. Threads share it without a lock.
#[derive(Debug)]
pub struct ByteLimitedCache<K, V>(Cache<K, SizedValue<V>, ValueBytes>);

/// A value with its size in bytes.
#[derive(Debug, Clone)]
struct SizedValue<V> {
    value: V,
    bytes: u64,
}

#[derive(Debug, Clone)]
struct ValueBytes;

impl<K, V> Weighter<K, SizedValue<V>> for ValueBytes {
    fn weight(&self, _: &K, entry: &SizedValue<V>) -> u64 {
        // An entry without weight would never be evicted.
        entry.bytes.max(1)
    }
}

impl<K: Hash + Eq + Clone, V: Clone> ByteLimitedCache<K, V> {
    /// An empty cache for at most `bytes_max` bytes.
    pub fn new(bytes_max: usize) -> Self {
        ByteLimitedCache(Cache::with_weighter(ENTRIES_ESTIMATE, bytes_max as u64, ValueBytes))
    }

    /// The value of `key`.
    pub fn get(&self, key: &K) -> Option<V> {
        self.0.get(key).map(|entry| entry.value)
    }

    /// Applies `change`, which does not change the size, to the value of `key`. Returns its result if there is a value.
    pub fn update<R>(&self, key: &K, change: impl FnOnce(&mut V) -> R) -> Option<R> {
        match self.0.entry(key, None, |_, entry| EntryAction::Retain(change(&mut entry.value))) {
            EntryResult::Retained(result) => Some(result),
            _ => None,
        }
    }

    /// Inserts a value of this size.
    pub fn insert(&self, key: K, value: V, bytes: usize) {
        self.0.insert(key, SizedValue { value, bytes: bytes as u64 });
    }

    /// Removes all values.
    pub fn clear(&self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_byte_limit_is_never_exceeded() {
        let cache = ByteLimitedCache::new(1000);
        for key in 0..1000 {
            cache.insert(key, 'a', key);
            assert!(cache.0.weight() <= 1000, "{key}");
        }
        assert_eq!((cache.get(&970), cache.get(&971)), (Some('a'), None));
        cache.insert(1, 'b', 30);
        assert_eq!(cache.get(&1), Some('b'));
        cache.insert(1, 'c', 971);
        assert_eq!(cache.get(&1), None, "a value that is too large replaces the one before it");
        cache.clear();
        assert_eq!((cache.get(&970), cache.0.weight()), (None, 0));
    }

    #[test]
    fn a_value_is_changed_in_place() {
        let cache = ByteLimitedCache::new(10);
        cache.insert('a', 1, 5);
        assert_eq!(cache.update(&'a', |value| std::mem::replace(value, 2)), Some(1));
        assert_eq!(cache.update(&'b', |value| std::mem::replace(value, 2)), None);
        assert_eq!((cache.get(&'a'), cache.get(&'b')), (Some(2), None));
    }
}
