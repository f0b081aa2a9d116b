//! One item of a table, and its translation to and from DynamoDB attributes.
//!
//! An item has a JSON body in one attribute: DynamoDB's attribute maps would lose the difference between `50` and `50.0`,
//! key order and empty sets. Bodies above [`DEFLATE_ABOVE_BYTES`] are compressed. Every item has a format number, so that a
//! later release can read it.
//!
//! A JSON body has a CRC-32 of the item's keys, version and body, so that a flipped bit is an error and never another value.
//! Items of earlier releases have none, and counters, which are updated in place, never do. Binary bodies contain their own
//! checksums.

use std::collections::HashMap;
use std::io::{Read, Write as _};

use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::AttributeValue;
use flate2::Compression;
use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::StoreError;

/// The format number of every item.
pub const ITEM_FORMAT: u32 = 1;
/// Longer bodies are compressed with DEFLATE.
pub const DEFLATE_ABOVE_BYTES: usize = 4 * 1024;
/// Maximum body stored in one item: DynamoDB accepts 400 KB per item, including keys and other attributes. Larger bodies
/// are stored in parts ([`super::PARTED_BYTES_MAX`]).
pub const BODY_BYTES_MAX: usize = 390 * 1000;

/// Maximum body before compression. DEFLATE compresses up to a thousand times, so a damaged body of 390 KB could otherwise take
/// hundreds of megabytes.
pub(super) const TEXT_BYTES_MAX: usize = 64 << 20;

pub(super) const PK: &str = "pk";
pub(super) const SK: &str = "sk";
const FORMAT: &str = "f";
pub(super) const VERSION: &str = "v";
pub(super) const COUNT: &str = "n";
pub(super) const ROWS: &str = "s";
pub(super) const EDGES: &str = "t";
pub(super) const LAST: &str = "w";
pub(super) const USED: &str = "u";
const TEXT: &str = "d";
const DEFLATED: &str = "z";
const BYTES: &str = "b";
const PARTS: &str = "p";
const TAG: &str = "g";
/// The checksum of keys, version and JSON body.
const CHECKSUM: &str = "c";
/// The time-to-live attribute, in seconds since the epoch.
pub const EXPIRES_AT: &str = "expires_at";

/// An item as DynamoDB attributes.
pub type Attributes = HashMap<String, AttributeValue>;

/// The primary key of an item.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// Partition key.
    pub pk: String,
    /// Sort key.
    pub sk: String,
}

impl Key {
    /// The key of partition `pk` and sort key `sk`.
    pub fn new(pk: impl Into<String>, sk: impl Into<String>) -> Key {
        Key { pk: pk.into(), sk: sk.into() }
    }

    pub(super) fn attributes(&self) -> Attributes {
        HashMap::from([
            (PK.to_owned(), AttributeValue::S(self.pk.clone())),
            (SK.to_owned(), AttributeValue::S(self.sk.clone())),
        ])
    }
}

/// Checksums of the rows that belong to a project's version, stored next to its number. A reader compares them with rows that
/// it read concurrently, to verify that these are exactly the rows of that version.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RowChecksums {
    /// The sum of the checksums of all summary rows that are not deleted.
    pub rows: i64,
    /// The sum of the checksums of all flags that depend on others.
    pub edges: i64,
    /// Id of the flag that the last write changed; 0 if none.
    pub last: i64,
    /// Upper bound of the compressed size of the definitions feed, in bytes.
    pub used: i64,
}

/// A stored item. `version` is for optimistic concurrency: a writer requires the version it read.
#[derive(Debug, Clone, PartialEq)]
pub struct Item {
    /// Its primary key.
    pub key: Key,
    /// Incremented by each change of a record that is updated in place; 0 for other items.
    pub version: u64,
    /// The JSON text of the body; empty if there is none.
    pub text: String,
    /// A binary body, for event blocks.
    pub bytes: Vec<u8>,
    /// The number of a counter item; 0 for others.
    pub count: i64,
    /// The checksums of a project's version row; zeros for other items.
    pub sums: RowChecksums,
    /// Expiry time, in seconds since the epoch.
    pub expires_at: Option<i64>,
    /// The parts of a body that is too long for one item.
    pub parts: Option<ItemParts>,
}

