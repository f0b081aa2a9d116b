//! Limits of flags.

use pennon_core::model::FEED_BYTES_MAX;
use pennon_flag_rules::limits as flags;

use super::Tested::{Both, Past, Rule};
use super::{Row, Section};

const RECORD: &str = "tests/tests/http/flag_limits.rs::limits_hold_at_the_limit_and_one_past_it";
const REFERENCES: &str =
    "tests/tests/http/record_limits.rs::a_flag_refers_to_two_hundred_cohorts_and_two_hundred_flags";
const NO_MATCH: &str = "the pattern matches nothing";

pub(super) const SECTIONS: &[Section] = &[
    Section { title: "Flags", text: "", rows: RECORDS },
    Section {
        title: "Regular expressions of flags in an evaluation",
        text: "Further patterns than these allow match nothing; the flag's other conditions are evaluated.",
        rows: PATTERNS,
    },
];

const RECORDS: &[Row] = &[
    row!(flags::KEY_CHARS, "characters", "Key", "400 `max_length`", Both(RECORD)),
    row!(flags::NAME_CHARS, "characters", "Name (the description)", "400 `max_length`", Both(RECORD)),
    row!(flags::FILTERS_BYTES, "bytes", "`filters`, as compact JSON", "400", Both(RECORD)),
    row!(
        flags::NESTING,
        "levels",
        "Lists and objects in `filters` and in `rollback_conditions`",
        "400",
        Both(RECORD)
    ),
    row!(flags::CONDITIONS, "conditions", "Conditions (`groups`)", "400", Both(RECORD)),
    row!(flags::PROPERTIES, "properties", "Properties of a condition", "400", Both(RECORD)),
    row!(flags::VARIANTS, "variants", "Variants", "400", Both(RECORD)),
    row!(flags::VALUES, "values", "Values in the list of a property", "400", Both(RECORD)),
    row!(flags::PATTERN_BYTES, "bytes", "A regular expression", "400", Both(RECORD)),
    row!(flags::PATTERNS, "patterns", "Regular expressions of a flag", "400", Both(RECORD)),
    row!(
        flags::REFERENCES,
        "records",
        "Flags, and likewise cohorts, that a flag refers to",
        "400",
        Both(REFERENCES)
    ),
    row!(flags::ROLLBACK_BYTES, "bytes", "`rollback_conditions`, as compact JSON", "400", Both(RECORD)),
    row!(
        flags::DASHBOARDS,
        "dashboards",
        "Linked dashboards",
        "400",
        Both("tests/tests/http/record_limits.rs::a_flag_is_linked_to_five_hundred_dashboards")
    ),
    row!(
        flags::SEARCH_CHARS,
        "characters",
        "`search` in a list of flags",
        "400",
        Both("tests/tests/http/flag_limits.rs::parameters_of_lists_are_validated")
    ),
    row!(
        FEED_BYTES_MAX,
        "bytes",
        "Definitions of all flags and their cohorts for SDKs, compressed",
        "400, on the write that would enlarge them",
        Both("tests/tests/http/feed_size.rs::a_feed_is_filled_up_to_its_maximum_size")
    ),
];

const PATTERNS: &[Row] = &[
    row!(
        flags::COMPILED_PATTERN_BYTES,
        "bytes",
        "One compiled regular expression",
        "400 on a write; else it matches nothing",
        Past("shared/flag_rules/src/conditions/pattern.rs::patterns_that_would_cost_too_much_do_not_compile")
    ),
    row!(
        flags::ALL_PATTERNS_BYTES,
        "bytes",
        "All of a project",
        NO_MATCH,
        Rule("shared/flag_rules/src/evaluate/patterns.rs::all_patterns_together_have_a_limit")
    ),
    row!(
        flags::FAILED_PATTERNS_BYTES,
        "bytes",
        "Spent on those of a flag or cohort that fail to compile",
        NO_MATCH,
        Rule(
            "shared/flag_rules/src/evaluate/patterns.rs::failed_compilations_are_limited_per_flag_and_in_total"
        )
    ),
    row!(
        flags::ALL_FAILED_PATTERNS_BYTES,
        "bytes",
        "The same for all of a project",
        NO_MATCH,
        Rule(
            "shared/flag_rules/src/evaluate/patterns.rs::failed_compilations_are_limited_per_flag_and_in_total"
        )
    ),
];
