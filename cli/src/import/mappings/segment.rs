//! Segment's raw logs (destination S3): one call of the tracking API per line.
//!
//! `track`, `page` and `screen` are events; `identify`, `alias` and `group` are persons, merges and groups. The distinct id
//! is `userId`, else `anonymousId`; a call with both merges the anonymous id into the user.

use pennon_eventstore::Event;
use serde_json::{Map, Value, json};

use super::{MappedRecord, Mapping, MappingContext, UnreadFields, field_table};
use crate::import::record::ImportRecord;

const CALLS: [&str; 6] = ["track", "page", "screen", "identify", "group", "alias"];
const DROPPED_FIELDS: [&str; 14] = [
    "_metadata",
    "channel",
    "integrations",
    "originalTimestamp",
    "projectId",
    "receivedAt",
    "sentAt",
    "version",
    "writeKey",
    "batchId",
    "sourceId",
    "workspaceId",
    "requestId",
    "__typename",
];

pub(super) fn detect(record: &Map<String, Value>) -> Option<String> {
    let call = record.get("type").and_then(Value::as_str).filter(|call| CALLS.contains(call))?;
    let own = ["messageId", "anonymousId", "userId"].into_iter().find(|field| record.contains_key(*field))?;
    Some(format!("type {call}, {own}"))
}

/// The mapping.
pub(crate) struct Segment;

impl Mapping for Segment {
    fn describe(&self) -> Vec<(String, String)> {
        field_table(&[
            ("track: event", "event"),
            ("page, screen", "events $pageview and $screen"),
            ("userId, else anonymousId", "distinct_id"),
            ("timestamp, else originalTimestamp, receivedAt", "timestamp"),
            ("messageId", "uuid: a call that is exported twice counts once"),
            ("properties", "properties"),
            (
                "context",
                "properties.context, and $current_url, $pathname, $referrer, $ip, $raw_user_agent, $lib, $groups",
            ),
            ("identify: traits", "the person's properties, the latest of each count"),
            ("userId beside anonymousId", "a merge of the anonymous id into the user"),
            ("alias: previousId", "a merge of it into userId"),
            ("group: groupId, traits", "a group of the type that --group-type names"),
            ("integrations, writeKey, times of transport", "not kept"),
        ])
    }

    fn map(
        &self,
        record: Map<String, Value>,
        context: &mut MappingContext<'_>,
    ) -> Result<MappedRecord, String> {
        let mut fields = UnreadFields(record);
        let mut mapped = MappedRecord::new(context.project()?);
        let call = fields.text("type")?.ok_or("there is no type")?;
        if !CALLS.contains(&call.as_str()) {
            return Err(format!("type {call:?} is none of {}", CALLS.join(", ")));
        }
        let at = call_time(&mut fields, context)?;
        let (user, anonymous) = (fields.id("userId")?, fields.id("anonymousId")?);
        let Some(distinct_id) = user.clone().or_else(|| anonymous.clone()) else {
            return Err("there is neither userId nor anonymousId".to_owned());
        };
        if let (Some(user), Some(anonymous)) = (&user, &anonymous) {
            mapped.add_merge(anonymous, user, at, false);
        }
        let message = fields.text("messageId")?;
        let uuid = context.uuid(message.as_deref(), &[]);
        let call_context = fields.object("context")?;
        fields.ignore(
            &DROPPED_FIELDS,
            "segment: integrations, writeKey and times of transport are not kept",
            &mut mapped,
        );
        match call.as_str() {
            "identify" => {
                let mut traits = fields.object("traits")?;
                fields.finish("an identify call", &mut traits, context, &mut mapped)?;
                mapped.add_person_properties(&distinct_id, traits, at, false);
            }
            "alias" => {
                let previous = fields.id("previousId")?.ok_or("alias needs previousId")?;
                mapped.add_merge(&previous, &distinct_id, at, true);
                fields.finish("an alias call", &mut Map::new(), context, &mut mapped)?;
            }
            "group" => {
                let key = fields.id("groupId")?.ok_or("group needs groupId")?;
                let mut traits = fields.object("traits")?;
                fields.finish("a group call", &mut traits, context, &mut mapped)?;
                mapped.add_group_properties(context, group_type(context), &key, traits, at);
            }
            _ => {
                let (event, properties) = event_of_call(&call, fields, call_context, context, &mut mapped)?;
                let event = Event { uuid, event, distinct_id, timestamp: at, properties };
                mapped.record = Some(ImportRecord::Event(event));
                return Ok(mapped);
            }
        }
        mapped
            .ignored
            .push("segment: identify, alias and group calls are no events, and their context is not kept");
        Ok(mapped)
    }
}

fn group_type<'a>(context: &'a MappingContext<'_>) -> &'a str {
    context.options.group_type.as_deref().unwrap_or("company")
}

/// The time of a call: by Segment's clock, else by the device's, else the time of its arrival.
fn call_time(fields: &mut UnreadFields, context: &mut MappingContext<'_>) -> Result<i64, String> {
    let names = ["timestamp", "originalTimestamp", "receivedAt"];
    for name in names {
        if let Some(value) = fields.take(name) {
            return context.parse_time(name, Some(&value));
        }
    }
    Err(format!("there is no {}", names.join(", ")))
}

/// The name and the properties of the event of a track, page or screen call.
fn event_of_call(
    call: &str,
    mut fields: UnreadFields,
    call_context: Map<String, Value>,
    context: &MappingContext<'_>,
    mapped: &mut MappedRecord,
) -> Result<(String, Map<String, Value>), String> {
    let mut properties = fields.object("properties")?;
    let event = match call {
        "track" => fields.text("event")?.ok_or("track needs event")?,
        call => {
            let name = fields.text("name")?;
            if let Some(category) = fields.text("category")? {
                properties.entry("category").or_insert(Value::from(category));
            }
            let key = if call == "page" { "name" } else { "$screen_name" };
            if let Some(name) = name {
                properties.entry(key).or_insert(Value::from(name));
            }
            if call == "page" { "$pageview" } else { "$screen" }.to_owned()
        }
    };
    let page_context = |key: &str| call_context.get("page").and_then(|page| page.get(key)).cloned();
    let direct = |key: &str| call_context.get(key).cloned();
    let page_property = |key: &str| properties.get(key).filter(|_| call == "page").cloned();
    let derived = [
        ("$current_url", page_property("url").or_else(|| page_context("url"))),
        ("$pathname", page_property("path").or_else(|| page_context("path"))),
        ("$referrer", page_property("referrer").or_else(|| page_context("referrer"))),
        ("$ip", direct("ip")),
        ("$raw_user_agent", direct("userAgent")),
        ("$lib", call_context.get("library").and_then(|library| library.get("name")).cloned()),
        ("$groups", direct("groupId").map(|key| json!({ (group_type(context)): key }))),
    ];
    for (key, value) in derived {
        if let Some(value) = value.filter(|value| !value.is_null()) {
            properties.entry(key).or_insert(value);
        }
    }
    if !call_context.is_empty() {
        properties.entry("context").or_insert(Value::Object(call_context));
    }
    fields.finish(&format!("a {call} call"), &mut properties, context, mapped)?;
    Ok((event, properties))
}
