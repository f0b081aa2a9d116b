//! Amplitude's Export API and its export to S3: one event per line.
//!
//! The distinct id is `user_id`, else `device_id`; an event with both merges the device into the user. `user_properties` are the
//! user's complete properties at the time of the event. `$identify` and `$groupidentify` are not imported as events, as in the
//! vendor's charts.

use pennon_eventstore::Event;
use serde_json::{Map, Value, json};

use super::{MappedRecord, Mapping, MappingContext, UnreadFields, field_table};
use crate::import::record::ImportRecord;

pub(super) fn detect(record: &Map<String, Value>) -> Option<String> {
    let fields = ["amplitude_id", "event_time", "client_event_time", "user_properties", "server_upload_time"];
    let fields: Vec<&str> = fields.into_iter().filter(|field| record.contains_key(*field)).collect();
    if record.contains_key("merged_amplitude_id") {
        return Some("merged_amplitude_id".to_owned());
    }
    (record.contains_key("event_type") && !fields.is_empty())
        .then(|| format!("event_type, {}", fields.join(", ")))
}

/// Fields that become properties, and their names there.
const PROPERTIES: [(&str, &str); 23] = [
    ("city", "$geoip_city_name"),
    ("region", "$geoip_subdivision_1_name"),
    ("country", "$geoip_country_name"),
    ("location_lat", "$geoip_latitude"),
    ("location_lng", "$geoip_longitude"),
    ("ip_address", "$ip"),
    ("os_name", "$os"),
    ("os_version", "$os_version"),
    ("version_name", "$app_version"),
    ("device_type", "$device_type"),
    ("device_model", "$device_model"),
    ("device_manufacturer", "$device_manufacturer"),
    ("library", "$lib"),
    ("platform", "platform"),
    ("language", "language"),
    ("dma", "dma"),
    ("paying", "paying"),
    ("start_version", "start_version"),
    ("device_brand", "device_brand"),
    ("device_carrier", "device_carrier"),
    ("device_family", "device_family"),
    ("is_attribution_event", "is_attribution_event"),
    ("amplitude_id", "amplitude_id"),
];

/// The vendor's internal fields, which are dropped.
const DROPPED_FIELDS: [&str; 25] = [
    "$insert_id",
    "$insert_key",
    "$schema",
    "adid",
    "amplitude_attribution_ids",
    "amplitude_event_type",
    "app",
    "client_event_time",
    "client_upload_time",
    "data",
    "data_type",
    "event_id",
    "followed_an_identify",
    "global_user_properties",
    "idfa",
    "idfv",
    "partner_id",
    "plan",
    "processed_time",
    "project_name",
    "sample_rate",
    "schema",
    "server_received_time",
    "server_upload_time",
    "source_id",
];

/// The mapping.
pub(crate) struct Amplitude;

impl Mapping for Amplitude {
    fn describe(&self) -> Vec<(String, String)> {
        let mut lines = field_table(&[
            ("event_type", "event"),
            ("user_id, else device_id", "distinct_id"),
            ("event_time", "timestamp"),
            ("uuid, else $insert_id", "uuid"),
            ("event_properties", "properties"),
            ("user_properties", "the person's properties, the latest count"),
            ("user_creation_time", "created_at of the person"),
            ("user_id beside device_id", "a merge of the device into the user"),
            ("groups", "properties.$groups"),
            ("group_properties", "properties of groups"),
            ("session_id", "properties.$session_id, DEVICE-SESSION"),
            ("device_id", "properties.$device_id"),
            ("$identify, $groupidentify", "persons and groups, and no events"),
        ]);
        lines.extend(PROPERTIES.iter().map(|(from, to)| ((*from).to_owned(), format!("properties.{to}"))));
        lines.push((DROPPED_FIELDS.join(", "), "not kept".to_owned()));
        lines
    }

