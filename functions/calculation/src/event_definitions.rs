//! The event definitions of a project: one for each event name.
//!
//! Nothing is stored: a definition exists as long as an event with its name does. Its id is a hash of project and name.
//! Fields that cannot be set here have the vendor's defaults.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use axum::extract::State;
use axum::response::Response;
use chrono::{DateTime, NaiveDate, Utc};
use pennon_core::clock::timestamp;
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::http::{Call, Page, json};
use pennon_core::limits::calculation::STALE_DAYS;
use pennon_core::model::Project;
use pennon_core::store::keys::ProjectId;
use pennon_eventstore::EventName;
use serde_json::{Value, json as object};
use uuid::Uuid;

use crate::Calculation;
use crate::parameters::{boolean, contains_words, invalid, json_names, names, required, text};

const READ_EVENT_DEFINITIONS: &str = "event_definition:read";
/// UUIDv5 namespace of the ids of definitions.
pub(crate) const NAMESPACE: Uuid = Uuid::from_u128(0x2e5a_81f7_4c0d_4f6b_9a3e_6d18_b5c2_70e9);

/// `GET P/event_definitions/`
pub async fn list(State(state): State<Calculation>, call: Call) -> ApiResult<Response> {
    let (access, []) = state.app.project(&call, READ_EVENT_DEFINITIONS, |_| []).await?;
    let filter = EventDefinitionFilter::parse(&call)?;
    let mut events = state.calculator.event_names(&access.project).await?;
    events.retain(|event| filter.matches(event));
    filter.sort(&mut events);
    let page = Page::of(&call);
    let results =
        page.slice(&events).iter().map(|event| definition_json(access.project.id, event).to_string());
    page.reply(&call, events.len(), &results.collect::<Vec<_>>())
}

/// `GET P/event_definitions/{id}/`
pub async fn retrieve(State(state): State<Calculation>, call: Call) -> ApiResult<Response> {
    let (access, []) = state.app.project(&call, READ_EVENT_DEFINITIONS, |_| []).await?;
    let id: Uuid = call.param("id").parse().map_err(|_| ApiError::not_found())?;
    respond_with_one(&state, &access.project, |event| definition_id(access.project.id, &event.name) == id)
        .await
}

/// `GET P/event_definitions/by_name/`
pub async fn by_name(State(state): State<Calculation>, call: Call) -> ApiResult<Response> {
    let (access, []) = state.app.project(&call, READ_EVENT_DEFINITIONS, |_| []).await?;
    required(&call, "name")?;
    let name = call.query_value("name").unwrap_or_default();
    respond_with_one(&state, &access.project, |event| event.name == name).await
}

async fn respond_with_one(
    state: &Calculation,
    project: &Project,
    matches: impl Fn(&EventName) -> bool,
) -> ApiResult<Response> {
    let events = state.calculator.event_names(project).await?;
    let event = events.iter().find(|event| matches(event)).ok_or_else(ApiError::not_found)?;
    Ok(json(definition_json(project.id, event)))
}

fn definition_id(project: ProjectId, name: &str) -> Uuid {
    Uuid::new_v5(&NAMESPACE, format!("{project}:event:{name}").as_bytes())
}

fn definition_json(project: ProjectId, event: &EventName) -> Value {
    let instant = |micros| DateTime::from_timestamp_micros(micros).map(timestamp);
    object!({
        "id": definition_id(project, &event.name),
        "name": event.name,
        "owner": null,
        "description": null,
        "tags": [],
        "created_at": instant(event.first),
        "updated_at": null,
        "updated_by": null,
        "last_seen_at": instant(event.last),
        "last_updated_at": null,
        "verified": false,
        "verified_at": null,
        "verified_by": null,
        "hidden": false,
        "is_action": false,
        "action_id": null,
        "is_calculating": false,
        "last_calculated_at": null,
        "created_by": null,
        "post_to_slack": false,
        "default_columns": [],
        "volume_30_day": null,
        "query_usage_30_day": null,
    })
}

/// A field that a list is sorted by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SortKey {
    Name,
    NameLength,
    LastSeen,
    LastSeenDay,
    Created,
    CreatedDay,
}

impl SortKey {
    fn of(name: &str) -> Option<SortKey> {
        Some(match name {
            "name" => SortKey::Name,
            "last_seen_at" => SortKey::LastSeen,
            "last_seen_at::date" => SortKey::LastSeenDay,
            "created_at" => SortKey::Created,
            "created_at::date" => SortKey::CreatedDay,
            _ => return None,
        })
    }

    fn compare(self, a: &EventName, b: &EventName) -> Ordering {
        match self {
            SortKey::Name => a.name.cmp(&b.name),
            SortKey::NameLength => a.name.chars().count().cmp(&b.name.chars().count()),
            SortKey::LastSeen => a.last.cmp(&b.last),
            SortKey::LastSeenDay => day(a.last).cmp(&day(b.last)),
            SortKey::Created => a.first.cmp(&b.first),
            SortKey::CreatedDay => day(a.first).cmp(&day(b.first)),
        }
    }
}

