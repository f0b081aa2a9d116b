//! Schemas of results: trend series, funnel steps, funnels over time, conversion times, correlations, and the status of
//! background calculations.

use pennon_analytics::query::BREAKDOWN_KINDS;
use serde_json::{Value, json};

use crate::conditions::conditions_response;
use crate::limits::{BREAKDOWNS, GROUP_TYPE_MAX, intervals};
use crate::schema::{
    any_of, boolean, constant, enum_of, extend_object, id, instant, integer, integer_in, list, list_max, map,
    nullable, number, object, object_with_optional, schema_ref, text,
};

/// The schemas.
pub fn components() -> Vec<(&'static str, Value)> {
    vec![
        ("InsightResult", insight_result()),
        ("TrendResult", trend_result()),
        ("FunnelResult", funnel_result()),
        ("RetentionResult", list(retention_row())),
        ("TrendSeries", trend_series()),
        ("TrendTotal", trend_total()),
        ("TrendFilter", trend_filter()),
        ("FunnelStep", funnel_step()),
        ("FunnelBreakdownStep", funnel_breakdown_step()),
        ("FunnelPeriods", funnel_periods()),
        ("TimeToConvert", time_to_convert()),
        ("CorrelationResult", correlation()),
        ("QueryStatus", query_status(constant(Value::Null))),
        (
            "QueryResponse",
            query_response(any_of([schema_ref("InsightResult"), schema_ref("FlagImpactResult")])),
        ),
    ]
}

fn count() -> Value {
    json!({"type": "integer", "minimum": 0})
}

/// A link; null if it is too long or the response has too many links.
fn link() -> Value {
    nullable(text())
}

/// Everything that the result of an insight may be.
fn insight_result() -> Value {
    any_of(
        [
            "TrendResult",
            "FunnelResult",
            "RetentionResult",
            "PathResult",
            "StickinessResult",
            "LifecycleResult",
        ]
        .map(schema_ref),
    )
}

fn trend_result() -> Value {
    list(any_of([schema_ref("TrendSeries"), schema_ref("TrendTotal")]))
}

/// Steps, steps of each value of a breakdown, shares over time, or times.
fn funnel_result() -> Value {
    any_of([
        list(schema_ref("FunnelStep")),
        list(list(schema_ref("FunnelBreakdownStep"))),
        list(schema_ref("FunnelPeriods")),
        schema_ref("TimeToConvert"),
    ])
}

/// The value that a series of a trend is of: a text, the number of a cohort or `all`, or a text for each
/// breakdown.
fn trend_value() -> Value {
    any_of([text(), id(), list_max(BREAKDOWNS, text())])
}

/// The common fields of trend series, and `own`.
fn series_of<const N: usize>(own: [(&str, Value); N]) -> Value {
    let common = object_with_optional(
        [
            ("label", text()),
            ("order", count()),
            ("action", nullable(action())),
            ("filter", schema_ref("TrendFilter")),
        ],
        [
            ("breakdown_value", trend_value()),
            ("compare", constant(json!(true))),
            ("compare_label", enum_of(&["current", "previous"])),
        ],
    );
    extend_object(common, own)
}

/// A series with a number for each bucket. With a formula it has neither an action nor links.
fn trend_series() -> Value {
    let mut series = series_of([
        ("count", number()),
        ("data", list(number())),
        ("labels", list(text())),
        ("days", list(text())),
    ]);
    series["properties"]["persons_urls"] = nullable(list(people_of_bucket()));
    // Only where links were left out: they would be too long, or in lists and tiles.
    series["properties"]["persons_urls_omitted"] = text();
    series
}

/// A series with one number over the whole range. `data` is null with a formula.
fn trend_total() -> Value {
    series_of([
        ("aggregated_value", number()),
        ("data", nullable(list_max(0, number()))),
        ("days", list_max(0, text())),
        ("count", constant(json!(0))),
    ])
}

