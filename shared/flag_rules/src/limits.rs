//! All limits on the content of one flag.
//!
//! Must stay true: a flag within these limits fits the store (256 KiB of filters plus the other limited fields stay
//! below the 400 KB of a DynamoDB item) and can be evaluated in bounded time.

/// Characters of a flag's key.
pub const KEY_CHARS: usize = 400;
/// Characters of a flag's name (its description).
pub const NAME_CHARS: usize = 10_000;
/// Bytes of `filters` as compact JSON text.
pub const FILTERS_BYTES: usize = 256 * 1024;
/// Nesting depth of `filters` and `rollback_conditions`.
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
pub const PATTERN_BYTES: usize = pennon_filters::limits::REGEX_BYTES;
/// Regular expressions of one flag; compiling them is the most expensive part of validating a body.
pub const PATTERNS: usize = 100;
/// Bytes of one compiled regular expression: enough for 80 Unicode letters, and about 20 ms to compile.
pub const COMPILED_PATTERN_BYTES: usize = 4 * 1024 * 1024;
/// Bytes of the compiled regular expressions of one project, including matching, in an evaluation: enough for about
/// 5,000 ordinary ones.
pub const ALL_PATTERNS_BYTES: usize = 256 * 1024 * 1024;
/// Bytes that may be spent on failed compilations of the regular expressions of one flag or cohort, once at the
/// smallest size and once at larger ones; about 5 ms per MiB.
pub const FAILED_PATTERNS_BYTES: usize = 8 * 1024 * 1024;
/// The same for all patterns of one project in an evaluation: about one second.
pub const ALL_FAILED_PATTERNS_BYTES: usize = 256 * 1024 * 1024;
/// Flags, and likewise cohorts, that one flag may refer to.
pub const REFERENCES: usize = 200;
/// Bytes of `rollback_conditions` as compact JSON text.
pub const ROLLBACK_BYTES: usize = 32 * 1024;
/// Dashboards that a flag may be linked to.
pub const DASHBOARDS: usize = 500;
/// Characters of a search text in a list of flags.
pub const SEARCH_CHARS: usize = 200;
