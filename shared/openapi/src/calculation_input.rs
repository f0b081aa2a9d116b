//! Request fields of trends, funnels and correlations: the fields of legacy requests, in a body or in a query string, and
//! the common fields of all queries.
//!
//! In a query string every value is a text, with lists and objects as JSON; bodies may have them as JSON texts too.

use pennon_analytics::query::{BREAKDOWN_EVENTS, BREAKDOWN_KINDS};
use serde_json::{Map, Value, json};

use crate::conditions::null_or_blank;
use crate::limits::{
    BREAKDOWN_COHORTS, BREAKDOWN_KEYS, BREAKDOWN_LIMIT, BREAKDOWNS, BUCKETS, GROUP_TYPE_MAX, NAME_MAX,
    QUERY_ID_MAX, SERIES, bins_text, group_type_text, intervals, patterns, query_id_text,
};
use crate::operation::{Operation, Parameter};
use crate::schema::{
    any, any_of, enum_of, id, input, list_max, nullable, schema_ref, text, text_max, with_description,
};

/// Surrounding blanks are ignored, and a blank text counts as missing.
const BLANK: &str = r"[ \t\r\n]*";

/// One field of a request.
pub(crate) struct InputField {
    name: &'static str,
    /// Schema in a body.
    body: Value,
    /// Schema in a query string.
    query: Value,
    description: String,
}

impl InputField {
    pub(crate) fn new(
        name: &'static str,
        body: Value,
        query: Value,
        description: impl Into<String>,
    ) -> InputField {
        InputField { name, body, query, description: description.into() }
    }

    /// A text.
    pub(crate) fn text(name: &'static str, description: impl Into<String>) -> InputField {
        InputField::new(name, optional_text(), text_max(NAME_MAX), description)
    }

    /// A field that is only validated together with another field, or not at all.
    pub(crate) fn free(name: &'static str, description: impl Into<String>) -> InputField {
        InputField::new(name, any(), text(), description)
    }

    /// Disables validation in the query string, where the field that it depends on may be missing.
    pub(crate) fn free_in_query(self) -> InputField {
        InputField { query: text(), ..self }
    }

    /// A boolean.
    pub(crate) fn switch(name: &'static str, description: impl Into<String>) -> InputField {
        InputField::new(name, switch(), text(), description)
    }

    /// One of several texts.
    pub(crate) fn choice(name: &'static str, texts: &[&str], description: impl Into<String>) -> InputField {
        let texts: Vec<&str> = texts.iter().copied().chain([""]).collect();
        InputField::new(name, nullable(enum_of(&texts)), enum_of(&texts), description)
    }

    /// One of several texts, case-insensitive.
    pub(crate) fn any_case(
        name: &'static str,
        texts: &[&str],
        end: &str,
        description: impl Into<String>,
    ) -> InputField {
        let pattern = any_case(texts, end);
        InputField::new(name, nullable(pattern.clone()), pattern, description)
    }

    /// A whole number in these bounds; in a query string it matches `pattern`.
    pub(crate) fn whole(
        name: &'static str,
        bounds: (i64, i64),
        pattern: &str,
        description: impl Into<String>,
    ) -> InputField {
        InputField::new(name, whole(bounds, pattern), spelled(pattern), description)
    }

    /// A list or an object, as JSON in a query string.
    pub(crate) fn json(name: &'static str, body: Value, description: impl Into<String>) -> InputField {
        let query = json!({"type": "string", "contentMediaType": "application/json"});
        InputField::new(name, body, query, description)
    }
}

/// A text, or missing.
pub(crate) fn optional_text() -> Value {
    nullable(text_max(NAME_MAX))
}

/// A boolean: true, 1, and the texts true, 1, yes, on, y and t in any case; other texts and numbers mean
/// false.
pub(crate) fn switch() -> Value {
    json!({"type": ["boolean", "number", "string", "null"]})
}

