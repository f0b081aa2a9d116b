//! Limits of queries.

use pennon_analytics::kinds::correlation::limits as correlation;
use pennon_analytics::kinds::flag_impact::limits as flag_impact;
use pennon_analytics::kinds::funnels::limits as funnels;
use pennon_analytics::kinds::lifecycle::limits as lifecycle;
use pennon_analytics::kinds::paths::limits as paths;
use pennon_analytics::kinds::retention::limits as retention;
use pennon_analytics::kinds::stickiness::limits as stickiness;
use pennon_analytics::kinds::trends::limits as trends;
use pennon_analytics::limits;

use super::Tested::{Both, No, Past, Rule};
use super::{Row, Section};

const OVER_HTTP: &str = "tests/tests/http/calculation_limits.rs::queries_at_a_limit_are_calculated_and_larger_ones_are_rejected_by_field";
const EXPRESSION: &str = "shared/analytics/src/sql/tests.rs::length_depth_and_parts_are_limited";
const LINKS: &str = "shared/analytics/src/people_links.rs::links_that_do_not_fit_are_omitted_with_the_reason";
const BREAKDOWNS: &str = "shared/analytics/tests/suite/trends.rs::bad_breakdowns_are_refused_by_name";
const COHORTS: &str = "shared/analytics/tests/suite/cohorts.rs::circular_and_long_references_are_rejected";
const CRITERIA: &str = "shared/analytics/tests/suite/cohorts.rs::invalid_criteria_are_rejected";
const TREND_RANGE: &str =
    "shared/analytics/tests/suite/trends.rs::too_many_series_and_numbers_are_rejected_at_their_limits";
const RETENTION: &str =
    "shared/analytics/tests/suite/retention_rules.rs::limits_are_tested_at_the_limit_and_one_past_it";
const STICKINESS: &str = "shared/analytics/tests/suite/stickiness.rs::too_many_series_and_bars_are_refused";
const PATH_LISTS: &str = "shared/analytics/tests/suite/paths.rs::invalid_fields_are_named";
const IMPACT: &str = "shared/analytics/tests/suite/flag_impact.rs::every_wrong_field_is_refused_by_its_name";
const MEMORY: &str = "400; narrow the dates, the events or the breakdown";

pub(super) const SECTIONS: &[Section] = &[
    Section { title: "All queries", text: "", rows: ALL },
    Section { title: "Funnels", text: "", rows: FUNNELS },
    Section { title: "Trends", text: "", rows: TRENDS },
    Section { title: "Retention", text: "", rows: RETENTIONS },
    Section { title: "Stickiness, lifecycle and paths", text: "", rows: OTHERS },
    Section { title: "Correlation and the impact of flags", text: "", rows: STATISTICS },
];

const ALL: &[Row] = &[
    row!(limits::FILTER_DEPTH, "levels", "Groups of property filters", "400", Both(OVER_HTTP)),
    row!(limits::FILTERS, "filters", "Property filters of a query", "400", Both(OVER_HTTP)),
    row!(limits::FILTER_VALUES, "values", "Values in the list of a filter", "400", Both(OVER_HTTP)),
    row!(limits::REGEXES, "patterns", "Regular expressions of a query", "400", Both(OVER_HTTP)),
    row!(
        limits::REGEX_BYTES,
        "bytes",
        "One regular expression",
        "400",
        Both("shared/flag_rules/src/conditions/pattern.rs::patterns_that_would_cost_too_much_do_not_compile")
    ),
    row!(
        limits::REGEX_COMPILED_BYTES,
        "bytes",
        "One compiled regular expression",
        "400",
        Past("shared/filters/src/re2.rs::a_too_large_pattern_is_an_error_and_not_invalid")
    ),
    row!(
        limits::REGEX_SEARCH_WORK,
        "bytes squared",
        "Compiled regular expression times searched text",
        "400",
        Both("shared/filters/src/regex_bounds.rs::the_limit_is_exact")
    ),
    row!(
        limits::EVALUATIONS,
        "comparisons",
        "Comparisons in one share of the persons",
        "400",
        Past("shared/analytics/tests/suite/filters.rs::too_many_comparisons_are_rejected_before_the_search")
    ),
    row!(limits::BUCKETS, "intervals", "Intervals of the date range", "400", Both(OVER_HTTP)),
    row!(limits::NAME_BYTES, "bytes", "Event name, property key, custom name", "400", Both(OVER_HTTP)),
    row!(limits::BREAKDOWNS, "breakdowns", "`breakdowns`", "400", Both(OVER_HTTP)),
    row!(limits::BREAKDOWN_LIMIT, "values", "`breakdown_limit`", "400", Both(OVER_HTTP)),
    row!(
        limits::BREAKDOWN_VALUES,
        "values",
        "Distinct values of a breakdown",
        "400",
        Both("shared/analytics/tests/suite/limits.rs::retention_has_at_most_so_many_breakdown_values")
    ),
    row!(limits::BREAKDOWN_BINS, "bins", "Bins of a numeric breakdown", "400", Both(OVER_HTTP)),
    row!(limits::BREAKDOWN_COHORTS, "cohorts", "Cohorts of a breakdown", "400", Both(BREAKDOWNS)),
    row!(limits::LINK_BYTES, "bytes", "One link in a result", "the link is null", Past(LINKS)),
    row!(limits::LINKS_BYTES, "bytes", "All links in a result", "further links are null", Past(LINKS)),
    row!(limits::EXPRESSION_BYTES, "bytes", "An SQL expression", "400", Both(EXPRESSION)),
    row!(limits::EXPRESSION_NODES, "nodes", "Nodes of an SQL expression", "400", Both(EXPRESSION)),
    row!(limits::EXPRESSION_DEPTH, "levels", "Nesting of an SQL expression", "400", Both(EXPRESSION)),
    row!(
        limits::EXPRESSION_TEXT,
        "bytes",
        "Text computed by an SQL expression",
        "counts as missing",
        Past("shared/analytics/src/sql/tests.rs::texts_do_not_grow_without_bound")
    ),
    row!(
        limits::ACTION_STEPS,
        "steps",
        "Steps of an action",
        "400",
        Both("tests/tests/http/record_limits.rs::limits_hold_at_the_limit_and_one_past_it")
    ),
    row!(limits::COHORT_DEPTH, "levels", "Cohorts that refer to cohorts", "400", Both(COHORTS)),
    row!(
        limits::BEHAVIOURS,
        "criteria",
        "Criteria on events in all cohorts of a query",
        "400",
        Both(CRITERIA)
    ),
    row!(limits::PERIODS, "periods", "`total_periods` of a criterion", "400", Both(CRITERIA)),
    row!(limits::GROUP_TYPES, "group types", "Group types of a project", "400", Both(RETENTION)),
    row!(
        limits::SESSION_BYTES,
        "bytes",
        "Sessions of all time, for properties of sessions",
        "400",
        Rule("shared/analytics/src/sessions.rs::the_memory_limit_is_exact")
    ),
];