/// The parts of a body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ItemParts {
    /// Number of parts.
    pub count: usize,
    /// A tag in each part, so that parts of different writes are never mixed.
    pub tag: String,
}

impl Item {
    /// An item with `body` as its JSON body, version 0.
    pub fn new<T: Serialize>(key: Key, body: &T) -> Result<Item, StoreError> {
        let text = serde_json::to_string(body).map_err(|e| StoreError::Corrupt(e.to_string()))?;
        Ok(Item { text, ..Item::empty(key) })
    }

    /// An item without a body, for uniqueness and marker rows.
    pub fn empty(key: Key) -> Item {
        Item {
            key,
            version: 0,
            text: String::new(),
            bytes: Vec::new(),
            count: 0,
            sums: RowChecksums::default(),
            expires_at: None,
            parts: None,
        }
    }

    /// An item with a binary body.
    pub fn binary(key: Key, bytes: Vec<u8>) -> Item {
        Item { bytes, ..Item::empty(key) }
    }

    /// Sets the version.
    #[must_use]
    pub fn with_version(mut self, version: u64) -> Item {
        self.version = version;
        self
    }

    /// Sets the expiry time, in seconds since the epoch.
    #[must_use]
    pub fn expiring(mut self, seconds: i64) -> Item {
        self.expires_at = Some(seconds);
        self
    }

    /// Deserializes the JSON body.
    pub fn body<T: DeserializeOwned>(&self) -> Result<T, StoreError> {
        serde_json::from_str(&self.text)
            .map_err(|e| StoreError::Corrupt(format!("{}/{}: {e}", self.key.pk, self.key.sk)))
    }

    /// Whether the item can be stored without parts.
    pub fn fits(&self) -> bool {
        let is_short = self.text.len().max(self.bytes.len()) <= BODY_BYTES_MAX;
        is_short || self.attributes().is_ok()
    }

    /// The parts of the stored body.
    pub(super) fn parts(&self) -> Option<&ItemParts> {
        self.parts.as_ref()
    }

    /// Marks this item as the replacement of `old`, whose surplus parts are deleted with the write.
    #[must_use]
    pub fn replacing(mut self, old: &Item) -> Item {
        self.parts.clone_from(&old.parts);
        self
    }

    /// The attributes of an item without parts.
    pub(super) fn attributes(&self) -> Result<Attributes, StoreError> {
        self.attributes_with(true)
    }

    /// The attributes, with or without the JSON body.
    pub(super) fn attributes_with(&self, body: bool) -> Result<Attributes, StoreError> {
        if self.text.len() > TEXT_BYTES_MAX {
            return Err(StoreError::TooLarge);
        }
        let mut map = self.key.attributes();
        map.insert(FORMAT.into(), number(ITEM_FORMAT));
        map.insert(VERSION.into(), number(self.version));
        if !body {
            // The body is stored in parts.
        } else if self.text.len() > DEFLATE_ABOVE_BYTES {
            let compressed = deflate(self.text.as_bytes());
            if compressed.len() > BODY_BYTES_MAX {
                return Err(StoreError::TooLarge);
            }
            map.insert(DEFLATED.into(), AttributeValue::B(Blob::new(compressed)));
            map.insert(CHECKSUM.into(), number(self.checksum()));
        } else if !self.text.is_empty() {
            map.insert(TEXT.into(), AttributeValue::S(self.text.clone()));
            map.insert(CHECKSUM.into(), number(self.checksum()));
        }
        if self.bytes.len() > BODY_BYTES_MAX {
            return Err(StoreError::TooLarge);
        }
        if !self.bytes.is_empty() {
            map.insert(BYTES.into(), AttributeValue::B(Blob::new(self.bytes.clone())));
        }
        if self.count != 0 {
            map.insert(COUNT.into(), number(self.count));
        }
        if let Some(seconds) = self.expires_at {
            map.insert(EXPIRES_AT.into(), number(seconds));
        }
        Ok(map)
    }

    fn checksum(&self) -> u32 {
        let mut hasher = crc32fast::Hasher::new();
        for text in [&self.key.pk, &self.key.sk, &self.version.to_string(), &self.text] {
            hasher.update(text.as_bytes());
            hasher.update(&[0]);
        }
        hasher.finalize()
    }

