//! A scan request, prepared for each source of events.

use std::collections::BTreeSet;
use std::sync::Arc;

use pennon_analytics::scan::{ColumnKey, EventSelection, ScanRequest};
use serde_json::Value;

use crate::blocks::BlockFilter;
use crate::event::PersonEvent;
use crate::memory::QueryMemory;

/// The property that holds the groups of an event, by the names of their types.
pub(crate) const GROUPS: &str = "$groups";
/// Prefix of the column names of groups, followed by the index of their type.
const GROUP_PREFIX: &str = "$group_";

/// A scan request with the origin of each column.
#[derive(Debug)]
pub(crate) struct CompiledRequest {
    pub request: ScanRequest,
    pub columns: Vec<(ColumnKey, Arc<ColumnSource>)>,
    /// Whether decoded rows are cached.
    pub caches_rows: bool,
}

/// Where the values of a column come from.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum ColumnSource {
    DistinctId,
    AllProperties,
    Property(String),
    /// The group of a type. An event whose `$groups` do not name the type may have the group as a property.
    Group {
        type_name: String,
        own: String,
    },
}

impl CompiledRequest {
    /// Compiles the request. `group_types` are the names of the group types, by index.
    pub(crate) fn new(request: &ScanRequest, group_types: &[String]) -> CompiledRequest {
        let origin = |key: &ColumnKey| match key {
            ColumnKey::DistinctId => ColumnSource::DistinctId,
            ColumnKey::AllProperties => ColumnSource::AllProperties,
            ColumnKey::Property(key) => match group_type(key, group_types) {
                Some(type_name) => ColumnSource::Group { type_name: type_name.clone(), own: key.clone() },
                None => ColumnSource::Property(key.clone()),
            },
        };
        let columns = request.columns.iter().map(|key| (key.clone(), Arc::new(origin(key)))).collect();
        CompiledRequest { request: request.clone(), columns, caches_rows: true }
    }

    /// The selected event names; none means all.
    pub(crate) fn names(&self) -> Option<&BTreeSet<String>> {
        match &self.request.events {
            EventSelection::All => None,
            EventSelection::Named(names) => Some(names),
        }
    }

    pub(crate) fn is_named(&self, event: &str) -> bool {
        self.names().is_none_or(|names| names.contains(event))
    }
}

impl ColumnSource {
    /// The value of the column for an event of a block.
    pub(crate) fn value(&self, row: &PersonEvent) -> Option<Value> {
        let properties = &row.event.properties;
        match self {
            ColumnSource::DistinctId => Some(Value::from(row.event.distinct_id.as_str())),
            ColumnSource::AllProperties => Some(Value::Object(properties.clone())),
            ColumnSource::Property(key) => properties.get(key).cloned(),
            ColumnSource::Group { type_name, own } => {
                let groups = properties.get(GROUPS);
                groups
                    .and_then(|groups| group_key(groups, type_name))
                    .or_else(|| properties.get(own).cloned())
            }
        }
    }
}

/// The filter for events in blocks. Their properties are reserved from `memory` while they exist as rows.
pub(crate) fn block_filter(requested: &Arc<CompiledRequest>, memory: &QueryMemory) -> BlockFilter {
    let (named, read) = (requested.clone(), requested.clone());
    let selects = move |key: &str| {
        read.columns.iter().any(|(_, origin)| match origin.as_ref() {
            ColumnSource::DistinctId => false,
            ColumnSource::AllProperties => true,
            ColumnSource::Property(requested) => requested == key,
            ColumnSource::Group { own, .. } => own == key || key == GROUPS,
        })
    };
    BlockFilter {
        event: Arc::new(move |event: &str| named.is_named(event)),
        from: requested.request.from,
        to: requested.request.to,
        property: Arc::new(selects),
        memory: Some(memory.clone()),
    }
}

fn group_type<'a>(key: &str, group_types: &'a [String]) -> Option<&'a String> {
    group_types.get(key.strip_prefix(GROUP_PREFIX)?.parse::<usize>().ok()?)
}

/// The key of the group of a type, always as text.
pub(crate) fn group_key(groups: &Value, type_name: &str) -> Option<Value> {
    match groups.get(type_name)? {
        Value::Null => None,
        Value::String(key) => Some(Value::from(key.as_str())),
        other => Some(Value::from(other.to_string())),
    }
}
