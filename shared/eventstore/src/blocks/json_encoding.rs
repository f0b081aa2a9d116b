//! Encodes JSON in the block format while it is parsed.
//!
//! Must stay true: limits are enforced during parsing, not after; null characters, which the vendor's product
//! replaces too, become U+FFFD.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use crate::blocks::captured_batch::{EncodedProperties, PropertyEncoder};
use crate::codec::{
    ARRAY, BinaryReader, END, FALSE, FLOAT, INTEGER, NULL, OBJECT, TEXT, TRUE, UNSIGNED, write_signed,
    write_text, write_unsigned,
};

/// Which limit an event exceeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JsonLimitError {
    /// Too many bytes.
    Bytes,
    /// Nested too deeply.
    Depth,
}

/// Remaining size budget of an event: approximate bytes of its JSON text without whitespace and escapes.
#[derive(Debug, Clone)]
pub struct JsonSizeBudget {
    left: usize,
    /// The limit that was exceeded.
    pub excess: Option<JsonLimitError>,
}

impl JsonSizeBudget {
    /// A budget of `most` bytes.
    pub fn new(most: usize) -> JsonSizeBudget {
        JsonSizeBudget { left: most, excess: None }
    }

    /// Counts `bytes` of the event.
    pub fn count<E: Error>(&mut self, bytes: usize) -> Result<(), E> {
        match self.left.checked_sub(bytes) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => {
                self.excess = Some(JsonLimitError::Bytes);
                Err(E::custom("an event of more bytes than are taken"))
            }
        }
    }

    fn deeper<E: Error>(&mut self, depth: usize) -> Result<usize, E> {
        depth.checked_sub(1).ok_or_else(|| {
            self.excess = Some(JsonLimitError::Depth);
            E::custom("nested deeper than is taken")
        })
    }
}

/// Parses the properties of an event.
pub struct PropertiesSeed<'a> {
    pub(crate) property_encoder: &'a mut PropertyEncoder,
    pub(crate) meter: &'a mut JsonSizeBudget,
    pub(crate) depth: usize,
    pub(crate) kept_names: &'static [&'static str],
}

impl<'de> DeserializeSeed<'de> for PropertiesSeed<'_> {
    /// None if it is no object; it is discarded then.
    type Value = Option<EncodedProperties>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for PropertiesSeed<'_> {
    type Value = Option<EncodedProperties>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("an object")
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        let end = self.property_encoder.bytes.len();
        Ok(Some(EncodedProperties { range: end..end, ..EncodedProperties::default() }))
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        while seq.next_element::<serde::de::IgnoredAny>()?.is_some() {}
        Ok(None)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let PropertyEncoder { bytes, keys } = self.property_encoder;
        let depth = self.meter.deeper(self.depth)?;
        self.meter.count(2)?;
        let mut properties =
            EncodedProperties { range: bytes.len()..bytes.len(), ..EncodedProperties::default() };
        while let Some(name) = map.next_key_seed(Name)? {
            self.meter.count(name.len() + 4)?;
            let place = bytes.len();
            if let Some(index) = self.kept_names.iter().position(|kept| *kept == name) {
                properties.kept_offsets[index] = Some(place);
            }
            let key = Key::Number(keys.code(&name));
            map.next_value_seed(Packing { out: bytes, meter: self.meter, depth, key })?;
        }
        properties.range.end = bytes.len();
        Ok(Some(properties))
    }
}

/// Parses a value of an event outside its properties.
pub struct ValueSeed<'a> {
    pub(crate) property_encoder: &'a mut PropertyEncoder,
    pub(crate) meter: &'a mut JsonSizeBudget,
    pub(crate) depth: usize,
}

