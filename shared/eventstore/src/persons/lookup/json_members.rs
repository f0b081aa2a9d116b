//! Parses selected members of a JSON object and skips the others.

use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;

/// Parses the selected members of a JSON object (`keys` ascending) and skips the others.
pub(super) struct SelectedMembers<'a>(pub(super) &'a [String]);

impl<'de> DeserializeSeed<'de> for SelectedMembers<'_> {
    type Value = Box<[(u16, Value)]>;

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for SelectedMembers<'_> {
    type Value = Box<[(u16, Value)]>;

    fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = Vec::new();
        while let Some(place) = map.next_key_seed(KeyPlace(self.0))? {
            match place {
                Some(place) => found.push((place, map.next_value()?)),
                None => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(found.into())
    }
}

/// The index of a member name in the selected keys.
struct KeyPlace<'a>(&'a [String]);

impl<'de> DeserializeSeed<'de> for KeyPlace<'_> {
    type Value = Option<u16>;

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for KeyPlace<'_> {
    type Value = Option<u16>;

    fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("a name")
    }

    fn visit_str<E: serde::de::Error>(self, name: &str) -> Result<Self::Value, E> {
        Ok(self.0.binary_search_by(|own| own.as_str().cmp(name)).ok().and_then(|at| u16::try_from(at).ok()))
    }
}
