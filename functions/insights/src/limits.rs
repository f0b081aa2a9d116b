//! Every cap on what one insight may hold, in one place.

/// Characters of a name, a derived name and a description.
pub const TEXT_CHARS: usize = 400;
/// Bytes of `filters`, and of `query`, as compact JSON text.
pub const QUESTION_BYTES: usize = 256 * 1024;
/// Levels of lists and objects inside `filters` and `query`, also where they come as JSON text.
pub const NESTING: usize = 64;
/// Dashboards that one insight may be on. A pointer for each is written and removed with the insight, so that even a write
/// which takes it off all of them and puts it on as many others stays one transaction of a hundred items at most.
pub const DASHBOARDS: usize = 40;
/// Tiles of an insight, removed ones included.
pub const TILES: usize = 500;
/// Characters of a search text in a list.
pub const SEARCH_CHARS: usize = 400;
/// Entries of a list inside a query parameter, such as `tags`.
pub const PARAMETER_ENTRIES: usize = 500;
/// Insights that one request may note as viewed.
pub const VIEWS: usize = 100;
/// Bytes of what a client measured.
pub const TIMING_BYTES: usize = 32 * 1024;
/// KiB of records that one page reads: more could not be answered.
pub const PAGE_KIB: usize = 48 * 1024;
/// How often a write that others overtook is judged again.
pub const WRITE_TRIES: usize = 10;
/// Letters and digits of a short id.
pub const SHORT_ID_CHARS: usize = 8;
