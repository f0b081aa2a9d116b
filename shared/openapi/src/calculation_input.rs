//! What trends, funnels and correlations are asked by: the fields of legacy requests, in a body or in a query
//! string, and what all questions have in common.
//!
//! In a query string every value is a text, lists and objects as JSON; bodies may have them so too.

use serde_json::{Map, Value, json};

use crate::conditions::nothing;
use crate::operation::{Operation, Parameter};
use crate::schema::{any, any_of, id, input, list_to, named, nullable, one_of, said, text, text_to};

/// Blanks around a value mean nothing, and a blank text is as good as none.
const BLANK: &str = r"[ \t\r\n]*";
/// Most bytes of a name.
pub(crate) const NAME_MAX: usize = 4_096;

/// One field of a request.
pub(crate) struct Field {
    name: &'static str,
    /// In a body.
    body: Value,
    /// In a query string.
    query: Value,
    says: &'static str,
}

impl Field {
    pub(crate) fn new(name: &'static str, body: Value, query: Value, says: &'static str) -> Field {
        Field { name, body, query, says }
    }

    /// A text.
    pub(crate) fn text(name: &'static str, says: &'static str) -> Field {
        Field::new(name, optional_text(), text_to(NAME_MAX), says)
    }

    /// What is judged only in the company of another field, or not at all.
    pub(crate) fn free(name: &'static str, says: &'static str) -> Field {
        Field::new(name, any(), text(), says)
    }

    /// The same field, not judged in a query string: what it goes with may be missing there.
    pub(crate) fn free_in_query(self) -> Field {
        Field { query: text(), ..self }
    }

    /// A switch.
    pub(crate) fn switch(name: &'static str, says: &'static str) -> Field {
        Field::new(name, switch(), text(), says)
    }

    /// One of several texts.
    pub(crate) fn choice(name: &'static str, texts: &[&str], says: &'static str) -> Field {
        let texts: Vec<&str> = texts.iter().copied().chain([""]).collect();
        Field::new(name, nullable(one_of(&texts)), one_of(&texts), says)
    }

    /// One of several texts, however they are written.
    pub(crate) fn any_case(name: &'static str, texts: &[&str], end: &str, says: &'static str) -> Field {
        let pattern = any_case(texts, end);
        Field::new(name, nullable(pattern.clone()), pattern, says)
    }

    /// A whole number in these bounds; as a text it matches `pattern`.
    pub(crate) fn whole(name: &'static str, bounds: (i64, i64), pattern: &str, says: &'static str) -> Field {
        Field::new(name, whole(bounds, pattern), spelled(pattern), says)
    }

    /// A list or an object, as JSON in a query string.
    pub(crate) fn json(name: &'static str, body: Value, says: &'static str) -> Field {
        let query = json!({"type": "string", "contentMediaType": "application/json"});
        Field::new(name, body, query, says)
    }
}

/// A text or nothing.
pub(crate) fn optional_text() -> Value {
    nullable(text_to(NAME_MAX))
}

/// A switch: true, 1, and the texts true, 1, yes, on, y and t in any case; other texts and numbers mean
/// false.
pub(crate) fn switch() -> Value {
    json!({"type": ["boolean", "number", "string", "null"]})
}

/// One of several names in any case, with `end` behind them, blank or nothing.
pub(crate) fn any_case(texts: &[&str], end: &str) -> Value {
    let letter = |letter: char| format!("[{}{letter}]", letter.to_ascii_uppercase());
    let texts: Vec<String> = texts.iter().map(|text| text.chars().map(letter).collect()).collect();
    json!({"type": "string", "pattern": format!("^{BLANK}(({}){end})?{BLANK}$", texts.join("|"))})
}

pub(crate) fn spelled(pattern: &str) -> Value {
    json!({"type": "string", "pattern": format!("^{BLANK}({pattern})?{BLANK}$")})
}

/// A whole number in these bounds, its text, or nothing.
pub(crate) fn whole((least, most): (i64, i64), pattern: &str) -> Value {
    any_of([
        json!({"type": "null"}),
        json!({"type": "integer", "minimum": least, "maximum": most}),
        spelled(pattern),
    ])
}

/// The index of a type of groups.
pub(crate) fn group_type() -> Value {
    whole((0, 4), "0*[0-4]")
}

/// Any whole number.
pub(crate) const ANY: (i64, i64) = (i64::MIN, i64::MAX);
pub(crate) const ANY_TEXT: &str = "[+-]?[0-9]{1,18}";
pub(crate) const INTERVALS: [&str; 5] = ["minute", "hour", "day", "week", "month"];
pub(crate) const BREAKDOWN_TYPES: [&str; 8] =
    ["event", "events", "person", "cohort", "group", "session", "hogql", "event_metadata"];