    /// The primary key in `map`.
    pub(super) fn key_of(map: &Attributes) -> Result<Key, StoreError> {
        let text = |name| match map.get(name) {
            Some(AttributeValue::S(text)) => Ok(text.clone()),
            _ => Err(StoreError::Corrupt(format!("an item without {name}"))),
        };
        Ok(Key { pk: text(PK)?, sk: text(SK)? })
    }

    pub(super) fn from_attributes(mut map: Attributes) -> Result<Item, StoreError> {
        let key = Item::key_of(&map)?;
        // Counters have no format number.
        if let Some(format_number) = map.get(FORMAT)
            && parsed::<u32>(&map, FORMAT).is_none_or(|format| format > ITEM_FORMAT)
        {
            return Err(StoreError::Corrupt(format!(
                "{}/{} has format {format_number:?}, written by a newer release",
                key.pk, key.sk
            )));
        }
        let body = match (map.remove(TEXT), map.remove(DEFLATED)) {
            (Some(AttributeValue::S(text)), _) => text,
            (_, Some(AttributeValue::B(compressed))) => inflate(compressed.as_ref())?,
            _ => String::new(),
        };
        let bytes = match map.remove(BYTES) {
            Some(AttributeValue::B(blob)) => blob.into_inner(),
            _ => Vec::new(),
        };
        let item = Item {
            version: parsed(&map, VERSION).unwrap_or(0),
            text: body,
            bytes,
            count: parsed(&map, COUNT).unwrap_or(0),
            sums: RowChecksums {
                rows: parsed(&map, ROWS).unwrap_or(0),
                edges: parsed(&map, EDGES).unwrap_or(0),
                last: parsed(&map, LAST).unwrap_or(0),
                used: parsed(&map, USED).unwrap_or(0),
            },
            expires_at: parsed(&map, EXPIRES_AT),
            parts: match (parsed(&map, PARTS), map.remove(TAG)) {
                (Some(count), Some(AttributeValue::S(tag))) => Some(ItemParts { count, tag }),
                _ => None,
            },
            key,
        };
        if map.contains_key(CHECKSUM) && parsed(&map, CHECKSUM) != Some(item.checksum()) {
            let Key { pk, sk } = &item.key;
            return Err(StoreError::Corrupt(format!("{pk}/{sk} is damaged: its checksum does not fit")));
        }
        Ok(item)
    }
}

impl ItemParts {
    /// Writes the number of parts and the tag into the head item.
    pub(super) fn write_to(&self, head: &mut Attributes) {
        head.insert(PARTS.into(), number(self.count));
        head.insert(TAG.into(), AttributeValue::S(self.tag.clone()));
    }
}

pub(super) fn number(n: impl ToString) -> AttributeValue {
    AttributeValue::N(n.to_string())
}

pub(super) fn parsed<T: std::str::FromStr>(map: &Attributes, name: &str) -> Option<T> {
    map.get(name)?.as_n().ok()?.parse().ok()
}

pub(super) fn deflate(body: &[u8]) -> Vec<u8> {
    let mut encoder = DeflateEncoder::new(Vec::with_capacity(body.len() / 4), Compression::fast());
    // Writing to a vector cannot fail; a truncated body would be rejected by the reader.
    let _ = encoder.write_all(body);
    encoder.finish().unwrap_or_default()
}

