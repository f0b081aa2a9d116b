//! The usage dashboard of a flag: creating it, enriching it, and updating its insights when the flag key changes.
//!
//! Must stay true: a dashboard, its insights and the flag that refers to it change in one transaction; insights edited
//! by users are never rewritten.

use chrono::{DateTime, Utc};
use pennon_core::error::ApiResult;
use pennon_core::model::User;
use pennon_core::store::keys::ProjectId;
use pennon_core::store::{StoreError, Table, Write};
use pennon_flag_rules::Flag;
use pennon_flag_rules::flag::usage::{self, UsageInsight};
use pennon_insights::generated::{Generated, NewDashboard, NewInsight, Numbers, changes, reserve_dashboard};

/// Tag of the generated insights about calls of the flag.
const CALLED_INSIGHTS: &str = "called";
/// Tag of the generated insights about usage of the feature behind the flag.
const ENRICHED_INSIGHTS: &str = "enriched";

/// Reserved ids for a dashboard and its insights. They are reused when the write is retried.
#[derive(Debug)]
pub struct ReservedDashboardIds {
    dashboard_id: u64,
    called_ids: Numbers,
    enriched_ids: Numbers,
}

impl ReservedDashboardIds {
    /// Reserves the ids for the dashboard of one flag: two insights about calls, and two for applications that send
    /// enriched analytics.
    pub async fn reserve(records: &Table) -> ApiResult<ReservedDashboardIds> {
        let (dashboard_id, insight_ids) =
            tokio::try_join!(reserve_dashboard(records), Numbers::reserve(records, 4))?;
        let (called_ids, enriched_ids) = insight_ids.split(2);
        Ok(ReservedDashboardIds { dashboard_id, called_ids, enriched_ids })
    }

    /// `flag` with its new dashboard, and the writes of the dashboard and its insights.
    pub fn build(
        &self,
        project: ProjectId,
        flag: &Flag,
        user: &User,
        now: DateTime<Utc>,
    ) -> Result<(Flag, Vec<Write>), StoreError> {
        let dashboard = NewDashboard {
            id: self.dashboard_id,
            name: usage::dashboard_name(&flag.key),
            description: usage::dashboard_description(&flag.key),
            filters: usage::dashboard_filters(),
            created_by: user,
            created_at: now,
        };
        let mut generated = Generated::create(project, &dashboard);
        generated.add(
            CALLED_INSIGHTS,
            usage::called_insights(&flag.key).map(new_insight),
            &self.called_ids,
            user,
            now,
        )?;
        if flag.has_enriched_analytics == Some(true) {
            generated.add(
                ENRICHED_INSIGHTS,
                usage::enriched_insights(&flag.key).map(new_insight),
                &self.enriched_ids,
                user,
                now,
            )?;
        }
        let id = i64::try_from(self.dashboard_id).unwrap_or(i64::MAX);
        Ok((flag.with_usage_dashboard(id, now), generated.writes()?))
    }
}

fn new_insight(insight: UsageInsight) -> NewInsight {
    NewInsight { name: insight.name.to_owned(), description: insight.description, query: insight.query }
}

/// Why a dashboard cannot be enriched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EnrichError {
    /// The flag has no dashboard, or it was deleted.
    NoDashboard,
    /// The dashboard already has an enriched insight.
    AlreadyEnriched,
    /// The application sends no enriched analytics.
    NoEnrichedAnalytics,
}

impl EnrichError {
    /// The error message of the response.
    pub fn message(self) -> &'static str {
        match self {
            EnrichError::NoDashboard => "Usage dashboard not found",
            EnrichError::AlreadyEnriched => "Usage dashboard already has enriched data",
            EnrichError::NoEnrichedAnalytics => "No enriched analytics available for this feature flag",
        }
    }
}

/// The writes that add the enriched insights to the dashboard of `flag`, or the reason for refusing. `insight_ids`
/// keeps the reserved ids across retries.
pub async fn enrich(
    records: &Table,
    project: ProjectId,
    flag: &Flag,
    insight_ids: &mut Option<Numbers>,
    user: &User,
    now: DateTime<Utc>,
) -> ApiResult<Result<Vec<Write>, EnrichError>> {
    let Some(mut dashboard) = load_dashboard(records, project, flag).await? else {
        return Ok(Err(EnrichError::NoDashboard));
    };
    if !dashboard.insights(records, ENRICHED_INSIGHTS).await?.is_empty() {
        return Ok(Err(EnrichError::AlreadyEnriched));
    }
    if flag.has_enriched_analytics != Some(true) {
        return Ok(Err(EnrichError::NoEnrichedAnalytics));
    }
    let insight_ids = match insight_ids {
        Some(insight_ids) => insight_ids,
        None => insight_ids.insert(Numbers::reserve(records, 2).await?),
    };
    dashboard.add(
        ENRICHED_INSIGHTS,
        usage::enriched_insights(&flag.key).map(new_insight),
        insight_ids,
        user,
        now,
    )?;
    Ok(Ok(dashboard.writes()?))
}

/// The writes that update the insights of the flag's dashboard to its new key.
pub async fn update_dashboard_key(
    records: &Table,
    project: ProjectId,
    before: &Flag,
    after: &Flag,
    user: &User,
    now: DateTime<Utc>,
) -> ApiResult<Vec<Write>> {
    if before.key == after.key {
        return Ok(Vec::new());
    }
    let Some(dashboard) = load_dashboard(records, project, after).await? else { return Ok(Vec::new()) };
    let mut changed = Vec::new();
    for generated in dashboard.insights(records, CALLED_INSIGHTS).await? {
        let (name, description, query) = (generated.name(), generated.description(), generated.query());
        if let Some((description, query)) =
            usage::renamed_insight(name, description, query, &before.key, &after.key)
        {
            changed.push(generated.change(description, query, user, now)?);
        }
    }
    Ok(changes(project, changed))
}

async fn load_dashboard(records: &Table, project: ProjectId, flag: &Flag) -> ApiResult<Option<Generated>> {
    match flag.usage_dashboard.and_then(|id| u64::try_from(id).ok()) {
        Some(id) => Generated::read(records, project, id).await,
        None => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn generated_queries_are_valid_insight_queries() {
        for insight in usage::called_insights("a").into_iter().chain(usage::enriched_insights("a")) {
            pennon_analytics::kinds::validate_node(&insight.query).unwrap();
        }
    }
}