    fn map(
        &self,
        record: Map<String, Value>,
        context: &mut MappingContext<'_>,
    ) -> Result<MappedRecord, String> {
        let mut fields = UnreadFields(record);
        if fields.0.contains_key("merged_amplitude_id") {
            return Err("this is a table of merged Amplitude ids, which is not needed: events link devices to users; \
                        import the files of events"
                .to_owned());
        }
        let mut mapped = MappedRecord::new(context.project()?);
        let name = fields.text("event_type")?.ok_or("there is no event_type")?;
        let at = context.parse_time("event_time", fields.take("event_time").as_ref())?;
        let (user, device) = (fields.id("user_id")?, fields.id("device_id")?);
        let Some(distinct_id) = user.clone().or_else(|| device.clone()) else {
            return Err("there is neither user_id nor device_id".to_owned());
        };
        if let (Some(user), Some(device)) = (&user, &device) {
            mapped.add_merge(device, user, at, false);
        }
        mapped.add_person_properties(&distinct_id, fields.object("user_properties")?, at, true);
        if let Some(created) = fields.take("user_creation_time") {
            let at = context.parse_time("user_creation_time", Some(&created))?;
            mapped.updates.push(crate::import::people::PeopleUpdate::FirstSeen {
                distinct_id: distinct_id.clone(),
                at,
            });
        }
        group_properties(&mut fields, &mut mapped, context, at)?;
        let insert_id = fields.text("$insert_id")?;
        let uuid = match (fields.text("uuid")?, insert_id) {
            (Some(uuid), _) => context.uuid(Some(&uuid), &[]),
            (None, insert_id) => {
                let device = device.as_deref().unwrap_or_default();
                context.uuid(insert_id.as_deref(), &["amplitude", device])
            }
        };
        let properties = properties(fields, device.as_deref(), context, &mut mapped)?;
        if name == "$identify" || name == "$groupidentify" {
            mapped.ignored.push("amplitude: $identify and $groupidentify are no events");
        } else {
            let event = Event { uuid, event: name, distinct_id, timestamp: at, properties };
            mapped.record = Some(ImportRecord::Event(event));
        }
        Ok(mapped)
    }
}

/// `{type: {key: {property: value}}}`.
fn group_properties(
    fields: &mut UnreadFields,
    mapped: &mut MappedRecord,
    context: &MappingContext<'_>,
    at: i64,
) -> Result<(), String> {
    for (type_name, groups) in fields.object("group_properties")? {
        let Value::Object(groups) = groups else {
            return Err("group_properties must be objects of objects".to_owned());
        };
        for (key, properties) in groups {
            let Value::Object(properties) = properties else {
                return Err("group_properties must be objects of objects".to_owned());
            };
            mapped.add_group_properties(context, &type_name, &key, properties, at);
        }
    }
    Ok(())
}

/// The properties of an event: `event_properties`, and those of [`PROPERTIES`].
fn properties(
    mut fields: UnreadFields,
    device: Option<&str>,
    context: &MappingContext<'_>,
    mapped: &mut MappedRecord,
) -> Result<Map<String, Value>, String> {
    let mut properties = fields.object("event_properties")?;
    let groups = fields.object("groups")?;
    if !groups.is_empty() {
        // Amplitude allows several groups of a type, this product one: keep all of them as a property.
        if groups.values().any(|keys| keys.as_array().is_some_and(|keys| keys.len() > 1)) {
            properties.entry("amplitude_groups").or_insert_with(|| json!(groups));
        }
        let first = |keys: Value| match keys {
            Value::Array(keys) => keys.into_iter().next(),
            key => Some(key),
        };
        let groups: Map<String, Value> =
            groups.into_iter().filter_map(|(name, keys)| Some((name, first(keys)?))).collect();
        properties.entry("$groups").or_insert(Value::Object(groups));
    }
    if let Some(session) = fields.take("session_id").filter(|session| *session != -1) {
        let session = session.as_str().map_or_else(|| session.to_string(), str::to_owned);
        let session = device.map_or(session.clone(), |device| format!("{device}-{session}"));
        properties.entry("$session_id").or_insert(Value::from(session));
    }
    if let Some(device) = device {
        properties.entry("$device_id").or_insert(Value::from(device));
    }
    for (field, property) in PROPERTIES {
        if let Some(value) = fields.take(field) {
            properties.entry(property).or_insert(value);
        }
    }
    fields.ignore(
        &DROPPED_FIELDS,
        "amplitude: ids, times of upload and other bookkeeping fields are not kept",
        mapped,
    );
    fields.finish("an event of Amplitude", &mut properties, context, mapped)?;
    Ok(properties)
}
