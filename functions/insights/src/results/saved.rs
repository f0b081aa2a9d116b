//! Lookup of saved insights by id or short id, for the command line.

use pennon_analytics::ParsedQuery;
use pennon_core::error::ApiResult;
use pennon_core::store::Table;
use pennon_core::store::keys::{self, ProjectId};
use pennon_filters::CalcResult;
use serde::Deserialize;

use super::parse_query;
use crate::insight::{self, Insight};

/// A saved insight.
#[derive(Debug, Clone)]
pub struct SavedInsight {
    /// Its id.
    pub id: u64,
    /// Its short id.
    pub short_id: String,
    /// Its name, else the name that a client generated.
    pub name: Option<String>,
    /// Its query.
    pub query: CalcResult<ParsedQuery>,
}

/// The row of a short id.
#[derive(Deserialize)]
struct ShortIdRow {
    id: u64,
}

/// The insight with this id or short id; `None` where there is none, or it was deleted.
pub async fn find(records: &Table, project: ProjectId, name: &str) -> ApiResult<Option<SavedInsight>> {
    let short = records.get(&keys::short_id(project, name)).await?;
    let id = match short {
        Some(item) => Some(item.body::<ShortIdRow>()?.id),
        None => name.parse::<u64>().ok(),
    };
    let Some(id) = id else { return Ok(None) };
    let Some(item) = records.get(&insight::key(project, id)).await? else { return Ok(None) };
    let insight: Insight = item.body()?;
    Ok((!insight.deleted).then(|| SavedInsight {
        id: insight.id,
        query: parse_query(&insight),
        name: insight.name.or(insight.derived_name),
        short_id: insight.short_id,
    }))
}
