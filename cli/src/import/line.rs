//! One line of JSON as a record.

use pennon_eventstore::{GroupRecord, PersonRecord, parse_timestamp};
use serde_json::{Map, Value};

use super::ImportOptions;
use super::record::{EventFields, Placed, Record, event, id, project, properties, uuid_of_line};

/// Most group types of a project.
const GROUP_TYPES_MAX: u64 = 5;

/// What line number `line` of a file with this content says. Errors are for the person who wrote the line.
pub(super) fn parse(
    text: &[u8],
    line: u64,
    options: &ImportOptions,
    content: &[u8; 32],
) -> Result<Placed, String> {
    let value = serde_json::from_slice::<Value>(text).map_err(|error| format!("not valid JSON: {error}"))?;
    let Value::Object(mut fields) = value else { return Err("not a JSON object".to_owned()) };
    let project = project(fields.get("project"), options.default_project)?;
    let kinds = ["event", "person", "group"]
        .into_iter()
        .filter(|kind| fields.contains_key(*kind))
        .collect::<Vec<_>>();
    let record = match kinds[..] {
        ["event"] => {
            let fields = EventFields {
                event: fields.remove("event"),
                distinct_id: fields.remove("distinct_id"),
                timestamp: fields.remove("timestamp"),
                uuid: fields.remove("uuid"),
                properties: properties(fields.remove("properties"))?,
            };
            Record::Event(event(fields, uuid_of_line(content, line))?)
        }
        ["person"] => Record::Person(person(object(fields.remove("person"), "person")?)?),
        ["group"] => {
            let types = options.group_types.get(&project).map_or(&[][..], Vec::as_slice);
            Record::Group(group(object(fields.remove("group"), "group")?, types)?)
        }
        _ => return Err("a line has exactly one of event, person and group".to_owned()),
    };
    Ok(Placed { line, project, record })
}

fn object(value: Option<Value>, field: &str) -> Result<Map<String, Value>, String> {
    match value {
        Some(Value::Object(fields)) => Ok(fields),
        _ => Err(format!("{field} must be an object")),
    }
}

fn person(mut fields: Map<String, Value>) -> Result<PersonRecord, String> {
    let Some(Value::Array(ids)) = fields.remove("distinct_ids") else {
        return Err("person.distinct_ids must be a list".to_owned());
    };
    if ids.is_empty() {
        return Err("person.distinct_ids is empty".to_owned());
    }
    let distinct_ids = ids.into_iter().map(|value| id(Some(value), "each of person.distinct_ids"));
    let created_at = match fields.remove("created_at") {
        None | Some(Value::Null) => None,
        Some(Value::String(text)) => Some(
            parse_timestamp(&text)
                .ok_or_else(|| format!("person.created_at {text:?} is no ISO 8601 time"))?,
        ),
        Some(_) => return Err("person.created_at must be an ISO 8601 time as a text".to_owned()),
    };
    Ok(PersonRecord {
        distinct_ids: distinct_ids.collect::<Result<_, _>>()?,
        properties: properties(fields.remove("properties")).map_err(|error| format!("person.{error}"))?,
        created_at,
    })
}

fn group(mut fields: Map<String, Value>, types: &[String]) -> Result<GroupRecord, String> {
    let type_name = match fields.remove("type") {
        Some(Value::String(name)) if !name.is_empty() => name,
        _ => return Err("group.type must be the name of a group type".to_owned()),
    };
    let index =
        fields.remove("index").and_then(|index| index.as_u64()).filter(|index| *index < GROUP_TYPES_MAX);
    let index =
        index.ok_or_else(|| format!("group.index must be a number from 0 to {}", GROUP_TYPES_MAX - 1))?;
    if let Some(known) = types.get(index as usize).filter(|known| **known != type_name) {
        return Err(format!("group.index {index} is {known:?} in this project, not {type_name:?}"));
    }
    Ok(GroupRecord {
        type_name,
        index: index as u32,
        key: id(fields.remove("key"), "group.key")?,
        properties: properties(fields.remove("properties")).map_err(|error| format!("group.{error}"))?,
    })
}
