//! Every cap on what one flag may hold, in one place.
//!
//! Must stay true: a flag within these caps fits the store (256 KiB of filters beside the other capped fields stay below
//! the 400 KB of a table item) and can be evaluated in bounded time.

/// Characters of a flag's key.
pub const KEY_CHARS: usize = 400;
/// Characters of a flag's name (its description).
pub const NAME_CHARS: usize = 10_000;
/// Bytes of `filters` as compact JSON text.
pub const FILTERS_BYTES: usize = 256 * 1024;
/// Levels of lists and objects inside `filters` and `rollback_conditions`.
pub const NESTING: usize = 32;
/// Conditions (entries of `groups`) of a flag.
pub const CONDITIONS: usize = 1_000;
/// Properties of one condition.
pub const PROPERTIES: usize = 200;
/// Variants of a flag.
pub const VARIANTS: usize = 200;
/// Values in the list of one property.
pub const VALUES: usize = 1_000;
/// Bytes of one regular expression.
pub const PATTERN_BYTES: usize = 4_096;
/// Regular expressions of one flag; compiling them is the costliest part of judging a body.
pub const PATTERNS: usize = 100;
/// Bytes that one compiled regular expression may take: room for 80 Unicode letters, and some 20 ms to compile.
pub const COMPILED_PATTERN_BYTES: usize = 4 * 1024 * 1024;
/// Bytes that the compiled regular expressions of one project, and matching them, may take in an evaluation: room for
/// some 5,000 ordinary ones.
pub const ALL_PATTERNS_BYTES: usize = 256 * 1024 * 1024;
/// Bytes that may be tried in vain to compile the regular expressions of one flag or cohort, once at the smallest size and
/// once at larger ones; some 5 ms each MiB.
pub const FAILED_PATTERNS_BYTES: usize = 8 * 1024 * 1024;
/// The same for all of one project in an evaluation: a second or so.
pub const ALL_FAILED_PATTERNS_BYTES: usize = 256 * 1024 * 1024;
/// Flags, and likewise cohorts, that one flag may refer to.
pub const REFERENCES: usize = 200;
/// Bytes of `rollback_conditions` as compact JSON text.
pub const ROLLBACK_BYTES: usize = 32 * 1024;
/// Tags of a flag.
pub const TAGS: usize = 100;
/// Characters of one tag.
pub const TAG_CHARS: usize = 255;
/// Dashboards that a flag may be linked to.
pub const DASHBOARDS: usize = 500;
/// Characters of a search text in a list of flags.
pub const SEARCH_CHARS: usize = 200;