/// The event or action that a series counts; `id` is null for all events.
fn action() -> Value {
    object([
        ("days", list(instant())),
        ("id", nullable(text())),
        ("type", enum_of(&["events", "actions"])),
        ("order", count()),
        ("name", text()),
        ("custom_name", nullable(text())),
        ("math", nullable(text())),
        ("math_property", nullable(text())),
        ("math_hogql", nullable(text())),
        ("math_group_type_index", nullable(group_type())),
        ("properties", json!({"type": "object", "maxProperties": 0})),
    ])
}

fn group_type() -> Value {
    integer_in(0, GROUP_TYPE_MAX)
}

/// The link to the actors of a bucket, with its additional filter fields.
fn people_of_bucket() -> Value {
    let filter = object_with_optional(
        [
            ("entity_id", event_id()),
            ("entity_type", enum_of(&["events", "actions"])),
            ("entity_order", count()),
            ("entity_math", text()),
            ("explicit_date", constant(json!(true))),
            ("date_from", instant()),
            ("date_to", instant()),
        ],
        [
            ("breakdown_value", trend_value()),
            ("breakdown_kept", list(trend_value())),
            ("interval", constant(json!("day"))),
        ],
    );
    object([("filter", filter), ("url", link())])
}

/// An event's name, null for all events, or an action's number.
fn event_id() -> Value {
    any_of([json!({"type": ["string", "null"]}), id()])
}

/// The normalized query.
fn trend_filter() -> Value {
    object_with_optional(
        [
            ("insight", constant(json!("TRENDS"))),
            ("events", list(entity())),
            ("actions", list(entity())),
            ("properties", conditions_response()),
            ("filter_test_accounts", boolean()),
            ("date_from", text()),
            ("date_to", text()),
            ("interval", enum_of(&intervals())),
        ],
        [
            ("explicit_date", constant(json!(true))),
            ("breakdown", any_of([text(), id(), list(any_of([id(), text()]))])),
            ("breakdown_type", enum_of(&BREAKDOWN_KINDS)),
            ("breakdowns", list_max(BREAKDOWNS, breakdown())),
            ("breakdown_group_type_index", group_type()),
            ("breakdown_normalize_url", constant(json!(true))),
            ("breakdown_histogram_bin_count", count()),
            ("breakdown_limit", count()),
            ("breakdown_hide_other_aggregation", constant(json!(true))),
            ("display", text()),
            ("compare", constant(json!(true))),
            ("compare_to", text()),
            ("formula", text()),
            ("smoothing_intervals", count()),
        ],
    )
}

/// The types of a breakdown that name a property.
fn property_breakdowns() -> Vec<&'static str> {
    BREAKDOWN_KINDS.into_iter().filter(|kind| *kind != "cohort").collect()
}

fn breakdown() -> Value {
    object_with_optional(
        [("property", text()), ("type", enum_of(&property_breakdowns()))],
        [
            ("group_type_index", group_type()),
            ("normalize_url", constant(json!(true))),
            ("histogram_bin_count", count()),
        ],
    )
}

fn entity() -> Value {
    object_with_optional(
        [
            ("id", event_id()),
            ("type", enum_of(&["events", "actions"])),
            ("order", count()),
            ("math", text()),
            ("properties", conditions_response()),
        ],
        [
            ("name", text()),
            ("custom_name", text()),
            ("math_property", text()),
            ("math_property_type", text()),
            ("math_hogql", text()),
            ("math_group_type_index", group_type()),
        ],
    )
}

/// A step of a funnel. `action_id` is an event's name, an action's number, or null for all events and in
/// unordered funnels. Times are in seconds, null if no actor took the step after another.
fn funnel_step() -> Value {
    object([
        ("action_id", event_id()),
        ("name", text()),
        ("custom_name", nullable(text())),
        ("order", count()),
        ("people", list_max(0, json!({}))),
        ("count", count()),
        ("type", enum_of(&["events", "actions"])),
        ("average_conversion_time", nullable(number())),
        ("median_conversion_time", nullable(number())),
        ("converted_people_url", link()),
        ("dropped_people_url", link()),
    ])
}

