//! A page of events, the newest first, and their persons.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::ops::ControlFlow;

use pennon_core::error::ApiResult;
use pennon_core::model::Project;
use pennon_engine::filter::{EventFilter, TestedEvent};
use pennon_eventstore::{EventKey, EventsWanted, ListedEvent, PersonInFull, WalkBudget};
use serde_json::Value;
use tokio::time::Instant;
use uuid::Uuid;

use super::run::Stop;
use super::{Calculator, in_time};
use crate::errors::{refusal, unreadable};

/// A page ends behind the event with which its properties have so many bytes of text, so that it can be answered.
const PAGE_BYTES: usize = 3_000_000;
/// How much is read for one page: where a filter finds fewer events than the page has room for, the page ends there.
const BUDGET: WalkBudget = WalkBudget { events: 20_000, bytes: 64 << 20 };

/// Which events a page shows.
#[derive(Debug, Clone)]
pub struct ListQuery {
    /// What the event store can select.
    pub wanted: EventsWanted,
    /// What their properties have to be.
    pub filter: Option<EventFilter>,
    /// How many at most.
    pub limit: usize,
}

/// A page of events.
#[derive(Debug, Default)]
pub struct EventsPage {
    /// The newest first.
    pub events: Vec<ListedEvent>,
    /// Their persons by id, as far as anything is known of them.
    pub persons: HashMap<Uuid, PersonInFull>,
    /// The place behind which the next page begins, where there is one.
    pub next: Option<EventKey>,
}

/// An event, and the names of the project's group types.
struct OfProject<'a>(&'a ListedEvent, &'a [String]);

impl TestedEvent for OfProject<'_> {
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
        let stop = Stop::at(deadline);
        let work = Box::pin(async {
            let _turn = self.turn().await?;
            let is_due = stop.is_due();
            let (mut events, mut bytes, mut refused) = (Vec::new(), 0, None);
            let take = |listed: ListedEvent| {
                let tested = OfProject(&listed, &project.group_types);
                let fits = query.filter.as_ref().map_or(Ok(true), |filter| filter.fits(&tested, &is_due));
                match fits {
                    Ok(false) => return ControlFlow::Continue(()),
                    Ok(true) => {}
                    Err(error) => {
                        refused = Some(error);
                        return ControlFlow::Break(());
                    }
                }
                bytes += serde_json::to_vec(&listed.event.properties).map_or(0, |text| text.len());
                events.push(listed);
                let is_full = events.len() >= query.limit || bytes >= PAGE_BYTES;
                if is_full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            };
            let wanted = query.wanted.clone();
            let walked = self.events.walk_newest_events(project.id, wanted, BUDGET, take).await;
            let walked = walked.map_err(unreadable)?;
            if let Some(error) = refused {
                return Err(refusal(error));
            }
            tracing::debug!(
                project = project.id,
                examined = walked.examined,
                bytes_read = walked.bytes_read,
                "events listed"
            );
            let ids = events.iter().map(|listed| listed.person).collect::<BTreeSet<_>>();
            let ids = ids.into_iter().collect::<Vec<_>>();
            let known = self.events.persons(project.id, &ids).await.map_err(unreadable)?;
            let known = known.into_iter().filter(|person| !person.distinct_ids.is_empty());
            let persons = known.map(|person| (person.id, person)).collect();
            Ok(EventsPage { events, persons, next: walked.next })
        });
        in_time(project, deadline, work).await
    }
}
