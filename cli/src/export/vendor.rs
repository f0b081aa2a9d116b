//! A project's history as events alone, in the order in which they are to be sent: what the vendor's batch import and
//! `/batch/` take.
//!
//! First come the merges, as `$create_alias`, so that every event is its person's at once; then the events, in order of
//! time; then what is known of persons and groups now, as `$set` and `$groupidentify`. Must stay true: who is who does
//! not depend on the order of the history's own merges: one that was refused here is written under another name, and so
//! asks for nothing; lines that are sent twice count once, by their uuids.

use std::collections::BTreeSet;

use pennon_core::store::keys::ProjectId;
use pennon_eventstore::{Event, FinalPersons, Group, GroupType, PersonInFull, StoredEvent, merge_asked_by};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::Counts;
use super::events::{Form, Wanted, instant};

/// Namespace of the uuids of events that are made for this.
const NAMESPACE: Uuid = Uuid::from_u128(0x2c9c_8e1d_53a7_4b06_9f3e_d1a4_70b8_65c2);
/// Most names of properties that are taken back from persons.
const IGNORED_MAX: usize = 1000;

/// The form of the vendor's events.
struct Vendor {
    project: ProjectId,
    persons: FinalPersons,
    /// Properties that imported events would set on persons, and did not.
    ignored: BTreeSet<String>,
    /// The latest time of an event.
    latest: i64,
}

impl Form for Vendor {
    fn line(&mut self, StoredEvent { mut event, is_captured, .. }: StoredEvent) -> Value {
        self.latest = self.latest.max(event.timestamp);
        if !is_captured {
            for changes in ["$set", "$set_once"].iter().filter_map(|key| event.properties.get(*key)) {
                let names = changes.as_object().into_iter().flat_map(Map::keys);
                let room = IGNORED_MAX.saturating_sub(self.ignored.len());
                self.ignored.extend(names.take(room).cloned());
            }
        }
        let was_refused = merge_asked_by(self.project, &event)
            .is_some_and(|(from, to)| self.persons.of(from) != self.persons.of(to));
        if was_refused {
            event.properties = event.properties.into_iter().map(renamed).collect();
        }
        line(&event)
    }
}

/// A property that asks for a merge, under a name that does not.
fn renamed((key, value): (String, Value)) -> (String, Value) {
    match key.as_str() {
        "$anon_distinct_id" => ("$refused_anon_distinct_id".to_owned(), value),
        "alias" => ("$refused_alias".to_owned(), value),
        _ => (key, value),
    }
}

fn line(event: &Event) -> Value {
    json!({
        "event": event.event,
        "distinct_id": event.distinct_id,
        "properties": event.properties,
        "timestamp": instant(event.timestamp),
        "uuid": event.uuid,
    })
}

/// An event that is made for the export. `what` tells it apart from others of its name.
fn made(name: &str, distinct_id: &str, properties: Value, at: i64, what: &str) -> Event {
    let properties = match properties {
        Value::Object(properties) => properties,
        _ => Map::new(),
    };
    Event {
        uuid: Uuid::new_v5(&NAMESPACE, format!("{name}:{what}").as_bytes()),
        event: name.to_owned(),
        distinct_id: distinct_id.to_owned(),
        timestamp: at,
        properties,
    }
}

/// The events that make all distinct ids of a person one.
fn merges(project: ProjectId, person: &PersonInFull, at: i64) -> impl Iterator<Item = Event> {
    let own = person.distinct_ids.first().cloned().unwrap_or_default();
    let others = person.distinct_ids.iter().skip(1);
    others.map(move |other| {
        let what = format!("{project}:{own}:{other}");
        made("$create_alias", &own, json!({"alias": other}), person.created_at.unwrap_or(at), &what)
    })
}

/// The event after which a person has the properties that it has now.
fn set(project: ProjectId, person: PersonInFull, ignored: &BTreeSet<String>, at: i64) -> Event {
    let own = person.distinct_ids.into_iter().next().unwrap_or_default();
    let unset: Vec<&String> = ignored.iter().filter(|key| !person.properties.contains_key(*key)).collect();
    let mut properties = json!({"$set": &person.properties});
    if !unset.is_empty() {
        properties["$unset"] = json!(unset);
    }
    // What was exported another time is another state.
    made("$set", &own, properties, at, &format!("{project}:{own}:{at}"))
}

/// The event after which a group has the properties that it has now. It needs somebody to be sent by.
fn identify(project: ProjectId, by: &str, of: &GroupType, group: Group, at: i64) -> Event {
    let what = format!("{project}:{}:{}:{at}", of.index, group.key);
    let properties = json!({"$group_type": of.name, "$group_key": group.key, "$group_set": group.properties});
    made("$groupidentify", by, properties, at, &what)
}

/// Writes a project as `batch-1.jsonl.gz` and so on, which are to be sent in this order.
pub(super) async fn of_project(wanted: &Wanted<'_>) -> Result<Counts, String> {
    let project = wanted.project;
    let persons = wanted.exporting.events().final_persons(project).await.map_err(|e| e.to_string())?;
    let form = Vendor { project, persons, ignored: BTreeSet::new(), latest: i64::MIN };
    let (sorted, Vendor { ignored, latest, .. }) = wanted.sorted_and_form(form).await?;
    let now = wanted.exporting.now.timestamp_micros();
    // Behind whatever else changes a property.
    let at = now.max(latest.saturating_add(1));
    let mut counts = Counts { events: sorted.count(), ..Counts::default() };
    let mut files = wanted.files("batch");
    wanted
        .each_person("persons", |person| {
            for merge in merges(project, &person, now) {
                match merge_asked_by(project, &merge) {
                    Some(_) => files.line(&line(&merge))?,
                    None => counts.unlinked_distinct_ids += 1,
                }
            }
            Ok(())
        })
        .await?;
    let mut files = wanted.write_sorted_to(sorted, files).await?;
    let mut somebody = None;
    counts.persons = wanted
        .each_person("persons", |person| {
            let event = set(project, person, &ignored, at);
            files.line(&line(&event))?;
            somebody.get_or_insert(event.distinct_id);
            Ok(())
        })
        .await?;
    for group_type in wanted.group_types() {
        for group in wanted.groups(&group_type).await? {
            let by = somebody.clone().unwrap_or_else(|| format!("{}_{}", group_type.name, group.key));
            files.line(&line(&identify(project, &by, &group_type, group, at)))?;
            counts.groups += 1;
        }
    }
    files.finish()?;
    Ok(counts)
}