/// A step of a funnel for one value of its breakdown: texts, the name and the number of a cohort. A legacy
/// request may return `breakdowns` in place of `breakdown`, and texts in place of lists of one.
fn funnel_breakdown_step() -> Value {
    let breakdown = || any_of([json!({"type": ["string", "null"]}), list(text())]);
    let value = || any_of([text(), id(), list(text())]);
    any_of([
        extend_object(funnel_step(), [("breakdown", breakdown()), ("breakdown_value", value())]),
        extend_object(funnel_step(), [("breakdowns", breakdown()), ("breakdown_value", value())]),
    ])
}

/// Shares in per cent, one for each period of entrance. `breakdown_value` is there with a breakdown.
fn funnel_periods() -> Value {
    object_with_optional(
        [("count", count()), ("data", list(number())), ("days", list(text())), ("labels", list(text()))],
        [("breakdown_value", any_of([json!({"type": ["string", "null"]}), list(text())]))],
    )
}

/// Bins as pairs of their start in seconds and how many fall in, and the mean in seconds.
fn time_to_convert() -> Value {
    let bin = json!({"type": "array", "items": integer(), "minItems": 2, "maxItems": 2});
    object([("bins", list(bin)), ("average_conversion_time", nullable(number()))])
}

/// A row of a retention result: the actors that started in a period, and in how many of the following periods they returned.
fn retention_row() -> Value {
    let cell =
        object_with_optional([("count", count()), ("label", text())], [("aggregation_value", number())]);
    object([
        ("label", text()),
        ("date", instant()),
        ("breakdown_value", nullable(text())),
        ("values", list(cell)),
        ("people_url", link()),
    ])
}

/// A correlation result. `skewed`: there are too few successes or failures for a meaningful result.
fn correlation() -> Value {
    let element = object([
        ("text", nullable(text())),
        ("tag_name", nullable(text())),
        ("attr_class", nullable(list(text()))),
        ("href", nullable(text())),
        ("attr_id", nullable(text())),
        ("nth_child", nullable(count())),
        ("nth_of_type", nullable(count())),
        ("attributes", map(text())),
        ("order", count()),
    ]);
    let event = object([
        ("event", text()),
        ("properties", object_with_optional([], [("$event_type", text())])),
        ("elements", list(element)),
    ]);
    let row = object([
        ("event", event),
        ("success_count", count()),
        ("failure_count", count()),
        ("odds_ratio", number()),
        ("correlation_type", enum_of(&["success", "failure"])),
        ("success_people_url", link()),
        ("failure_people_url", link()),
    ]);
    object([("events", list_max(20, row)), ("skewed", boolean())])
}

/// The status of a background calculation; `results` only if it is requested by its id.
pub(crate) fn query_status(results: Value) -> Value {
    let progress = object([
        ("bytes_read", count()),
        ("rows_read", count()),
        ("estimated_rows_total", count()),
        ("time_elapsed", count()),
        ("active_cpu_time", count()),
    ]);
    object([
        ("id", text()),
        ("team_id", id()),
        ("insight_id", nullable(id())),
        ("dashboard_id", nullable(id())),
        ("query_async", constant(json!(true))),
        ("complete", boolean()),
        ("error", boolean()),
        ("error_message", nullable(text())),
        ("results", results),
        ("start_time", instant()),
        ("pickup_time", nullable(instant())),
        ("end_time", nullable(instant())),
        ("expiration_time", nullable(instant())),
        ("task_id", nullable(text())),
        ("query_progress", nullable(progress)),
        ("labels", constant(Value::Null)),
    ])
}

/// The response to a query node. Before the result is available, only `cache_key` and `query_status` have values.
pub(crate) fn query_response(results: Value) -> Value {
    object([
        ("results", nullable(results)),
        ("timezone", nullable(text())),
        ("is_cached", boolean()),
        ("last_refresh", nullable(instant())),
        ("cache_target_age", nullable(instant())),
        ("next_allowed_client_refresh", nullable(instant())),
        ("cache_key", text()),
        ("hasMore", nullable(boolean())),
        ("hogql", nullable(text())),
        ("query_status", nullable(schema_ref("QueryStatus"))),
    ])
}
