//! An in-memory cache with a limit in bytes.

use std::collections::HashMap;
use std::hash::Hash;

/// A map that drops all entries when a new one would exceed its limit.
#[derive(Debug)]
pub struct ByteLimitedCache<K, V> {
    entries: HashMap<K, (V, usize)>,
    bytes: usize,
    bytes_max: usize,
}

impl<K: Hash + Eq, V> ByteLimitedCache<K, V> {
    /// An empty cache for at most `bytes_max` bytes.
    pub fn new(bytes_max: usize) -> Self {
        ByteLimitedCache { entries: HashMap::new(), bytes: 0, bytes_max }
    }

    /// The value of `key`.
    pub fn get(&self, key: &K) -> Option<&V> {
        self.entries.get(key).map(|(value, _)| value)
    }

    /// The value of `key`, for changes that do not change its size.
    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.entries.get_mut(key).map(|(value, _)| value)
    }

    /// Inserts a value of this size. A value larger than the limit is not stored.
    pub fn insert(&mut self, key: K, value: V, bytes: usize) {
        if let Some((_, old_bytes)) = self.entries.remove(&key) {
            self.bytes -= old_bytes;
        }
        if self.bytes + bytes > self.bytes_max {
            self.entries.clear();
            self.bytes = 0;
        }
        if bytes <= self.bytes_max {
            self.bytes += bytes;
            self.entries.insert(key, (value, bytes));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_byte_limit_is_never_exceeded() {
        let mut map = ByteLimitedCache::new(10);
        map.insert(1, 'a', 4);
        map.insert(2, 'b', 6);
        assert_eq!((map.get(&1), map.get(&2), map.bytes), (Some(&'a'), Some(&'b'), 10));
        map.insert(2, 'c', 5);
        assert_eq!((map.get(&1), map.get(&2), map.bytes), (Some(&'a'), Some(&'c'), 9));
        map.insert(3, 'd', 2);
        assert_eq!((map.get(&1), map.get(&3), map.bytes), (None, Some(&'d'), 2));
        map.insert(4, 'e', 11);
        assert_eq!((map.get(&3), map.get(&4), map.bytes), (None, None, 0));
    }
}
