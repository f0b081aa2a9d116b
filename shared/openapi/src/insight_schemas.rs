//! Schemas of insights: requests, responses and sharing.

use pennon_flag_rules::flag::UserAccessLevel;
use serde_json::{Value, json};

use crate::insight_query::whole;
use crate::limits::{TAG_CHARS, TAGS, insights, view_and_edit_levels};
use crate::schema::{
    any, any_object, any_of, boolean, constant, enum_of, extend_object, id, input, instant, json_text, list,
    list_max, nullable, number, object, object_with_optional, schema_ref, text, text_max, with_description,
};

/// The schemas.
pub fn components() -> Vec<(&'static str, Value)> {
    vec![
        ("Insight", insight()),
        ("InsightRow", row()),
        ("InsightTile", tile()),
        ("InsightInput", insight_input()),
        ("InsightFilters", filters()),
        ("Sharing", sharing()),
        ("SharingInput", sharing_input()),
        ("ViewedInsightsInput", viewed_insights()),
        ("CancelCalculationRequest", cancel_request()),
    ]
}

/// A whole number, or its digits in a text.
fn integer_input() -> Value {
    any_of([whole(), json!({"type": "string", "pattern": r"^\s*[+-]?[0-9]{1,18}(\.0*)?\s*$"})])
}

/// Filters as they are sent. Of a list, as old clients send it, the first entry counts.
fn filters() -> Value {
    let filters = || nullable(any_object());
    with_description(
        any_of([filters(), list(filters()), json_text(filters())]),
        format!("An object, or its JSON text; at most {}.", size_limits()),
    )
}

/// The largest `filters` and `query`.
fn size_limits() -> String {
    format!("{} KiB and {} levels deep", insights::QUERY_BYTES / 1024, insights::NESTING)
}

/// The fields that a body may have.
fn insight_input() -> Value {
    let text = || nullable(any_of([text_max(insights::TEXT_CHARS), number()]));
    let truth = || schema_ref("FlagBoolean");
    let query =
        any_of([schema_ref("InsightQuery"), json_text(schema_ref("InsightQuery")), json!({"type": "null"})]);
    input(
        &[],
        [
            ("name", text()),
            ("derived_name", text()),
            ("description", text()),
            ("filters", schema_ref("InsightFilters")),
            (
                "query",
                with_description(
                    query,
                    format!("A query node, or its JSON text; at most {}.", size_limits()),
                ),
            ),
            ("order", nullable(integer_input())),
            ("deleted", truth()),
            ("favorited", truth()),
            ("saved", truth()),
            (
                "tags",
                with_description(
                    list(text_max(TAG_CHARS)),
                    format!("At most {TAGS} tags, stored in lower case and sorted."),
                ),
            ),
            (
                "dashboards",
                with_description(
                    list_max(insights::DASHBOARDS, integer_input()),
                    "All dashboards of the insight; each must exist.",
                ),
            ),
        ],
    )
}

/// The common fields of both formats.
fn common() -> Value {
    object([
        ("id", id()),
        (
            "short_id",
            json!({"type": "string", "pattern": format!("^[A-Za-z0-9]{{{}}}$", insights::SHORT_ID_CHARS)}),
        ),
        ("name", nullable(text_max(insights::TEXT_CHARS))),
        ("derived_name", nullable(text_max(insights::TEXT_CHARS))),
        ("filters", any_object()),
        ("query", nullable(schema_ref("InsightQueryResponse"))),
        ("dashboards", list(id())),
        ("dashboard_tiles", list(schema_ref("InsightTile"))),
        ("description", nullable(text_max(insights::TEXT_CHARS))),
        ("saved", boolean()),
        ("tags", list_max(TAGS, text())),
        ("updated_at", instant()),
        ("created_by", nullable(schema_ref("User"))),
        ("created_at", instant()),
        ("last_modified_at", instant()),
        ("favorited", boolean()),
        ("user_access_level", enum_of(&UserAccessLevel::NAMES)),
        ("last_viewed_at", nullable(instant())),
    ])
}

/// The full format. `color` and `layouts` are those of its tile, in a dashboard response.
fn insight() -> Value {
    let level = || json!({"type": "integer", "enum": view_and_edit_levels()});
    let mut insight = extend_object(
        common(),
        [
            ("order", nullable(whole())),
            ("deleted", boolean()),
            ("last_refresh", nullable(instant())),
            ("cache_target_age", nullable(instant())),
            ("next_allowed_client_refresh", nullable(instant())),
            ("result", nullable(schema_ref("InsightResult"))),
            ("hasMore", nullable(boolean())),
            ("columns", constant(Value::Null)),
            ("last_modified_by", nullable(schema_ref("User"))),
            ("is_sample", constant(json!(false))),
            ("effective_restriction_level", level()),
            ("effective_privilege_level", level()),
            ("timezone", nullable(text())),
            ("is_cached", boolean()),
            ("query_status", nullable(schema_ref("QueryStatus"))),
            ("hogql", nullable(text())),
            ("types", constant(Value::Null)),
            ("filters_hash", nullable(text())),
            ("alerts", list_max(0, any())),
        ],
    );
    insight["properties"]["color"] = nullable(text());
    insight["properties"]["layouts"] = any_object();
    insight
}

/// The short form, which never has numbers.
fn row() -> Value {
    extend_object(common(), [("last_refresh", constant(Value::Null)), ("refreshing", constant(json!(false)))])
}

/// A place on a dashboard; `deleted` is false where the insight was taken off and came back.
fn tile() -> Value {
    object([("id", id()), ("dashboard_id", id()), ("deleted", nullable(boolean()))])
}

/// How an insight is shared.
fn sharing() -> Value {
    let mut settings = object_with_optional([], [("theme", nullable(text_max(insights::THEME_CHARS)))]);
    for name in insights::SHARING_SWITCHES {
        settings["properties"][name] = nullable(boolean());
    }
    object([
        ("created_at", nullable(instant())),
        ("enabled", boolean()),
        ("access_token", json!({"type": "string", "pattern": "^[A-Za-z0-9_-]{30}$"})),
        ("settings", nullable(settings)),
        ("password_required", constant(json!(false))),
        ("share_passwords", list_max(0, any())),
    ])
}

fn sharing_input() -> Value {
    let mut settings = input(&[], [("theme", nullable(any_of([text_max(insights::THEME_CHARS), number()])))]);
    for name in insights::SHARING_SWITCHES {
        settings["properties"][name] = nullable(schema_ref("FlagBoolean"));
    }
    input(&[], [("enabled", schema_ref("FlagBoolean")), ("settings", nullable(settings))])
}

fn viewed_insights() -> Value {
    let mut ids = list_max(insights::VIEWS, integer_input());
    ids["minItems"] = 1.into();
    input(&["insight_ids"], [("insight_ids", with_description(ids, "Unknown ids are ignored."))])
}

fn cancel_request() -> Value {
    input(&[], [("client_query_id", nullable(text()))])
}
