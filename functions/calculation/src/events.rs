//! The events of a project as a list, the newest first.
//!
//! The docs of the event store's `newest` module describe the reads of a page. The persons of its events are read as for
//! `persons/`. Must stay true: a client that follows `next` gets every event once; a page ends at its limit, at its maximum
//! size, or at the read budget of a request, and only a page without `next` is the last.

use axum::extract::State;
use axum::response::Response;
use chrono::DateTime;
use chrono_tz::Tz;
use pennon_analytics::filter::EventFilter;
use pennon_core::clock::timestamp;
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::http::{Call, link, sized};
use pennon_core::limits::calculation::{EVENTS, EVENTS_DEFAULT};
use pennon_core::model::Project;
use pennon_eventstore::{EventKey, EventListFilter, ListedEvent, PersonDetails};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use crate::Calculation;
use crate::calculator::events::{EventsPage, ListQuery};
use crate::errors::engine_error;
use crate::parameters::{instant, integer, invalid, reject_unsupported, text};

pub(crate) const READ_EVENTS: &str = "query:read";
/// Properties of a person in the response.
const PERSON_PROPERTIES: [&str; 3] = ["email", "name", "username"];

/// `GET P/events/`
pub async fn list(State(state): State<Calculation>, call: Call) -> ApiResult<Response> {
    let deadline = state.calculator.deadline();
    let (access, []) = state.app.project(&call, READ_EVENTS, |_| []).await?;
    let query = query(&call, &access.project)?;
    let page = state.calculator.list_events(&access.project, query, deadline).await?;
    let next = page.next.map(|key| link(&call, &[("cursor", Some(cursor_text(key)))]));
    sized(&call.headers, &json!({"next": next, "results": results_json(page)}))
}

fn query(call: &Call, project: &Project) -> ApiResult<ListQuery> {
    reject_unsupported(call, &["action_id", "select", "where", "offset"])?;
    if text(call, "format")?.is_some_and(|format| format != "json") {
        return Err(invalid("format", "Not supported yet: another format than json."));
    }
    let is_newest_first = |order: &str| matches!(order, "-timestamp" | r#"["-timestamp"]"#);
    if text(call, "orderBy")?.is_some_and(|order| !is_newest_first(order)) {
        return Err(invalid("orderBy", r#"Events are listed by ["-timestamp"], the newest first."#));
    }
    let zone: Tz = project.timezone.parse().map_err(|error| ApiError::internal(&error))?;
    let properties = call.query_value("properties").map(str::trim).filter(|text| !text.is_empty());
    let parse = |text| EventFilter::parse(text, call.now.with_timezone(&zone), "properties");
    let person = text(call, "person_id")?
        .map(|id| id.parse::<Uuid>().map_err(|_| invalid("person_id", "The id of a person is a UUID.")));
    let below = text(call, "cursor")?.map(|text| {
        let wrong = || invalid("cursor", "A cursor is taken as it is from the next of a page of this list.");
        parse_cursor(text).ok_or_else(wrong)
    });
    let stored_filter = EventListFilter {
        names: text(call, "event")?.map(|name| [name.to_owned()].into()),
        after: instant(call, "after")?.unwrap_or(i64::MIN),
        before: instant(call, "before")?.unwrap_or(i64::MAX),
        person: person.transpose()?,
        distinct_id: text(call, "distinct_id")?.map(str::to_owned),
        below: below.transpose()?,
    };
    Ok(ListQuery {
        stored_filter,
        filter: properties.map(parse).transpose().map_err(engine_error)?,
        limit: integer(call, "limit", 1, EVENTS)?.unwrap_or(EVENTS_DEFAULT),
    })
}

/// The cursor after an event: its time, its arrival sequence and its uuid.
pub(crate) fn cursor_text(key: EventKey) -> String {
    format!("{}_{:x}_{}", key.time, key.seq, key.uuid.simple())
}

pub(crate) fn parse_cursor(text: &str) -> Option<EventKey> {
    let mut parts = text.split('_');
    let (time, seq, uuid) = (parts.next()?, parts.next()?, parts.next()?);
    let is_end = parts.next().is_none();
    let key = EventKey {
        time: time.parse().ok()?,
        seq: u128::from_str_radix(seq, 16).ok()?,
        uuid: Uuid::parse_str(uuid).ok()?,
    };
    (is_end && cursor_text(key) == text).then_some(key)
}

fn results_json(page: EventsPage) -> Vec<Value> {
    let EventsPage { events, persons, .. } = page;
    events.into_iter().map(|listed| event_json(&listed, persons.get(&listed.person))).collect()
}

/// An event as a JSON object of a list. Its elements are in its properties.
fn event_json(listed: &ListedEvent, person: Option<&PersonDetails>) -> Value {
    let event = &listed.event;
    let chain = event.properties.get("$elements_chain").and_then(Value::as_str).unwrap_or_default();
    json!({
        "id": event.uuid,
        "distinct_id": event.distinct_id,
        "properties": event.properties,
        "event": event.event,
        "timestamp": DateTime::from_timestamp_micros(event.timestamp).map(timestamp),
        "person": person.map(person_json),
        "elements": [],
        "elements_chain": chain,
    })
}

fn person_json(person: &PersonDetails) -> Value {
    let named = PERSON_PROPERTIES.iter();
    let named = named.filter_map(|key| Some(((*key).to_owned(), person.properties.get(*key)?.clone())));
    json!({
        "id": person.id,
        "is_identified": person.is_identified,
        "distinct_ids": person.distinct_ids.iter().take(1).collect::<Vec<_>>(),
        "properties": named.collect::<Map<_, _>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_round_trips_and_other_texts_are_rejected() {
        let key = EventKey { time: -5, seq: u128::MAX, uuid: Uuid::from_u128(7) };
        assert_eq!(parse_cursor(&cursor_text(key)), Some(key));
        let text = cursor_text(EventKey { time: 1, seq: 2, uuid: Uuid::nil() });
        for wrong in
            ["", "1", "1_2", "1_02_0", &format!("{text}_"), &format!("+{text}"), &text.to_uppercase()]
        {
            let is_same = wrong == text;
            assert_eq!(parse_cursor(wrong).is_some(), is_same, "{wrong}");
        }
    }
}