const FUNNELS: &[Row] = &[
    row!(funnels::STEPS, "steps", "Steps", "400 `funnel_max_steps_exceeded`", Both(OVER_HTTP)),
    row!(funnels::EXCLUSIONS, "exclusions", "Exclusions", "400", Both(OVER_HTTP)),
    row!(funnels::BREAKDOWN_KEYS, "keys", "Keys in `breakdown`", "400", Both(OVER_HTTP)),
    row!(funnels::WINDOW_SECONDS, "seconds", "Conversion window", "400", Both(OVER_HTTP)),
    row!(
        funnels::STEP_VALUE_EVENTS,
        "passes",
        "Events of a person times its values, with the attribution `step`",
        "400",
        Both("shared/analytics/src/kinds/funnels/limits.rs::step_values_fit_up_to_the_limit")
    ),
    row!(
        funnels::FUNNEL_NUMBERS,
        "numbers",
        "Numbers of all rows of a breakdown",
        MEMORY,
        Both(
            "shared/analytics/src/kinds/funnels/calculation/rows.rs::rows_over_the_memory_limit_are_rejected"
        )
    ),
    row!(
        funnels::FUNNEL_POINTS,
        "periods",
        "Periods of all series over time",
        "further series are left out",
        Both("shared/analytics/tests/suite/limits.rs::a_funnel_over_time_leaves_out_further_series")
    ),
    row!(
        funnels::FUNNEL_OBJECTS,
        "steps",
        "Steps of all rows, one row for each value",
        "400",
        Both(
            "shared/analytics/tests/suite/funnel_results.rs::breakdowns_by_expression_have_a_row_per_value_up_to_their_limit"
        )
    ),
];

const TRENDS: &[Row] = &[
    row!(trends::SERIES, "series", "Series", "400", Both(OVER_HTTP)),
    row!(trends::POINTS, "numbers", "Intervals of all series together", "400", Both(TREND_RANGE)),
    row!(
        trends::RESULT_POINTS,
        "numbers",
        "Numbers of all rows of the result",
        "400",
        Both("shared/analytics/tests/suite/limits.rs::a_trend_has_at_most_so_many_numbers")
    ),
    row!(
        trends::TREND_MEMORY_BYTES,
        "bytes",
        "Memory of the numbers and sets",
        MEMORY,
        Both(
            "shared/analytics/src/kinds/trends/calculation/partial_result.rs::exceeding_the_memory_limit_drops_the_data"
        )
    ),
    row!(
        trends::FORMULAS,
        "formulas",
        "Formulas",
        "400",
        Both("shared/analytics/tests/suite/trend_rules.rs::lists_of_formulas_have_a_limit_and_a_format")
    ),
    row!(
        trends::FORMULA_BYTES,
        "bytes",
        "A formula",
        "400",
        Both("shared/analytics/src/kinds/trends/formula/tests.rs::length_and_depth_are_limited")
    ),
    row!(
        trends::FORMULA_DEPTH,
        "levels",
        "Parentheses and powers in a formula",
        "400",
        Both("shared/analytics/src/kinds/trends/formula/tests.rs::length_and_depth_are_limited")
    ),
];

