//! Segment's raw logs (destination S3): one call of the tracking API a line.
//!
//! `track`, `page` and `screen` are events; `identify`, `alias` and `group` are persons, merges and groups. The distinct id
//! is `userId`, or `anonymousId`; a call with both joins the anonymous id to the user.

use pennon_eventstore::Event;
use serde_json::{Map, Value, json};

use super::{Context, Fields, Mapped, Mapping, described};
use crate::import::record::Record;

const CALLS: [&str; 6] = ["track", "page", "screen", "identify", "group", "alias"];
const UNKEPT: [&str; 14] = [
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

pub(super) fn recognise(record: &Map<String, Value>) -> Option<String> {
    let call = record.get("type").and_then(Value::as_str).filter(|call| CALLS.contains(call))?;
    let own = ["messageId", "anonymousId", "userId"].into_iter().find(|field| record.contains_key(*field))?;
    Some(format!("type {call}, {own}"))
}

/// The mapping.
pub(crate) struct Segment;

impl Mapping for Segment {
    fn describe(&self) -> Vec<(String, String)> {
        described(&[
            ("track: event", "event"),
            ("page, screen", "events $pageview and $screen"),
            ("userId, else anonymousId", "distinct_id"),
            ("timestamp, else originalTimestamp, receivedAt", "timestamp"),
            ("messageId", "uuid: what is exported twice counts once"),
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

    fn map(&self, record: Map<String, Value>, context: &mut Context<'_>) -> Result<Mapped, String> {
        let mut fields = Fields(record);
        let mut mapped = Mapped::of(context.project()?);
        let call = fields.text("type")?.ok_or("there is no type")?;
        if !CALLS.contains(&call.as_str()) {
            return Err(format!("type {call:?} is none of {}", CALLS.join(", ")));
        }
        let at = time(&mut fields, context)?;
        let (user, anonymous) = (fields.id("userId")?, fields.id("anonymousId")?);
        let Some(distinct_id) = user.clone().or_else(|| anonymous.clone()) else {
            return Err("there is neither userId nor anonymousId".to_owned());
        };
        if let (Some(user), Some(anonymous)) = (&user, &anonymous) {
            mapped.merge(anonymous, user, at, false);
        }
        let message = fields.text("messageId")?;
        let uuid = context.uuid(message.as_deref(), &[]);
        let own = fields.object("context")?;
        fields.ignore(
            &UNKEPT,
            "segment: integrations, writeKey and times of transport are not kept",
            &mut mapped,
        );
        match call.as_str() {
            "identify" => {
                let mut traits = fields.object("traits")?;
                fields.finish("an identify call", &mut traits, context, &mut mapped)?;
                mapped.person(&distinct_id, traits, at, false);
            }
            "alias" => {
                let previous = fields.id("previousId")?.ok_or("alias needs previousId")?;
                mapped.merge(&previous, &distinct_id, at, true);
                fields.finish("an alias call", &mut Map::new(), context, &mut mapped)?;
            }
            "group" => {
                let key = fields.id("groupId")?.ok_or("group needs groupId")?;
                let mut traits = fields.object("traits")?;
                fields.finish("a group call", &mut traits, context, &mut mapped)?;
                mapped.group(context, group_type(context), &key, traits, at);
            }
            _ => {
                let (event, properties) = seen(&call, fields, own, context, &mut mapped)?;
                let event = Event { uuid, event, distinct_id, timestamp: at, properties };
                mapped.record = Some(Record::Event(event));
                return Ok(mapped);
            }
        }
        mapped
            .ignored
            .push("segment: identify, alias and group calls are no events, and their context is not kept");
        Ok(mapped)
    }
}

fn group_type<'a>(context: &'a Context<'_>) -> &'a str {
    context.options.group_type.as_deref().unwrap_or("company")
}

/// The time of a call: when it happened by Segment's clock, else by the device's, else when it arrived.
fn time(fields: &mut Fields, context: &mut Context<'_>) -> Result<i64, String> {
    let names = ["timestamp", "originalTimestamp", "receivedAt"];
    for name in names {
        if let Some(value) = fields.take(name) {
            return context.instant(name, Some(&value));
        }
    }
    Err(format!("there is no {}", names.join(", ")))
}

/// The name and the properties of the event of a track, page or screen call.
fn seen(
    call: &str,
    mut fields: Fields,
    own: Map<String, Value>,
    context: &Context<'_>,
    mapped: &mut Mapped,
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
    let at = |path: &str| own.get("page").and_then(|page| page.get(path)).cloned();
    let direct = |key: &str| own.get(key).cloned();
    let of_page = |key: &str| properties.get(key).filter(|_| call == "page").cloned();
    let derived = [
        ("$current_url", of_page("url").or_else(|| at("url"))),
        ("$pathname", of_page("path").or_else(|| at("path"))),
        ("$referrer", of_page("referrer").or_else(|| at("referrer"))),
        ("$ip", direct("ip")),
        ("$raw_user_agent", direct("userAgent")),
        ("$lib", own.get("library").and_then(|library| library.get("name")).cloned()),
        ("$groups", direct("groupId").map(|key| json!({ (group_type(context)): key }))),
    ];
    for (key, value) in derived {
        if let Some(value) = value.filter(|value| !value.is_null()) {
            properties.entry(key).or_insert(value);
        }
    }
    if !own.is_empty() {
        properties.entry("context").or_insert(Value::Object(own));
    }
    fields.finish(&format!("a {call} call"), &mut properties, context, mapped)?;
    Ok((event, properties))
}
