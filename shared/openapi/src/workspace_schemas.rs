//! Schemas of dashboards and actions: requests and responses.
//!
//! A schema cannot express that `filters` and `steps` have at most 262,144 bytes and a tile's `layouts` 4,096, that a tile
//! is on the dashboard, or that a step compiles; so a body that matches the schema may still be a 400.

use pennon_analytics::ACTION_MATCH_MODES;
use pennon_flag_rules::flag::UserAccessLevel;
use serde_json::{Value, json};

use crate::limits::{ACTION_STEPS, NAME_MAX, TAG_CHARS, TAGS, insights, view_and_edit_levels};
use crate::schema::{
    any, any_object, any_of, boolean, constant, enum_of, extend_object, id, input, instant, list, list_max,
    nullable, number, object, schema_ref, text, text_max, with_description,
};

/// The schemas.
pub fn components() -> Vec<(&'static str, Value)> {
    let tiles = || list(schema_ref("DashboardTile"));
    vec![
        ("DashboardSummary", summary(constant(json!(false)))),
        ("Dashboard", dashboard(tiles())),
        ("DashboardUpdateResponse", dashboard(nullable(tiles()))),
        ("DashboardTile", tile()),
        ("DashboardCreate", dashboard_input(any())),
        (
            "DashboardUpdate",
            dashboard_input(with_description(
                list_max(insights::DASHBOARD_TILES, tile_input()),
                "The positions and colours of tiles.",
            )),
        ),
        ("Action", action()),
        ("ActionStep", step()),
        ("ActionInput", action_input()),
    ]
}

/// An access level: 21 is all members, or viewing; 37 is collaborators, or editing.
fn level() -> Value {
    json!({"type": "integer", "enum": view_and_edit_levels()})
}

/// The access levels of a caller who may edit.
fn editor_names() -> [&'static str; 2] {
    [UserAccessLevel::Manager, UserAccessLevel::Editor].map(UserAccessLevel::name)
}

fn empty_object() -> Value {
    json!({"type": "object", "maxProperties": 0})
}

/// Values that count as empty.
pub(crate) fn empty_value() -> Value {
    json!({"enum": [null, "", [], {}]})
}

/// A text, which numbers are taken for too, or null.
pub(crate) fn optional_text_or_number(most: usize) -> Value {
    any_of([text_max(most), number(), json!({"type": "null"})])
}

/// A dashboard as lists show it.
fn summary(deleted: Value) -> Value {
    object([
        ("id", id()),
        ("name", nullable(text())),
        ("description", text()),
        ("pinned", boolean()),
        ("created_at", instant()),
        ("created_by", nullable(schema_ref("User"))),
        ("last_accessed_at", constant(Value::Null)),
        ("last_viewed_at", constant(Value::Null)),
        ("is_shared", boolean()),
        ("deleted", deleted),
        ("creation_mode", enum_of(&["default", "template"])),
        ("tags", list_max(TAGS, text())),
        ("restriction_level", level()),
        ("effective_restriction_level", level()),
        ("effective_privilege_level", level()),
        ("user_access_level", enum_of(&editor_names())),
        ("access_control_version", enum_of(&["v1", "v2"])),
        ("last_refresh", constant(Value::Null)),
        ("team_id", id()),
    ])
}

fn dashboard(tiles: Value) -> Value {
    extend_object(
        summary(boolean()),
        [
            ("filters", any_object()),
            ("persisted_filters", nullable(any_object())),
            ("variables", empty_object()),
            ("persisted_variables", constant(Value::Null)),
            ("breakdown_colors", list_max(0, any())),
            ("data_color_theme_id", constant(Value::Null)),
            ("tiles", tiles),
        ],
    )
}

/// A place of an insight on a dashboard.
fn tile() -> Value {
    let placed = json!({"type": "object", "required": ["color", "layouts"]});
    object([
        ("id", id()),
        ("layouts", any_object()),
        ("color", nullable(text())),
        ("deleted", json!({"enum": [null, false]})),
        ("order", json!({"type": "integer", "minimum": 0})),
        ("last_refresh", nullable(instant())),
        ("is_cached", boolean()),
        ("filters_overrides", empty_object()),
        ("show_description", constant(Value::Null)),
        ("text", constant(Value::Null)),
        ("button_tile", constant(Value::Null)),
        ("insight", json!({"allOf": [schema_ref("Insight"), placed]})),
    ])
}

