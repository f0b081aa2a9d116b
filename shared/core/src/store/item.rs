//! One item of a table, and its translation to and from DynamoDB attributes.
//!
//! An item carries a JSON body in one attribute: attribute maps would lose the difference between `50` and `50.0`, key
//! order and empty sets. Bodies above [`DEFLATE_ABOVE_BYTES`] are deflated. Every item starts with a format number, so
//! that a later release can read what this one wrote.
//!
//! A JSON body comes with a CRC-32 of the item's keys, version and body, so that a changed bit makes an error and never
//! another value. Items of the releases before have none, and counters, which are changed in place, never do. Binary bodies
//! carry checksums of their own.

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

/// The format number written into every item.
pub const ITEM_FORMAT: u32 = 1;
/// Bodies longer than this are stored deflated.
pub const DEFLATE_ABOVE_BYTES: usize = 4 * 1024;
/// Largest body stored in one item: DynamoDB takes 400 KB an item, keys and the other attributes included. Larger ones
/// are stored in parts ([`super::PARTED_BYTES_MAX`]).
pub const BODY_BYTES_MAX: usize = 390 * 1000;

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
/// The attribute by which DynamoDB removes items, seconds since the epoch.
pub const EXPIRES_AT: &str = "expires_at";

/// An item as DynamoDB has it.
pub type Attributes = HashMap<String, AttributeValue>;

/// Where an item lies.
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

/// What a project's version says of the rows that were true when it had its number, so that rows read beside it can be
/// proven to be exactly those.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RowChecksums {
    /// The stamps of all live summary rows, added up.
    pub rows: i64,
    /// The stamps of all live flags that depend on others, added up.
    pub edges: i64,
    /// The flag that the last write changed; 0 when it changed none.
    pub last: i64,
    /// How many bytes of its room the definitions feed takes at most.
    pub used: i64,
}

/// A stored item. `version` serves optimistic locking: a writer names the version it read.
#[derive(Debug, Clone, PartialEq)]
pub struct Item {
    /// Where it lies.
    pub key: Key,
    /// Raised by one with each change of a record that is changed in place; 0 where nobody compares it.
    pub version: u64,
    /// The JSON text of the body; empty when there is none.
    pub text: String,
    /// A binary body, for event blocks.
    pub bytes: Vec<u8>,
    /// A counter, for the items that are one.
    pub count: i64,
    /// What stands beside the counter of a project's version; zeros elsewhere.
    pub sums: RowChecksums,
    /// When DynamoDB may remove it, in seconds since the epoch.
    pub expires_at: Option<i64>,
    /// The parts that its body is stored in, where it is too long for one item.
    pub parts: Option<Parts>,
}

