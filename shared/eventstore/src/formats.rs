//! Format numbers of objects and rows; those of a newer release are refused.
//!
//! The manifest entry holds the format of an object and of the files beside it; a segment has it in its footer
//! too. Any change of the meaning of stored data raises the number of its kind, and readers of the previous
//! number stay. Must stay true: the number is checked before anything else, so that newer data is never
//! partially read; an entry without a number has format 1.

use pennon_core::store::Item;
use serde::Deserialize;

use crate::error::EventStoreError;
use crate::keys;

/// The manifest as a whole.
pub(crate) const MANIFEST: u32 = 1;
/// The number of partitions for blocks. Its first format is 2, because releases before it read it as a manifest.
pub(crate) const PARTITIONS: u32 = 2;
/// Segments.
pub(crate) const SEGMENTS: u32 = 4;
/// Imports of persons. Format 1 has no ids sidecar.
pub(crate) const PERSONS: u32 = 2;
/// Imports of groups, without a sidecar, as in format 1 of persons.
pub(crate) const GROUPS: u32 = 1;
/// Objects with folded merges.
pub(crate) const MERGES: u32 = 1;
/// Objects with the merges of imports.
pub(crate) const LINKS: u32 = 1;

/// Format of data without a number.
pub(crate) fn first() -> u32 {
    1
}

#[derive(Deserialize)]
struct FormatField {
    #[serde(default = "first")]
    format: u32,
}

/// Parses the format of a JSON text.
pub(crate) fn of_body(text: &str) -> Result<u32, EventStoreError> {
    Ok(serde_json::from_str::<FormatField>(text)?.format)
}

/// The error for `what` in a format newer than `known`.
pub(crate) fn newer(what: &str, format: u32, known: u32) -> EventStoreError {
    EventStoreError::Corrupt(format!(
        "{what} has format {format}, and this release reads up to {known}: a newer release wrote it"
    ))
}

/// Checks that no entry of a manifest has a newer format.
pub(crate) fn require(entries: &[Item]) -> Result<(), EventStoreError> {
    for item in entries.iter().filter(|item| !item.text.is_empty()) {
        let sk = item.key.sk.as_str();
        let kinds = [
            (keys::PARTITIONS, PARTITIONS),
            (keys::HEAD, MANIFEST),
            (keys::SEGMENT, SEGMENTS),
            (keys::PERSONS, PERSONS),
            (keys::GROUPS, GROUPS),
            (keys::MERGES, MERGES),
            (keys::LINKS, LINKS),
        ];
        let Some((_, known)) = kinds.iter().find(|(prefix, _)| sk.starts_with(prefix)) else { continue };
        let format = of_body(&item.text)?;
        if format > *known {
            return Err(newer(&format!("{}/{sk}", item.key.pk), format, *known));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use pennon_core::store::Key;
    use serde_json::json;

    fn entry(sk: &str, body: serde_json::Value) -> Item {
        Item::new(Key::new(keys::manifest_pk(1), sk), &body).unwrap()
    }

    #[test]
    fn entries_of_a_newer_format_are_rejected() {
        let kinds = [
            ("HEAD", 1),
            ("HEAD#PARTITIONS", 2),
            ("SEGMENT#a", 4),
            ("PERSONS#a", 2),
            ("GROUPS#a", 1),
            ("MERGES#a", 1),
            ("LINKS#a", 1),
        ];
        for (sk, known) in kinds {
            for format in 1..=known {
                require(&[entry(sk, json!({"format": format}))]).unwrap();
            }
            require(&[entry(sk, json!({"id": "an entry of the first form"}))]).unwrap();
            let newer = entry(sk, json!({"format": known + 1, "object": ["of", "another", "kind"]}));
            let refused = require(&[newer]).unwrap_err().to_string();
            let is_reported = refused.contains(sk) && refused.contains(&format!("format {}", known + 1));
            assert!(is_reported && refused.contains("newer release"), "{refused}");
        }
        require(&[Item::empty(keys::head(1)), entry("DAMAGED#a", json!({"object": "a"}))]).unwrap();
    }
}
