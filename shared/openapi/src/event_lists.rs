//! Lists of events, of the names of events and properties, and of the values of properties.

use serde_json::{Value, json};

use crate::operation::{Operation, Security};
use crate::schema::{
    any, any_object, any_of, boolean, constant, enum_of, instant, integer_in, list_max, nullable, object,
    object_with_optional, page, schema_ref, text, text_max, uuid,
};

const TAG: &str = "Events";
const QUERY: Security = Security::Scope("query:read");
const EVENT_DEFINITIONS: Security = Security::Scope("event_definition:read");
const PROPERTY_DEFINITIONS: Security = Security::Scope("property_definition:read");
/// Description of the 400 response of a list.
const REFUSED: &str = "A parameter is not acceptable, as `attr` says, or there is too much to look through.";

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
        ("results", list_max(1000, schema_ref("Event"))),
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
fn requires(operation: Operation, name: &'static str, description: &'static str) -> Operation {
    let mut operation = operation.query_param(
        name,
        json!({"type": "string", "minLength": 1, "maxLength": 1000}),
        description,
    );
    for parameter in operation.parameters.iter_mut().filter(|parameter| parameter.name == name) {
        parameter.required = true;
    }
    operation
}

fn events() -> Operation {
    const PATH: &str = "/api/projects/{project_id}/events/";
    Operation::new("listEvents", "GET", PATH, TAG, "List events, the newest first", QUERY)
        .with_description(
            "An event is listed as soon as it was captured. A page ends at `limit` events, at 3,000,000 bytes of \
             properties, or when 20,000 events or 64 MiB of event files were read for it; `next` is null on the \
             last page alone. All conditions have to hold.",
        )
        .query_param("event", text_max(1_000), "Events with this name.")
        .query_param("distinct_id", text_max(1_000), "Events with this distinct id.")
        .query_param("person_id", any_of([uuid(), constant(json!(""))]), "Events of the person that this id leads to.")
        .query_param(
            "properties",
            json_list(),
            "A JSON list of filters on names, distinct ids and properties of events, or a group of them.",
        )
        .query_param("after", text(), "Events later than this ISO 8601 instant.")
        .query_param("before", text(), "Events earlier than this ISO 8601 instant.")
        .query_param("limit", integer_in(1, 1000), "Most events of the page; 100 when it is left out.")
        .query_param("cursor", text(), "Where the page begins, as `next` says.")
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
        "The most frequent values of the last seven days, or of all times where those have none. Lists \
                 count by their items. The key `custom_event` lists names of events without a leading `$`.",
    );
    requires(operation, "key", "The name of the property.")
        .query_param("value", text_max(1_000), "What the values contain, in any case.")
        .query_param("event_name", text(), "Of events with this name; several may be sent.")
        .query_param("is_column", flag_text(), "With the key `event`: names of events.")
        .query_param("limit", integer_in(1, 1000), "Most values; 10 when it is left out.")
        .response(200, "The values.", list_max(1000, schema_ref("PropertyValue")))
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
    .with_description("The most frequent values. Lists count by their items. `query:read` will do too.");
    requires(operation, "key", "The name of the property.")
        .query_param("value", text_max(1_000), "What the values contain, in any case.")
        .query_param("limit", integer_in(1, 1000), "Most values; 10 when it is left out.")
        .response(200, "The values.", list_max(1000, schema_ref("PersonPropertyValue")))
        .error(400, REFUSED)
}

