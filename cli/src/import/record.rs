//! Records of a file: events, persons and groups, and the parsers of their fields.

use pennon_eventstore::{Event, GroupRecord, PersonRecord};
use serde_json::{Map, Value};
use uuid::Uuid;

/// A complete record.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ImportRecord {
    Event(Event),
    Person(PersonRecord),
    Group(GroupRecord),
}

/// A record, with its line and project.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SourceRecord {
    pub line: u64,
    pub project: u64,
    pub record: ImportRecord,
}

/// The uuid of the event in line `line` of a file with this content: 74 bits of the content's digest, and the line (RFC 9562
/// version 8, custom). The common prefix of a file's events needs a fifth of the storage of random uuids.
pub(crate) fn derive_uuid(content: &[u8; 32], line: u64) -> Uuid {
    let mut bytes = [0; 16];
    bytes[..10].copy_from_slice(&content[..10]);
    // No file has 2^48 lines.
    bytes[10..].copy_from_slice(&line.to_be_bytes()[2..]);
    uuid::Builder::from_custom_bytes(bytes).into_uuid()
}

/// The fields of an event, before validation.
pub(crate) struct EventFields {
    pub event: Option<Value>,
    pub distinct_id: Option<Value>,
    pub timestamp: Option<i64>,
    pub uuid: Option<Value>,
    pub properties: Map<String, Value>,
}

/// Builds an event. `line_uuid` is its uuid if `fields` has none.
pub(crate) fn build_event(fields: EventFields, line_uuid: Uuid) -> Result<Event, String> {
    Ok(Event {
        event: parse_event_name(fields.event)?,
        distinct_id: parse_id(fields.distinct_id, "distinct_id")?,
        timestamp: fields.timestamp.ok_or("the event has no timestamp")?,
        uuid: parse_uuid(fields.uuid)?.unwrap_or(line_uuid),
        properties: fields.properties,
    })
}

/// Parses the name of an event.
pub(crate) fn parse_event_name(value: Option<Value>) -> Result<String, String> {
    match value {
        // Some clients send events with an empty name, which are accepted.
        Some(Value::String(name)) => Ok(name),
        None | Some(Value::Null) => Err("the event has no name (event)".to_owned()),
        Some(_) => Err("event must be a text".to_owned()),
    }
}

/// Parses the uuid of an event; `None` if it has none.
pub(crate) fn parse_uuid(value: Option<Value>) -> Result<Option<Uuid>, String> {
    match value {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) if text.is_empty() => Ok(None),
        Some(Value::String(text)) => {
            let uuid = Uuid::parse_str(&text).map_err(|_| format!("uuid {text:?} is not a UUID"))?;
            // Exporters write the nil uuid for an absent one.
            Ok(Some(uuid).filter(|uuid| !uuid.is_nil()))
        }
        Some(_) => Err("uuid must be a text".to_owned()),
    }
}

/// Parses a distinct id: a text that is not blank, or a number.
pub(crate) fn parse_id(value: Option<Value>, field: &str) -> Result<String, String> {
    match value {
        Some(Value::String(id)) if !id.trim().is_empty() => Ok(id),
        Some(Value::Number(id)) => Ok(id.to_string()),
        None | Some(Value::Null) => Err(format!("{field} is missing")),
        Some(_) => Err(format!("{field} must be a text that is not blank, or a number")),
    }
}

/// Parses a project id: a number, or a text of digits.
pub(crate) fn parse_project(value: Option<&Value>, default: Option<u64>) -> Result<u64, String> {
    match value {
        None | Some(Value::Null) => {
            default.ok_or_else(|| "no project; name one in the line or by --project".to_owned())
        }
        Some(Value::Number(number)) if number.as_u64().is_some_and(|id| id > 0) => {
            Ok(number.as_u64().unwrap_or(0))
        }
        Some(Value::String(text)) if text.bytes().all(|byte| byte.is_ascii_digit()) => text
            .parse::<u64>()
            .ok()
            .filter(|id| *id > 0)
            .ok_or_else(|| format!("project {text:?} is not a project number")),
        Some(other) => Err(format!("project {other} is not a project number")),
    }
}

/// Parses properties; absent ones are an empty object.
pub(crate) fn parse_properties(value: Option<Value>) -> Result<Map<String, Value>, String> {
    match value {
        None | Some(Value::Null) => Ok(Map::new()),
        Some(Value::Object(properties)) => Ok(properties),
        Some(_) => Err("properties must be an object".to_owned()),
    }
}