pub(super) fn inflate(compressed: &[u8]) -> Result<String, StoreError> {
    let mut body = String::new();
    DeflateDecoder::new(compressed)
        .take(TEXT_BYTES_MAX as u64 + 1)
        .read_to_string(&mut body)
        .map_err(|e| StoreError::Corrupt(format!("a deflated body: {e}")))?;
    if body.len() > TEXT_BYTES_MAX {
        return Err(StoreError::Corrupt("a deflated body that is longer than any that is stored".to_owned()));
    }
    Ok(body)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn round_trip(item: &Item) -> Item {
        Item::from_attributes(item.attributes().unwrap()).unwrap()
    }

    #[test]
    fn a_body_does_not_inflate_without_limit() {
        let longest = "x".repeat(TEXT_BYTES_MAX);
        assert_eq!(inflate(&deflate(longest.as_bytes())).map(|text| text.len()).ok(), Some(TEXT_BYTES_MAX));
        let longer = format!("{longest}x");
        assert!(matches!(inflate(&deflate(longer.as_bytes())), Err(StoreError::Corrupt(_))));
        let item = Item { text: longer, ..Item::empty(Key::new("P", "S")) };
        assert!(matches!(item.attributes(), Err(StoreError::TooLarge)));
    }

    #[test]
    fn items_round_trip() {
        let body = serde_json::json!({"b": 50, "a": 12.5, "empty": [], "text": "\u{0}ü"});
        let item = Item::new(Key::new("P", "S"), &body).unwrap().with_version(7).expiring(99);
        assert_eq!(round_trip(&item), item);
        assert_eq!(round_trip(&item).body::<serde_json::Value>().unwrap(), body);
        let block = Item::binary(Key::new("P", "S"), vec![0, 1, 255]);
        assert_eq!(round_trip(&block), block);
    }

    #[test]
    fn a_long_body_is_compressed_and_an_incompressible_one_is_too_large() {
        let long = Item::new(Key::new("P", "S"), &"x".repeat(1_000_000)).unwrap();
        assert!(long.attributes().unwrap().contains_key(DEFLATED));
        assert_eq!(round_trip(&long), long);
        let noise = (0..BODY_BYTES_MAX + 1).map(|i| ((i * 2_654_435_761) >> 7) as u8).collect::<Vec<_>>();
        let block = Item::binary(Key::new("P", "S"), noise);
        assert!(matches!(block.attributes(), Err(StoreError::TooLarge)));
    }

    #[test]
    fn every_flipped_bit_of_keys_version_and_body_is_detected() {
        let short = Item::new(Key::new("P", "S"), &serde_json::json!({"rows": 50})).unwrap().with_version(7);
        let long = Item::new(Key::new("P", "S"), &"ab".repeat(3000)).unwrap();
        for item in [short, long] {
            let stored = item.attributes().unwrap();
            for name in [PK, SK, VERSION, TEXT, DEFLATED, CHECKSUM] {
                let Some(value) = stored.get(name) else { continue };
                let bytes = match value {
                    AttributeValue::S(text) | AttributeValue::N(text) => text.clone().into_bytes(),
                    AttributeValue::B(blob) => blob.as_ref().to_vec(),
                    other => panic!("{other:?}"),
                };
                for bit in 0..bytes.len() * 8 {
                    let mut flipped = bytes.clone();
                    flipped[bit / 8] ^= 1 << (bit % 8);
                    let flipped = match (value, String::from_utf8(flipped.clone())) {
                        (AttributeValue::B(_), _) => AttributeValue::B(Blob::new(flipped)),
                        (AttributeValue::S(_), Ok(text)) => AttributeValue::S(text),
                        (_, Ok(text)) => AttributeValue::N(text),
                        // DynamoDB rejects strings that are not UTF-8.
                        (_, Err(_)) => continue,
                    };
                    let mut map = stored.clone();
                    map.insert(name.to_owned(), flipped);
                    let read = Item::from_attributes(map);
                    // A DEFLATE stream may end in unused bits.
                    assert!(read.is_err() || read.unwrap() == item, "{name}, bit {bit}");
                }
            }
            let mut without = stored;
            without.remove(CHECKSUM);
            assert_eq!(Item::from_attributes(without).unwrap(), item, "written by an earlier release");
        }
    }

    #[test]
    fn an_item_of_a_newer_format_is_an_error() {
        let of_format = |format| {
            let mut map = Item::empty(Key::new("P", "S")).attributes().unwrap();
            map.insert(FORMAT.into(), format);
            Item::from_attributes(map)
        };
        assert!(of_format(number(ITEM_FORMAT)).is_ok());
        for newer in [number(ITEM_FORMAT + 1), number(1_u64 << 40), AttributeValue::S("new".into())] {
            let refused = of_format(newer).unwrap_err().to_string();
            assert!(refused.contains("P/S") && refused.contains("newer release"), "{refused}");
        }
    }
}