/// The parts of a body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parts {
    /// How many there are.
    pub count: usize,
    /// What each of them carries, so that parts of one writing are never taken for those of another.
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

    /// The same item with another version.
    #[must_use]
    pub fn with_version(mut self, version: u64) -> Item {
        self.version = version;
        self
    }

    /// The same item, to be removed by DynamoDB after `seconds` since the epoch.
    #[must_use]
    pub fn expiring(mut self, seconds: i64) -> Item {
        self.expires_at = Some(seconds);
        self
    }

    /// The body as a value of type `T`.
    pub fn body<T: DeserializeOwned>(&self) -> Result<T, StoreError> {
        serde_json::from_str(&self.text)
            .map_err(|e| StoreError::Corrupt(format!("{}/{}: {e}", self.key.pk, self.key.sk)))
    }

    /// Whether it can be stored in one piece.
    pub fn fits(&self) -> bool {
        let is_short = self.text.len().max(self.bytes.len()) <= BODY_BYTES_MAX;
        is_short || self.attributes().is_ok()
    }

    /// The parts that its body is, or was, stored in.
    pub(super) fn parts(&self) -> Option<&Parts> {
        self.parts.as_ref()
    }

    /// The same item, to be stored in the place of `old`, whose parts go where it needs none.
    #[must_use]
    pub fn replacing(mut self, old: &Item) -> Item {
        self.parts.clone_from(&old.parts);
        self
    }

    /// The item as it is stored in one piece.
    pub(super) fn attributes(&self) -> Result<Attributes, StoreError> {
        self.attributes_with(true)
    }

    /// The item as stored, with its JSON body or without.
    pub(super) fn attributes_with(&self, body: bool) -> Result<Attributes, StoreError> {
        let mut map = self.key.attributes();
        map.insert(FORMAT.into(), number(ITEM_FORMAT));
        map.insert(VERSION.into(), number(self.version));
        if !body {
            // It is stored elsewhere.
        } else if self.text.len() > DEFLATE_ABOVE_BYTES {
            let packed = deflate(self.text.as_bytes());
            if packed.len() > BODY_BYTES_MAX {
                return Err(StoreError::TooLarge);
            }
            map.insert(DEFLATED.into(), AttributeValue::B(Blob::new(packed)));
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

    /// Where the item lies that is stored as `map`.
    pub(super) fn key_of(map: &Attributes) -> Result<Key, StoreError> {
        let text = |name| match map.get(name) {
            Some(AttributeValue::S(text)) => Ok(text.clone()),
            _ => Err(StoreError::Corrupt(format!("an item without {name}"))),
        };
        Ok(Key { pk: text(PK)?, sk: text(SK)? })
    }

    pub(super) fn from_attributes(mut map: Attributes) -> Result<Item, StoreError> {
        let key = Item::key_of(&map)?;
        // Counters say none.
        if let Some(said) = map.get(FORMAT)
            && parsed::<u32>(&map, FORMAT).is_none_or(|format| format > ITEM_FORMAT)
        {
            return Err(StoreError::Corrupt(format!(
                "{}/{} has format {said:?}, written by a newer release",
                key.pk, key.sk
            )));
        }
        let body = match (map.remove(TEXT), map.remove(DEFLATED)) {
            (Some(AttributeValue::S(text)), _) => text,
            (_, Some(AttributeValue::B(packed))) => inflate(packed.as_ref())?,
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
                (Some(count), Some(AttributeValue::S(tag))) => Some(Parts { count, tag }),
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

impl Parts {
    /// Writes into the head that there are these parts.
    pub(super) fn mark(&self, head: &mut Attributes) {
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
    // Writing to a vector cannot fail; an error would leave a short body, which the reader would refuse.
    let _ = encoder.write_all(body);
    encoder.finish().unwrap_or_default()
}

pub(super) fn inflate(packed: &[u8]) -> Result<String, StoreError> {
    let mut body = String::new();
    DeflateDecoder::new(packed)
        .read_to_string(&mut body)
        .map_err(|e| StoreError::Corrupt(format!("a deflated body: {e}")))?;
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
    fn an_item_comes_back_as_it_was() {
        let body = serde_json::json!({"b": 50, "a": 12.5, "empty": [], "text": "\u{0}ü"});
        let item = Item::new(Key::new("P", "S"), &body).unwrap().with_version(7).expiring(99);
        assert_eq!(round_trip(&item), item);
        assert_eq!(round_trip(&item).body::<serde_json::Value>().unwrap(), body);
        let block = Item::binary(Key::new("P", "S"), vec![0, 1, 255]);
        assert_eq!(round_trip(&block), block);
    }

    #[test]
    fn a_long_body_is_deflated_and_one_that_stays_too_long_is_refused() {
        let long = Item::new(Key::new("P", "S"), &"x".repeat(1_000_000)).unwrap();
        assert!(long.attributes().unwrap().contains_key(DEFLATED));
        assert_eq!(round_trip(&long), long);
        let noise = (0..BODY_BYTES_MAX + 1).map(|i| ((i * 2_654_435_761) >> 7) as u8).collect::<Vec<_>>();
        let block = Item::binary(Key::new("P", "S"), noise);
        assert!(matches!(block.attributes(), Err(StoreError::TooLarge)));
    }

    #[test]
    fn every_flipped_bit_of_keys_version_and_body_is_noticed() {
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
                        // The table refuses what is no text.
                        (_, Err(_)) => continue,
                    };
                    let mut map = stored.clone();
                    map.insert(name.to_owned(), flipped);
                    let read = Item::from_attributes(map);
                    // A deflated body may end in bits that mean nothing.
                    assert!(read.is_err() || read.unwrap() == item, "{name}, bit {bit}");
                }
            }
            let mut without = stored;
            without.remove(CHECKSUM);
            assert_eq!(Item::from_attributes(without).unwrap(), item, "of a release before");
        }
    }

    #[test]
    fn an_item_of_a_newer_format_is_refused() {
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
