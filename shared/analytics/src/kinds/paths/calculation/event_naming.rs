//! Which events are in the paths, and what names them.
//!
//! Must stay true: an event type is *named* if the query includes it, or if the query includes no types and does not exclude
//! it. Only a named type is named by its property or by the expression, all other events by the name of the event.

use pennon_filters::error::CalcResult;

use crate::compiler::Compiler;
use crate::kinds::paths::{EventType, PathsQuery};
use crate::scan::{ColumnKey, ColumnRef};
use crate::sql::CompiledExpression;

const PAGEVIEW: &str = "$pageview";
const SCREEN: &str = "$screen";

/// The events of a query and their names.
#[derive(Debug, Clone)]
pub(super) struct EventNaming {
    /// The selected types; `None` selects all events.
    selected: Option<SelectedTypes>,
    /// The column of URLs, if pageviews are named by it.
    url: Option<ColumnRef>,
    /// The column of screen names, if screens are named by it.
    screen: Option<ColumnRef>,
    /// What names other events.
    expression: Option<Box<CompiledExpression>>,
}

#[derive(Debug, Clone, Copy)]
struct SelectedTypes {
    pageviews: bool,
    screens: bool,
    custom_events: bool,
}

/// What names the events of a run.
pub(super) enum ItemSource<'a> {
    EventName,
    Column { key: &'a ColumnRef, is_url: bool },
    Expression(&'a CompiledExpression),
}

impl EventNaming {
    /// Decides about the event types of a query, and registers events and columns.
    pub(super) fn new(query: &PathsQuery, compiler: &mut Compiler<'_>) -> CalcResult<Self> {
        let has = |event_type: EventType| query.event_types.contains(&event_type);
        let types = SelectedTypes {
            pageviews: has(EventType::Pageview),
            screens: has(EventType::Screen),
            custom_events: has(EventType::Custom),
        };
        let selects_all = !types.pageviews && !types.screens && !types.custom_events;
        let is_named = |event_type: EventType| {
            has(event_type)
                || (query.event_types.is_empty() && !query.excluded_items.contains(event_type.name()))
        };
        if selects_all || types.custom_events {
            compiler.include_event(None);
        }
        for (is_selected, name) in [(types.pageviews, PAGEVIEW), (types.screens, SCREEN)] {
            if is_selected {
                compiler.include_event(Some(&name.to_owned()));
            }
        }
        let mut column = |event_type: EventType, key: &str| {
            if !is_named(event_type) || !(selects_all || has(event_type)) {
                return Ok(None);
            }
            let column = ColumnRef::Event(ColumnKey::Property(key.to_owned()));
            compiler.require_value(&column, "includeEventTypes").map(|()| Some(column))
        };
        let (url, screen) =
            (column(EventType::Pageview, "$current_url")?, column(EventType::Screen, "$screen_name")?);
        let expression = match &query.expression {
            Some(expression) if is_named(EventType::Expression) => {
                Some(Box::new(compiler.compile_expression(expression, "pathsHogQLExpression")?))
            }
            _ => None,
        };
        Ok(Self { selected: (!selects_all).then_some(types), url, screen, expression })
    }

    /// What names the events of this name; `None` if they are not in the paths.
    pub(super) fn source(&self, event: &str) -> Option<ItemSource<'_>> {
        let is_selected = self.selected.is_none_or(|types| match event {
            PAGEVIEW => types.pageviews,
            SCREEN => types.screens,
            other => types.custom_events && !other.starts_with('$'),
        });
        if !is_selected {
            return None;
        }
        Some(match (event, &self.url, &self.screen, &self.expression) {
            (PAGEVIEW, Some(key), ..) => ItemSource::Column { key, is_url: true },
            (SCREEN, _, Some(key), _) => ItemSource::Column { key, is_url: false },
            (.., Some(expression)) => ItemSource::Expression(expression),
            _ => ItemSource::EventName,
        })
    }
}