fn event_definitions() -> Operation {
    const PATH: &str = "/api/projects/{project_id}/event_definitions/";
    Operation::new("listEventDefinitions", "GET", PATH, TAG, "List the names of events", EVENT_DEFINITIONS)
        .with_description(
            "`created_at` is the time of the first event with the name and `last_seen_at` of the last. A name is \
             listed as soon as an event with it was captured, and as long as there is one.",
        )
        .query_param("search", text_max(1_000), "Words that the name contains, in any case.")
        .query_param(
            "event_type",
            enum_of(&["event", "event_custom", "event_posthog", "all", "action_event", ""]),
            "`event_custom` keeps names without a leading `$`, `event_posthog` names with one.",
        )
        .query_param(
            "ordering",
            text(),
            "`name`, `last_seen_at`, `created_at`, or the latter two with `::date`; descending with `-` before it; \
             several with commas. By default the day last seen, latest first, and then the name; with `search` the \
             shortest name first.",
        )
        .query_param("names", text(), "Names with commas between them; the parameter may be repeated.")
        .query_param("excluded_properties", json_list(), "A JSON list of names that are left out.")
        .query_param("exclude_stale", flag_text(), "Leaves out what was last seen more than 30 days ago.")
        .query_param("exclude_hidden", flag_text(), "Nothing is hidden.")
        .query_param("verified", flag_text(), "Nothing is verified: true lists nothing.")
        .query_param("tags", json_list(), "A JSON list of tags. Nothing has tags: with any, nothing is listed.")
        .paginated()
        .response(200, "A page.", page(schema_ref("EventDefinition")))
        .error(400, REFUSED)
}

fn event_definition_by_name() -> Operation {
    const PATH: &str = "/api/projects/{project_id}/event_definitions/by_name/";
    let summary = "Get the definition of an event by its name";
    let operation = Operation::new("getEventDefinitionByName", "GET", PATH, TAG, summary, EVENT_DEFINITIONS);
    requires(operation, "name", "The whole name.")
        .response(200, "The definition.", schema_ref("EventDefinition"))
        .error(400, REFUSED)
}

fn event_definition() -> Operation {
    const PATH: &str = "/api/projects/{project_id}/event_definitions/{id}/";
    Operation::new(
        "getEventDefinition",
        "GET",
        PATH,
        TAG,
        "Get the definition of an event",
        EVENT_DEFINITIONS,
    )
    .response(200, "The definition.", schema_ref("EventDefinition"))
    .error(400, REFUSED)
}

fn property_definitions() -> Operation {
    const PATH: &str = "/api/projects/{project_id}/property_definitions/";
    let summary = "List the names of properties";
    Operation::new("listPropertyDefinitions", "GET", PATH, TAG, summary, PROPERTY_DEFINITIONS)
        .with_description(
            "`property_type` is null where values are of several types or none of these. Of the rarest properties \
             of an event file, those beyond its first 2,250, the names are not listed.",
        )
        .query_param("type", enum_of(&["event", "person", "group", "session", ""]), "What has the properties; `event` when it is left out.")
        .query_param("group_type_index", integer_in(0, 4), "Of which type of groups; for `type=group` alone.")
        .query_param("search", text_max(1_000), "Words that the name contains, in any case.")
        .query_param("properties", text(), "Names with commas between them; the parameter may be repeated.")
        .query_param("excluded_properties", json_list(), "A JSON list of names that are left out.")
        .query_param("is_numerical", flag_text(), "Only those whose values are numbers, or only others.")
        .query_param("is_feature_flag", flag_text(), "Only those whose name begins with `$feature/`, or only others.")
        .query_param(
            "event_names",
            json_list(),
            "A JSON list of at most 20 names of events. `is_seen_on_filtered_events` then says whether any of the \
             newest 1,000 events of each has the property; else it is null.",
        )
        .query_param("filter_by_event_names", flag_text(), "Only those seen on events of `event_names`.")
        .query_param("exclude_core_properties", flag_text(), "Leaves out properties of events that begin with `$`.")
        .query_param("exclude_hidden", flag_text(), "Nothing is hidden.")
        .paginated()
        .response(200, "A page.", page(schema_ref("PropertyDefinition")))
        .error(400, REFUSED)
}

fn property_definition() -> Operation {
    const PATH: &str = "/api/projects/{project_id}/property_definitions/{id}/";
    let summary = "Get the definition of a property";
    Operation::new("getPropertyDefinition", "GET", PATH, TAG, summary, PROPERTY_DEFINITIONS)
        .response(200, "The definition.", schema_ref("PropertyDefinition"))
        .error(400, REFUSED)
}
