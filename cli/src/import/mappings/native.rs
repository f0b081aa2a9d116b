//! The mapping of this product's own fields: a record is an event, a person or a group. `--map` renames the fields of events.

use pennon_eventstore::{GroupRecord, PersonRecord};
use serde_json::{Map, Value};

use super::{MappedRecord, Mapping, MappingContext, UnreadFields, field_table};
use crate::import::people::PeopleUpdate;
use crate::import::record::{
    EventFields, ImportRecord, build_event, derive_uuid, parse_id, parse_project, parse_properties,
};
use crate::import::{ExtraFields, ImportOptions};

/// Most group types of a project.
const GROUP_TYPES_MAX: u64 = 5;
/// The fields of an event.
pub(crate) const EVENT_FIELDS: [&str; 7] =
    ["project", "event", "distinct_id", "timestamp", "uuid", "person_id", "properties"];

/// A rule of `--map`: a column or key of the file, and the field or property of an event that it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldRule {
    column: String,
    field: String,
}

impl std::str::FromStr for FieldRule {
    type Err = String;

    fn from_str(text: &str) -> Result<FieldRule, String> {
        let (column, field) = text
            .rsplit_once('=')
            .filter(|(column, field)| !column.is_empty() && !field.is_empty())
            .ok_or("COLUMN=FIELD, for example --map user=distinct_id")?;
        let is_property = field.strip_prefix("properties.").is_some_and(|name| !name.is_empty());
        if !is_property && !EVENT_FIELDS.contains(&field) {
            return Err(format!(
                "`{field}` is not a field of an event; FIELD is one of {}, or properties.NAME",
                EVENT_FIELDS.join(", ")
            ));
        }
        Ok(FieldRule { column: column.to_owned(), field: field.to_owned() })
    }
}

/// The mapping.
pub(crate) struct Native {
    rules: Vec<FieldRule>,
}

impl Native {
    pub(crate) fn new(options: &ImportOptions) -> Native {
        Native { rules: options.map.clone() }
    }

    /// Applies the rules of `--map`; those with `properties.NAME` go into `extra_properties`.
    fn rename(
        &self,
        fields: &mut UnreadFields,
        extra_properties: &mut Map<String, Value>,
    ) -> Result<(), String> {
        let renamed: Vec<(&FieldRule, Option<Value>)> =
            self.rules.iter().map(|rule| (rule, fields.0.remove(&rule.column))).collect();
        for (rule, value) in renamed {
            let Some(value) = value else { continue };
            let (into, name) = match rule.field.strip_prefix("properties.") {
                Some(name) => (&mut *extra_properties, name),
                None => (&mut fields.0, rule.field.as_str()),
            };
            if into.insert(name.to_owned(), value).is_some() {
                return Err(format!(
                    "--map {}={}: the record has a `{}` of its own too",
                    rule.column, rule.field, rule.field
                ));
            }
        }
        Ok(())
    }

    fn event(
        &self,
        mut fields: UnreadFields,
        context: &mut MappingContext<'_>,
    ) -> Result<MappedRecord, String> {
        let mut extra_properties = Map::new();
        self.rename(&mut fields, &mut extra_properties)?;
        let named_project = fields.0.remove("project");
        let mut mapped =
            MappedRecord::new(parse_project(named_project.as_ref(), context.options.default_project)?);
        let mut event_fields = EventFields {
            event: fields.0.remove("event"),
            distinct_id: fields.0.remove("distinct_id"),
            timestamp: None,
            uuid: fields.0.remove("uuid"),
            properties: fields.object("properties")?,
        };
        let timestamp = fields.0.remove("timestamp");
        let person = fields.id("person_id")?;
        for (key, value) in extra_properties {
            if event_fields.properties.insert(key.clone(), value).is_some() {
                return Err(format!("`{key}` is there twice: by --map and in `properties`"));
            }
        }
        fields.finish("an event", &mut event_fields.properties, context, &mut mapped)?;
        event_fields.timestamp = Some(context.parse_time("timestamp", timestamp.as_ref())?);
        let event = build_event(event_fields, derive_uuid(context.content, context.line))?;
        if let Some(person) = person {
            mapped.updates.push(PeopleUpdate::SamePerson { person, distinct_id: event.distinct_id.clone() });
        }
        mapped.record = Some(ImportRecord::Event(event));
        Ok(mapped)
    }
}

impl Mapping for Native {
    fn describe(&self) -> Vec<(String, String)> {
        let mut lines: Vec<_> =
            self.rules.iter().map(|rule| (rule.column.clone(), rule.field.clone())).collect();
        for field in EVENT_FIELDS {
            if !self.rules.iter().any(|rule| rule.field == field) {
                lines.push((field.to_owned(), field.to_owned()));
            }
        }
        lines.extend(field_table(&[("person", "a person"), ("group", "a group")]));
        lines
    }

