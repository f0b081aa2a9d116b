//! Limits of insights, dashboards, cohorts, actions, of lists, and of the event store.

use pennon_analytics::limits;
use pennon_core::limits::{calculation, insights};
use pennon_eventstore::cohort_lists::MEMBERS_MAX;
use pennon_eventstore::{
    EVENT_NAMES_MAX, EVENTS_PER_SEGMENT_MAX, GROUPS_MAX, ORPHANS_KEPT_DAYS, PEOPLE_MAX, TEXT_BYTES_MAX,
    VALUES_BYTES_MAX,
};

use super::Tested::{Both, No, Past, Rule};
use super::{Row, Section};

const RECORD: &str = "tests/tests/http/record_limits.rs::limits_hold_at_the_limit_and_one_past_it";
const PARAMETERS: &str =
    "tests/tests/http/record_limits.rs::parameters_of_lists_hold_at_the_limit_and_one_past_it";
const LISTS: &str = "tests/tests/http/event_definitions.rs::unknown_parameters_are_rejected_by_name";
const EVENT_LIST: &str = "tests/tests/http/events_list.rs::invalid_parameters_are_rejected_by_name";
const PAGE_READS: &str =
    "tests/tests/http/events_list.rs::a_rare_event_is_found_over_several_pages_each_of_bounded_work";
const READ_BYTES: &str = "tests/tests/http/events_list.rs::lists_read_no_more_of_event_files_than_documented";
const SEGMENT: &str = "shared/eventstore/src/ingest/event_columns/tests.rs::a_segment_takes_the_maximum_of_events_and_not_one_more";
const MAX_LENGTH: &str = "400 `max_length`";
const ENDS: &str = "the page ends; `next` continues";

pub(super) const SECTIONS: &[Section] = &[
    Section { title: "Insights, dashboards, cohorts and actions", text: "", rows: RECORDS },
    Section { title: "Lists of persons, events, names and values", text: "", rows: LISTED },
    Section { title: "Event store", text: "", rows: STORE },
];

const RECORDS: &[Row] = &[
    row!(insights::TEXT_CHARS, "characters", "Name; description of an insight", MAX_LENGTH, Both(RECORD)),
    row!(
        insights::DESCRIPTION_CHARS,
        "characters",
        "Description of a dashboard, a cohort or an action",
        MAX_LENGTH,
        Both(RECORD)
    ),
    row!(limits::TAGS, "tags", "Tags of a flag or of one of these", "400", Both(RECORD)),
    row!(limits::TAG_CHARS, "characters", "A tag", MAX_LENGTH, Both(RECORD)),
    row!(
        insights::MESSAGE_CHARS,
        "characters",
        "`slack_message_format` of an action",
        MAX_LENGTH,
        Both(RECORD)
    ),
    row!(
        insights::QUERY_BYTES,
        "bytes",
        "`filters`, and likewise `query`, as compact JSON",
        "400",
        Both(RECORD)
    ),
    row!(insights::NESTING, "levels", "Lists and objects in `filters` and `query`", "400", Both(RECORD)),
    row!(
        insights::DASHBOARDS,
        "dashboards",
        "Dashboards that an insight is on",
        "400",
        Both("tests/tests/http/insight_input.rs::an_insight_is_on_forty_dashboards_and_not_on_one_more")
    ),
    row!(
        insights::TILES,
        "dashboards",
        "Dashboards that an insight is or was on",
        "400",
        Both("tests/tests/http/insight_input.rs::an_insight_has_been_on_five_hundred_dashboards_at_most")
    ),
    row!(
        insights::DASHBOARD_TILES,
        "tiles",
        "Tiles of a dashboard",
        "400",
        Both(
            "tests/tests/http/dashboards.rs::a_dashboard_has_a_limited_number_of_tiles_and_all_of_them_move_at_once"
        )
    ),
    row!(insights::LAYOUTS_BYTES, "bytes", "`layouts` of a tile, as compact JSON", "400", Both(RECORD)),
    row!(insights::SEARCH_CHARS, "characters", "`search` in a list", MAX_LENGTH, Both(PARAMETERS)),
    row!(
        insights::PARAMETER_ENTRIES,
        "entries",
        "List in a parameter: `tags`, `created_by`, `dashboards`",
        "400",
        Both(PARAMETERS)
    ),
    row!(
        insights::VIEWS,
        "insights",
        "`insight_ids` of `insights/viewed/`",
        "400",
        Both(
            "tests/tests/http/insight_views.rs::several_insights_are_viewed_at_once_and_unknown_ones_skipped"
        )
    ),
    row!(
        insights::TIMING_BYTES,
        "bytes",
        "Body of `insights/timing/`",
        "413 `payload_too_large`",
        Both("tests/tests/http/insight_views.rs::measurements_of_clients_are_accepted_and_not_stored")
    ),
    row!(
        insights::PAGE_KIB,
        "KiB",
        "Stored records of one page of insights",
        "400 that names the largest possible `limit`",
        Past(
            "tests/tests/http/large_records.rs::a_page_that_exceeds_the_gateway_is_rejected_with_the_largest_possible_limit"
        )
    ),
    row!(
        insights::PAGE_RESULT_BYTES,
        "bytes",
        "Results that are stored as objects, of a page or a dashboard",
        "400 that names the largest `limit` that may fit",
        No
    ),
    row!(
        insights::WRITE_ATTEMPTS,
        "attempts",
        "Writes that conflict with others",
        "503 with `Retry-After`; nothing is written",
        Rule("tests/tests/http/insight_history.rs::random_calls_of_many_clients_are_explained_by_one_order")
    ),
    row!(
        insights::COHORT_REFERENCES,
        "records",
        "Cohorts and actions that a cohort refers to, directly and through them",
        "400",
        Both("tests/tests/http/record_limits.rs::a_cohort_refers_to_eighty_others")
    ),
    row!(
        insights::PERSONS_AT_ONCE,
        "persons",
        "`person_ids` that a request adds to a static cohort",
        "400",
        Both("tests/tests/http/record_limits.rs::a_request_adds_a_thousand_persons_to_a_cohort")
    ),
    row!(insights::DISTINCT_ID_BYTES, "bytes", "Distinct id of a static cohort", "400", Both(RECORD)),
    row!(
        MEMBERS_MAX,
        "persons",
        "Members of a static cohort",
        "400",
        Both("shared/eventstore/tests/suite/memory.rs::a_list_takes_the_maximum_of_members_and_not_one_more")
    ),
    computed!(
        "insights::COUNTING_TIME",
        insights::COUNTING_TIME.as_secs(),
        "seconds",
        "Counting the members when rules are written",
        "the cohort is stored without a count",
        No
    ),
    row!(
        insights::SHARED_PAGE_BYTES,
        "bytes",
        "Shared page",
        "longer tables are cut, with a remark",
        Both(
            "functions/insights/src/shared_page/page_tests.rs::a_page_of_the_most_and_largest_tiles_is_within_the_limit"
        )
    ),
    row!(insights::THEME_CHARS, "characters", "`theme` of a shared record", MAX_LENGTH, Both(RECORD)),
];

