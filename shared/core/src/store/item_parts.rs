//! Splits bodies that are too long for one item into parts.
//!
//! The item itself, the *head*, then has no body but the number of parts and a tag; the parts are in a partition of their
//! own, where no query finds them. Must stay true: head and parts are written in one transaction with a tag that is new for
//! each write, so a reader detects a concurrent write between reading head and parts, and reads the head again; a part that
//! no head references is never read.

use std::collections::HashMap;

use aws_sdk_dynamodb::types::AttributeValue;

use super::item::{Attributes, BODY_BYTES_MAX, Item, ItemParts, Key, deflate, inflate};
use super::{StoreError, Table};

/// Maximum compressed body in parts: a transaction is limited to 4 MB and has other writes.
pub const PARTED_BYTES_MAX: usize = 1_500_000;
/// Bytes of a part.
pub(super) const PART_BYTES: usize = 375_000;
/// Maximum attempts to read an item whose parts are being replaced.
const READ_ATTEMPTS: u32 = 8;

/// The stored form of an item.
#[derive(Debug)]
pub(super) struct EncodedItem {
    /// The item itself.
    pub head: Attributes,
    /// Its parts.
    pub parts: Vec<Attributes>,
    /// The parts of the replaced item that are no longer needed.
    pub surplus: Vec<Key>,
}

/// Encodes `item`: as one item if its body fits, else in parts.
pub(super) fn encode(item: &Item) -> Result<EncodedItem, StoreError> {
    let old_count = item.parts().map_or(0, |parts| parts.count);
    let surplus = |from: usize| (from..old_count).map(|part| part_key(&item.key, part)).collect();
    // A body that fits uncompressed need not be compressed to know that.
    let compressed =
        if item.text.len() > BODY_BYTES_MAX { deflate(item.text.as_bytes()) } else { Vec::new() };
    if compressed.len() <= BODY_BYTES_MAX {
        return Ok(EncodedItem { head: item.attributes()?, parts: Vec::new(), surplus: surplus(0) });
    }
    if compressed.len() > PARTED_BYTES_MAX {
        return Err(StoreError::TooLarge);
    }
    let tag = crate::ids::new_uuid().to_string();
    let mut parts = Vec::new();
    for (at, bytes) in compressed.chunks(PART_BYTES).enumerate() {
        let part = Item {
            // The tag of a part is its text.
            text: tag.clone(),
            bytes: bytes.to_vec(),
            expires_at: item.expires_at,
            ..Item::empty(part_key(&item.key, at))
        };
        parts.push(part.attributes()?);
    }
    let mut head = item.attributes_with(false)?;
    ItemParts { count: parts.len(), tag }.write_to(&mut head);
    let surplus = surplus(parts.len());
    Ok(EncodedItem { head, parts, surplus })
}

/// The key of a part of the item at `head`.
fn part_key(head: &Key, part: usize) -> Key {
    Key::new(format!("{}#{}#PART", head.pk, head.sk), format!("{part:03}"))
}

/// The approximate size of an item, as DynamoDB counts it.
pub(super) fn size(item: &Attributes) -> usize {
    let value = |value: &AttributeValue| match value {
        AttributeValue::S(text) | AttributeValue::N(text) => text.len(),
        AttributeValue::B(blob) => blob.as_ref().len(),
        _ => 1,
    };
    item.iter().map(|(name, it)| name.len() + value(it)).sum()
}

impl Table {
    /// Loads the bodies of items in parts, which takes one more round trip. Items that were deleted concurrently are omitted.
    pub(super) async fn load_parts(&self, items: Vec<Item>) -> Result<Vec<Item>, StoreError> {
        if items.iter().all(|item| item.parts().is_none()) {
            return Ok(items);
        }
        let keys: Vec<Key> = items.iter().flat_map(part_keys).collect();
        let mut parts = self.batch_get_heads(&keys).await?;
        let mut loaded = Vec::with_capacity(items.len());
        for item in items {
            loaded.extend(match join_parts(&item, &mut parts)? {
                Some(text) => Some(Item { text, ..item }),
                None => self.reread(&item.key).await?,
            });
        }
        Ok(loaded)
    }

    /// Reads an item again whose parts were replaced after its head was read.
    async fn reread(&self, key: &Key) -> Result<Option<Item>, StoreError> {
        for _ in 0..READ_ATTEMPTS {
            let Some(item) = self.get_head(key).await? else { return Ok(None) };
            let mut parts = self.batch_get_heads(&part_keys(&item).collect::<Vec<_>>()).await?;
            if let Some(text) = join_parts(&item, &mut parts)? {
                return Ok(Some(Item { text, ..item }));
            }
        }
        Err(StoreError::Busy(format!("{}/{} is being replaced", key.pk, key.sk)))
    }
}

fn part_keys(item: &Item) -> impl Iterator<Item = Key> + '_ {
    let count = item.parts().map_or(0, |parts| parts.count);
    (0..count).map(|part| part_key(&item.key, part))
}

