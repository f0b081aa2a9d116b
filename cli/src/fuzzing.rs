//! Functions for fuzzing: each parses any bytes and asserts what must stay true. `tests/src/fuzz.rs` lists them.

pub use crate::backup::fuzzing::{archives, contents};
pub use crate::import::fuzzing::{
    import_amplitude, import_detected, import_mixpanel, import_parquet, import_pennon, import_posthog,
    import_segment,
};
use crate::workspace::Workspace;

/// Workspace files, as YAML and as JSON: an accepted file is the same after it was printed as JSON, but for the secrets of keys,
/// which are never printed.
pub fn workspaces(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(mut workspace) = Workspace::parse(text) else { return };
    workspace.keys.iter_mut().for_each(|key| key.value = None);
    let printed = serde_json::to_string(&workspace).unwrap_or_default();
    let again = Workspace::parse(&printed);
    assert_eq!(again.as_ref(), Ok(&workspace), "printed as {printed}");
}
