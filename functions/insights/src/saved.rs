//! Saved insights by the names that people know them by, for callers without a request.

use pennon_core::error::ApiResult;
use pennon_core::store::Table;
use pennon_core::store::keys::{self, ProjectId};
use pennon_engine::{CalcResult, Parsed};
use serde::Deserialize;

use crate::numbers::question;
use crate::record::Insight;
use crate::store;

/// A saved insight.
#[derive(Debug, Clone)]
pub struct Saved {
    /// Its number.
    pub id: u64,
    /// Its short id.
    pub short_id: String,
    /// The name that its users gave it, or a client made up.
    pub name: Option<String>,
    /// The question that it is.
    pub question: CalcResult<Parsed>,
}

/// Where a short id leads.
#[derive(Deserialize)]
struct Place {
    id: u64,
}

/// The insight with this number or short id; none where there is none, or it was deleted.
pub async fn find(records: &Table, project: ProjectId, name: &str) -> ApiResult<Option<Saved>> {
    let short = records.get(&keys::short_id(project, name)).await?;
    let id = match short {
        Some(item) => Some(item.body::<Place>()?.id),
        None => name.parse::<u64>().ok(),
    };
    let Some(id) = id else { return Ok(None) };
    let Some(item) = records.get(&store::key(project, id)).await? else { return Ok(None) };
    let insight: Insight = item.body()?;
    Ok((!insight.deleted).then(|| Saved {
        id: insight.id,
        question: question(&insight),
        name: insight.name.or(insight.derived_name),
        short_id: insight.short_id,
    }))
}
