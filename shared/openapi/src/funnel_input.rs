//! Request fields of funnels and correlations, and of the selection of their actors.

use pennon_analytics::kinds::funnels::{Attribution, FunnelVizType, StepOrder, WindowUnit};
use serde_json::{Value, json};

use crate::calculation_input::{
    ANY, ANY_TEXT, InputField, breakdown, common, concat_fields, group_type, optional_text, query_body,
    spelled,
};
use crate::conditions::null_or_blank;
use crate::limits::{EXCLUSIONS, NAME_MAX, STEPS, WINDOW_SECONDS, patterns};
use crate::schema::{any_of, id, input, list_max, schema_ref, text};

/// The bounds of a window in seconds; fewer of greater units.
pub(crate) const WINDOW: (i64, i64) = (i64::MIN, WINDOW_SECONDS);
/// Bounds of `from_step` and `to_step`.
pub(crate) const FROM: ((i64, i64), &str) = ((0, STEPS as i64 - 2), patterns::FROM_STEP);
pub(crate) const TO: ((i64, i64), &str) = ((1, STEPS as i64 - 1), patterns::TO_STEP);

/// The schemas.
pub fn components() -> Vec<(&'static str, Value)> {
    let of_one = concat_fields([correlation(), correlation_point()]);
    let mut people = query_body(of_one, STEPS, true);
    people["required"] = json!(["funnel_correlation_person_converted"]);
    let of_funnel = query_body(concat_fields([funnel(), funnel_point()]), STEPS, true);
    vec![
        ("FunnelRequest", query_body(funnel(), STEPS, true)),
        ("FunnelPeopleRequest", of_funnel),
        ("CorrelationRequest", query_body(correlation(), STEPS, false)),
        ("CorrelationPeopleRequest", people),
        ("FunnelExclusion", exclusion()),
    ]
}

/// The fields of a funnel.
pub(crate) fn funnel() -> Vec<InputField> {
    let attribution = vec![
        InputField::free(
            "display",
            "`ActionsLineGraph` selects conversion over time if `funnel_viz_type` is missing.",
        ),
        InputField::choice(
            "funnel_viz_type",
            &FunnelVizType::names(),
            "Steps, conversion over time (`trends`), or time to convert.",
        ),
        InputField::choice(
            "breakdown_attribution_type",
            &Attribution::NAMES,
            "The event whose breakdown value counts for an actor.",
        )
        .free_in_query(),
        InputField::free("breakdown_attribution_value", "The index of the step, for the attribution `step`."),
    ];
    concat_fields([common(), breakdown(), window(), steps(), attribution])
}

/// The fields that are validated even without steps.
fn window() -> Vec<InputField> {
    vec![
        InputField::choice(
            "funnel_order_type",
            &StepOrder::names(),
            "The order of steps: with other events between them, directly after each other, or any order.",
        ),
        InputField::whole(
            "funnel_window_interval",
            WINDOW,
            "[+-]?[0-9]{1,10}",
            "The conversion window. Default, also for 0: 14.",
        ),
        InputField::any_case(
            "funnel_window_interval_unit",
            &WindowUnit::names(),
            "[Ss]?",
            "The unit of the conversion window. Default: days.",
        ),
        InputField::free(
            "funnel_window_interval_type",
            "An alias of `funnel_window_interval_unit`, which takes precedence.",
        ),
        InputField::free(
            "funnel_window_days",
            "The conversion window in days, instead of the interval and its unit.",
        ),
        InputField::new(
            "aggregation_group_type_index",
            group_type(),
            spelled("0*[0-4]"),
            "Counts groups of this type; 0 counts persons.",
        ),
        InputField::switch("aggregation_group_types_from_zero", "Whether 0 is a group type index too."),
        InputField::choice(
            "funnel_aggregate_by_hogql",
            &["person_id"],
            "`person_id`, which counts persons, is the only accepted value.",
        ),
    ]
}

/// The fields whose validity depends on the number of steps.
fn steps() -> Vec<InputField> {
    // Entries that are not objects are ignored.
    let entry = any_of([
        schema_ref("FunnelExclusion"),
        json!({"type": ["string", "number", "boolean", "null", "array"]}),
    ]);
    let exclusions = any_of([list_max(EXCLUSIONS, entry), null_or_blank()]);
    vec![
        InputField::json("exclusions", exclusions, "Exclusions: events between steps that remove an actor."),
        InputField::whole(
            "funnel_from_step",
            FROM.0,
            FROM.1,
            "The first step for conversion over time and time to convert, from 0.",
        )
        .free_in_query(),
        InputField::whole(
            "funnel_to_step",
            TO.0,
            TO.1,
            "The last step for conversion over time and time to convert.",
        )
        .free_in_query(),
        InputField::whole("bin_count", ANY, ANY_TEXT, "The number of bins of the time to convert: 1 to 90.")
            .free_in_query(),
    ]
}

