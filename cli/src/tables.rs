//! Publication of tables for other engines, after a command changed the live files.
//!
//! Must stay true: the tables of a project that has some are published again whatever the setting of this command is, as
//! they would name files that are going to be deleted, or data that was erased; a failure is a warning, because the
//! command is done and the next compaction publishes.

use std::time::Duration;

use chrono::Utc;
use pennon_core::config::publishes_tables;
use pennon_core::store::keys::ProjectId;
use pennon_eventstore::{EventStore, EventStoreError};
use pennon_iceberg::{PublicationMode, TablePublisher};

/// What a command did with events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventChange {
    /// It added events or wrote their files anew.
    Written,
    /// It erased events.
    Erased,
}

/// Publishes the tables of these projects, if `PENNON_ICEBERG` is `on` or they have tables. Also where the command has failed: it may
/// have changed events before.
pub async fn publish_tables(events: &EventStore, projects: &[ProjectId], change: EventChange) {
    let publisher = TablePublisher::new(events.clone());
    let mode = match change {
        EventChange::Written => PublicationMode::AtOnce,
        EventChange::Erased => PublicationMode::AfterErasure,
    };
    for project in projects {
        if let Err(error) = publish(&publisher, *project, mode).await {
            eprintln!(
                "pennon: the tables of project {project} could not be published: {error}. `pennon compact` or the next \
                 compaction repeats it"
            );
        }
    }
}

async fn publish(
    publisher: &TablePublisher,
    project: ProjectId,
    mode: PublicationMode,
) -> Result<(), EventStoreError> {
    let now = || Utc::now().timestamp_micros();
    // The setting of a deployment may be another one than that of this command, so the tables are looked for.
    if publisher.republish(project, mode, &now).await?.is_none() && publishes_tables() {
        publisher.publish(project, mode, &now, Duration::MAX).await?;
    }
    Ok(())
}