/// The body of `item`, joined from its parts if it has any; `None` if a part is missing or has another tag.
fn join_parts(item: &Item, part_items: &mut HashMap<Key, Item>) -> Result<Option<String>, StoreError> {
    let Some(parts) = item.parts() else { return Ok(Some(item.text.clone())) };
    let mut compressed = Vec::new();
    for key in part_keys(item) {
        match part_items.remove(&key).filter(|part| part.text == parts.tag) {
            Some(part) => compressed.extend(part.bytes),
            None => return Ok(None),
        }
    }
    inflate(&compressed).map(Some)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::local_backend::from_json;
    use super::*;

    /// A text of `length` characters that compresses to about three quarters.
    fn noise(length: usize) -> String {
        let mut state = 1_u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            char::from(b'0' + u8::try_from((state >> 33) % 64).unwrap_or(0))
        };
        (0..length).map(|_| next()).collect()
    }

    /// The longest text that compresses to at most `bytes`.
    fn longest(bytes: usize) -> String {
        let whole = noise(bytes * 2);
        let (mut fits, mut too_long) = (0, whole.len());
        while fits + 1 < too_long {
            let middle = usize::midpoint(fits, too_long);
            if deflate(&whole.as_bytes()[..middle]).len() <= bytes {
                fits = middle
            } else {
                too_long = middle
            }
        }
        whole[..fits].to_owned()
    }

    fn item(text: String) -> Item {
        Item { text, ..Item::empty(Key::new("P", "S")) }
    }

    fn decode(encoded: &EncodedItem) -> Option<String> {
        let head = Item::from_attributes(encoded.head.clone()).unwrap();
        let parts = encoded.parts.iter().map(|part| Item::from_attributes(part.clone()).unwrap());
        join_parts(&head, &mut parts.map(|part| (part.key.clone(), part)).collect()).unwrap()
    }

    #[test]
    fn bodies_above_the_item_limit_are_stored_in_parts() {
        let fits = longest(BODY_BYTES_MAX);
        let one_more = noise(fits.len() + 8);
        assert_eq!(encode(&item(fits)).unwrap().parts.len(), 0);
        let encoded = encode(&item(one_more.clone())).unwrap();
        assert_eq!(encoded.parts.len(), 2);
        assert_eq!(decode(&encoded), Some(one_more));
    }

    #[test]
    fn bodies_above_the_limit_in_parts_are_too_large() {
        let fits = longest(PARTED_BYTES_MAX);
        let one_more = noise(fits.len() + 8);
        let encoded = encode(&item(fits.clone())).unwrap();
        assert_eq!(encoded.parts.len(), 4);
        assert!(encoded.parts.iter().chain([&encoded.head]).all(|item| size(item) < 400_000));
        assert_eq!(decode(&encoded), Some(fits));
        assert!(matches!(encode(&item(one_more)), Err(StoreError::TooLarge)));
    }

    #[test]
    fn parts_of_another_write_are_not_joined() {
        let text = noise(PARTED_BYTES_MAX);
        let (first, mut second) = (encode(&item(text.clone())).unwrap(), encode(&item(text)).unwrap());
        assert!(decode(&second).is_some());
        second.parts[1] = first.parts[1].clone();
        assert_eq!(decode(&second), None);
        second.parts.truncate(1);
        assert_eq!(decode(&second), None);
    }

    #[test]
    fn a_shorter_body_deletes_surplus_parts_of_the_replaced_one() {
        let long = encode(&item(noise(PARTED_BYTES_MAX))).unwrap();
        let old = Item::from_attributes(long.head).unwrap();
        let short = encode(&item("1".to_owned()).replacing(&old)).unwrap();
        assert_eq!((short.parts.len(), short.surplus.len()), (0, long.parts.len()));
        let middle = encode(&item(noise(BODY_BYTES_MAX * 5 / 3)).replacing(&old)).unwrap();
        assert_eq!(middle.parts.len() + middle.surplus.len(), long.parts.len());
    }

    #[test]
    fn items_of_format_1_are_read_and_newer_formats_are_errors() {
        let cases = include_str!("../../../../tests/formats/1/items.json");
        let cases: Vec<serde_json::Value> = serde_json::from_str(cases).unwrap();
        assert_eq!(cases.len(), 6);
        for case in cases {
            let rows = case["rows"].as_array().unwrap().iter();
            let rows = rows.map(|row| from_json(&row.to_string()).unwrap()).collect::<Vec<_>>();
            let mut items =
                rows.iter().map(|row| Item::from_attributes(row.clone()).unwrap()).collect::<Vec<_>>();
            let head = items.remove(0);
            let mut parts = items.into_iter().map(|part| (part.key.clone(), part)).collect();
            let what = &case["what"];
            assert_eq!(
                join_parts(&head, &mut parts).unwrap().unwrap(),
                case["text"].as_str().unwrap(),
                "{what}"
            );
            assert_eq!(head.version, case["version"].as_u64().unwrap(), "{what}");
            assert_eq!(head.count, case["count"].as_i64().unwrap_or(0), "{what}");
            assert_eq!(head.expires_at, case["expires_at"].as_i64(), "{what}");
            let sums = serde_json::json!([head.sums.rows, head.sums.edges, head.sums.last]);
            assert_eq!(&sums, case.get("sums").unwrap_or(&serde_json::json!([0, 0, 0])), "{what}");
            assert_eq!(
                &serde_json::json!(head.bytes),
                case.get("bytes").unwrap_or(&serde_json::json!([])),
                "{what}"
            );
            for mut row in rows {
                row.insert("f".to_owned(), AttributeValue::N("2".to_owned()));
                let error = Item::from_attributes(row).unwrap_err().to_string();
                assert!(error.contains("newer release"), "{what}: {error}");
            }
        }
    }
}
