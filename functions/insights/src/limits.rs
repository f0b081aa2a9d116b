//! Every cap on what one insight may hold, in one place.

/// Characters of a name, a derived name and a description.
pub const TEXT_CHARS: usize = 400;
/// Bytes of `filters`, and of `query`, as compact JSON text.
pub const QUESTION_BYTES: usize = 256 * 1024;
/// Levels of lists and objects inside `filters` and `query`, also where they come as JSON text.
pub const NESTING: usize = 64;
/// Dashboards that one insight may be put on; with a check and a pointer for each, a write stays one transaction.
pub const DASHBOARDS: usize = 30;
/// Tiles of an insight, removed ones included.
pub const TILES: usize = 500;
/// Characters of a search text in a list.
pub const SEARCH_CHARS: usize = 400;
/// Entries of a list inside a query parameter, such as `tags`.
pub const PARAMETER_ENTRIES: usize = 500;
/// How often a write that others overtook is judged again.
pub const WRITE_TRIES: usize = 10;
/// Letters and digits of a short id.
pub const SHORT_ID_CHARS: usize = 8;