impl<'de> DeserializeSeed<'de> for ValueSeed<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        let ValueSeed { property_encoder, meter, depth } = self;
        // Appended as scratch space, and truncated again.
        let start = property_encoder.bytes.len();
        let packing = Packing { out: &mut property_encoder.bytes, meter, depth, key: Key::None };
        let read = packing.deserialize(deserializer);
        let value = read.and_then(|()| {
            BinaryReader::new(&property_encoder.bytes[start..]).whole_value().map_err(D::Error::custom)
        });
        property_encoder.bytes.truncate(start);
        value
    }
}

/// The key between the tag of a value and its content.
enum Key<'a> {
    None,
    Number(u32),
    Text(&'a str),
}

struct Packing<'a, 'k> {
    out: &'a mut Vec<u8>,
    meter: &'a mut JsonSizeBudget,
    depth: usize,
    key: Key<'k>,
}

impl Packing<'_, '_> {
    fn begin<E: Error>(&mut self, tag: u8, bytes: usize) -> Result<(), E> {
        self.meter.count(bytes)?;
        self.out.push(tag);
        match self.key {
            Key::None => {}
            Key::Number(code) => write_unsigned(self.out, code.into()),
            Key::Text(text) => write_text(self.out, text),
        }
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for Packing<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

/// Bytes that count for a number, a boolean or null, including the comma.
const SCALAR_BYTES: usize = 9;

impl<'de> Visitor<'de> for Packing<'_, '_> {
    type Value = ();

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a JSON value")
    }

    fn visit_unit<E: Error>(mut self) -> Result<(), E> {
        self.begin(NULL, SCALAR_BYTES)
    }

    fn visit_bool<E: Error>(mut self, value: bool) -> Result<(), E> {
        self.begin(if value { TRUE } else { FALSE }, SCALAR_BYTES)
    }

    fn visit_i64<E: Error>(mut self, value: i64) -> Result<(), E> {
        self.begin(INTEGER, SCALAR_BYTES)?;
        write_signed(self.out, value);
        Ok(())
    }

    fn visit_u64<E: Error>(mut self, value: u64) -> Result<(), E> {
        if let Ok(value) = i64::try_from(value) {
            return self.visit_i64(value);
        }
        self.begin(UNSIGNED, SCALAR_BYTES)?;
        write_unsigned(self.out, value);
        Ok(())
    }

    fn visit_f64<E: Error>(mut self, value: f64) -> Result<(), E> {
        self.begin(FLOAT, SCALAR_BYTES)?;
        self.out.extend_from_slice(&value.to_le_bytes());
        Ok(())
    }

    fn visit_str<E: Error>(mut self, value: &str) -> Result<(), E> {
        self.begin(TEXT, value.len() + 3)?;
        write_text(self.out, &without_nul(value));
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut seq: A) -> Result<(), A::Error> {
        let depth = self.meter.deeper(self.depth)?;
        self.begin(ARRAY, 3)?;
        let (out, meter) = (self.out, self.meter);
        while seq.next_element_seed(Packing { out, meter, depth, key: Key::None })?.is_some() {}
        out.push(END);
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        let depth = self.meter.deeper(self.depth)?;
        self.begin(OBJECT, 3)?;
        let (out, meter) = (self.out, self.meter);
        while let Some(name) = map.next_key_seed(Name)? {
            meter.count(name.len() + 4)?;
            map.next_value_seed(Packing { out, meter, depth, key: Key::Text(&name) })?;
        }
        out.push(END);
        Ok(())
    }
}

/// The name of a field.
struct Name;

impl<'de> DeserializeSeed<'de> for Name {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for Name {
    type Value = Cow<'de, str>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a name")
    }

    fn visit_borrowed_str<E: Error>(self, value: &'de str) -> Result<Self::Value, E> {
        Ok(without_nul(value))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Self::Value, E> {
        Ok(Cow::Owned(without_nul(value).into_owned()))
    }
}

/// Replaces null characters in `text` by U+FFFD.
pub fn without_nul(text: &str) -> Cow<'_, str> {
    if text.as_bytes().contains(&0) {
        Cow::Owned(text.replace('\0', "\u{FFFD}"))
    } else {
        Cow::Borrowed(text)
    }
}
