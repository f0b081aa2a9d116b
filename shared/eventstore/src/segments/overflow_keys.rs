//! Collects the keys in the `properties` of a segment, for its footer.

use std::collections::{BTreeSet, HashMap};
use std::fmt;

use arrow_array::cast::AsArray;
use arrow_array::{Array, RecordBatch};
use serde::Deserializer;
use serde::de::{IgnoredAny, MapAccess, Visitor};

use crate::error::EventStoreError;

/// Most keys of `properties` that the footer lists.
const INLINE_IDS_MAX: usize = 2000;

/// The keys so far.
#[derive(Debug)]
pub(super) struct OverflowKeys {
    /// None when they are too many to list.
    listed: Option<BTreeSet<String>>,
    /// Keys with a column, with its index.
    own: HashMap<String, usize>,
    /// Whether any value of the key of a column is in `properties`, by column.
    exceptions: Vec<bool>,
}

impl OverflowKeys {
    /// Starts for a segment with columns of these keys.
    pub(super) fn new(own: impl Iterator<Item = String>) -> OverflowKeys {
        let own = own.enumerate().map(|(at, key)| (key, at)).collect::<HashMap<_, _>>();
        OverflowKeys { listed: Some(BTreeSet::new()), exceptions: vec![false; own.len()], own }
    }

    /// Adds the `properties` of the rows.
    pub(super) fn take(&mut self, rows: &RecordBatch) -> Result<(), EventStoreError> {
        let texts = rows.column_by_name("properties").and_then(|column| column.as_string_opt::<i32>());
        let texts = texts.ok_or_else(|| EventStoreError::corrupt("properties is no text"))?;
        if texts.null_count() == texts.len() {
            return Ok(());
        }
        for text in texts.iter().flatten() {
            serde_json::Deserializer::from_str(text).deserialize_map(&mut *self)?;
        }
        Ok(())
    }

    /// The keys, and by column whether it has exceptions.
    pub(super) fn finish(self) -> (Option<Vec<String>>, Vec<bool>) {
        (self.listed.map(|keys| keys.into_iter().collect()), self.exceptions)
    }

    fn key(&mut self, key: String) {
        if let Some(at) = self.own.get(&key) {
            self.exceptions[*at] = true;
        }
        if let Some(listed) = &mut self.listed
            && listed.insert(key)
            && listed.len() > INLINE_IDS_MAX
        {
            self.listed = None;
        }
    }
}

impl<'de> Visitor<'de> for &mut OverflowKeys {
    type Value = ();

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("an object of properties")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            map.next_value::<IgnoredAny>()?;
            self.key(key);
        }
        Ok(())
    }
}