/// What `math` says.
pub(crate) const MATH: &str = "What a trend counts: `total` (when left out and for what is not known), \
    `dau`, `weekly_active`, `monthly_active`, `unique_group`, `unique_session`, `first_time_for_user`, \
    `hogql`; `sum`, `avg`, `min`, `max`, `median`, `p75`, `p90`, `p95`, `p99` of `math_property`, or with \
    `_count_per_actor` of events. Some other names are refused. Of steps `first_time_for_user` and \
    `first_time_for_user_with_filters` say something.";

/// The schemas.
pub fn components() -> Vec<(&'static str, Value)> {
    let views = json!([{"id": "$pageview", "math": "dau"}]);
    vec![
        (
            "TrendQuestion",
            exemplified(question(trend(), 26, true), json!({"events": views, "date_from": "-30d"})),
        ),
        (
            "TrendPeopleQuestion",
            exemplified(
                question(joined([trend(), trend_point()]), 26, true),
                json!({"events": views, "entity_order": 0}),
            ),
        ),
        ("EventSeries", event_series()),
        ("ActionSeries", action_series()),
    ]
}

/// With an example.
#[must_use]
pub(crate) fn exemplified(mut schema: Value, example: Value) -> Value {
    schema["examples"] = json!([example]);
    schema
}

/// All of these fields.
pub(crate) fn joined<const N: usize>(lists: [Vec<Field>; N]) -> Vec<Field> {
    lists.into_iter().flatten().collect()
}

/// A body of these fields, with at most so many series, of which one at least has to be there where
/// `is_asked`.
pub(crate) fn question(fields: Vec<Field>, series: usize, is_asked: bool) -> Value {
    let mut question = input(&[], []);
    let shown: Map<String, Value> =
        fields.into_iter().map(|field| (field.name.to_owned(), said(field.body, field.says))).collect();
    question["properties"] = shown.into();
    for (name, of) in [("events", "EventSeries"), ("actions", "ActionSeries")] {
        // What is no object is passed over.
        let entry = any_of([named(of), json!({"type": ["string", "number", "boolean", "null", "array"]})]);
        question["properties"][name] = any_of([list_to(series, entry), nothing()]);
    }
    if is_asked {
        let has = |name: &str, entry: Value| {
            let list = json!({"type": "array", "contains": entry});
            json!({"required": [name], "properties": {name: list}})
        };
        let action = json!({
            "type": "object", "required": ["id"], "properties": {"id": {"type": ["integer", "string"]}},
        });
        question["anyOf"] = json!([has("events", json!({"type": "object"})), has("actions", action)]);
    }
    question
}

/// With the same fields in the query string.
pub(crate) fn asked_by(mut operation: Operation, fields: Vec<Field>) -> Operation {
    let series = |name| Field::json(name, any(), "A JSON list of series, as in a body.");
    for field in [series("events"), series("actions")].into_iter().chain(fields) {
        operation.parameters.push(Parameter {
            place: "query",
            name: field.name,
            description: field.says,
            schema: field.query,
            required: false,
        });
    }
    operation
}

/// A series of a question, in the form of requests or of nodes: what both forms have, and `own`.
pub(crate) fn series<const N: usize>(required: &[&str], own: [(&str, Value); N]) -> Value {
    let mut series = input(required, own);
    for (name, schema) in [
        ("name", optional_text()),
        ("custom_name", optional_text()),
        ("math", said(optional_text(), MATH)),
        ("math_property", optional_text()),
        ("math_property_type", optional_text()),
        ("math_hogql", optional_text()),
        ("math_group_type_index", group_type()),
        ("properties", named("EventConditions")),
        ("optionalInFunnel", said(any(), "Whether the step may be left out.")),
    ] {
        series["properties"][name] = schema;
    }
    series
}

fn with_id(id: Value) -> Value {
    series(&[], [("id", id), ("order", said(any(), "Series are ordered by it; actions come before events."))])
}

/// An event by its name; without one every event is meant.
fn event_series() -> Value {
    with_id(json!({"type": ["string", "number", "null"], "maxLength": NAME_MAX}))
}

/// An action by its number. One without is passed over.
fn action_series() -> Value {
    let number =
        any_of([id(), json!({"type": "string", "pattern": format!("^{BLANK}[0-9]{{1,15}}{BLANK}$")})]);
    with_id(any_of([number, json!({"type": "null"})]))
}

/// What all questions have but for their breakdown.
pub(crate) fn common() -> Vec<Field> {
    vec![
        Field::json(
            "properties",
            named("EventConditions"),
            "What restricts all events. In a query string it wins.",
        ),
        Field::switch("filter_test_accounts", "Whether the project's conditions on test accounts hold too."),
        Field::text(
            "date_from",
            "An instant, a relative one such as `-7d` or `mStart`, or `all`. Otherwise `-7d`.",
        ),
        Field::text("date_to", "The same; now when it is left out."),
        Field::switch("explicit_date", "Whether both ends are taken as they are, not rounded."),
        Field::any_case(
            "interval",
            &INTERVALS,
            "",
            "The buckets of the range: minute, hour, day, week or month.",
        ),
    ]
}

