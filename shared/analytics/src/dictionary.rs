//! The dictionary of a column, with lazily computed and cached text hashes.
//!
//! Must stay true: values never change; two values have the same text hash exactly if they have the same text.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Deref;
use std::sync::OnceLock;

use pennon_filters::text::text_of;
use serde_json::Value;

/// Values in the order of their codes; may have duplicates.
#[derive(Debug, Clone, Default)]
pub struct Dictionary {
    values: Vec<Value>,
    text_hashes: OnceLock<Vec<u128>>,
}

/// The text hash of values without a text, or with an empty one.
pub(crate) const NO_TEXT: u128 = 0;

impl Dictionary {
    /// Maximum bytes of cached data per value, beside the value.
    pub const CACHED_BYTES_PER_VALUE: usize = size_of::<u128>();

    /// By code: the hash of the value's text.
    pub(crate) fn text_hashes(&self) -> &[u128] {
        self.text_hashes.get_or_init(|| {
            let id = |value| text_of(value).filter(|text| !text.is_empty()).map(|text| text_hash(&text));
            self.values.iter().map(|value| id(value).unwrap_or(NO_TEXT)).collect()
        })
    }
}

impl From<Vec<Value>> for Dictionary {
    fn from(values: Vec<Value>) -> Self {
        Self { values, text_hashes: OnceLock::new() }
    }
}

impl Deref for Dictionary {
    type Target = [Value];

    fn deref(&self) -> &[Value] {
        &self.values
    }
}

impl PartialEq for Dictionary {
    fn eq(&self, other: &Self) -> bool {
        self.values == other.values
    }
}

/// A 128-bit hash, wide enough that collisions within a project can be ignored.
pub(crate) fn text_hash(text: &str) -> u128 {
    let half = |salt: u8| {
        let mut hasher = DefaultHasher::new();
        (salt, text).hash(&mut hasher);
        u128::from(hasher.finish())
    };
    ((half(1) << 64) | half(2)).max(NO_TEXT + 1)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_of_equal_text_have_equal_hashes() {
        let values =
            vec![json!("5"), json!(5), json!(5.0), json!("a"), json!(""), json!(null), json!("true")];
        let dictionary = Dictionary::from(values);
        let [text, whole, float, other, empty, null, truth] = dictionary.text_hashes() else {
            unreachable!()
        };
        assert!(text == whole && whole == float && text != other && other != truth);
        assert_eq!((*empty, *null), (NO_TEXT, NO_TEXT));
        assert!(![text, other, truth].contains(&&NO_TEXT));
        assert_eq!(*truth, text_hash("true"));
    }
}
