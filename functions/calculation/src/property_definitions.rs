//! The properties of a project's events, persons, groups and sessions by their names.
//!
//! Nothing is stored: a definition exists as soon as an object has the property. Its id is a hash of project, kind and
//! name. Must stay true: `is_seen_on_filtered_events` searches the newest 1,000 events of each named event.

use std::collections::BTreeSet;

use axum::extract::State;
use axum::response::Response;
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::http::{Call, Page, json};
use pennon_core::limits::calculation::EVENT_NAMES;
use pennon_core::store::keys::ProjectId;
use serde_json::{Value, json as object};
use uuid::Uuid;

use crate::Calculation;
use crate::calculator::property_names::{PropertyKind, PropertyType};
use crate::event_definitions::NAMESPACE;
use crate::parameters::{boolean, contains_words, integer, invalid, json_names, names, text};

const READ_PROPERTY_DEFINITIONS: &str = "property_definition:read";
/// Prefix of the properties that hold the value of a feature flag.
const FEATURE: &str = "$feature/";
/// Properties that libraries use for purposes other than describing an event.
const INTERNAL_PROPERTIES: [&str; 14] = [
    "distinct_id",
    "$set",
    "$set_once",
    "$initial_referrer",
    "$initial_referring_domain",
    "$groups",
    "$group_type",
    "$group_key",
    "$group_set",
    "$group_0",
    "$group_1",
    "$group_2",
    "$group_3",
    "$group_4",
];

/// `GET P/property_definitions/`
pub async fn list(State(state): State<Calculation>, call: Call) -> ApiResult<Response> {
    let deadline = state.calculator.deadline();
    let (access, []) = state.app.project(&call, READ_PROPERTY_DEFINITIONS, |_| []).await?;
    let filter = PropertyDefinitionFilter::parse(&call)?;
    let names = state.calculator.property_names(&access.project, filter.kind, deadline).await?;
    let seen = match &filter.events {
        Some(events) => Some(state.calculator.seen_properties(&access.project, events, deadline).await?),
        None => None,
    };
    let mut definitions = Vec::new();
    for (name, value_type) in names.into_iter().filter(|(name, of)| filter.matches(name, *of)) {
        let is_seen = seen.as_ref().map(|seen| seen.contains(&name));
        if !filter.only_seen || is_seen != Some(false) {
            definitions.push(Definition { name, value_type, is_seen });
        }
    }
    // A stable sort: seen properties first, by name within each part.
    definitions.sort_by_key(|definition| definition.is_seen == Some(false));
    let page = Page::of(&call);
    let to_json =
        |definition: &Definition| definition_json(access.project.id, filter.kind, definition).to_string();
    page.reply(&call, definitions.len(), &page.slice(&definitions).iter().map(to_json).collect::<Vec<_>>())
}

/// `GET P/property_definitions/{id}/`
pub async fn retrieve(State(state): State<Calculation>, call: Call) -> ApiResult<Response> {
    let deadline = state.calculator.deadline();
    let (access, []) = state.app.project(&call, READ_PROPERTY_DEFINITIONS, |_| []).await?;
    let id: Uuid = call.param("id").parse().map_err(|_| ApiError::not_found())?;
    let project = &access.project;
    for kind in PropertyKind::all(project) {
        let names = state.calculator.property_names(project, kind, deadline).await?;
        let found = names.into_iter().find(|(name, _)| definition_id(project.id, kind, name) == id);
        if let Some((name, value_type)) = found {
            return Ok(json(definition_json(
                project.id,
                kind,
                &Definition { name, value_type, is_seen: None },
            )));
        }
    }
    Err(ApiError::not_found())
}

/// A property and the type of its values.
struct Definition {
    name: String,
    value_type: Option<PropertyType>,
    is_seen: Option<bool>,
}

fn definition_id(project: ProjectId, kind: PropertyKind, name: &str) -> Uuid {
    let kind = match kind {
        PropertyKind::Event => "event".to_owned(),
        PropertyKind::Person => "person".to_owned(),
        PropertyKind::Session => "session".to_owned(),
        PropertyKind::Group(index) => format!("group{index}"),
    };
    Uuid::new_v5(&NAMESPACE, format!("{project}:property:{kind}:{name}").as_bytes())
}