/// The fields that the body of a dashboard may have.
fn dashboard_input(tiles: Value) -> Value {
    let truth = || schema_ref("FlagBoolean");
    let [view, edit] = view_and_edit_levels();
    let digits = json!({"type": "string", "pattern": format!(r"^ *[+]?0*({view}|{edit})(\.0*)? *$")});
    let filters = with_description(
        any_object(),
        "Filters that apply to its insights, such as `date_from` and `properties`.",
    );
    let levels = format!(
        "{view}: all members of the project can edit it; {edit}: its creator and administrators only."
    );
    let removal = "With `deleted: true`: whether insights that are on no other dashboard are deleted too.";
    input(
        &[],
        [
            ("use_template", empty_value()),
            ("use_dashboard", empty_value()),
            ("duplicate_tiles", empty_value()),
            ("variables", empty_value()),
            ("name", optional_text_or_number(insights::TEXT_CHARS)),
            ("description", optional_text_or_number(insights::DESCRIPTION_CHARS)),
            ("pinned", truth()),
            ("tags", tags()),
            ("filters", filters),
            ("restriction_level", with_description(any_of([level(), digits]), levels)),
            ("deleted", truth()),
            ("delete_insights", with_description(any_of([truth()]), removal)),
            ("tiles", tiles),
        ],
    )
}

fn tags() -> Value {
    with_description(list(text_max(TAG_CHARS)), format!("At most {TAGS} different tags."))
}

/// The fields of a tile in an update: layout and colour.
fn tile_input() -> Value {
    input(
        &["id"],
        [
            ("id", schema_ref("FlagInteger")),
            ("layouts", any_object()),
            ("color", optional_text_or_number(insights::TEXT_CHARS)),
            ("text", empty_value()),
            ("button_tile", empty_value()),
            ("deleted", empty_value()),
            ("filters_overrides", empty_value()),
        ],
    )
}

fn action() -> Value {
    object([
        ("id", id()),
        ("name", nullable(text())),
        ("description", text()),
        ("tags", list_max(TAGS, text())),
        ("post_to_slack", boolean()),
        ("slack_message_format", text()),
        ("steps", list_max(ACTION_STEPS, schema_ref("ActionStep"))),
        ("created_at", instant()),
        ("created_by", nullable(schema_ref("User"))),
        ("deleted", boolean()),
        ("is_calculating", constant(json!(false))),
        ("last_calculated_at", instant()),
        ("team_id", id()),
        ("is_action", constant(json!(true))),
        ("bytecode_error", constant(Value::Null)),
        ("pinned_at", nullable(instant())),
        ("creation_context", constant(Value::Null)),
        ("user_access_level", enum_of(&editor_names())),
    ])
}

/// A step: an event matches it if all conditions hold.
fn step() -> Value {
    let matching = || nullable(enum_of(&ACTION_MATCH_MODES));
    object([
        ("event", nullable(text())),
        ("properties", nullable(list(any_object()))),
        ("selector", nullable(text())),
        ("tag_name", nullable(text())),
        ("text", nullable(text())),
        ("text_matching", matching()),
        ("href", nullable(text())),
        ("href_matching", matching()),
        ("url", nullable(text())),
        ("url_matching", matching()),
    ])
}

/// The fields that the body of an action may have.
fn action_input() -> Value {
    let truth = || schema_ref("FlagBoolean");
    let matching = || nullable(enum_of(&ACTION_MATCH_MODES));
    let step = input(
        &[],
        [
            ("event", optional_text_or_number(NAME_MAX)),
            ("properties", nullable(list(any_object()))),
            ("selector", optional_text_or_number(NAME_MAX)),
            ("tag_name", optional_text_or_number(NAME_MAX)),
            ("text", optional_text_or_number(NAME_MAX)),
            ("text_matching", matching()),
            ("href", optional_text_or_number(NAME_MAX)),
            ("href_matching", matching()),
            ("url", optional_text_or_number(NAME_MAX)),
            ("url_matching", matching()),
        ],
    );
    let name = json!({"type": "string", "pattern": r"\S", "maxLength": insights::TEXT_CHARS});
    input(
        &[],
        [
            ("name", any_of([name, number(), json!({"type": "null"})])),
            ("description", optional_text_or_number(insights::DESCRIPTION_CHARS)),
            ("tags", tags()),
            ("post_to_slack", truth()),
            ("slack_message_format", optional_text_or_number(insights::MESSAGE_CHARS)),
            ("steps", list_max(ACTION_STEPS, step)),
            ("deleted", truth()),
            (
                "pinned_at",
                with_description(
                    any_of([instant(), empty_value()]),
                    "A time pins the dashboard; null unpins it.",
                ),
            ),
        ],
    )
}
