//! Lists of events, of the names of events and properties, and of the values of properties.

use serde_json::{Value, json};

use crate::limits::{GROUP_TYPE_MAX, calculation, group_digits};
use crate::operation::{Operation, Security};
use crate::schema::{
    any, any_object, any_of, boolean, constant, enum_of, instant, integer_in, integer_in_or_blank, list_max,
    nullable, object, object_with_optional, page, schema_ref, text, text_max, uuid,
};

const TAG: &str = "Events";
const QUERY: Security = Security::Scope("query:read");
const EVENT_DEFINITIONS: Security = Security::Scope("event_definition:read");
const PROPERTY_DEFINITIONS: Security = Security::Scope("property_definition:read");
/// At least one character that is no white space of Unicode: a blank value counts as missing.
const NOT_BLANK: &str = r"[^\t-\r \u0085\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]";
/// Description of the 400 response of a list.
const REFUSED: &str = "A parameter is invalid (named by `attr`), or there is too much data to search.";

/// The operations.
pub fn operations() -> Vec<Operation> {
    vec![
        events(),
        event_values(),
        person_values(),
        event_definitions(),
        event_definition_by_name(),
        event_definition(),
        property_definitions(),
        property_definition(),
    ]
}

/// The schemas.
pub fn components() -> Vec<(&'static str, Value)> {
    vec![
        ("Event", event_schema()),
        ("EventsPage", events_page()),
        ("PropertyValue", object([("name", value())])),
        ("PersonPropertyValue", object([("name", value()), ("count", integer_in(1, i64::MAX))])),
        ("EventDefinition", event_definition_schema()),
        ("PropertyDefinition", property_definition_schema()),
    ]
}

/// A text or a number; other values are converted to text.
fn value() -> Value {
    json!({"type": ["string", "number"]})
}

fn flag_text() -> Value {
    json!({"type": "string", "pattern": "^\\s*([Tt][Rr][Uu][Ee]|[Ff][Aa][Ll][Ss][Ee]|1|0)?\\s*$"})
}

fn json_list() -> Value {
    json!({"type": "string", "contentMediaType": "application/json"})
}

fn event_schema() -> Value {
    let person = object([
        ("id", uuid()),
        ("is_identified", boolean()),
        ("distinct_ids", list_max(1, text())),
        ("properties", object_with_optional([], [("email", any()), ("name", any()), ("username", any())])),
    ]);
    object([
        ("id", uuid()),
        ("distinct_id", text()),
        ("properties", any_object()),
        ("event", text()),
        ("timestamp", nullable(instant())),
        ("person", nullable(person)),
        ("elements", list_max(0, any())),
        ("elements_chain", text()),
    ])
}

fn events_page() -> Value {
    object([
        ("next", nullable(json!({"type": "string", "format": "uri"}))),
        ("results", list_max(calculation::EVENTS, schema_ref("Event"))),
    ])
}

fn event_definition_schema() -> Value {
    let null = || constant(Value::Null);
    let no = || constant(json!(false));
    object([
        ("id", uuid()),
        ("name", text()),
        ("owner", null()),
        ("description", null()),
        ("tags", list_max(0, text())),
        ("created_at", nullable(instant())),
        ("updated_at", null()),
        ("updated_by", null()),
        ("last_seen_at", nullable(instant())),
        ("last_updated_at", null()),
        ("verified", no()),
        ("verified_at", null()),
        ("verified_by", null()),
        ("hidden", no()),
        ("is_action", no()),
        ("action_id", null()),
        ("is_calculating", no()),
        ("last_calculated_at", null()),
        ("created_by", null()),
        ("post_to_slack", no()),
        ("default_columns", list_max(0, text())),
        ("volume_30_day", null()),
        ("query_usage_30_day", null()),
    ])
}

fn property_definition_schema() -> Value {
    let null = || constant(Value::Null);
    let no = || constant(json!(false));
    object([
        ("id", uuid()),
        ("name", text()),
        ("description", null()),
        ("tags", list_max(0, text())),
        ("is_numerical", boolean()),
        ("property_type", json!({"enum": ["String", "Numeric", "Boolean", "DateTime", null]})),
        ("is_seen_on_filtered_events", nullable(boolean())),
        ("updated_at", null()),
        ("updated_by", null()),
        ("verified", no()),
        ("verified_at", null()),
        ("verified_by", null()),
        ("hidden", no()),
        ("query_usage_30_day", null()),
    ])
}

