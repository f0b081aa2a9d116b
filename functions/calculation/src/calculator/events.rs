//! A page of events, the newest first, and their persons.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::ops::ControlFlow;

use pennon_analytics::filter::{EventFilter, FilterableEvent};
use pennon_core::error::ApiResult;
use pennon_core::model::Project;
use pennon_eventstore::{EventKey, EventListBudget, EventListFilter, ListedEvent, PersonDetails};
use serde_json::Value;
use tokio::time::Instant;
use uuid::Uuid;

use super::execution::CancellationGuard;
use super::{Calculator, with_deadline};
use crate::errors::{engine_error, event_store_error};

/// A page ends after the event with which its properties exceed this many bytes of JSON, so that a response fits 6 MB.
const PAGE_BYTES: usize = 3_000_000;
/// Most events and bytes that are read for one page. A page whose filter matches too few of them ends there.
const BUDGET: EventListBudget = EventListBudget { events: 20_000, bytes: 64 << 20 };

/// The query of a page of events.
#[derive(Debug, Clone)]
pub struct ListQuery {
    /// The conditions that the event store applies.
    pub stored_filter: EventListFilter,
    /// Conditions on the properties.
    pub filter: Option<EventFilter>,
    /// Most events of the page.
    pub limit: usize,
}

/// A page of events.
#[derive(Debug, Default)]
pub struct EventsPage {
    /// The newest first.
    pub events: Vec<ListedEvent>,
    /// Their persons by id; those of whom nothing is known are left out.
    pub persons: HashMap<Uuid, PersonDetails>,
    /// The key after which the next page begins; `None` on the last page.
    pub next: Option<EventKey>,
}

/// An event, and the names of the project's group types.
struct EventOfProject<'a>(&'a ListedEvent, &'a [String]);

impl FilterableEvent for EventOfProject<'_> {
    fn name(&self) -> &str {
        &self.0.event.event
    }

    fn distinct_id(&self) -> &str {
        &self.0.event.distinct_id
    }

    fn property(&self, name: &str) -> Option<Cow<'_, Value>> {
        let properties = &self.0.event.properties;
        let index = name.strip_prefix("$group_").and_then(|index| index.parse::<usize>().ok());
        let of_type = index.and_then(|index| self.1.get(index));
        let key = of_type.and_then(|of_type| properties.get("$groups")?.get(of_type));
        match key {
            Some(Value::String(_)) => key.map(Cow::Borrowed),
            Some(Value::Null) | None => properties.get(name).map(Cow::Borrowed),
            Some(other) => Some(Cow::Owned(Value::from(other.to_string()))),
        }
    }
}

impl Calculator {
    /// A page of the events of a project.
    pub async fn list_events(
        &self,
        project: &Project,
        query: ListQuery,
        deadline: Instant,
    ) -> ApiResult<EventsPage> {
        let cancellation = CancellationGuard::until(deadline);
        let work = Box::pin(async {
            let _permit = self.turn().await?;
            let is_cancelled = cancellation.cancellation_check();
            let (mut events, mut bytes, mut filter_error) = (Vec::new(), 0, None);
            let take = |listed: ListedEvent| {
                let tested = EventOfProject(&listed, &project.group_types);
                let matches =
                    query.filter.as_ref().map_or(Ok(true), |filter| filter.fits(&tested, &is_cancelled));
                match matches {
                    Ok(false) => return ControlFlow::Continue(()),
                    Ok(true) => {}
                    Err(error) => {
                        filter_error = Some(error);
                        return ControlFlow::Break(());
                    }
                }
                bytes += serde_json::to_vec(&listed.event.properties).map_or(0, |text| text.len());
                events.push(listed);
                let is_full = events.len() >= query.limit || bytes >= PAGE_BYTES;
                if is_full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            };
            let filter = query.stored_filter.clone();
            let walked = self.events.list_newest_events(project.id, filter, BUDGET, take).await;
            let walked = walked.map_err(event_store_error)?;
            if let Some(error) = filter_error {
                return Err(engine_error(error));
            }
            tracing::debug!(
                project = project.id,
                examined = walked.examined,
                bytes_read = walked.bytes_read,
                "events listed"
            );
            let ids = events.iter().map(|listed| listed.person).collect::<BTreeSet<_>>();
            let ids = ids.into_iter().collect::<Vec<_>>();
            let known = self.events.persons(project.id, &ids).await.map_err(event_store_error)?;
            let known = known.into_iter().filter(|person| !person.distinct_ids.is_empty());
            let persons = known.map(|person| (person.id, person)).collect();
            Ok(EventsPage { events, persons, next: walked.next })
        });
        with_deadline(project, deadline, work).await
    }
}
