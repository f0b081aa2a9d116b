//! A page of events, the newest first, and their persons.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::ops::ControlFlow;

use pennon_analytics::filter::{EventFilter, FilterableEvent};
use pennon_core::error::ApiResult;
use pennon_core::limits::calculation::{PAGE_BYTES, PAGE_BYTES_READ, PAGE_EVENTS_READ};
use pennon_core::model::Project;
use pennon_eventstore::{
    EventKey, EventListBudget, EventListFilter, EventListSink, ListedEvent, PersonDetails,
};
use pennon_filters::{CalcError, CalcResult, ComparisonBudget};
use serde_json::Value;
use tokio::time::Instant;
use uuid::Uuid;

use super::execution::CancellationGuard;
use super::{CalculationPermit, Calculator, with_deadline};
use crate::errors::{engine_error, event_store_error};

/// Most events and bytes that are read for one page. A page whose filter matches too few of them ends there.
const BUDGET: EventListBudget = EventListBudget { events: PAGE_EVENTS_READ, bytes: PAGE_BYTES_READ };

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

/// Collects the events of a page that pass its filter.
struct PageCollector {
    filter: Option<EventFilter>,
    limit: usize,
    group_types: Vec<String>,
    is_cancelled: Box<dyn Fn() -> bool + Send>,
    /// The comparisons that the page may still make.
    comparisons: ComparisonBudget,
    events: Vec<ListedEvent>,
    /// Bytes of the properties of these events as JSON.
    bytes: usize,
    /// The error of the filter that ended the page.
    error: Option<CalcError>,
    /// Held while a thread filters, even if the request is gone.
    _permit: CalculationPermit,
}

impl PageCollector {
    fn matches(&mut self, listed: &ListedEvent) -> CalcResult<bool> {
        let Some(filter) = &self.filter else { return Ok(true) };
        filter.fits(&EventOfProject(listed, &self.group_types), &mut self.comparisons, &self.is_cancelled)
    }
}

impl EventListSink for PageCollector {
    fn take(&mut self, listed: ListedEvent) -> ControlFlow<()> {
        match self.matches(&listed) {
            Ok(false) => return ControlFlow::Continue(()),
            Ok(true) => {}
            Err(error) => {
                self.error = Some(error);
                return ControlFlow::Break(());
            }
        }
        self.bytes += serde_json::to_vec(&listed.event.properties).map_or(0, |text| text.len());
        self.events.push(listed);
        let is_full = self.events.len() >= self.limit || self.bytes >= PAGE_BYTES;
        if is_full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
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
            let permit = self.acquire_shared_permit().await?;
            let page = PageCollector {
                filter: query.filter,
                limit: query.limit,
                group_types: project.group_types.clone(),
                is_cancelled: Box::new(cancellation.cancellation_check()),
                comparisons: ComparisonBudget::default(),
                events: Vec::new(),
                bytes: 0,
                error: None,
                _permit: permit.clone(),
            };
            let walked = self.events.list_newest_events(project.id, query.stored_filter, BUDGET, page).await;
            let (page, walked) = walked.map_err(event_store_error)?;
            if let Some(error) = page.error {
                return Err(engine_error(error));
            }
            let events = page.events;
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
            drop(permit);
            Ok(EventsPage { events, persons, next: walked.next })
        });
        with_deadline(project, deadline, work).await
    }
}
