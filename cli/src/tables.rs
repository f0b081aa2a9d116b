//! Publication of tables for other engines, after a command changed the live files.
//!
//! Must stay true: the tables of a project that has some are published again whatever the setting of this command is, as
//! they would name files that are going to be deleted, or data that was erased; a failure is a warning, because the
//! command is done and the next compaction publishes.

use chrono::Utc;
use pennon_core::config::publishes_tables;
use pennon_core::store::keys::ProjectId;
use pennon_eventstore::{EventStore, EventStoreError};
use pennon_iceberg::TablePublisher;

/// Publishes the tables of these projects, if `PENNON_ICEBERG` is `on` or they have tables.
pub async fn publish_tables(events: &EventStore, projects: &[ProjectId]) {
    let publisher = TablePublisher::new(events.clone());
    for project in projects {
        if let Err(error) = publish(&publisher, *project).await {
            eprintln!(
                "pennon: the tables of project {project} could not be published: {error}. `pennon compact` or the next \
                 compaction repeats it"
            );
        }
    }
}

async fn publish(publisher: &TablePublisher, project: ProjectId) -> Result<(), EventStoreError> {
    let now = Utc::now().timestamp_micros();
    if publisher.republish(project, now).await?.is_none() && publishes_tables() {
        publisher.publish(project, now).await?;
    }
    Ok(())
}
