//! The names of a project's events and properties.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use pennon_analytics::{SessionFieldType, session_fields};
use pennon_core::error::ApiResult;
use pennon_core::limits::calculation::SEARCHED_EVENTS;
use pennon_core::model::Project;
use pennon_eventstore::{
    EventListBudget, EventListFilter, EventListSink, EventName, GroupType, ListedEvent, PropertyNames,
    ValueType,
};
use tokio::time::Instant;

use super::{Calculator, with_deadline};
use crate::errors::event_store_error;

/// Most bytes of segments that are read for each name.
const SEARCHED_BYTES_MAX: u64 = 16 << 20;

/// The kind of object that has a property.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PropertyKind {
    /// Events.
    Event,
    /// Persons.
    Person,
    /// Sessions.
    Session,
    /// Groups of the type with this index.
    Group(usize),
}

impl PropertyKind {
    /// Every kind that the project has.
    pub fn all(project: &Project) -> impl Iterator<Item = PropertyKind> {
        let groups = (0..project.group_types.len()).map(PropertyKind::Group);
        [PropertyKind::Event, PropertyKind::Session, PropertyKind::Person].into_iter().chain(groups)
    }
}

/// The type of a property's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PropertyType {
    /// Texts.
    String,
    /// Numbers.
    Numeric,
    /// Booleans.
    Boolean,
    /// Instants.
    DateTime,
}

impl PropertyType {
    /// The name in responses.
    pub fn name(self) -> &'static str {
        match self {
            PropertyType::String => "String",
            PropertyType::Numeric => "Numeric",
            PropertyType::Boolean => "Boolean",
            PropertyType::DateTime => "DateTime",
        }
    }

    fn of(value: Option<ValueType>) -> Option<PropertyType> {
        match value {
            Some(ValueType::Text) => Some(PropertyType::String),
            Some(ValueType::Number) => Some(PropertyType::Numeric),
            Some(ValueType::Boolean) => Some(PropertyType::Boolean),
            Some(ValueType::Mixed) | None => None,
        }
    }
}

/// Collects the names of the properties of events.
#[derive(Default)]
struct NameCollector {
    names: BTreeSet<String>,
    /// Events of the current event name that were searched.
    searched: usize,
}

impl EventListSink for NameCollector {
    fn take(&mut self, listed: ListedEvent) -> ControlFlow<()> {
        self.names.extend(listed.event.properties.into_iter().map(|(name, _)| name));
        self.searched += 1;
        if self.searched < SEARCHED_EVENTS { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }
}

impl Calculator {
    /// The names of all events of a project, ascending.
    pub async fn event_names(&self, project: &Project) -> ApiResult<Vec<EventName>> {
        let work = Box::pin(async {
            let _permit = self.acquire_shared_permit().await?;
            self.events.event_names(project.id).await.map_err(event_store_error)
        });
        with_deadline(project, self.deadline(), work).await
    }

    /// The names of the properties of this kind, ascending, with the type of their values where they have one.
    pub async fn property_names(
        &self,
        project: &Project,
        kind: PropertyKind,
        deadline: Instant,
    ) -> ApiResult<Vec<(String, Option<PropertyType>)>> {
        let work = Box::pin(async {
            let _permit = self.acquire_shared_permit().await?;
            let names = match kind {
                PropertyKind::Event => self.events.event_property_names(project.id).await,
                PropertyKind::Person => self.events.person_property_names(project.id).await,
                PropertyKind::Session => return Ok(session_property_names()),
                PropertyKind::Group(index) => match project.group_types.get(index) {
                    Some(name) => {
                        let of = GroupType { index: index as u32, name: name.clone() };
                        self.events.group_property_names(project.id, &of).await
                    }
                    None => Ok(PropertyNames::default()),
                },
            };
            let names = names.map_err(event_store_error)?.0.into_iter();
            Ok(names.map(|(name, value)| (name, PropertyType::of(value))).collect())
        });
        with_deadline(project, deadline, work).await
    }

    /// The properties of the newest [`SEARCHED_EVENTS`] events of each of these names.
    pub async fn seen_properties(
        &self,
        project: &Project,
        names: &BTreeSet<String>,
        deadline: Instant,
    ) -> ApiResult<BTreeSet<String>> {
        let work = Box::pin(async {
            let _permit = self.acquire_shared_permit().await?;
            let mut seen = NameCollector::default();
            for name in names {
                let filter =
                    EventListFilter { names: Some([name.clone()].into()), ..EventListFilter::default() };
                let budget = EventListBudget { events: SEARCHED_EVENTS, bytes: SEARCHED_BYTES_MAX };
                seen.searched = 0;
                let walked = self.events.list_newest_events(project.id, filter, budget, seen).await;
                (seen, _) = walked.map_err(event_store_error)?;
            }
            Ok(seen.names)
        });
        with_deadline(project, deadline, work).await
    }
}

fn session_property_names() -> Vec<(String, Option<PropertyType>)> {
    let of = |(name, value): (&str, SessionFieldType)| {
        let of = match value {
            SessionFieldType::Text => PropertyType::String,
            SessionFieldType::Number => PropertyType::Numeric,
            SessionFieldType::Instant => PropertyType::DateTime,
        };
        (name.to_owned(), Some(of))
    };
    let mut names = session_fields().map(of).collect::<Vec<_>>();
    names.sort_unstable_by(|a, b| a.0.cmp(&b.0));
    names
}
