//! The rows of a project's sharing configurations and their tokens.
//!
//! Must stay true: pure; [`SharingTable`] has the rows as they were read.

use std::collections::BTreeMap;

use pennon_core::auth::{SharedRecord, SharedRecordId};
use pennon_core::store::keys::{self, ProjectId, RecordKind};
use pennon_core::store::{Item, Key};
use pennon_insights::Sharing;

use super::finding::{Findings, Rule, row_name};
use super::listed::{DashboardFacts, ListedTable};

/// A sharing configuration.
#[derive(Debug, Clone)]
pub struct SharingFacts {
    /// What it shares.
    pub id: SharedRecordId,
    /// Whether its token gives access.
    pub is_enabled: bool,
    /// Hash of the token.
    pub hash: String,
    /// The version of its item.
    pub item_version: u64,
}

/// The rows of sharing configurations.
#[derive(Debug, Default)]
pub struct SharingTable {
    /// The configurations.
    pub configurations: BTreeMap<Key, SharingFacts>,
    /// The rows of their tokens.
    pub tokens: BTreeMap<Key, SharedRecord>,
}

impl SharingTable {
    /// How often the configuration of a record was written.
    pub fn writes_of(&self, key: &Key) -> u64 {
        self.configurations.get(key).map_or(0, |it| it.item_version)
    }
}

/// Decodes a configuration.
pub fn decode(item: &Item) -> Result<SharingFacts, String> {
    let Sharing { enabled, hash, .. } = item.body().map_err(|e| e.to_string())?;
    let (kind, id) = match item.key.sk.strip_prefix("DASHBOARD#") {
        Some(id) => (SharedRecordId::Dashboard as fn(u64) -> SharedRecordId, id),
        None => (SharedRecordId::Insight as fn(u64) -> SharedRecordId, item.key.sk.as_str()),
    };
    let id = id.parse().map_err(|_| "its key has no id".to_owned())?;
    Ok(SharingFacts { id: kind(id), is_enabled: enabled, hash, item_version: item.version })
}

/// The key of the configuration of a record.
pub fn configuration_key(project: ProjectId, id: SharedRecordId) -> Key {
    match id {
        SharedRecordId::Insight(id) => keys::sharing(project, id),
        SharedRecordId::Dashboard(id) => keys::dashboard_sharing(project, id),
    }
}

/// Checks configurations and tokens: a record exists, and the row of a token exists exactly while sharing is enabled.
pub fn check(
    project: ProjectId,
    table: &SharingTable,
    insights: &dyn Fn(u64) -> bool,
    dashboards: &ListedTable<DashboardFacts>,
    findings: &mut Findings,
) {
    for (key, facts) in &table.configurations {
        let (kind, id, exists) = match facts.id {
            SharedRecordId::Insight(id) => (RecordKind::Insight, id, insights(id)),
            SharedRecordId::Dashboard(id) => {
                (RecordKind::Dashboard, id, dashboards.records.contains_key(&id))
            }
        };
        if !exists {
            findings.add_missing(&keys::record(project, kind, id), "sharing configuration");
            continue;
        }
        let token = keys::share(&facts.hash);
        let of_this = SharedRecord { project, id: facts.id };
        let stored = table.tokens.get(&token);
        if facts.is_enabled && stored.is_none() {
            let detail = format!("is missing: the row of the sharing token of {}", row_name(key));
            findings.add(Rule::UniqueRow, &token, detail);
        } else if facts.is_enabled && stored != Some(&of_this) {
            findings.add(Rule::UniqueRow, &token, format!("opens another record than {}", row_name(key)));
        } else if !facts.is_enabled && stored == Some(&of_this) {
            findings.add(
                Rule::UniqueRow,
                &token,
                format!("opens a record that {} does not share", row_name(key)),
            );
        }
    }
    for (id, dashboard) in &dashboards.records {
        let key = keys::dashboard_sharing(project, *id);
        let is_enabled = table.configurations.get(&key).is_some_and(|facts| facts.is_enabled);
        if dashboard.more.is_shared != is_enabled {
            let record = keys::record(project, RecordKind::Dashboard, *id);
            let detail =
                format!("is_shared is {}, and {} has {is_enabled}", dashboard.more.is_shared, row_name(&key));
            findings.add(Rule::Reference, &record, detail);
        }
    }
}