/// One of several names, case-insensitive and followed by `end`; or blank, or missing.
pub(crate) fn any_case(texts: &[&str], end: &str) -> Value {
    let letter = |letter: char| format!("[{}{letter}]", letter.to_ascii_uppercase());
    let texts: Vec<String> = texts.iter().map(|text| text.chars().map(letter).collect()).collect();
    json!({"type": "string", "pattern": format!("^{BLANK}(({}){end})?{BLANK}$", texts.join("|"))})
}

pub(crate) fn spelled(pattern: &str) -> Value {
    json!({"type": "string", "pattern": format!("^{BLANK}({pattern})?{BLANK}$")})
}

/// A whole number in these bounds, its text, or missing.
pub(crate) fn whole((least, most): (i64, i64), pattern: &str) -> Value {
    any_of([
        json!({"type": "null"}),
        json!({"type": "integer", "minimum": least, "maximum": most}),
        spelled(pattern),
    ])
}

/// A group type index.
pub(crate) fn group_type() -> Value {
    whole((0, GROUP_TYPE_MAX), patterns::GROUP_TYPE)
}

/// Any whole number.
pub(crate) const ANY: (i64, i64) = (i64::MIN, i64::MAX);
pub(crate) const ANY_TEXT: &str = "[+-]?[0-9]{1,18}";
/// The bounds of the intervals of a moving average.
pub(crate) const SMOOTHING: (i64, i64) = (1, BUCKETS as i64);
/// The types of a breakdown, and the empty text.
pub(crate) fn breakdown_types() -> Vec<&'static str> {
    BREAKDOWN_KINDS.into_iter().chain([BREAKDOWN_EVENTS, ""]).collect()
}

/// The description of `math`.
pub(crate) const MATH: &str = "What a series counts: `total` (the default, also for unknown names), `dau`, \
    `weekly_active`, `monthly_active`, `unique_group`, `unique_session`, `first_time_for_user`, `hogql`; \
    `sum`, `avg`, `min`, `max`, `median`, `p75`, `p90`, `p95`, `p99` of `math_property`, or with \
    `_count_per_actor` of events per actor. Names that PostHog has and Pennon does not calculate are \
    rejected. Funnel steps use only `first_time_for_user` and `first_time_for_user_with_filters`.";

/// The schemas.
pub fn components() -> Vec<(&'static str, Value)> {
    vec![
        ("TrendRequest", query_body(trend(), SERIES, true)),
        ("TrendPeopleRequest", query_body(concat_fields([trend(), trend_point()]), SERIES, true)),
        ("EventSeries", event_series()),
        ("ActionSeries", action_series()),
    ]
}

/// Concatenates lists of fields.
pub(crate) fn concat_fields<const N: usize>(lists: [Vec<InputField>; N]) -> Vec<InputField> {
    lists.into_iter().flatten().collect()
}

/// A body of these fields, with at most `series` series, and at least one if `requires_series`.
pub(crate) fn query_body(fields: Vec<InputField>, series: usize, requires_series: bool) -> Value {
    let mut body = fields_body(fields);
    for (name, of) in [("events", "EventSeries"), ("actions", "ActionSeries")] {
        // Entries that are not objects are ignored.
        let entry =
            any_of([schema_ref(of), json!({"type": ["string", "number", "boolean", "null", "array"]})]);
        body["properties"][name] = any_of([list_max(series, entry), null_or_blank()]);
    }
    if requires_series {
        let has = |name: &str, entry: Value| {
            let list = json!({"type": "array", "contains": entry});
            json!({"required": [name], "properties": {name: list}})
        };
        let action = json!({
            "type": "object", "required": ["id"], "properties": {"id": {"type": ["integer", "string"]}},
        });
        body["anyOf"] = json!([has("events", json!({"type": "object"})), has("actions", action)]);
    }
    body
}

/// A body of these fields.
pub(crate) fn fields_body(fields: Vec<InputField>) -> Value {
    let mut body = input(&[], []);
    let properties: Map<String, Value> = fields
        .into_iter()
        .map(|field| (field.name.to_owned(), with_description(field.body, field.description)))
        .collect();
    body["properties"] = properties.into();
    body
}