    fn check_columns(&self, columns: &[String], extra: ExtraFields) -> Result<(), String> {
        for rule in &self.rules {
            if !columns.contains(&rule.column) {
                return Err(format!(
                    "--map {}={}: the file has no column `{}`; it has {}",
                    rule.column,
                    rule.field,
                    rule.column,
                    columns.join(", ")
                ));
            }
        }
        let is_renamed = |column: &str| self.rules.iter().any(|rule| rule.column == column);
        for needed in ["event", "distinct_id", "timestamp"] {
            let exists = self.rules.iter().any(|rule| rule.field == needed)
                || columns.iter().any(|column| column == needed && !is_renamed(column));
            if !exists {
                return Err(format!(
                    "has no column {needed}; name the one that is it: --map COLUMN={needed}"
                ));
            }
        }
        if extra == ExtraFields::Refuse {
            let unknown =
                columns.iter().find(|column| !is_renamed(column) && !EVENT_FIELDS.contains(&column.as_str()));
            if let Some(column) = unknown {
                return Err(format!(
                    "`{column}` is not a field of an event; pass --map {column}=properties.{column}, or --extra properties \
                     for all such columns"
                ));
            }
        }
        Ok(())
    }

    fn map(
        &self,
        record: Map<String, Value>,
        context: &mut MappingContext<'_>,
    ) -> Result<MappedRecord, String> {
        let fields = UnreadFields(record);
        let is_mapped = |kind: &str| {
            self.rules.iter().any(|rule| rule.field == kind && fields.0.contains_key(&rule.column))
        };
        let kinds = ["event", "person", "group"]
            .into_iter()
            .filter(|kind| fields.0.contains_key(*kind) || is_mapped(kind))
            .collect::<Vec<_>>();
        match kinds[..] {
            ["event"] => self.event(fields, context),
            ["person"] => person(fields, context),
            ["group"] => group(fields, context),
            _ => Err(
                "a record has exactly one of event, person and group; for another vendor's export, pass --from".to_owned()
            ),
        }
    }
}

fn object(value: Option<Value>, field: &str) -> Result<UnreadFields, String> {
    match value {
        Some(Value::Object(fields)) => Ok(UnreadFields(fields)),
        _ => Err(format!("{field} must be an object")),
    }
}

fn person(mut fields: UnreadFields, context: &mut MappingContext<'_>) -> Result<MappedRecord, String> {
    let mut own = object(fields.0.remove("person"), "person")?;
    let named_project = fields.0.remove("project");
    let mut mapped =
        MappedRecord::new(parse_project(named_project.as_ref(), context.options.default_project)?);
    let Some(Value::Array(ids)) = own.0.remove("distinct_ids") else {
        return Err("person.distinct_ids must be a list".to_owned());
    };
    if ids.is_empty() {
        return Err("person.distinct_ids is empty".to_owned());
    }
    let distinct_ids = ids.into_iter().map(|value| parse_id(Some(value), "each of person.distinct_ids"));
    let created_at = match own.take("created_at") {
        None => None,
        value => Some(context.parse_time("person.created_at", value.as_ref())?),
    };
    let mut properties =
        parse_properties(own.0.remove("properties")).map_err(|error| format!("person.{error}"))?;
    let distinct_ids = distinct_ids.collect::<Result<_, _>>()?;
    own.finish("a person", &mut properties, context, &mut mapped)?;
    fields.finish("a person's line", &mut properties, context, &mut mapped)?;
    mapped.record = Some(ImportRecord::Person(PersonRecord { distinct_ids, properties, created_at }));
    Ok(mapped)
}

fn group(mut fields: UnreadFields, context: &mut MappingContext<'_>) -> Result<MappedRecord, String> {
    let mut own = object(fields.0.remove("group"), "group")?;
    let named_project = fields.0.remove("project");
    let mut mapped =
        MappedRecord::new(parse_project(named_project.as_ref(), context.options.default_project)?);
    let type_name = match own.0.remove("type") {
        Some(Value::String(name)) if !name.is_empty() => name,
        _ => return Err("group.type must be the name of a group type".to_owned()),
    };
    let index = own.0.remove("index").and_then(|index| index.as_u64());
    let index = index
        .filter(|index| *index < GROUP_TYPES_MAX)
        .ok_or_else(|| format!("group.index must be a number from 0 to {}", GROUP_TYPES_MAX - 1))?;
    let types = context.options.group_types.get(&mapped.project).map_or(&[][..], Vec::as_slice);
    if let Some(known) = types.get(index as usize).filter(|known| **known != type_name) {
        return Err(format!("group.index {index} is {known:?} in this project, not {type_name:?}"));
    }
    let key = parse_id(own.0.remove("key"), "group.key")?;
    let mut properties =
        parse_properties(own.0.remove("properties")).map_err(|error| format!("group.{error}"))?;
    own.finish("a group", &mut properties, context, &mut mapped)?;
    fields.finish("a group's line", &mut properties, context, &mut mapped)?;
    mapped.record =
        Some(ImportRecord::Group(GroupRecord { type_name, index: index as u32, key, properties }));
    Ok(mapped)
}
