//! String interner: each distinct text is stored once.

use hashbrown::HashTable;

/// The texts, numbered in order of appearance.
#[derive(Default)]
pub(super) struct Interner {
    bytes: String,
    ends: Vec<usize>,
    table: HashTable<u32>,
    /// Randomly keyed, because texts are untrusted.
    hasher: ahash::RandomState,
}

impl Interner {
    /// The number of `text`.
    pub(super) fn number(&mut self, text: &str) -> u32 {
        let hash = self.hasher.hash_one(text);
        let (bytes, ends, hasher) = (&self.bytes, &self.ends, &self.hasher);
        if let Some(number) = self.table.find(hash, |number| get(bytes, ends, *number) == text) {
            return *number;
        }
        let number = self.ends.len() as u32;
        self.table.insert_unique(hash, number, |other| hasher.hash_one(get(bytes, ends, *other)));
        self.bytes.push_str(text);
        self.ends.push(self.bytes.len());
        number
    }

    /// The number of `text`, if it was interned.
    pub(super) fn known(&self, text: &str) -> Option<u32> {
        let hash = self.hasher.hash_one(text);
        self.table.find(hash, |number| self.text(*number) == text).copied()
    }

    pub(super) fn text(&self, number: u32) -> &str {
        get(&self.bytes, &self.ends, number)
    }

    /// Number of texts.
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Approximate bytes of memory.
    pub(super) fn memory(&self) -> usize {
        self.bytes.capacity() + self.ends.capacity() * 8 + self.table.capacity() * 5
    }
}

fn get<'a>(bytes: &'a str, ends: &[usize], number: u32) -> &'a str {
    let at = number as usize;
    let start = if at == 0 { 0 } else { ends[at - 1] };
    &bytes[start..ends[at]]
}