const RETENTIONS: &[Row] = &[
    row!(retention::COLUMNS, "columns", "`totalIntervals`", "400", Both(RETENTION)),
    row!(retention::BRACKETS, "brackets", "`retentionCustomBrackets`", "400", Both(RETENTION)),
    row!(retention::CELLS, "cells", "Rows times columns", "400 that names the most periods", Both(RETENTION)),
    row!(
        retention::RESULT_CELLS,
        "cells",
        "The same of all breakdown values",
        "400",
        Both("shared/analytics/tests/suite/limits.rs::a_retention_result_has_at_most_so_many_cells")
    ),
    row!(
        retention::RETENTION_MEMORY_BYTES,
        "bytes",
        "Memory of the cells",
        MEMORY,
        Both(
            "shared/analytics/src/kinds/retention/calculation/counts.rs::exceeding_the_memory_limit_drops_the_data"
        )
    ),
];

const OTHERS: &[Row] = &[
    row!(stickiness::SERIES, "series", "Series of stickiness", "400", Both(STICKINESS)),
    row!(stickiness::BARS, "bars", "Bars of all series", "400", Past(STICKINESS)),
    row!(
        stickiness::INTERVAL_COUNT,
        "intervals",
        "`intervalCount`",
        "400 `stickiness_interval_count_too_large`",
        Both("shared/analytics/tests/suite/stickiness.rs::an_interval_count_is_within_its_limits")
    ),
    row!(
        stickiness::VALUES_MEMORY_BYTES,
        "bytes",
        "Memory of the values of `math_hogql`",
        "400",
        Both(
            "shared/analytics/src/kinds/stickiness/calculation/counts.rs::exceeding_the_memory_limit_drops_the_data"
        )
    ),
    row!(
        lifecycle::SERIES,
        "series",
        "Series of a lifecycle",
        "400",
        Both("shared/analytics/tests/suite/lifecycle.rs::a_lifecycle_has_at_most_so_many_series")
    ),
    row!(
        lifecycle::PERIODS,
        "periods",
        "Periods of a lifecycle",
        "400",
        Both(
            "shared/analytics/src/kinds/lifecycle/calculation/periods.rs::more_periods_than_the_limit_are_refused"
        )
    ),
    row!(
        paths::PASSAGES,
        "passages",
        "Distinct pairs of neighbouring steps",
        "400 that names path cleaning, groupings and `stepLimit`",
        Both("shared/analytics/tests/suite/limits.rs::paths_of_a_million_addresses_are_at_the_limit")
    ),
    row!(paths::EXCLUDED_ITEMS, "names", "`excludeEvents`", "400", Both(PATH_LISTS)),
    row!(paths::GROUPINGS, "groupings", "`pathGroupings`", "400", Both(PATH_LISTS)),
    row!(
        paths::CLEANED_BYTES,
        "bytes",
        "Name that a cleaning filter made longer",
        "400",
        Both("shared/analytics/src/kinds/paths/calculation/item_rules.rs::a_name_grows_up_to_the_limit")
    ),
];

const STATISTICS: &[Row] = &[
    row!(
        correlation::CORRELATION_NAMES,
        "names",
        "Names in a list",
        "400",
        Both("shared/analytics/tests/suite/correlation.rs::missing_fields_of_a_correlation_are_rejected")
    ),
    row!(
        correlation::CORRELATION_CANDIDATES,
        "candidates",
        "Candidates",
        "400",
        Both(
            "shared/analytics/src/kinds/correlation/calculation/tests.rs::candidates_are_bounded_over_all_partial_results"
        )
    ),
    row!(correlation::CORRELATION_BYTES, "bytes", "Names and values of the candidates", "400", No),
    row!(
        flag_impact::SEEN_VARIANTS,
        "variants",
        "Different variants of the exposures",
        "400",
        Both("shared/analytics/tests/suite/flag_impact.rs::the_number_of_variants_is_limited")
    ),
    row!(flag_impact::VARIANT_BYTES, "bytes", "Name of a variant", "400", Both(IMPACT)),
    row!(
        flag_impact::MINIMUM_SAMPLE_MIN,
        "persons",
        "Least `minimum_sample`; a smaller one is refused",
        "400",
        Both(IMPACT)
    ),
    row!(flag_impact::MINIMUM_SAMPLE_MAX, "persons", "`minimum_sample`", "400", Both(IMPACT)),
    row!(
        flag_impact::CONFIDENCE_LEVEL_MIN,
        "",
        "Least `confidence_level`; a smaller one is refused",
        "400",
        Both(IMPACT)
    ),
    row!(flag_impact::CONFIDENCE_LEVEL_MAX, "", "`confidence_level`", "400", Both(IMPACT)),
];
