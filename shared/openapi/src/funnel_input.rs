//! What funnels and correlations are asked by, and which of their people are meant.

use serde_json::{Value, json};

use crate::calculation_input::{
    ANY, ANY_TEXT, Field, NAME_MAX, breakdown, common, group_type, joined, optional_text, question, spelled,
};
use crate::schema::{any, any_of, id, input, list_to, named, nullable, text, text_to};

pub(crate) const VIZ_TYPES: [&str; 3] = ["steps", "trends", "time_to_convert"];
pub(crate) const ORDERS: [&str; 3] = ["ordered", "strict", "unordered"];
pub(crate) const ATTRIBUTIONS: [&str; 4] = ["first_touch", "last_touch", "all_events", "step"];
pub(crate) const UNITS: [&str; 6] = ["second", "minute", "hour", "day", "week", "month"];
/// A hundred years in seconds; of greater units fewer are taken.
pub(crate) const WINDOW: (i64, i64) = (-1_000_000_000_000_000, 3_162_240_000);
/// The first of two steps, and the last.
pub(crate) const FROM: ((i64, i64), &str) = ((0, 30), "0*([12]?[0-9]|30)");
pub(crate) const TO: ((i64, i64), &str) = ((1, 31), "0*([1-9]|[12][0-9]|3[01])");

/// The schemas.
pub fn components() -> Vec<(&'static str, Value)> {
    let of_one = joined([correlation(), correlation_point()]);
    let mut people = question(of_one, 32, true);
    people["required"] = json!(["funnel_correlation_person_converted"]);
    vec![
        ("FunnelQuestion", question(funnel(), 32, true)),
        ("FunnelPeopleQuestion", question(joined([funnel(), funnel_point()]), 32, true)),
        ("CorrelationQuestion", question(joined([correlation(), vec![looked_at()]]), 32, false)),
        ("CorrelationPeopleQuestion", people),
        ("FunnelExclusion", exclusion()),
    ]
}

/// What a funnel has.
pub(crate) fn funnel() -> Vec<Field> {
    let attribution = vec![
        Field::text("display", "`ActionsLineGraph` means over time, where `funnel_viz_type` says nothing."),
        Field::choice("funnel_viz_type", &VIZ_TYPES, "Steps, shares over time, or times."),
        Field::choice(
            "breakdown_attribution_type",
            &ATTRIBUTIONS,
            "Under which of its values an actor counts.",
        ),
        Field::whole("breakdown_attribution_value", ANY, ANY_TEXT, "With `step`: its index."),
    ];
    joined([common(), breakdown(10), steps(), attribution])
}

