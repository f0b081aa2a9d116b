//! Reading items until their bodies have a number of bytes: a body of half a megabyte may lie in two kilobytes, so what is
//! read says little about what it takes unpacked.
//!
//! Must stay true: bodies are unpacked one after the other and no further than the first that goes beyond the bound;
//! bodies in parts are read only once it is known that they belong to the rest.

use std::collections::HashMap;

use super::item::{Attributes, Item, Key};
use super::parts::PART_BYTES;
use super::{StoreError, Table};

/// The first items of those that were asked for.
#[derive(Debug)]
pub struct ByteLimitedRead {
    /// The items.
    pub items: Vec<Item>,
    /// Whether there are no more.
    pub is_complete: bool,
}

/// The first of the items `stored`, up to the one with which their bodies have more than `most` bytes, that one
/// included; those that are stored in parts without their bodies.
pub(super) fn take_within_bytes(
    stored: impl IntoIterator<Item = Attributes>,
    most: usize,
) -> Result<ByteLimitedRead, StoreError> {
    let (mut items, mut bytes) = (Vec::new(), 0);
    for attributes in stored {
        if bytes > most {
            return Ok(ByteLimitedRead { items, is_complete: false });
        }
        let item = Item::from_attributes(attributes)?;
        let in_parts = item.parts().map_or(0, |parts| parts.count * PART_BYTES);
        bytes += item.text.len() + item.bytes.len() + in_parts;
        items.push(item);
    }
    Ok(ByteLimitedRead { items, is_complete: true })
}

impl Table {
    /// The items at `keys`, which differ, in their order, without those that are not there; up to the one with which their
    /// bodies have more than `most` bytes.
    pub async fn batch_get_within_bytes(
        &self,
        keys: &[Key],
        most: usize,
    ) -> Result<ByteLimitedRead, StoreError> {
        let stored = self.batch_get_stored(keys).await?;
        let mut stored: HashMap<Key, Attributes> = stored
            .into_iter()
            .map(|item| Ok((Item::key_of(&item)?, item)))
            .collect::<Result<_, StoreError>>()?;
        let first = take_within_bytes(keys.iter().filter_map(|key| stored.remove(key)), most)?;
        Ok(ByteLimitedRead { items: self.completed(first.items).await?, ..first })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn stored(length: usize) -> Attributes {
        Item { text: "1".repeat(length), ..Item::empty(Key::new("P", "S")) }.attributes().unwrap()
    }

    #[test]
    fn bodies_are_unpacked_up_to_the_first_beyond_the_bound() {
        let lengths = |most| {
            let read = take_within_bytes([stored(500_000), stored(500_000), stored(500_000)], most).unwrap();
            (read.items.len(), read.is_complete)
        };
        assert_eq!(lengths(1_500_000), (3, true));
        assert_eq!(lengths(1_000_000), (3, true), "the third goes beyond it");
        assert_eq!(lengths(999_999), (2, false));
        assert_eq!(lengths(0), (1, false));
    }
}
