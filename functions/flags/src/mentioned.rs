//! Looking up what a body mentions: other flags, cohorts, dashboards.

use std::collections::BTreeSet;

use pennon_core::app::App;
use pennon_core::error::ApiResult;
use pennon_core::store::keys::{self, Kind, ProjectId};
use pennon_core::store::{Item, Key};
use pennon_engine::flag::mentions::Mentions;
use pennon_engine::flag::{CohortReference, FlagReference, References};
use serde_json::Value;

use crate::store::{Rows, number};

/// The records that a write refers to.
#[derive(Debug, Default)]
pub struct Mentioned {
    /// Flags and cohorts.
    pub references: References,
    /// Those of the mentioned dashboards that are there.
    pub dashboards: BTreeSet<i64>,
}

/// Looks up what `mentions` names. `rows` are the project's flags, where flags are mentioned.
pub async fn look_up(
    app: &App,
    project: ProjectId,
    mentions: &Mentions,
    rows: Option<&Rows>,
) -> ApiResult<Mentioned> {
    let mut found = Mentioned::default();
    let dashboards: Vec<i64> = mentions.dashboard_ids.iter().copied().filter(|id| *id > 0).collect();
    let mut pending_dashboards = dashboards.as_slice();
    loop {
        let (flags, cohorts) = mentions.unresolved(&found.references);
        for id in &flags {
            let row = rows.and_then(|rows| rows.find(*id));
            found.references.flags.insert(*id, row.map(FlagReference::from));
        }
        if flags.is_empty() && cohorts.is_empty() && pending_dashboards.is_empty() {
            return Ok(found);
        }
        let mut wanted: Vec<Key> = Vec::new();
        wanted.extend(cohorts.iter().map(|id| keys::record(project, Kind::Cohort, number(*id))));
        wanted
            .extend(pending_dashboards.iter().map(|id| keys::record(project, Kind::Dashboard, number(*id))));
        let items = if wanted.is_empty() { Vec::new() } else { app.store.records.batch_get(&wanted).await? };
        let mut items = items.iter();
        for id in cohorts {
            let item = items.next().and_then(Option::as_ref).filter(|_| id > 0);
            let cohort = item.map(cohort_reference).transpose()?.flatten();
            found.references.cohorts.insert(id, cohort);
        }
        for id in pending_dashboards {
            if let Some(Some(item)) = items.next()
                && item.body::<Value>()?["deleted"] != true
            {
                found.dashboards.insert(*id);
            }
        }
        pending_dashboards = &[];
    }
}

fn cohort_reference(item: &Item) -> ApiResult<Option<CohortReference>> {
    let cohort: Value = item.body()?;
    if cohort["deleted"] == true {
        return Ok(None);
    }
    let name = cohort["name"].as_str().unwrap_or_default();
    Ok(Some(CohortReference::read(name, cohort["is_static"] == true, &cohort["filters"])))
}
