//! Mixpanel's raw event export (`/api/2.0/export`), and profiles as `/api/query/engage` returns them.
//!
//! `$identify`, `$create_alias` and `$merge` become merges and not events, because the vendor's reports do not count them. In
//! projects with Simplified ID Merge, an event with `$user_id` and `$device_id` merges the device into the user.

use serde_json::{Map, Value};

use super::{MappedRecord, Mapping, MappingContext, UnreadFields, field_table};
use crate::import::record::{ImportRecord, parse_id};
use pennon_eventstore::Event;

pub(super) fn detect(record: &Map<String, Value>) -> Option<String> {
    let properties = record.get("properties").and_then(Value::as_object);
    let is_event = record.get("event").is_some_and(Value::is_string)
        && !record.contains_key("distinct_id")
        && !record.contains_key("timestamp")
        && properties.is_some_and(|properties| properties.contains_key("time"));
    if is_event {
        return Some("properties.time".to_owned());
    }
    let is_profile = record.contains_key("$distinct_id") && record.contains_key("$properties");
    let is_page = record.contains_key("results") && record.contains_key("page_size");
    match (is_profile, is_page) {
        (true, _) => Some("$distinct_id, $properties".to_owned()),
        (_, true) => Some("results, page_size".to_owned()),
        _ => None,
    }
}

/// The mapping.
pub(crate) struct Mixpanel;

impl Mapping for Mixpanel {
    fn describe(&self) -> Vec<(String, String)> {
        field_table(&[
            ("event", "event"),
            ("properties.distinct_id", "distinct_id"),
            ("properties.time", "timestamp"),
            (
                "event, distinct_id, time and properties.$insert_id",
                "uuid: an event that is exported twice counts once",
            ),
            ("the other properties", "properties of the same names"),
            ("$identify, $create_alias, $merge", "merges, and no events"),
            ("$user_id beside $device_id", "a merge of `$device:ID` into the user"),
            ("$distinct_id_before_identity", "a merge of it into distinct_id"),
            ("$distinct_id, $properties (profiles)", "a person's properties; $created is created_at"),
        ])
    }

    fn map(
        &self,
        record: Map<String, Value>,
        context: &mut MappingContext<'_>,
    ) -> Result<MappedRecord, String> {
        let mut fields = UnreadFields(record);
        let mut mapped = MappedRecord::new(context.project()?);
        if let Some(results) = fields.take("results") {
            let Value::Array(results) = results else { return Err("results must be a list".to_owned()) };
            let rule = "mixpanel: what stands beside the profiles of a page";
            fields.ignore(
                &["page", "page_size", "session_id", "status", "total", "computed_at"],
                rule,
                &mut mapped,
            );
            for result in results {
                let Value::Object(result) = result else {
                    return Err("results must be a list of profiles".to_owned());
                };
                map_profile(UnreadFields(result), context, &mut mapped)?;
            }
            fields.finish("a page of Mixpanel profiles", &mut Map::new(), context, &mut mapped)?;
            return Ok(mapped);
        }
        if fields.0.contains_key("$distinct_id") {
            map_profile(fields, context, &mut mapped)?;
            return Ok(mapped);
        }
        map_event(fields, context, mapped)
    }
}

fn map_profile(
    mut fields: UnreadFields,
    context: &mut MappingContext<'_>,
    mapped: &mut MappedRecord,
) -> Result<(), String> {
    let distinct_id = parse_id(fields.take("$distinct_id"), "$distinct_id")?;
    let mut properties = fields.object("$properties")?;
    fields.finish("a profile of Mixpanel", &mut properties, context, mapped)?;
    if let Some(created) = properties.get("$created") {
        let at = context.parse_time("$created", Some(created))?;
        mapped
            .updates
            .push(crate::import::people::PeopleUpdate::FirstSeen { distinct_id: distinct_id.clone(), at });
    }
    mapped.add_person_properties(&distinct_id, properties, 0, true);
    Ok(())
}

fn map_event(
    mut fields: UnreadFields,
    context: &mut MappingContext<'_>,
    mut mapped: MappedRecord,
) -> Result<MappedRecord, String> {
    let name = fields.text("event")?.ok_or("the event has no name (event)")?;
    let mut properties = UnreadFields(fields.object("properties")?);
    let time = properties.take("time");
    let at = context
        .parse_time("properties.time", time.as_ref())
        .map_err(|error| format!("{error} (Mixpanel's times are epoch seconds or milliseconds)"))?;
    fields.finish("an event of Mixpanel", &mut properties.0, context, &mut mapped)?;
    let distinct_id = properties.id("distinct_id")?;
    match name.as_str() {
        "$identify" => {
            let user = properties.id("$identified_id")?.or(distinct_id);
            let device = properties.id("$anon_id")?;
            let (Some(user), Some(device)) = (user, device) else {
                return Err("$identify needs properties.$identified_id and properties.$anon_id".to_owned());
            };
            mapped.add_merge(&device, &user, at, false);
            return Ok(merge_only(mapped));
        }
        "$create_alias" => {
            let (Some(user), Some(alias)) = (distinct_id, properties.id("alias")?) else {
                return Err("$create_alias needs properties.distinct_id and properties.alias".to_owned());
            };
            mapped.add_merge(&alias, &user, at, true);
            return Ok(merge_only(mapped));
        }
        "$merge" => {
            let Some(Value::Array(ids)) = properties.take("$distinct_ids") else {
                return Err("$merge needs properties.$distinct_ids, a list".to_owned());
            };
            let ids = ids.into_iter().map(|value| parse_id(Some(value), "each of properties.$distinct_ids"));
            let ids = ids.collect::<Result<Vec<_>, _>>()?;
            for other in ids.iter().skip(1) {
                mapped.add_merge(other, &ids[0], at, true);
            }
            return Ok(merge_only(mapped));
        }
        _ => {}
    }
    let id_of = |key: &str| parse_id(properties.0.get(key).cloned(), key).ok();
    let (user, device) = (id_of("$user_id"), id_of("$device_id"));
    let distinct_id = match distinct_id.or(user.clone()).or(device.clone().map(|id| format!("$device:{id}")))
    {
        Some(distinct_id) => distinct_id,
        None => return Err("there is no properties.distinct_id".to_owned()),
    };
    if let (Some(user), Some(device)) = (&user, &device) {
        mapped.add_merge(&format!("$device:{device}"), user, at, false);
        if distinct_id != *user && distinct_id != format!("$device:{device}") {
            mapped.add_merge(&distinct_id, user, at, false);
        }
    }
    if let Some(before) = id_of("$distinct_id_before_identity") {
        mapped.add_merge(&before, &distinct_id, at, false);
    }
    let insert_id = properties.0.get("$insert_id").and_then(Value::as_str);
    let uuid = context.uuid(insert_id, &["mixpanel", &name, &distinct_id, &at.to_string()]);
    mapped.record = Some(ImportRecord::Event(Event {
        uuid,
        event: name,
        distinct_id,
        timestamp: at,
        properties: properties.0,
    }));
    Ok(mapped)
}

/// A record that is a merge and not an event.
fn merge_only(mut mapped: MappedRecord) -> MappedRecord {
    mapped.ignored.push("mixpanel: $identify, $create_alias and $merge are merges and no events");
    mapped
}
