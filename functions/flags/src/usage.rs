//! The usage dashboard of a flag: its making, its enrichment, and what follows a change of the flag's key.
//!
//! Must stay true: a dashboard, its insights and the flag that names it change in one transaction; of insights that people
//! have changed nothing is rewritten.

use chrono::{DateTime, Utc};
use pennon_core::error::ApiResult;
use pennon_core::model::User;
use pennon_core::store::keys::ProjectId;
use pennon_core::store::{StoreError, Table, Write};
use pennon_engine::flag::Flag;
use pennon_engine::flag::usage::{self, Question};
use pennon_insights::generated::{Generated, NewDashboard, NewInsight, Numbers, changes, reserve_dashboard};

/// What the dashboard calls the insights about calls of the flag.
const CALLED: &str = "called";
/// What it calls those about the feature behind the flag.
const ENRICHED: &str = "enriched";

/// Numbers for a dashboard and its insights, which a lost race does not use up.
#[derive(Debug)]
pub struct Reserved {
    dashboard: u64,
    called: Numbers,
    enriched: Numbers,
}

impl Reserved {
    /// Numbers for the dashboard of any flag: two insights, and two for applications that send enriched analytics.
    pub async fn reserve(records: &Table) -> ApiResult<Reserved> {
        let (dashboard, numbers) =
            tokio::try_join!(reserve_dashboard(records), Numbers::reserve(records, 4))?;
        let (called, enriched) = numbers.split(2);
        Ok(Reserved { dashboard, called, enriched })
    }

    /// `flag` with its new dashboard, and the writes of the dashboard and its insights.
    pub fn make(
        &self,
        project: ProjectId,
        flag: &Flag,
        user: &User,
        now: DateTime<Utc>,
    ) -> Result<(Flag, Vec<Write>), StoreError> {
        let dashboard = NewDashboard {
            id: self.dashboard,
            name: usage::dashboard_name(&flag.key),
            description: usage::dashboard_description(&flag.key),
            filters: usage::dashboard_filters(),
            created_by: user,
            created_at: now,
        };
        let mut generated = Generated::create(project, &dashboard);
        generated.add(CALLED, usage::called(&flag.key).map(insight), &self.called, user, now)?;
        if flag.has_enriched_analytics == Some(true) {
            generated.add(ENRICHED, usage::enriched(&flag.key).map(insight), &self.enriched, user, now)?;
        }
        let id = i64::try_from(self.dashboard).unwrap_or(i64::MAX);
        Ok((flag.with_usage_dashboard(id, now), generated.writes()?))
    }
}

fn insight(question: Question) -> NewInsight {
    NewInsight { name: question.name.to_owned(), description: question.description, query: question.query }
}

/// Why a dashboard is not enriched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The flag has none, or it is gone.
    NoDashboard,
    /// It has an enriched insight.
    Enriched,
    /// The application sends no enriched analytics.
    NoAnalytics,
}

impl Refusal {
    /// The text for people.
    pub fn text(self) -> &'static str {
        match self {
            Refusal::NoDashboard => "Usage dashboard not found",
            Refusal::Enriched => "Usage dashboard already has enriched data",
            Refusal::NoAnalytics => "No enriched analytics available for this feature flag",
        }
    }
}

/// The writes that add the enriched insights to the dashboard of `flag`, or why there are none. `numbers` are kept for
/// them, if there are any.
pub async fn enrich(
    records: &Table,
    project: ProjectId,
    flag: &Flag,
    numbers: &mut Option<Numbers>,
    user: &User,
    now: DateTime<Utc>,
) -> ApiResult<Result<Vec<Write>, Refusal>> {
    let Some(mut dashboard) = dashboard_of(records, project, flag).await? else {
        return Ok(Err(Refusal::NoDashboard));
    };
    if !dashboard.insights(records, ENRICHED).await?.is_empty() {
        return Ok(Err(Refusal::Enriched));
    }
    if flag.has_enriched_analytics != Some(true) {
        return Ok(Err(Refusal::NoAnalytics));
    }
    let numbers = match numbers {
        Some(numbers) => numbers,
        None => numbers.insert(Numbers::reserve(records, 2).await?),
    };
    dashboard.add(ENRICHED, usage::enriched(&flag.key).map(insight), numbers, user, now)?;
    Ok(Ok(dashboard.writes()?))
}

/// The writes that let the insights of the flag's dashboard look for its new key.
pub async fn follow_key(
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
    let Some(dashboard) = dashboard_of(records, project, after).await? else { return Ok(Vec::new()) };
    let mut changed = Vec::new();
    for made in dashboard.insights(records, CALLED).await? {
        let (name, description, query) = (made.name(), made.description(), made.query());
        if let Some((description, query)) =
            usage::after_rename(name, description, query, &before.key, &after.key)
        {
            changed.push(made.change(description, query, user, now)?);
        }
    }
    Ok(changes(project, changed))
}

async fn dashboard_of(records: &Table, project: ProjectId, flag: &Flag) -> ApiResult<Option<Generated>> {
    match flag.usage_dashboard.and_then(|id| u64::try_from(id).ok()) {
        Some(id) => Generated::read(records, project, id).await,
        None => Ok(None),
    }
}