/// What both a funnel and a correlation have.
fn steps() -> Vec<Field> {
    // What is no object is passed over.
    let entry =
        any_of([named("FunnelExclusion"), json!({"type": ["string", "number", "boolean", "null", "array"]})]);
    let unit = |name| Field::any_case(name, &UNITS, "[Ss]?", "The unit of the window; days when left out.");
    vec![
        Field::choice(
            "funnel_order_type",
            &ORDERS,
            "One after the other, with nothing between, or in any order.",
        ),
        Field::whole(
            "funnel_window_interval",
            WINDOW,
            "[+-]?[0-9]{1,9}",
            "Time for all steps; 14 when left out or 0.",
        ),
        unit("funnel_window_interval_unit"),
        unit("funnel_window_interval_type"),
        Field::whole(
            "funnel_window_days",
            (ANY.0, 36_600),
            "[+-]?[0-9]{1,4}",
            "Instead of the two, in days.",
        ),
        Field::json("exclusions", nullable(list_to(32, entry)), "Events between steps that void a path."),
        Field::whole("funnel_from_step", FROM.0, FROM.1, "The first step of shares and times, from 0."),
        Field::whole("funnel_to_step", TO.0, TO.1, "The last step of these."),
        Field::whole("bin_count", ANY, ANY_TEXT, "Bins that times are put into: 1 to 90."),
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

/// What voids a path between two steps, counted from 0.
fn exclusion() -> Value {
    let entry = |kind: Value, of: Value| {
        input(
            &["funnel_from_step", "funnel_to_step"],
            [
                ("type", kind),
                ("id", of),
                ("name", optional_text()),
                ("custom_name", optional_text()),
                ("properties", named("EventConditions")),
                ("funnel_from_step", whole_of(FROM)),
                ("funnel_to_step", whole_of(TO)),
            ],
        )
    };
    let event = json!({"type": ["string", "number", "null"], "maxLength": NAME_MAX});
    let action = any_of([id(), json!({"type": "string", "pattern": "^[0-9]{1,15}$"})]);
    let mut of_action = entry(json!({"const": "actions"}), action);
    of_action["required"] = json!(["funnel_from_step", "funnel_to_step", "type"]);
    any_of([entry(json!({"not": {"const": "actions"}}), event), of_action])
}

/// A step that has to be there.
pub(crate) fn whole_of(((least, most), pattern): ((i64, i64), &str)) -> Value {
    any_of([json!({"type": "integer", "minimum": least, "maximum": most}), spelled_only(pattern)])
}

fn spelled_only(pattern: &str) -> Value {
    json!({"type": "string", "pattern": format!("^({pattern})$")})
}

/// What a correlation has. A breakdown and a layout mean nothing.
pub(crate) fn correlation() -> Vec<Field> {
    let name = json!({"type": ["string", "number", "boolean"], "maxLength": NAME_MAX});
    let names = |says_name: &'static str, says: &'static str| {
        let body = any_of([json!({"type": "null"}), text_to(NAME_MAX), list_to(1_000, name.clone())]);
        Field::new(says_name, body, text(), says)
    };
    let own = vec![
        Field::new(
            "funnel_correlation_type",
            any(),
            text(),
            "What is looked at: `properties`, `event_with_properties`; `events` otherwise.",
        ),
        names(
            "funnel_correlation_names",
            "Of `properties`: a list of their keys, `$all` for every one. Required.",
        ),
        names("funnel_correlation_exclude_names", "Keys that are left out."),
        names("funnel_correlation_event_names", "Of `event_with_properties`: names of events. Required."),
        names("funnel_correlation_exclude_event_names", "Of `events`: names that are left out."),
        names("funnel_correlation_event_exclude_property_names", "Keys that are left out."),
    ];
    joined([common(), steps(), own])
}

/// Whose outcome a correlation looks at.
pub(crate) fn looked_at() -> Field {
    Field::new(
        "funnel_step",
        any_of([
            json!({"type": "integer", "minimum": 1, "maximum": 32}),
            json!({"type": "integer", "minimum": -32, "maximum": -2}),
            json!({"type": "string", "enum": [""]}),
            json!({"type": "null"}),
        ]),
        json!({"type": "string", "pattern": "^([1-9]|[12][0-9]|3[0-2]|-([2-9]|[12][0-9]|3[0-2]))?$"}),
        "Those who reached this step, from 1, or with a minus did not reach it but the one before.",
    )
}

/// Which number of a funnel is meant.
pub(crate) fn funnel_point() -> Vec<Field> {
    let step = "-?0*([1-9]|[12][0-9]|3[0-2])";
    vec![
        Field::whole(
            "funnel_step",
            (-32, 32),
            step,
            "The step they reached, from 1, or with a minus did not reach.",
        ),
        Field::text(
            "entrance_period_start",
            "Of a funnel over time: the start of the period they entered in.",
        ),
        Field::switch("drop_off", "Of a funnel over time: whether they did not get through."),
        Field::new(
            "funnel_step_breakdown",
            any(),
            text(),
            "The value of the breakdown; everybody when left out.",
        ),
        Field::json("funnel_breakdown_kept", any(), "For the rest: the values that are not in it."),
    ]
}

/// Which number of a correlation is meant.
pub(crate) fn correlation_point() -> Vec<Field> {
    let pair = input(&["key"], [("key", text()), ("value", any())]);
    let one = json!({"type": "array", "items": pair, "minItems": 1, "maxItems": 1});
    let entity = input(&["id"], [("id", text()), ("properties", one.clone())]);
    vec![
        looked_at(),
        Field::json(
            "funnel_correlation_person_entity",
            entity,
            "The event, and of its properties one key and value.",
        ),
        Field::json(
            "funnel_correlation_property_values",
            one,
            "Of `properties`: a list of one key and value.",
        ),
        Field::new(
            "funnel_correlation_person_converted",
            json!({"type": ["boolean", "number", "string"]}),
            text(),
            "Whether those are meant who got through. Required.",
        ),
    ]
}
