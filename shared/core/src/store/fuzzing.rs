//! Functions for fuzzing of what the tables store; [`crate::fuzzing`] calls them.

use super::item::Item;
use super::local_backend::{from_json, to_json};

/// Reads an item in DynamoDB's JSON. Its JSON is parsed to the same attributes, and an accepted item without parts is the same
/// after it was stored and read.
pub(crate) fn check_item(text: &str) {
    let Some(attributes) = from_json(text) else { return };
    let printed = to_json(&attributes);
    assert_eq!(printed.as_deref().and_then(from_json).as_ref(), Some(&attributes), "{text}");
    let Ok(item) = Item::from_attributes(attributes) else { return };
    if item.parts().is_some() || item.key.pk.is_empty() {
        return;
    }
    let Ok(stored) = item.attributes() else { return };
    let again = Item::from_attributes(stored);
    let same = again.is_ok_and(|again| {
        (&again.key, again.version, &again.text, &again.bytes, again.count)
            == (&item.key, item.version, &item.text, &item.bytes, item.count)
    });
    assert!(same, "a stored item is read back: {text}");
}
