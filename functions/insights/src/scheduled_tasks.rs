//! What was noted to be done later, and is due: what follows the deletion of dashboards, and changes of long lists.
//!
//! Must stay true: a run may stop anywhere and be started again, or run twice at once; a note that fails does not keep
//! the others from their turn.

use std::time::Duration;

use chrono::{DateTime, Utc};
use pennon_core::error::ApiResult;
use pennon_core::store::keys::{self, Due};
use pennon_core::store::{Guard, Item, Query, Table, Write};
use tokio::time::Instant;

use crate::cohorts;
use crate::dashboards::removal;

/// Notes that are read in one step.
const AT_ONCE: usize = 100;

/// What a run did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Followed {
    /// Notes of which nothing is left.
    pub notes: usize,
    /// Notes that failed; the log says why.
    pub failed: usize,
    /// Whether time ran out before everything was done; the next run goes on.
    pub unfinished: bool,
}

/// Does what is due at `now`, for about `time`. At least one note is looked at.
pub async fn follow_due(records: &Table, now: DateTime<Utc>, time: Duration) -> ApiResult<Followed> {
    let deadline = Instant::now() + time;
    let mut run = Followed::default();
    let mut after: Option<String> = None;
    loop {
        let mut query = Query::partition(keys::DUE).limit(AT_ONCE);
        if let Some(after) = after.take() {
            query = query.after(after);
        }
        let notes = records.query(query).await?;
        let Some(last) = notes.last() else { break };
        after = Some(last.key.sk.clone());
        for note in &notes {
            if !keys::is_due(&note.key, now) {
                return Ok(run);
            }
            if run.notes + run.failed > 0 && Instant::now() >= deadline {
                run.unfinished = true;
                return Ok(run);
            }
            match Box::pin(follow(records, note)).await {
                Ok(()) => run.notes += 1,
                Err(error) => {
                    run.failed += 1;
                    tracing::error!(
                        note = note.key.sk,
                        cause = error.detail(),
                        "what is due could not be done"
                    );
                }
            }
        }
    }
    if run.notes > 0 {
        tracing::info!(?run, "did what was due");
    }
    Ok(run)
}

/// Does what a note says, and takes it away.
async fn follow(records: &Table, note: &Item) -> ApiResult<()> {
    match keys::due_of(&note.key) {
        Some(Due::Insights { project, dashboard }) => {
            removal::follow_insights(records, project, dashboard, note).await
        }
        Some(Due::Dashboard { project, dashboard }) => {
            removal::sweep_tiles(records, project, dashboard, &note.key).await
        }
        Some(Due::Members { project, cohort }) => cohorts::sweep(records, project, cohort, note).await,
        None => {
            tracing::error!(note = note.key.sk, "a note that says nothing is dropped");
            Ok(records.transact(vec![Write::Delete(note.key.clone(), Guard::None)]).await?)
        }
    }
}
