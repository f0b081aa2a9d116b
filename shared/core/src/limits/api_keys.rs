//! The limits of API keys.

/// Most characters of a label.
pub const LABEL_CHARS: usize = 40;
/// Most scopes, projects or organizations of a key that is created over HTTP.
pub const LIST: usize = 100;
/// Most keys of a user that are created over HTTP.
pub const KEYS_PER_USER: usize = 100;
