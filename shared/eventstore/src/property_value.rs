//! Property values as they enter a column, and a streaming parser for JSON objects of properties.
//!
//! Must stay true: parsing yields the same values as parsing into a map; for a repeated key the last value
//! wins.

use std::borrow::Cow;
use std::fmt;

use serde::Deserializer;
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Deserialize, DeserializeSeed, Error, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

/// A property value, borrowed where it can be.
#[derive(Debug, Clone, PartialEq)]
pub enum PropertyValue<'a> {
    /// Null, which is not the same as no value.
    Null,
    /// true or false.
    Boolean(bool),
    /// A number without a fraction.
    Integer(i64),
    /// A number with a fraction or an exponent, 50.0 included.
    Float(f64),
    /// A text.
    Text(Cow<'a, str>),
    /// Anything else, as JSON.
    Json(Cow<'a, str>),
}

impl<'a> PropertyValue<'a> {
    /// Converts from a JSON value.
    pub fn of(value: &'a Value) -> PropertyValue<'a> {
        match value {
            Value::Null => PropertyValue::Null,
            Value::Bool(value) => PropertyValue::Boolean(*value),
            Value::String(text) => PropertyValue::Text(text.as_str().into()),
            Value::Number(number) => match (number.as_i64(), number.as_f64()) {
                (Some(n), _) => PropertyValue::Integer(n),
                (None, Some(float)) if number.is_f64() => PropertyValue::Float(float),
                _ => PropertyValue::Json(number.to_string().into()),
            },
            Value::Array(_) | Value::Object(_) => PropertyValue::Json(value.to_string().into()),
        }
    }

    /// Converts to a JSON value.
    pub fn to_value(&self) -> Value {
        match self {
            PropertyValue::Null => Value::Null,
            PropertyValue::Boolean(value) => Value::from(*value),
            PropertyValue::Integer(n) => Value::from(*n),
            PropertyValue::Float(float) => Value::from(*float),
            PropertyValue::Text(text) => Value::from(text.as_ref()),
            PropertyValue::Json(text) => serde_json::from_str(text).unwrap_or_default(),
        }
    }

    fn unsigned(n: u64) -> PropertyValue<'static> {
        i64::try_from(n).map_or_else(|_| PropertyValue::Json(n.to_string().into()), PropertyValue::Integer)
    }
}

/// A consumer of the properties of an event.
pub trait Properties {
    /// Adds a property; it replaces an earlier one with this key.
    fn property(&mut self, key: &str, cell: PropertyValue<'_>);
}

/// Ignores all properties: only validates the text.
impl Properties for () {
    fn property(&mut self, _: &str, _: PropertyValue<'_>) {}
}

/// Parses a JSON object and passes its properties to `into`; null means no properties.
pub fn read_properties(text: &str, into: &mut impl Properties) -> Result<(), serde_json::Error> {
    let mut reader = serde_json::Deserializer::from_str(text);
    reader.deserialize_any(Object(into))?;
    reader.end()
}

struct Object<'s, S>(&'s mut S);

impl<'de, S: Properties> Visitor<'de> for Object<'_, S> {
    type Value = ();

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("an object of properties")
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(Key(key)) = map.next_key()? {
            map.next_value_seed(Property { key: &key, into: self.0 })?;
        }
        Ok(())
    }
}

/// A key, borrowed where it has no escapes.
struct Key<'de>(Cow<'de, str>);

impl<'de> Deserialize<'de> for Key<'de> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Key<'de>, D::Error> {
        struct Keys;
        impl<'de> Visitor<'de> for Keys {
            type Value = Key<'de>;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("a key")
            }

            fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Key<'de>, E> {
                Ok(Key(text.into()))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Key<'de>, E> {
                Ok(Key(text.to_owned().into()))
            }
        }
        from.deserialize_str(Keys)
    }
}

struct Property<'s, S> {
    key: &'s str,
    into: &'s mut S,
}

impl<S: Properties> Property<'_, S> {
    fn put<E>(self, cell: PropertyValue<'_>) -> Result<(), E> {
        self.into.property(self.key, cell);
        Ok(())
    }
}

impl<'de, S: Properties> DeserializeSeed<'de> for Property<'_, S> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de, S: Properties> Visitor<'de> for Property<'_, S> {
    type Value = ();

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a value")
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        self.put(PropertyValue::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<(), E> {
        self.put(PropertyValue::Boolean(value))
    }

    fn visit_i64<E: Error>(self, n: i64) -> Result<(), E> {
        self.put(PropertyValue::Integer(n))
    }

    fn visit_u64<E: Error>(self, n: u64) -> Result<(), E> {
        self.put(PropertyValue::unsigned(n))
    }

    fn visit_f64<E: Error>(self, float: f64) -> Result<(), E> {
        self.put(PropertyValue::Float(float))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        self.put(PropertyValue::Text(text.into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<(), A::Error> {
        let value = Value::deserialize(SeqAccessDeserializer::new(items))?;
        self.put(PropertyValue::of(&value))
    }

    fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<(), A::Error> {
        let value = Value::deserialize(MapAccessDeserializer::new(fields))?;
        self.put(PropertyValue::of(&value))
    }
}