/// Adds series and the fields as query parameters.
pub(crate) fn with_query_fields(operation: Operation, fields: Vec<InputField>) -> Operation {
    let series = |name| InputField::json(name, any(), "A JSON list of series, as in a body.");
    with_fields(operation, concat_fields([vec![series("events"), series("actions")], fields]))
}

/// Adds the fields as query parameters.
pub(crate) fn with_fields(mut operation: Operation, fields: Vec<InputField>) -> Operation {
    for field in fields {
        operation.parameters.push(Parameter {
            place: "query",
            name: field.name,
            description: field.description,
            schema: field.query,
            required: false,
        });
    }
    operation
}

/// A series, in a legacy request or in a query node: the common fields, and `own`.
pub(crate) fn series<const N: usize>(required: &[&str], own: [(&str, Value); N]) -> Value {
    let mut series = input(required, own);
    for (name, schema) in [
        ("name", optional_text()),
        ("custom_name", optional_text()),
        ("math", with_description(optional_text(), MATH)),
        ("math_property", optional_text()),
        ("math_property_type", optional_text()),
        ("math_hogql", optional_text()),
        ("math_group_type_index", group_type()),
        ("properties", schema_ref("EventConditions")),
        ("optionalInFunnel", with_description(any(), "Whether the step is optional.")),
    ] {
        series["properties"][name] = schema;
    }
    series
}

fn with_id(id: Value) -> Value {
    series(
        &[],
        [
            ("id", id),
            ("order", with_description(any(), "Sort key of the series; actions come before events.")),
        ],
    )
}

/// An event by name; all events without a name.
fn event_series() -> Value {
    with_id(json!({"type": ["string", "number", "null"], "maxLength": NAME_MAX}))
}

/// An action by id. Entries without an id are ignored.
fn action_series() -> Value {
    let number =
        any_of([id(), json!({"type": "string", "pattern": format!("^{BLANK}[0-9]{{1,15}}{BLANK}$")})]);
    with_id(any_of([number, json!({"type": "null"})]))
}

/// The common fields of all queries, without the breakdown.
pub(crate) fn common() -> Vec<InputField> {
    let interval = InputField::any_case(
        "interval",
        &intervals(),
        "",
        "The interval of the range: minute, hour, day, week or month.",
    );
    concat_fields([filters_and_dates(), vec![interval]])
}

/// The filters and the range of all queries.
pub(crate) fn filters_and_dates() -> Vec<InputField> {
    vec![
        InputField::json(
            "properties",
            schema_ref("EventConditions"),
            "Filters of all series. The value in the query string takes precedence.",
        ),
        InputField::switch("filter_test_accounts", "Whether the project's test account filters apply too."),
        InputField::text(
            "date_from",
            "Start of the range: an instant, a relative date such as `-7d` or `mStart`, or `all`. Default: \
             `-7d`.",
        ),
        InputField::text("date_to", "End of the range, in the same formats. Default: now."),
        InputField::switch(
            "explicit_date",
            "Whether the range is exact instead of rounded to whole intervals.",
        ),
    ]
}

/// Values that mean no breakdown.
pub(crate) fn no_breakdown() -> Value {
    any_of([null_or_blank(), json!({"enum": [false, [], {}]})])
}

/// The key of a breakdown.
pub(crate) fn breakdown_key() -> Value {
    json!({"type": ["string", "number", "boolean"], "minLength": 1, "maxLength": NAME_MAX})
}

/// Several keys with their types.
pub(crate) fn breakdown_parts() -> Value {
    any_of([list_max(BREAKDOWNS, breakdown_part()), no_breakdown()])
}

