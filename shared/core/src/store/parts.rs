//! Bodies that are too long for one item, stored in parts.
//!
//! The item itself, the *head*, then carries no body but the number of its parts and a tag; the parts lie in a partition
//! of their own, where no query meets them. Must stay true: head and parts are written in one transaction and carry one
//! tag, made anew for each writing, so a reader that was overtaken between head and parts notices, and reads the head
//! again; a part that no head names is reached by nobody.

use std::collections::HashMap;

use aws_sdk_dynamodb::types::AttributeValue;

use super::item::{Attributes, BODY_BYTES_MAX, Item, Key, Parts, deflate, inflate};
use super::{StoreError, Table};

/// Largest body that is stored at all, deflated: a transaction takes 4 MB, and other writes have to fit beside it.
pub const PARTED_BYTES_MAX: usize = 1_500_000;
/// Bytes of a part.
pub(super) const PART_BYTES: usize = 375_000;
/// How often a head is read again whose parts are being replaced.
const TRIES: u32 = 8;

/// An item as it is stored.
#[derive(Debug)]
pub(super) struct Packed {
    /// The item itself.
    pub head: Attributes,
    /// Its parts.
    pub parts: Vec<Attributes>,
    /// The parts that the item which it replaces had beyond these.
    pub surplus: Vec<Key>,
}