fn definition_json(project: ProjectId, kind: PropertyKind, definition: &Definition) -> Value {
    object!({
        "id": definition_id(project, kind, &definition.name),
        "name": definition.name,
        "description": null,
        "tags": [],
        "is_numerical": definition.value_type == Some(PropertyType::Numeric),
        "property_type": definition.value_type.map(PropertyType::name),
        "is_seen_on_filtered_events": definition.is_seen,
        "updated_at": null,
        "updated_by": null,
        "verified": false,
        "verified_at": null,
        "verified_by": null,
        "hidden": false,
        "query_usage_30_day": null,
    })
}

/// The filter of a list of property definitions.
struct PropertyDefinitionFilter {
    kind: PropertyKind,
    search: Option<String>,
    names: BTreeSet<String>,
    excluded: BTreeSet<String>,
    is_numerical: Option<bool>,
    is_feature_flag: Option<bool>,
    no_core_properties: bool,
    /// The events that are searched for the properties.
    events: Option<BTreeSet<String>>,
    only_seen: bool,
}

impl PropertyDefinitionFilter {
    fn parse(call: &Call) -> ApiResult<PropertyDefinitionFilter> {
        let kind = kind(call)?;
        let events = json_names(call, "event_names")?;
        if !events.is_empty() && kind != PropertyKind::Event {
            return Err(invalid("event_names", "Event names can be given for type=event only."));
        }
        if events.len() > EVENT_NAMES {
            return Err(invalid("event_names", format!("At most {EVENT_NAMES} names are allowed.")));
        }
        boolean(call, "exclude_hidden")?;
        let events = (!events.is_empty()).then_some(events);
        Ok(PropertyDefinitionFilter {
            kind,
            search: text(call, "search")?.map(str::to_owned),
            names: names(call, "properties")?,
            excluded: json_names(call, "excluded_properties")?,
            is_numerical: boolean(call, "is_numerical")?,
            is_feature_flag: boolean(call, "is_feature_flag")?,
            no_core_properties: boolean(call, "exclude_core_properties")? == Some(true),
            only_seen: boolean(call, "filter_by_event_names")? == Some(true) && events.is_some(),
            events,
        })
    }

    fn matches(&self, name: &str, of: Option<PropertyType>) -> bool {
        let is_of_event = self.kind == PropertyKind::Event;
        let is_internal =
            is_of_event && (INTERNAL_PROPERTIES.contains(&name) || name.starts_with("$session_entry_"));
        let is_core = is_of_event && self.no_core_properties && name.starts_with('$');
        let is_number = of == Some(PropertyType::Numeric) && name != "timestamp";
        !is_internal
            && !is_core
            && !self.excluded.contains(name)
            && contains_words(name, self.search.as_deref())
            && (self.names.is_empty() || self.names.contains(name))
            && self.is_numerical.is_none_or(|expected| expected == is_number)
            && self.is_feature_flag.is_none_or(|expected| expected == name.starts_with(FEATURE))
    }
}

fn kind(call: &Call) -> ApiResult<PropertyKind> {
    let index = integer(call, "group_type_index", 0, 4)?;
    let kind = match (text(call, "type")?, index) {
        (None | Some("event"), None) => PropertyKind::Event,
        (Some("person"), None) => PropertyKind::Person,
        (Some("session"), None) => PropertyKind::Session,
        (Some("group"), Some(index)) => PropertyKind::Group(index),
        (Some("group"), None) => {
            return Err(invalid("group_type_index", "`group_type_index` must be set for `group` type."));
        }
        (None | Some("event" | "person" | "session"), Some(_)) => {
            return Err(invalid("group_type_index", "`group_type_index` can only be set for `group` type."));
        }
        (Some(_), _) => return Err(invalid("type", "A type is event, person, group or session.")),
    };
    Ok(kind)
}