/// Adds a required query parameter.
fn with_required_query_param(
    operation: Operation,
    name: &'static str,
    description: &'static str,
) -> Operation {
    let mut schema = text_max(calculation::TEXT_CHARS);
    schema["pattern"] = json!(NOT_BLANK);
    let mut operation = operation.query_param(name, schema, description);
    for parameter in operation.parameters.iter_mut().filter(|parameter| parameter.name == name) {
        parameter.required = true;
    }
    operation
}

fn events() -> Operation {
    const PATH: &str = "/api/projects/{project_id}/events/";
    Operation::new("listEvents", "GET", PATH, TAG, "List events, newest first", QUERY)
        .with_description(format!(
            "Events are listed as soon as they are captured. A page ends after `limit` events, {} bytes \
                 of properties, or {} events or {} MiB of event files that were read; `next` is null only on \
                 the last page. An event must match all conditions.",
            group_digits(calculation::PAGE_BYTES),
            group_digits(calculation::PAGE_EVENTS_READ),
            calculation::PAGE_BYTES_READ >> 20,
        ))
        .query_param("event", text_max(calculation::TEXT_CHARS), "Events with this name.")
        .query_param("distinct_id", text_max(calculation::TEXT_CHARS), "Events with this distinct id.")
        .query_param(
            "person_id",
            any_of([uuid(), constant(json!(""))]),
            "Events of the person with this id, also an id from before a merge.",
        )
        .query_param(
            "properties",
            json_list(),
            "A JSON list of filters on names, distinct ids and properties of events, or a filter group.",
        )
        .query_param("after", text(), "Events later than this ISO 8601 instant.")
        .query_param("before", text(), "Events earlier than this ISO 8601 instant.")
        .query_param(
            "limit",
            integer_in_or_blank(1, calculation::EVENTS as i64),
            format!("Page size. Default, also if blank: {}.", calculation::EVENTS_DEFAULT),
        )
        .query_param("cursor", text(), "Start of the page, as in `next`.")
        .response(200, "A page.", schema_ref("EventsPage"))
        .error(400, REFUSED)
}

fn event_values() -> Operation {
    const PATH: &str = "/api/projects/{project_id}/events/values/";
    let operation = Operation::new(
        "listEventPropertyValues",
        "GET",
        PATH,
        TAG,
        "List values of an event property",
        QUERY,
    )
    .with_description(
        "The most frequent values of the last seven days, or of all time if there are none. Lists count as \
         their items. The key `custom_event` lists event names without a leading `$`.",
    );
    with_required_query_param(operation, "key", "The name of the property.")
        .query_param(
            "value",
            text_max(calculation::TEXT_CHARS),
            "Text contained in the values, case-insensitive.",
        )
        .query_param("event_name", text(), "Only values of events with this name; may be repeated.")
        .query_param("is_column", flag_text(), "With the key `event`, the names of events are listed.")
        .query_param(
            "limit",
            integer_in_or_blank(1, calculation::VALUES as i64),
            format!("Maximum number of values. Default, also if blank: {}.", calculation::VALUES_DEFAULT),
        )
        .response(200, "The values.", list_max(calculation::VALUES, schema_ref("PropertyValue")))
        .error(400, REFUSED)
}

fn person_values() -> Operation {
    const PATH: &str = "/api/projects/{project_id}/persons/values/";
    let security = Security::Scope("person:read");
    let operation = Operation::new(
        "listPersonPropertyValues",
        "GET",
        PATH,
        TAG,
        "List values of a person property",
        security,
    )
    .with_description(
        "The most frequent values. Lists count as their items. The scope `query:read` is accepted too.",
    );
    with_required_query_param(operation, "key", "The name of the property.")
        .query_param(
            "value",
            text_max(calculation::TEXT_CHARS),
            "Text contained in the values, case-insensitive.",
        )
        .query_param(
            "limit",
            integer_in_or_blank(1, calculation::VALUES as i64),
            format!("Maximum number of values. Default, also if blank: {}.", calculation::VALUES_DEFAULT),
        )
        .response(200, "The values.", list_max(calculation::VALUES, schema_ref("PersonPropertyValue")))
        .error(400, REFUSED)
}