/// The breakdown fields. The others are only validated if there is a breakdown.
pub(crate) fn breakdown() -> Vec<InputField> {
    vec![
        InputField::new(
            "breakdown",
            // Any other value is a key too, as JSON text.
            any(),
            text(),
            format!(
                "The key of a property, an expression, or ids of cohorts and `all`. For a funnel also a \
                 list of at most {BREAKDOWN_KEYS} keys."
            ),
        ),
        InputField::free(
            "breakdown_type",
            "The type of the property: `event` (default), `person`, `group`, `session`, `event_metadata`; \
             or `cohort` or `hogql`.",
        ),
        InputField::json(
            "breakdowns",
            breakdown_parts(),
            "Several properties, each with its type, instead of `breakdown` and `breakdown_type`.",
        ),
        InputField::free(
            "breakdown_limit",
            format!(
                "Maximum number of values, 1 to {BREAKDOWN_LIMIT}; all others are combined into one. \
                 Default: 10 for a funnel, else 25."
            ),
        ),
        InputField::free("breakdown_group_type_index", group_type_text()),
        InputField::free(
            "breakdown_normalize_url",
            "Whether a trailing `/`, `?` or `#` of values is ignored.",
        ),
        InputField::free("breakdown_histogram_bin_count", bins_text()),
        InputField::free(
            "breakdown_hide_other_aggregation",
            "Whether the combined other values are omitted.",
        ),
    ]
}

/// An entry of `breakdowns`.
pub(crate) fn breakdown_part() -> Value {
    let types = breakdown_types();
    input(
        &["property"],
        [
            ("property", any_of([breakdown_key(), list_max(BREAKDOWN_COHORTS, breakdown_key())])),
            ("type", nullable(enum_of(&types))),
            ("group_type_index", with_description(any(), group_type_text())),
            (
                "normalize_url",
                with_description(any(), "Whether a trailing `/`, `?` or `#` of values is ignored."),
            ),
            ("histogram_bin_count", with_description(any(), bins_text())),
        ],
    )
}

/// The fields of a trend.
pub(crate) fn trend() -> Vec<InputField> {
    let display =
        json!({"type": ["string", "null"], "maxLength": NAME_MAX, "not": {"const": "CalendarHeatmap"}});
    let own = vec![
        InputField::new(
            "display",
            display,
            json!({"type": "string", "not": {"const": "CalendarHeatmap"}}),
            "The display, which selects between a number per interval and one total; unknown displays mean \
             a line chart.",
        ),
        InputField::switch("compare", "Whether the previous period is calculated too."),
        InputField::free(
            "compare_to",
            "Offset of the other period, such as `-1w`. Default: the period directly before.",
        ),
        InputField::text("formula", "Arithmetic over the series, which are named a, b, c and so on.")
            .free_in_query(),
        InputField::whole(
            "smoothing_intervals",
            SMOOTHING,
            patterns::SMOOTHING,
            "Number of intervals of the moving average.",
        ),
    ];
    concat_fields([common(), breakdown(), own])
}

/// The fields that select a data point of a trend.
pub(crate) fn trend_point() -> Vec<InputField> {
    let index = patterns::SERIES_INDEX;
    let order = any_of([
        json!({"type": "null"}),
        json!({"type": "integer", "minimum": 0, "maximum": SERIES - 1}),
        json!({"type": "string", "pattern": format!("^{BLANK}{index}{BLANK}$")}),
    ]);
    let query = json!({"type": "string", "pattern": format!("^{BLANK}{index}{BLANK}$")});
    vec![
        InputField::new("entity_order", order, query, "The index of the series. Default: the first."),
        InputField::free("entity_id", "The event or action of the series, if its index is not given."),
        InputField::free("breakdown_value", "The value of the breakdown. Default: all values."),
        InputField::free(
            "breakdown_kept",
            "For the combined other values: a JSON list of the values that are shown separately.",
        ),
    ]
}

/// Adds the request options that are not part of the query.
pub(crate) fn with_request_options(operation: Operation) -> Operation {
    operation
        .query_param(
            "refresh",
            text(),
            "`true` or `force_blocking` calculates again; other values accept a fresh cached result.",
        )
        .query_param("client_query_id", text_max(QUERY_ID_MAX), query_id_text())
        .query_param(
            "cache_invalidation_key",
            text(),
            "Part of the cache key: a new value bypasses the cached result.",
        )
}
