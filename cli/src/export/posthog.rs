//! Writes a project as a sequence of events for PostHog's batch import and `/batch/`, in the order in which they must be sent.
//!
//! First come merges (`$create_alias`), so that every event has its final person at once; then the events by time; then the
//! current properties of persons and groups (`$set`, `$groupidentify`). Must stay true: the resulting persons do not depend on
//! the order of the history's own merges, because the merge properties of a rejected merge are renamed; events that are sent
//! twice are deduplicated by their uuids.

use std::collections::BTreeSet;

use pennon_core::store::keys::ProjectId;
use pennon_eventstore::{
    CanonicalPersons, Event, Group, GroupType, PersonDetails, StoredEvent, requested_merge,
};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::ExportCounts;
use super::events::{EventFormat, ProjectExport, format_time};

/// Namespace of the uuids of generated events.
const NAMESPACE: Uuid = Uuid::from_u128(0x2c9c_8e1d_53a7_4b06_9f3e_d1a4_70b8_65c2);
/// Most names of properties that are unset on persons.
const IGNORED_MAX: usize = 1000;

/// The format of PostHog's events.
struct PosthogFormat {
    project: ProjectId,
    persons: CanonicalPersons,
    /// Properties in `$set` of imported events, which did not set them here, but would in PostHog.
    ignored: BTreeSet<String>,
    /// The latest time of an event.
    latest: i64,
}

impl EventFormat for PosthogFormat {
    fn line(&mut self, StoredEvent { mut event, is_captured, .. }: StoredEvent) -> Value {
        self.latest = self.latest.max(event.timestamp);
        if !is_captured {
            for changes in ["$set", "$set_once"].iter().filter_map(|key| event.properties.get(*key)) {
                let names = changes.as_object().into_iter().flat_map(Map::keys);
                let remaining = IGNORED_MAX.saturating_sub(self.ignored.len());
                self.ignored.extend(names.take(remaining).cloned());
            }
        }
        let is_rejected_merge = requested_merge(self.project, &event)
            .is_some_and(|(from, to)| self.persons.of(from) != self.persons.of(to));
        if is_rejected_merge {
            event.properties = event.properties.into_iter().map(rename_merge_property).collect();
        }
        event_line(&event)
    }
}

/// Renames a property that requests a merge, so that it has no effect.
fn rename_merge_property((key, value): (String, Value)) -> (String, Value) {
    match key.as_str() {
        "$anon_distinct_id" => ("$refused_anon_distinct_id".to_owned(), value),
        "alias" => ("$refused_alias".to_owned(), value),
        _ => (key, value),
    }
}

fn event_line(event: &Event) -> Value {
    json!({
        "event": event.event,
        "distinct_id": event.distinct_id,
        "properties": event.properties,
        "timestamp": format_time(event.timestamp),
        "uuid": event.uuid,
    })
}

/// A generated event. Its uuid is derived from `name` and `uuid_source`.
fn generate_event(name: &str, distinct_id: &str, properties: Value, at: i64, uuid_source: &str) -> Event {
    let properties = match properties {
        Value::Object(properties) => properties,
        _ => Map::new(),
    };
    Event {
        uuid: Uuid::new_v5(&NAMESPACE, format!("{name}:{uuid_source}").as_bytes()),
        event: name.to_owned(),
        distinct_id: distinct_id.to_owned(),
        timestamp: at,
        properties,
    }
}

/// The events that merge all distinct ids of a person.
fn merge_events(project: ProjectId, person: &PersonDetails, at: i64) -> impl Iterator<Item = Event> {
    let own = person.distinct_ids.first().cloned().unwrap_or_default();
    let others = person.distinct_ids.iter().skip(1);
    others.map(move |other| {
        let uuid_source = format!("{project}:{own}:{other}");
        let at = person.created_at.unwrap_or(at);
        generate_event("$create_alias", &own, json!({"alias": other}), at, &uuid_source)
    })
}

/// The event that sets the current properties of a person.
fn set_event(project: ProjectId, person: PersonDetails, ignored: &BTreeSet<String>, at: i64) -> Event {
    let own = person.distinct_ids.into_iter().next().unwrap_or_default();
    let unset: Vec<&String> = ignored.iter().filter(|key| !person.properties.contains_key(*key)).collect();
    let mut properties = json!({"$set": &person.properties});
    if !unset.is_empty() {
        properties["$unset"] = json!(unset);
    }
    // The time is a part of the uuid, because a later export has another state.
    generate_event("$set", &own, properties, at, &format!("{project}:{own}:{at}"))
}

/// The event that sets the current properties of a group. Like every event it needs a distinct id.
fn group_event(
    project: ProjectId,
    distinct_id: &str,
    group_type: &GroupType,
    group: Group,
    at: i64,
) -> Event {
    let uuid_source = format!("{project}:{}:{}:{at}", group_type.index, group.key);
    let properties =
        json!({"$group_type": group_type.name, "$group_key": group.key, "$group_set": group.properties});
    generate_event("$groupidentify", distinct_id, properties, at, &uuid_source)
}

/// Writes a project as `batch-1.jsonl.gz` and so on, which must be sent in this order.
pub(super) async fn write_project(export: &ProjectExport<'_>) -> Result<ExportCounts, String> {
    let project = export.project;
    let persons = export.context.events().canonical_persons(project).await.map_err(|e| e.to_string())?;
    let format = PosthogFormat { project, persons, ignored: BTreeSet::new(), latest: i64::MIN };
    let (sorted, PosthogFormat { ignored, latest, .. }) = export.sort_events_with_format(format).await?;
    let now = export.context.now.timestamp_micros();
    // After all events that change properties.
    let at = now.max(latest.saturating_add(1));
    let mut counts = ExportCounts { events: sorted.count(), ..ExportCounts::default() };
    let mut files = export.files("batch");
    export
        .for_each_person("persons", |person| {
            for merge in merge_events(project, &person, now) {
                match requested_merge(project, &merge) {
                    Some(_) => files.write_json(&event_line(&merge))?,
                    None => counts.unlinked_distinct_ids += 1,
                }
            }
            Ok(())
        })
        .await?;
    let mut files = export.append_sorted(sorted, files).await?;
    let mut any_distinct_id = None;
    counts.persons = export
        .for_each_person("persons", |person| {
            let event = set_event(project, person, &ignored, at);
            files.write_json(&event_line(&event))?;
            any_distinct_id.get_or_insert(event.distinct_id);
            Ok(())
        })
        .await?;
    for group_type in export.group_types() {
        for group in export.list_groups(&group_type).await? {
            let distinct_id =
                any_distinct_id.clone().unwrap_or_else(|| format!("{}_{}", group_type.name, group.key));
            files.write_json(&event_line(&group_event(project, &distinct_id, &group_type, group, at)))?;
            counts.groups += 1;
        }
    }
    files.finish()?;
    Ok(counts)
}
