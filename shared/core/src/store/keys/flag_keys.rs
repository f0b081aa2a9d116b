//! Rows by flag key: the flag that has a key, and the last calls of flags.

use super::{Key, ProjectId};

/// The suffix of the row of a live flag.
const FLAG_KEY_LIVE: &str = "#LIVE";

/// Partition of the rows that map keys to live flags. Earlier releases also stored `{key}#DELETED#{padded id}` for
/// deleted flags here; no code reads these rows.
pub fn flag_keys_pk(project: ProjectId) -> String {
    format!("PROJECT#{project}#FLAGKEY")
}

/// Exists while a live flag has the key, which contains no `#`; the item's counter is the flag's id.
pub fn flag_key_live(project: ProjectId, key: &str) -> Key {
    Key::new(flag_keys_pk(project), format!("{key}{FLAG_KEY_LIVE}"))
}

/// The flag key of a row of [`flag_keys_pk`]; `None` for rows of deleted flags.
pub fn live_flag_key(sk: &str) -> Option<&str> {
    sk.strip_suffix(FLAG_KEY_LIVE)
}

/// The last call of each flag of a project, from events that were compacted or imported.
pub fn flag_calls(project: ProjectId) -> Key {
    Key::new(format!("PROJECT#{project}#FLAGCALLS"), "LATEST")
}
