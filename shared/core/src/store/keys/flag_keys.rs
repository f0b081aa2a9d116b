//! Rows by the keys of flags: which flag has a key, and when flags were last called by theirs.

use super::{Key, ProjectId};

/// What follows the key in the row of a live flag.
const FLAG_KEY_LIVE: &str = "#LIVE";

/// Partition of the rows that say which live flag has a key. Earlier releases also stored `{key}#DELETED#{padded id}` for
/// deleted flags here; no code reads these rows.
pub fn flag_keys_pk(project: ProjectId) -> String {
    format!("PROJECT#{project}#FLAGKEY")
}

/// There while a live flag has the key, which holds no `#`; the item's counter is the flag's number.
pub fn flag_key_live(project: ProjectId, key: &str) -> Key {
    Key::new(flag_keys_pk(project), format!("{key}{FLAG_KEY_LIVE}"))
}

/// The key of the live flag that a row of [`flag_keys_pk`] is about; none for other rows.
pub fn live_flag_key(sk: &str) -> Option<&str> {
    sk.strip_suffix(FLAG_KEY_LIVE)
}

/// When the flags of a project were last called, as far as events were compacted or imported.
pub fn flag_calls(project: ProjectId) -> Key {
    Key::new(format!("PROJECT#{project}#FLAGCALLS"), "LATEST")
}
