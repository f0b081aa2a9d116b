//! Format numbers: every object and every row says of which form it is, and one of a newer release is refused.
//!
//! An object is of the form that the manifest's entry for it says, with all that lies beside it; a segment says it in its
//! footer too. Whatever changes the meaning of what is stored raises the number of its kind, and readers of the number
//! before stay. Must stay true: the number is read before anything else, so that nothing newer is half read; an entry
//! that says none is of the first form.

use pennon_core::store::Item;
use serde::Deserialize;

use crate::error::EventStoreError;
use crate::keys;
use crate::segments;

/// The manifest as a whole.
pub(crate) const MANIFEST: u32 = 1;
/// Objects with imported persons. The first form has no object with ids beside it.
pub(crate) const PERSONS: u32 = 2;
/// Objects with imported groups: no object beside them, as in the first form of persons.
pub(crate) const GROUPS: u32 = 1;
/// Objects with folded merges.
pub(crate) const MERGES: u32 = 1;
/// Objects that say who is who by imports.
pub(crate) const LINKS: u32 = 1;

/// The form of what says none.
pub(crate) fn first() -> u32 {
    1
}

#[derive(Deserialize)]
struct Form {
    #[serde(default = "first")]
    format: u32,
}

/// The form that a JSON text says it is of.
pub(crate) fn of_body(text: &str) -> Result<u32, EventStoreError> {
    Ok(serde_json::from_str::<Form>(text)?.format)
}

/// The error for `what`, which is of a newer format than `known`.
pub(crate) fn newer(what: &str, format: u32, known: u32) -> EventStoreError {
    EventStoreError::Corrupt(format!(
        "{what} has format {format}, and this release reads up to {known}: a newer release wrote it"
    ))
}

/// An error where one of these entries of a manifest is of a newer form.
pub(crate) fn require(entries: &[Item]) -> Result<(), EventStoreError> {
    for item in entries.iter().filter(|item| !item.text.is_empty()) {
        let sk = item.key.sk.as_str();
        let kinds = [
            (keys::HEAD, MANIFEST),
            (keys::SEGMENT, segments::FORMAT),
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
    fn entries_of_a_newer_form_are_refused_whatever_else_they_say() {
        let kinds = [
            ("HEAD", 1),
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
            let told = refused.contains(sk) && refused.contains(&format!("format {}", known + 1));
            assert!(told && refused.contains("newer release"), "{refused}");
        }
        require(&[Item::empty(keys::head(1)), entry("DAMAGED#a", json!({"object": "a"}))]).unwrap();
    }
}