/// How `item` is stored: in one piece where its body fits, else in parts.
pub(super) fn pack(item: &Item) -> Result<Packed, StoreError> {
    let had = item.parts().map_or(0, |parts| parts.count);
    let surplus = |from: usize| (from..had).map(|part| part_key(&item.key, part)).collect();
    // What is short enough undeflated need not be deflated to know that it fits.
    let packed = if item.text.len() > BODY_BYTES_MAX { deflate(item.text.as_bytes()) } else { Vec::new() };
    if packed.len() <= BODY_BYTES_MAX {
        return Ok(Packed { head: item.attributes()?, parts: Vec::new(), surplus: surplus(0) });
    }
    if packed.len() > PARTED_BYTES_MAX {
        return Err(StoreError::TooLarge);
    }
    let tag = crate::ids::new_uuid().to_string();
    let mut parts = Vec::new();
    for (at, bytes) in packed.chunks(PART_BYTES).enumerate() {
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
    Parts { count: parts.len(), tag }.mark(&mut head);
    let surplus = surplus(parts.len());
    Ok(Packed { head, parts, surplus })
}

/// Where a part of the item at `head` lies.
fn part_key(head: &Key, part: usize) -> Key {
    Key::new(format!("{}#{}#PART", head.pk, head.sk), format!("{part:03}"))
}

/// About how many bytes DynamoDB counts for an item.
pub(super) fn size(item: &Attributes) -> usize {
    let value = |value: &AttributeValue| match value {
        AttributeValue::S(text) | AttributeValue::N(text) => text.len(),
        AttributeValue::B(blob) => blob.as_ref().len(),
        _ => 1,
    };
    item.iter().map(|(name, it)| name.len() + value(it)).sum()
}

impl Table {
    /// The same items with their bodies, where they were stored in parts: one more round trip then. One that was removed
    /// meanwhile is left out.
    pub(super) async fn completed(&self, items: Vec<Item>) -> Result<Vec<Item>, StoreError> {
        if items.iter().all(|item| item.parts().is_none()) {
            return Ok(items);
        }
        let keys: Vec<Key> = items.iter().flat_map(part_keys).collect();
        let mut found = self.batch_get_heads(&keys).await?;
        let mut completed = Vec::with_capacity(items.len());
        for item in items {
            completed.extend(match joined(&item, &mut found)? {
                Some(text) => Some(Item { text, ..item }),
                None => self.read_again(&item.key).await?,
            });
        }
        Ok(completed)
    }

    /// The item whose parts are no longer those that its head named.
    async fn read_again(&self, key: &Key) -> Result<Option<Item>, StoreError> {
        for _ in 0..TRIES {
            let Some(item) = self.get_head(key).await? else { return Ok(None) };
            let mut found = self.batch_get_heads(&part_keys(&item).collect::<Vec<_>>()).await?;
            if let Some(text) = joined(&item, &mut found)? {
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

/// The body of `item`: its own, or that of its parts; none when these are not all there, or are of another writing.
fn joined(item: &Item, found: &mut HashMap<Key, Item>) -> Result<Option<String>, StoreError> {
    let Some(parts) = item.parts() else { return Ok(Some(item.text.clone())) };
    let mut packed = Vec::new();
    for key in part_keys(item) {
        match found.remove(&key).filter(|part| part.text == parts.tag) {
            Some(part) => packed.extend(part.bytes),
            None => return Ok(None),
        }
    }
    inflate(&packed).map(Some)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::local_backend::from_json;
    use super::*;

    /// A text of `length` characters that deflates to about three quarters.
    fn noise(length: usize) -> String {
        let mut state = 1_u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            char::from(b'0' + u8::try_from((state >> 33) % 64).unwrap_or(0))
        };
        (0..length).map(|_| next()).collect()
    }

    /// The longest text whose deflated form has at most `bytes`.
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

    fn unpacked(packed: &Packed) -> Option<String> {
        let head = Item::from_attributes(packed.head.clone()).unwrap();
        let parts = packed.parts.iter().map(|part| Item::from_attributes(part.clone()).unwrap());
        joined(&head, &mut parts.map(|part| (part.key.clone(), part)).collect()).unwrap()
    }

    #[test]
    fn a_body_is_stored_in_one_piece_up_to_the_limit_of_an_item_and_in_parts_beyond_it() {
        let fits = longest(BODY_BYTES_MAX);
        let one_more = noise(fits.len() + 8);
        assert_eq!(pack(&item(fits)).unwrap().parts.len(), 0);
        let packed = pack(&item(one_more.clone())).unwrap();
        assert_eq!(packed.parts.len(), 2);
        assert_eq!(unpacked(&packed), Some(one_more));
    }

    #[test]
    fn a_body_is_stored_up_to_the_stated_limit_and_refused_beyond_it() {
        let fits = longest(PARTED_BYTES_MAX);
        let one_more = noise(fits.len() + 8);
        let packed = pack(&item(fits.clone())).unwrap();
        assert_eq!(packed.parts.len(), 4);
        assert!(packed.parts.iter().chain([&packed.head]).all(|item| size(item) < 400_000));
        assert_eq!(unpacked(&packed), Some(fits));
        assert!(matches!(pack(&item(one_more)), Err(StoreError::TooLarge)));
    }

    #[test]
    fn parts_of_another_writing_are_not_taken_for_a_bodys_own() {
        let text = noise(PARTED_BYTES_MAX);
        let (first, mut second) = (pack(&item(text.clone())).unwrap(), pack(&item(text)).unwrap());
        assert!(unpacked(&second).is_some());
        second.parts[1] = first.parts[1].clone();
        assert_eq!(unpacked(&second), None);
        second.parts.truncate(1);
        assert_eq!(unpacked(&second), None);
    }

    #[test]
    fn a_shorter_body_removes_the_parts_of_the_one_that_it_replaces() {
        let long = pack(&item(noise(PARTED_BYTES_MAX))).unwrap();
        let old = Item::from_attributes(long.head).unwrap();
        let short = pack(&item("1".to_owned()).replacing(&old)).unwrap();
        assert_eq!((short.parts.len(), short.surplus.len()), (0, long.parts.len()));
        let middle = pack(&item(noise(BODY_BYTES_MAX * 5 / 3)).replacing(&old)).unwrap();
        assert_eq!(middle.parts.len() + middle.surplus.len(), long.parts.len());
    }

    #[test]
    fn rows_of_every_shape_of_format_1_are_read_and_those_of_a_newer_one_refused() {
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
            assert_eq!(joined(&head, &mut parts).unwrap().unwrap(), case["text"].as_str().unwrap(), "{what}");
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
                let refused = Item::from_attributes(row).unwrap_err().to_string();
                assert!(refused.contains("newer release"), "{what}: {refused}");
            }
        }
    }
}