/// What is no breakdown.
pub(crate) fn no_breakdown() -> Value {
    any_of([nothing(), json!({"enum": [false, [], {}]})])
}

/// The key of a breakdown.
pub(crate) fn breakdown_key() -> Value {
    json!({"type": ["string", "number", "boolean"], "minLength": 1, "maxLength": NAME_MAX})
}

/// Several keys with their types.
pub(crate) fn breakdown_parts() -> Value {
    any_of([list_to(3, part()), no_breakdown()])
}

/// A breakdown. Its other fields are judged only where there is one.
pub(crate) fn breakdown() -> Vec<Field> {
    vec![
        Field::new(
            "breakdown",
            // What is none of these is a key too, spelled as JSON.
            any(),
            text(),
            "A property's key, an expression, or numbers of cohorts and `all`. A funnel takes a list of at \
             most ten keys.",
        ),
        Field::free(
            "breakdown_type",
            "Whose property it is: `event` (when left out), `person`, `group`, `session`, `event_metadata`; \
             or `cohort` or `hogql`.",
        ),
        Field::json("breakdowns", breakdown_parts(), "Several keys, each with its type, in place of both."),
        Field::free(
            "breakdown_limit",
            "How many values stay, 1 to 1000; the rest is one. 10 of a funnel, else 25.",
        ),
        Field::free("breakdown_group_type_index", "Of groups: the index of their type, 0 to 4."),
        Field::free("breakdown_normalize_url", "Whether `/`, `?` and `#` at the end of values do not count."),
        Field::free("breakdown_histogram_bin_count", "Of numbers in a trend: into how many bins, 1 to 1000."),
        Field::free("breakdown_hide_other_aggregation", "Whether the rest is left out."),
    ]
}

/// An entry of `breakdowns`.
pub(crate) fn part() -> Value {
    let types: Vec<&str> = BREAKDOWN_TYPES.iter().copied().chain([""]).collect();
    input(
        &["property"],
        [
            ("property", any_of([breakdown_key(), list_to(50, breakdown_key())])),
            ("type", nullable(one_of(&types))),
            ("group_type_index", said(any(), "Of groups: the index of their type, 0 to 4.")),
            ("normalize_url", said(any(), "Whether `/`, `?` and `#` at the end of values do not count.")),
            ("histogram_bin_count", said(any(), "Of numbers in a trend: into how many bins, 1 to 1000.")),
        ],
    )
}

/// What a trend has.
pub(crate) fn trend() -> Vec<Field> {
    let display =
        json!({"type": ["string", "null"], "maxLength": NAME_MAX, "not": {"const": "CalendarHeatmap"}});
    let own = vec![
        Field::new(
            "display",
            display,
            json!({"type": "string", "not": {"const": "CalendarHeatmap"}}),
            "Decides between a number for each bucket and one in all; others than known ones mean a line.",
        ),
        Field::switch("compare", "Whether the period before is shown too."),
        Field::free("compare_to", "How far back it lies, such as `-1w`; right before when left out."),
        Field::text("formula", "Arithmetic over the series, which are called a, b, c and so on.")
            .free_in_query(),
        Field::whole(
            "smoothing_intervals",
            (1, 12_000),
            "0*([1-9][0-9]{0,3}|1[01][0-9]{3}|12000)",
            "Over how many buckets a number is averaged.",
        ),
    ];
    joined([common(), breakdown(), own])
}

/// Which number of a trend is meant.
pub(crate) fn trend_point() -> Vec<Field> {
    let index = "0*([01]?[0-9]|2[0-5])";
    let order = any_of([
        json!({"type": "null"}),
        json!({"type": "integer", "minimum": 0, "maximum": 25}),
        json!({"type": "string", "pattern": format!("^{BLANK}{index}{BLANK}$")}),
    ]);
    let query = json!({"type": "string", "pattern": format!("^{BLANK}{index}{BLANK}$")});
    vec![
        Field::new("entity_order", order, query, "The index of the series; the first when it is left out."),
        Field::free("entity_id", "The event or action of the series, where its index is not said."),
        Field::free("breakdown_value", "The value of the breakdown; everybody when it is left out."),
        Field::free("breakdown_kept", "Of the rest: a JSON list of the values that are not in it."),
    ]
}

/// What is said of a calculation besides its question.
pub(crate) fn about_the_request(operation: Operation) -> Operation {
    operation
        .query("refresh", text(), "`true` or `force_blocking` calculates anew; others take a fresh result.")
        .query(
            "client_query_id",
            text_to(1_000),
            "The caller's own name for the calculation: 1000 bytes at most.",
        )
        .query("cache_invalidation_key", text(), "Tells the same question apart from itself.")
}
