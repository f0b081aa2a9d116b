//! Reads items until their uncompressed bodies exceed a limit. A body of half a megabyte may be stored in two kilobytes, so
//! the stored size does not bound the memory.
//!
//! Must stay true: bodies are decompressed one by one and no further than the first that exceeds the limit; bodies in parts
//! are read only after the item is known to be included.

use std::collections::HashMap;

use super::item::{Attributes, Item, Key};
use super::item_parts::PART_BYTES;
use super::{StoreError, Table};

/// The first of the requested items, up to a limit in bytes.
#[derive(Debug)]
pub struct ByteLimitedRead {
    /// The items.
    pub items: Vec<Item>,
    /// Whether all requested items are included.
    pub is_complete: bool,
}

/// The first of the `stored` items, up to and including the one with which their bodies exceed `bytes_max` bytes. Items in parts
/// come without their bodies.
pub(super) fn take_within_bytes(
    stored: impl IntoIterator<Item = Attributes>,
    bytes_max: usize,
) -> Result<ByteLimitedRead, StoreError> {
    let (mut items, mut bytes) = (Vec::new(), 0);
    for attributes in stored {
        if bytes > bytes_max {
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
    /// Fetches the items at `keys`, which must be distinct, in their order and without missing ones, up to and including the
    /// one with which their bodies exceed `bytes_max` bytes.
    pub async fn batch_get_within_bytes(
        &self,
        keys: &[Key],
        bytes_max: usize,
    ) -> Result<ByteLimitedRead, StoreError> {
        let stored = self.batch_get_stored(keys).await?;
        let mut stored: HashMap<Key, Attributes> = stored
            .into_iter()
            .map(|item| Ok((Item::key_of(&item)?, item)))
            .collect::<Result<_, StoreError>>()?;
        let first = take_within_bytes(keys.iter().filter_map(|key| stored.remove(key)), bytes_max)?;
        Ok(ByteLimitedRead { items: self.load_parts(first.items).await?, ..first })
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
    fn bodies_are_decompressed_up_to_the_first_beyond_the_limit() {
        let lengths = |bytes_max| {
            let read =
                take_within_bytes([stored(500_000), stored(500_000), stored(500_000)], bytes_max).unwrap();
            (read.items.len(), read.is_complete)
        };
        assert_eq!(lengths(1_500_000), (3, true));
        assert_eq!(lengths(1_000_000), (3, true), "the third exceeds the limit");
        assert_eq!(lengths(999_999), (2, false));
        assert_eq!(lengths(0), (1, false));
    }
}
