//! The summary row of an insight: the fields that lists filter and sort by.

use chrono::{DateTime, Utc};
use pennon_core::store::{Item, StoreError};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::flag_references::has_properties;
use super::record::Insight;
use crate::placement::tiles::current_dashboards;

/// The fields of an insight that a list needs before it reads the record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct InsightRow {
    /// Its id.
    pub id: u64,
    /// Its short id.
    pub short_id: String,
    /// Its name.
    pub name: Option<String>,
    /// The name that a client generated.
    pub derived_name: Option<String>,
    /// Its description.
    pub description: Option<String>,
    /// Sorted, lower case.
    pub tags: Vec<String>,
    /// Its position in lists.
    pub order: Option<i64>,
    /// Whether it is a favourite.
    pub favorited: bool,
    /// Whether it was saved on purpose.
    pub saved: bool,
    /// When it was created.
    pub created_at: DateTime<Utc>,
    /// Id of the user who created it.
    pub created_by: u64,
    /// When it was last written.
    pub updated_at: DateTime<Utc>,
    /// When its content last changed.
    pub last_modified_at: DateTime<Utc>,
    /// Dashboards of tiles that were not removed; they may have been deleted themselves.
    #[serde(default)]
    pub dashboards: Vec<u64>,
    /// `insight` of the stored filters.
    pub filters_insight: Option<String>,
    /// Kind of the stored query node; `None` without a query.
    pub query_kind: Option<String>,
    /// Kind of the node inside it.
    pub source_kind: Option<String>,
    /// Whether its query has a breakdown or property filters: only then it may refer to a flag.
    pub has_properties: bool,
    /// Size of the record in KiB, rounded up.
    pub kib: usize,
    /// Version of the record with which it was written.
    #[serde(skip)]
    pub item_version: u64,
}

impl InsightRow {
    /// The row of an insight whose record has `bytes`.
    pub fn new(insight: &Insight, bytes: usize) -> InsightRow {
        let query = insight.query.as_ref().and_then(Value::as_object);
        let source = query.and_then(|node| node.get("source")).and_then(Value::as_object);
        InsightRow {
            id: insight.id,
            short_id: insight.short_id.clone(),
            name: insight.name.clone(),
            derived_name: insight.derived_name.clone(),
            description: insight.description.clone(),
            tags: insight.tags.clone(),
            order: insight.order,
            favorited: insight.favorited,
            saved: insight.saved,
            created_at: insight.created_at,
            created_by: insight.created_by.id,
            updated_at: insight.updated_at,
            last_modified_at: insight.last_modified_at,
            dashboards: current_dashboards(&insight.tiles).collect(),
            filters_insight: insight.filters.get("insight").and_then(Value::as_str).map(str::to_owned),
            query_kind: query.and_then(kind),
            source_kind: source.and_then(kind),
            has_properties: has_properties(insight),
            kib: bytes.div_ceil(1024),
            item_version: 0,
        }
    }

    /// Decodes a row.
    pub fn from_item(item: &Item) -> Result<InsightRow, StoreError> {
        Ok(InsightRow { item_version: item.version, ..item.body()? })
    }

    /// Its approximate size in memory.
    pub fn bytes(&self) -> usize {
        let texts =
            [&self.name, &self.derived_name, &self.description, &self.filters_insight, &self.query_kind];
        let texts: usize = texts.into_iter().flatten().map(String::len).sum();
        size_of::<InsightRow>() + texts + self.tags.len() * 40 + self.dashboards.len() * 8 + 60
    }
}

fn kind(node: &Map<String, Value>) -> Option<String> {
    node.get("kind").and_then(Value::as_str).map(str::to_owned)
}
