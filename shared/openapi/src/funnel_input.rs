//! Request fields of funnels and correlations, and of the selection of their actors.

use serde_json::{Value, json};

use crate::calculation_input::{
    ANY, ANY_TEXT, Field, NAME_MAX, breakdown, common, group_type, joined, optional_text, query_body,
    spelled, with_example,
};
use crate::conditions::nothing;
use crate::schema::{any_of, id, input, list_max, schema_ref, text};

pub(crate) const VIZ_TYPES: [&str; 3] = ["steps", "trends", "time_to_convert"];
pub(crate) const ORDERS: [&str; 3] = ["ordered", "strict", "unordered"];
pub(crate) const ATTRIBUTIONS: [&str; 4] = ["first_touch", "last_touch", "all_events", "step"];
pub(crate) const UNITS: [&str; 6] = ["second", "minute", "hour", "day", "week", "month"];
/// A hundred years in seconds; fewer of greater units.
pub(crate) const WINDOW: (i64, i64) = (i64::MIN, 3_162_240_000);
/// Bounds of `from_step` and `to_step`.
pub(crate) const FROM: ((i64, i64), &str) = ((0, 30), "0*([12]?[0-9]|30)");
pub(crate) const TO: ((i64, i64), &str) = ((1, 31), "0*([1-9]|[12][0-9]|3[01])");

/// The schemas.
pub fn components() -> Vec<(&'static str, Value)> {
    let of_one = joined([correlation(), correlation_point()]);
    let mut people = query_body(of_one, 32, true);
    people["required"] = json!(["funnel_correlation_person_converted"]);
    let steps = json!([{"id": "sign up", "order": 0}, {"id": "purchase", "order": 1}]);
    let person = json!({
        "events": steps, "funnel_correlation_person_converted": true,
        "funnel_correlation_person_entity": {"id": "invite"},
    });
    let of_funnel = query_body(joined([funnel(), funnel_point()]), 32, true);
    vec![
        ("FunnelQuestion", with_example(query_body(funnel(), 32, true), json!({"events": steps}))),
        ("FunnelPeopleQuestion", with_example(of_funnel, json!({"events": steps, "funnel_step": 1}))),
        ("CorrelationQuestion", with_example(query_body(correlation(), 32, false), json!({"events": steps}))),
        ("CorrelationPeopleQuestion", with_example(people, person)),
        ("FunnelExclusion", exclusion()),
    ]
}

/// The fields of a funnel.
pub(crate) fn funnel() -> Vec<Field> {
    let attribution = vec![
        Field::free("display", "`ActionsLineGraph` means over time, where `funnel_viz_type` says nothing."),
        Field::choice("funnel_viz_type", &VIZ_TYPES, "Steps, shares over time, or times."),
        Field::choice(
            "breakdown_attribution_type",
            &ATTRIBUTIONS,
            "Under which of its values an actor counts.",
        )
        .free_in_query(),
        Field::free("breakdown_attribution_value", "With `step`: its index."),
    ];
    joined([common(), breakdown(), window(), steps(), attribution])
}

/// The fields that are validated even without steps.
fn window() -> Vec<Field> {
    vec![
        Field::choice(
            "funnel_order_type",
            &ORDERS,
            "One after the other, with nothing between, or in any order.",
        ),
        Field::whole(
            "funnel_window_interval",
            WINDOW,
            "[+-]?[0-9]{1,10}",
            "Time for all steps; 14 when left out or 0.",
        ),
        Field::any_case(
            "funnel_window_interval_unit",
            &UNITS,
            "[Ss]?",
            "The window's unit; days when left out.",
        ),
        Field::free("funnel_window_interval_type", "As `funnel_window_interval_unit`, which wins."),
        Field::free("funnel_window_days", "In place of these: the window in days."),
        Field::new(
            "aggregation_group_type_index",
            group_type(),
            spelled("0*[0-4]"),
            "Groups of this type are counted; persons with 0.",
        ),
        Field::switch("aggregation_group_types_from_zero", "Whether 0 is a type of groups too."),
        Field::choice(
            "funnel_aggregate_by_hogql",
            &["person_id"],
            "Persons are counted; nothing else is known.",
        ),
    ]
}

/// The fields whose validity depends on the number of steps.
fn steps() -> Vec<Field> {
    // Entries that are not objects are ignored.
    let entry = any_of([
        schema_ref("FunnelExclusion"),
        json!({"type": ["string", "number", "boolean", "null", "array"]}),
    ]);
    let exclusions = any_of([list_max(32, entry), nothing()]);
    vec![
        Field::json("exclusions", exclusions, "Events between steps that void a path."),
        Field::whole("funnel_from_step", FROM.0, FROM.1, "The first step of shares and times, from 0.")
            .free_in_query(),
        Field::whole("funnel_to_step", TO.0, TO.1, "The last step of these.").free_in_query(),
        Field::whole("bin_count", ANY, ANY_TEXT, "Bins that times are put into: 1 to 90.").free_in_query(),
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
    let of_nothing =
        input(&["type"], [("type", json!({"const": "actions"})), ("id", json!({"type": "null"}))]);
    any_of([entry(json!({"not": {"const": "actions"}}), event), of_action, of_nothing])
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
pub(crate) fn correlation() -> Vec<Field> {
    let own = vec![
        Field::free(
            "funnel_correlation_type",
            "What is looked at: `properties`, `event_with_properties`; `events` otherwise.",
        ),
        Field::free(
            "funnel_correlation_names",
            "Of `properties`, which needs it: a list of their keys, `$all` for every one.",
        ),
        Field::free("funnel_correlation_exclude_names", "Of `properties`: keys that are left out."),
        Field::free(
            "funnel_correlation_event_names",
            "Of `event_with_properties`, which needs it: a list of names of events.",
        ),
        Field::free("funnel_correlation_exclude_event_names", "Of `events`: names that are left out."),
        Field::free(
            "funnel_correlation_event_exclude_property_names",
            "Of `event_with_properties`: keys that are left out.",
        ),
        Field::free(
            "funnel_step",
            "Those who reached this step, from 1, or with a minus did not reach it but the one before; all \
             when left out.",
        ),
    ];
    let list = any_of([json!({"type": "array"}), nothing()]);
    let exclusions =
        Field::json("exclusions", list, "Events between steps that void a path, as of a funnel.");
    joined([common(), window(), vec![exclusions], own])
}

/// Which number of a funnel is meant.
pub(crate) fn funnel_point() -> Vec<Field> {
    vec![
        Field::free(
            "funnel_step",
            "Those who reached this step, from 1, or with a minus did not reach it but the one before. \
             Required, but of a funnel over time.",
        ),
        Field::free(
            "entrance_period_start",
            "Of a funnel over time: the start of the period they entered in.",
        ),
        Field::free("drop_off", "Of a funnel over time: whether they did not get through."),
        Field::free("funnel_step_breakdown", "The value of the breakdown; everybody when it is left out."),
        Field::free("funnel_breakdown_kept", "Of the rest: a JSON list of the values that are not in it."),
    ]
}

/// Which number of a correlation is meant.
pub(crate) fn correlation_point() -> Vec<Field> {
    vec![
        Field::free(
            "funnel_correlation_person_entity",
            "The event: `id`, its name, and for one of its properties a list of one `key` and `value` as \
             `properties`.",
        ),
        Field::free(
            "funnel_correlation_property_values",
            "Of `properties`: a list of one `key` and `value`.",
        ),
        Field::new(
            "funnel_correlation_person_converted",
            json!({"type": ["boolean", "number", "string"]}),
            text(),
            "Whether those are meant who got through. Required.",
        ),
    ]
}
