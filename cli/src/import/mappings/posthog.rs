//! PostHog's batch exports: the models *events* and *persons*, as JSON lines or Parquet.
//!
//! An event's `person_id` adds its distinct id to that person. `$identify`, `$create_alias` and `$merge_dangerously` merge by the
//! rules of captured events, and are imported as events too.

use serde_json::{Map, Value};

use super::{MappedRecord, Mapping, MappingContext, UnreadFields, field_table};
use crate::import::people::PeopleUpdate;
use crate::import::record::{EventFields, ImportRecord, build_event, derive_uuid, parse_id};

/// Fields that only this vendor's exports have.
const VENDOR_FIELDS: [&str; 7] = [
    "person_properties",
    "elements_chain",
    "_inserted_at",
    "person_distinct_id_version",
    "person_version",
    "people_set",
    "is_deleted",
];

pub(super) fn detect(record: &Map<String, Value>) -> Option<String> {
    let fields: Vec<&str> = VENDOR_FIELDS.into_iter().filter(|field| record.contains_key(*field)).collect();
    let is_either = record.contains_key("event") || record.contains_key("person_id");
    (is_either && record.contains_key("distinct_id") && !fields.is_empty()).then(|| fields.join(", "))
}

/// The mapping.
pub(crate) struct Posthog;

impl Mapping for Posthog {
    fn describe(&self) -> Vec<(String, String)> {
        field_table(&[
            ("uuid, event, distinct_id, timestamp, properties", "the same fields of an event"),
            ("elements_chain", "properties.$elements_chain"),
            ("person_id", "joins the distinct ids of one person"),
            ("person_properties; else $set, $set_once", "the person's properties, the latest count"),
            ("$identify, $create_alias, $merge_dangerously", "events, and merges"),
            ("$groupidentify", "an event, and the group's properties"),
            ("rows without event (model persons)", "persons, with properties and created_at"),
            ("created_at of events, team_id, _inserted_at, versions", "not kept"),
        ])
    }

    fn map(
        &self,
        record: Map<String, Value>,
        context: &mut MappingContext<'_>,
    ) -> Result<MappedRecord, String> {
        let mut fields = UnreadFields(record);
        let mut mapped = MappedRecord::new(context.project()?);
        let rule = "posthog: team_id, _inserted_at and version numbers are not kept";
        let person_version = fields.0.get("person_version").and_then(Value::as_i64);
        let dropped = [
            "team_id",
            "_inserted_at",
            "person_distinct_id_version",
            "person_version",
            "elements_hash",
            "site_url",
        ];
        fields.ignore(&dropped, rule, &mut mapped);
        let is_person = !fields.0.contains_key("event") && fields.0.contains_key("person_id");
        match is_person {
            true => map_person(fields, person_version.unwrap_or(0), context, mapped),
            false => map_event(fields, context, mapped),
        }
    }
}

/// A row of the model *persons*: one distinct id of a person.
fn map_person(
    mut fields: UnreadFields,
    version: i64,
    context: &mut MappingContext<'_>,
    mut mapped: MappedRecord,
) -> Result<MappedRecord, String> {
    if fields.take("is_deleted").is_some_and(|deleted| deleted == Value::Bool(true) || deleted == 1) {
        mapped.ignored.push("posthog: deleted persons");
        return Ok(mapped);
    }
    let distinct_id = parse_id(fields.take("distinct_id"), "distinct_id")?;
    let person = parse_id(fields.take("person_id"), "person_id")?;
    let mut properties = fields.object("properties")?;
    if let Some(created_at) = fields.take("created_at") {
        let at = context.parse_time("created_at", Some(&created_at))?;
        mapped.updates.push(PeopleUpdate::FirstSeen { distinct_id: distinct_id.clone(), at });
    }
    fields.finish("a person of PostHog", &mut properties, context, &mut mapped)?;
    mapped.updates.push(PeopleUpdate::SamePerson { person, distinct_id: distinct_id.clone() });
    mapped.add_person_properties(&distinct_id, properties, version, true);
    Ok(mapped)
}

fn map_event(
    mut fields: UnreadFields,
    context: &mut MappingContext<'_>,
    mut mapped: MappedRecord,
) -> Result<MappedRecord, String> {
    fields.ignore(&["created_at"], "posthog: created_at of events, the time of their arrival", &mut mapped);
    let timestamp = context.parse_time("timestamp", fields.take("timestamp").as_ref())?;
    let person = fields.id("person_id")?;
    let person_properties = fields.object("person_properties")?;
    let elements = fields.text("elements_chain")?;
    let mut properties = fields.object("properties")?;
    let sets = [
        ("set", "$set"),
        ("people_set", "$set"),
        ("set_once", "$set_once"),
        ("people_set_once", "$set_once"),
    ];
    for (field, property) in sets {
        let values = fields.object(field)?;
        if !values.is_empty() && !properties.contains_key(property) {
            properties.insert(property.to_owned(), Value::Object(values));
        }
    }
    if let Some(elements) = elements {
        properties.entry("$elements_chain").or_insert(Value::from(elements));
    }
    if let Some(ip) = fields.text("ip")? {
        properties.entry("$ip").or_insert(Value::from(ip));
    }
    let event_fields = EventFields {
        event: fields.0.remove("event"),
        distinct_id: fields.0.remove("distinct_id"),
        timestamp: Some(timestamp),
        uuid: fields.0.remove("uuid"),
        properties: Map::new(),
    };
    fields.finish("an event of PostHog", &mut properties, context, &mut mapped)?;
    let mut event = build_event(event_fields, derive_uuid(context.content, context.line))?;
    event.properties = properties;
    let distinct_id = event.distinct_id.as_str();
    if let Some(person) = person {
        mapped.updates.push(PeopleUpdate::SamePerson { person, distinct_id: distinct_id.to_owned() });
    }
    let object =
        |key: &str| event.properties.get(key).and_then(Value::as_object).cloned().unwrap_or_default();
    if person_properties.is_empty() {
        let mut values = object("$set_once");
        values.extend(object("$set"));
        mapped.add_person_properties(distinct_id, values, timestamp, false);
    } else {
        mapped.add_person_properties(distinct_id, person_properties, timestamp, true);
    }
    let other = match event.event.as_str() {
        "$identify" => Some(("$anon_distinct_id", false)),
        "$create_alias" => Some(("alias", false)),
        "$merge_dangerously" => Some(("alias", true)),
        _ => None,
    };
    if let Some((key, forced)) = other
        && let Ok(other) = parse_id(event.properties.get(key).cloned(), key)
    {
        mapped.add_merge(&other, distinct_id, timestamp, forced);
    }
    if event.event == "$groupidentify" {
        let text = |key: &str| parse_id(event.properties.get(key).cloned(), key);
        let (type_name, key) = (text("$group_type")?, text("$group_key")?);
        mapped.add_group_properties(context, &type_name, &key, object("$group_set"), timestamp);
    }
    mapped.record = Some(ImportRecord::Event(event));
    Ok(mapped)
}
