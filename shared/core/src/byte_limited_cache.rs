//! What a process remembers, bounded in bytes.

use std::collections::HashMap;
use std::hash::Hash;

/// A map that starts anew when it has grown too large.
#[derive(Debug)]
pub struct ByteLimitedCache<K, V> {
    entries: HashMap<K, (V, usize)>,
    bytes: usize,
    most: usize,
}

impl<K: Hash + Eq, V> ByteLimitedCache<K, V> {
    /// An empty map that takes `most` bytes.
    pub fn new(most: usize) -> Self {
        ByteLimitedCache { entries: HashMap::new(), bytes: 0, most }
    }

    /// What is kept under `key`.
    pub fn get(&self, key: &K) -> Option<&V> {
        self.entries.get(key).map(|(value, _)| value)
    }

    /// What is kept under `key`, to be changed to something of the same size.
    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.entries.get_mut(key).map(|(value, _)| value)
    }

    /// Keeps a value that takes `bytes`, if it fits at all.
    pub fn insert(&mut self, key: K, value: V, bytes: usize) {
        if let Some((_, before)) = self.entries.remove(&key) {
            self.bytes -= before;
        }
        if self.bytes + bytes > self.most {
            self.entries.clear();
            self.bytes = 0;
        }
        if bytes <= self.most {
            self.bytes += bytes;
            self.entries.insert(key, (value, bytes));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_never_holds_more_bytes_than_it_may() {
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