const LISTED: &[Row] = &[
    row!(
        calculation::TEXT_CHARS,
        "characters",
        "Text that filters or searches a list",
        MAX_LENGTH,
        Both(LISTS)
    ),
    row!(calculation::NAMES, "names", "Names in a parameter", "400", Both(LISTS)),
    row!(calculation::EVENT_NAMES, "names", "`event_names`", "400", Both(LISTS)),
    row!(calculation::EVENTS, "events", "`limit` of a page of events", "400", Both(EVENT_LIST)),
    row!(calculation::VALUES, "values", "`limit` of property values", "400", Both(LISTS)),
    row!(
        calculation::PAGE_BYTES,
        "bytes",
        "Properties of a page of events, as JSON",
        ENDS,
        Past("tests/tests/http/events_list.rs::a_page_of_large_events_ends_at_three_million_bytes")
    ),
    row!(
        calculation::PAGE_EVENTS_READ,
        "events",
        "Events that a page of events reads",
        ENDS,
        Past(PAGE_READS)
    ),
    row!(
        calculation::PAGE_BYTES_READ,
        "bytes",
        "Bytes of event files that a page of events reads",
        ENDS,
        Past(READ_BYTES)
    ),
    row!(
        calculation::SEARCHED_EVENTS,
        "events",
        "Events of a name that are searched for property names",
        "older events are not searched",
        Both(
            "tests/tests/http/event_definitions.rs::a_thousand_events_of_a_name_are_searched_for_properties"
        )
    ),
    row!(
        EVENT_NAMES_MAX,
        "names",
        "Distinct event names of a project, for lists of names",
        "400",
        Rule("shared/eventstore/src/definitions/events.rs::names_are_counted_up_to_the_limit")
    ),
];

const STORE: &[Row] = &[
    row!(
        PEOPLE_MAX,
        "persons",
        "Persons whose properties one query reads",
        "400",
        Both("shared/eventstore/src/persons/lookup/scan_all.rs::persons_are_accepted_up_to_the_limit")
    ),
    row!(
        VALUES_BYTES_MAX,
        "bytes",
        "The properties of these persons",
        "400",
        Past("shared/eventstore/src/persons/lookup/scan_all.rs::nested_values_count_towards_the_limit")
    ),
    row!(GROUPS_MAX, "groups", "Groups whose properties one query reads", "400", No),
    row!(
        EVENTS_PER_SEGMENT_MAX,
        "events",
        "Events that an import stores at once (`pennon import` divides files)",
        "an error; nothing is stored",
        Both(SEGMENT)
    ),
    row!(TEXT_BYTES_MAX, "bytes", "Their text", "an error; nothing is stored", Both(SEGMENT)),
    row!(
        ORPHANS_KEPT_DAYS,
        "days",
        "Age of a file that no manifest lists",
        "deleted by the sweep",
        Both("shared/eventstore/tests/suite/installation.rs::orphans_are_moved_and_kept_for_thirty_days")
    ),
];