fn event_definitions() -> Operation {
    const PATH: &str = "/api/projects/{project_id}/event_definitions/";
    Operation::new("listEventDefinitions", "GET", PATH, TAG, "List event definitions", EVENT_DEFINITIONS)
        .with_description(
            "`created_at` is the time of the first event with the name, `last_seen_at` of the latest. A \
             name is listed as soon as an event with it is captured, and as long as there is one.",
        )
        .query_param(
            "search",
            text_max(calculation::TEXT_CHARS),
            "Words contained in the name, case-insensitive.",
        )
        .query_param(
            "event_type",
            enum_of(&["event", "event_custom", "event_posthog", "all", "action_event", ""]),
            "`event_custom` selects names without a leading `$`, `event_posthog` names with one.",
        )
        .query_param(
            "ordering",
            text(),
            "`name`, `last_seen_at`, `created_at`, `last_seen_at::date` or `created_at::date`; descending \
             with a leading `-`; several separated by commas. Default: the day last seen, latest first, \
             then the name; with `search` the shortest name first.",
        )
        .query_param("names", text(), "Names separated by commas; may be repeated.")
        .query_param("excluded_properties", json_list(), "A JSON list of names to exclude.")
        .query_param(
            "exclude_stale",
            flag_text(),
            format!("Excludes definitions last seen more than {} days ago.", calculation::STALE_DAYS),
        )
        .query_param("exclude_hidden", flag_text(), "Accepted without effect: no definition is hidden.")
        .query_param("verified", flag_text(), "`true` returns an empty list: no definition is verified.")
        .query_param(
            "tags",
            json_list(),
            "A JSON list of tags. A list that is not empty returns an empty page: definitions have no tags.",
        )
        .paginated()
        .response(200, "A page.", page(schema_ref("EventDefinition")))
        .error(400, REFUSED)
}

fn event_definition_by_name() -> Operation {
    const PATH: &str = "/api/projects/{project_id}/event_definitions/by_name/";
    let summary = "Get an event definition by name";
    let operation = Operation::new("getEventDefinitionByName", "GET", PATH, TAG, summary, EVENT_DEFINITIONS);
    with_required_query_param(operation, "name", "The exact name.")
        .response(200, "The definition.", schema_ref("EventDefinition"))
        .error(400, REFUSED)
}

fn event_definition() -> Operation {
    const PATH: &str = "/api/projects/{project_id}/event_definitions/{id}/";
    Operation::new("getEventDefinition", "GET", PATH, TAG, "Get an event definition", EVENT_DEFINITIONS)
        .response(200, "The definition.", schema_ref("EventDefinition"))
        .error(400, REFUSED)
}

fn property_definitions() -> Operation {
    const PATH: &str = "/api/projects/{project_id}/property_definitions/";
    let summary = "List property definitions";
    Operation::new("listPropertyDefinitions", "GET", PATH, TAG, summary, PROPERTY_DEFINITIONS)
        .with_description(
            "`property_type` is null if values have several types or another type. The rarest properties \
             of an event file, those beyond its first 2,250, are not listed.",
        )
        .query_param(
            "type",
            enum_of(&["event", "person", "group", "session", ""]),
            "The type of the properties. Default: `event`.",
        )
        .query_param(
            "group_type_index",
            integer_in_or_blank(0, GROUP_TYPE_MAX),
            "The index of the group type: required for `type=group`, invalid for others. Blank means absent.",
        )
        .query_param(
            "search",
            text_max(calculation::TEXT_CHARS),
            "Words contained in the name, case-insensitive.",
        )
        .query_param("properties", text(), "Names separated by commas; may be repeated.")
        .query_param("excluded_properties", json_list(), "A JSON list of names to exclude.")
        .query_param("is_numerical", flag_text(), "`true` selects numeric properties, `false` all others.")
        .query_param(
            "is_feature_flag",
            flag_text(),
            "`true` selects names that begin with `$feature/`, `false` all others.",
        )
        .query_param(
            "event_names",
            json_list(),
            format!(
                "A JSON list of at most {} event names. `is_seen_on_filtered_events` is then whether one of \
                 the newest {} events of each name has the property; otherwise it is null.",
                calculation::EVENT_NAMES,
                group_digits(calculation::SEARCHED_EVENTS),
            ),
        )
        .query_param("filter_by_event_names", flag_text(), "Only properties of the events in `event_names`.")
        .query_param("exclude_core_properties", flag_text(), "Excludes event properties that begin with `$`.")
        .query_param("exclude_hidden", flag_text(), "Accepted without effect: no definition is hidden.")
        .paginated()
        .response(200, "A page.", page(schema_ref("PropertyDefinition")))
        .error(400, REFUSED)
}

fn property_definition() -> Operation {
    const PATH: &str = "/api/projects/{project_id}/property_definitions/{id}/";
    let summary = "Get a property definition";
    Operation::new("getPropertyDefinition", "GET", PATH, TAG, summary, PROPERTY_DEFINITIONS)
        .response(200, "The definition.", schema_ref("PropertyDefinition"))
        .error(400, REFUSED)
}