/// An exclusion between two steps, counted from 0.
fn exclusion() -> Value {
    let entry = |kind: Value, of: Value| {
        input(
            &["funnel_from_step", "funnel_to_step"],
            [
                ("type", kind),
                ("id", of),
                ("name", optional_text()),
                ("custom_name", optional_text()),
                ("properties", schema_ref("EventConditions")),
                ("funnel_from_step", whole_of(FROM)),
                ("funnel_to_step", whole_of(TO)),
            ],
        )
    };
    let event = json!({"type": ["string", "number", "null"], "maxLength": NAME_MAX});
    let action = any_of([id(), json!({"type": "string", "pattern": "^[0-9]{1,15}$"})]);
    let mut of_action = entry(json!({"const": "actions"}), action);
    of_action["required"] = json!(["funnel_from_step", "funnel_to_step", "type", "id"]);
    // An action without an id is ignored.
    let without_id =
        input(&["type"], [("type", json!({"const": "actions"})), ("id", json!({"type": "null"}))]);
    any_of([entry(json!({"not": {"const": "actions"}}), event), of_action, without_id])
}

/// A required step number.
pub(crate) fn whole_of(((least, most), pattern): ((i64, i64), &str)) -> Value {
    any_of([json!({"type": "integer", "minimum": least, "maximum": most}), spelled_only(pattern)])
}

fn spelled_only(pattern: &str) -> Value {
    json!({"type": "string", "pattern": format!("^({pattern})$")})
}

/// The fields of a correlation. Breakdown and layout are ignored. The correlation fields are only validated if there are
/// steps.
pub(crate) fn correlation() -> Vec<InputField> {
    let own = vec![
        InputField::free(
            "funnel_correlation_type",
            "The kind of candidates: `properties`, `event_with_properties`, or `events` (default).",
        ),
        InputField::free(
            "funnel_correlation_names",
            "For `properties`, where it is required: a list of keys, or `$all`.",
        ),
        InputField::free("funnel_correlation_exclude_names", "For `properties`: keys to exclude."),
        InputField::free(
            "funnel_correlation_event_names",
            "For `event_with_properties`, where it is required: a list of event names.",
        ),
        InputField::free("funnel_correlation_exclude_event_names", "For `events`: names to exclude."),
        InputField::free(
            "funnel_correlation_event_exclude_property_names",
            "For `event_with_properties`: keys to exclude.",
        ),
        InputField::free(
            "funnel_step",
            "Only actors that reached this step, from 1; a negative number selects those that reached only \
             the step before it. Default: all.",
        ),
    ];
    let list = any_of([json!({"type": "array"}), null_or_blank()]);
    let exclusions = InputField::json("exclusions", list, "Exclusions, as in a funnel.");
    concat_fields([common(), window(), vec![exclusions], own])
}

/// Which number of a funnel is meant.
pub(crate) fn funnel_point() -> Vec<InputField> {
    vec![
        InputField::free(
            "funnel_step",
            "Only actors that reached this step, from 1; a negative number selects those that reached only \
             the step before it. Required, except for conversion over time.",
        ),
        InputField::free(
            "entrance_period_start",
            "For conversion over time: the start of the period in which the actors entered.",
        ),
        InputField::free(
            "drop_off",
            "For conversion over time: `true` selects the actors that did not convert.",
        ),
        InputField::free("funnel_step_breakdown", "The value of the breakdown. Default: all values."),
        InputField::free(
            "funnel_breakdown_kept",
            "For the combined other values: a JSON list of the values that are shown separately.",
        ),
    ]
}

/// Which number of a correlation is meant.
pub(crate) fn correlation_point() -> Vec<InputField> {
    vec![
        InputField::free(
            "funnel_correlation_person_entity",
            "The event: its name as `id`, and for one of its properties a list with one `key` and `value` \
             as `properties`.",
        ),
        InputField::free(
            "funnel_correlation_property_values",
            "For `properties`: a list with one `key` and `value`.",
        ),
        InputField::new(
            "funnel_correlation_person_converted",
            json!({"type": ["boolean", "number", "string"]}),
            text(),
            "Whether the actors converted. Required.",
        ),
    ]
}