fn day(micros: i64) -> Option<NaiveDate> {
    DateTime::from_timestamp_micros(micros).map(|at| at.date_naive())
}

/// The filter and the order of a list of event definitions.
struct EventDefinitionFilter {
    search: Option<String>,
    /// Only names with (`true`) or without (`false`) a leading `$`.
    is_of_vendor: Option<bool>,
    names: BTreeSet<String>,
    excluded: BTreeSet<String>,
    /// Only events seen after this, in microseconds since the epoch.
    seen_since: Option<i64>,
    /// The list is empty: it was filtered by verified or by tags, which no definition has.
    matches_none: bool,
    /// Sort keys, with whether each is descending.
    order: Vec<(SortKey, bool)>,
}

impl EventDefinitionFilter {
    fn parse(call: &Call) -> ApiResult<EventDefinitionFilter> {
        let search = text(call, "search")?.map(str::to_owned);
        let is_of_vendor = match text(call, "event_type")? {
            None | Some("event" | "all" | "action_event") => None,
            Some("event_custom") => Some(false),
            Some("event_posthog") => Some(true),
            Some(_) => {
                return Err(invalid("event_type", "An event type is event, event_custom or event_posthog."));
            }
        };
        boolean(call, "exclude_hidden")?;
        let is_fresh = boolean(call, "exclude_stale")? == Some(true);
        let seen_since = is_fresh.then(|| stale_before(call.now));
        let matches_none = boolean(call, "verified")? == Some(true) || !json_names(call, "tags")?.is_empty();
        let order = order(call, search.is_some())?;
        let (names, excluded) = (names(call, "names")?, json_names(call, "excluded_properties")?);
        Ok(EventDefinitionFilter { search, is_of_vendor, names, excluded, seen_since, matches_none, order })
    }

    fn matches(&self, event: &EventName) -> bool {
        !self.matches_none
            && contains_words(&event.name, self.search.as_deref())
            && self.is_of_vendor.is_none_or(|is| event.name.starts_with('$') == is)
            && (self.names.is_empty() || self.names.contains(&event.name))
            && !self.excluded.contains(&event.name)
            && self.seen_since.is_none_or(|since| event.last > since)
    }

    fn sort(&self, events: &mut [EventName]) {
        events.sort_by(|a, b| {
            let by = self.order.iter().map(|(key, is_descending)| {
                let order = key.compare(a, b);
                if *is_descending { order.reverse() } else { order }
            });
            by.fold(Ordering::Equal, Ordering::then).then_with(|| a.name.cmp(&b.name))
        });
    }
}

fn stale_before(now: DateTime<Utc>) -> i64 {
    (now - chrono::TimeDelta::days(STALE_DAYS)).timestamp_micros()
}

/// The order of the request. Default: the shortest name first if there is a search, then the latest day seen.
fn order(call: &Call, is_search: bool) -> ApiResult<Vec<(SortKey, bool)>> {
    let sent = call.query().iter().filter(|(name, _)| name == "ordering");
    let sent = sent.flat_map(|(_, value)| value.split(',')).map(str::trim).filter(|text| !text.is_empty());
    let mut order = Vec::new();
    for text in sent {
        let (name, is_descending) = text.strip_prefix('-').map_or((text, false), |name| (name, true));
        let key = SortKey::of(name).ok_or_else(|| {
            invalid("ordering", "An ordering is name, last_seen_at or created_at, with - before it or not.")
        })?;
        // A repeated field is ignored.
        if order.iter().all(|(known, _)| *known != key) {
            order.push((key, is_descending));
        }
    }
    if order.is_empty() {
        order.extend(is_search.then_some((SortKey::NameLength, false)));
        order.push((SortKey::LastSeenDay, true));
    }
    Ok(order)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn definitions_are_sorted_by_each_field_and_then_by_name() {
        let event =
            |name: &str, first: i64, last: i64| EventName { name: name.to_owned(), first, last, events: 1 };
        const DAY: i64 = 86_400_000_000;
        let mut events = [event("b", 1, 3 * DAY + 9), event("a", 2, 3 * DAY + 1), event("c", 0, 5 * DAY)];
        let mut sorted = |order: &[(SortKey, bool)]| {
            let filter = EventDefinitionFilter {
                search: None,
                is_of_vendor: None,
                names: BTreeSet::new(),
                excluded: BTreeSet::new(),
                seen_since: None,
                matches_none: false,
                order: order.to_vec(),
            };
            filter.sort(&mut events);
            events.iter().map(|event| event.name.clone()).collect::<String>()
        };
        assert_eq!(sorted(&[(SortKey::LastSeenDay, true)]), "cab");
        assert_eq!(sorted(&[(SortKey::LastSeen, true)]), "cba");
        assert_eq!(sorted(&[(SortKey::Created, false)]), "cba");
        assert_eq!(sorted(&[(SortKey::Name, false)]), "abc");
    }
}
